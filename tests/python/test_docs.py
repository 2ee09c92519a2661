"""The pages of the site: each has its place, every public name has one, tables name what the code reads."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from modules import module_at


@pytest.fixture(scope="module")
def public_api(root: Path) -> ModuleType:
    return module_at(root / "docs" / "_ext" / "public_api.py")


def test_every_page_has_one_place(root: Path) -> None:
    docs = root / "docs"
    trees = re.findall(r"^```{toctree}\n(.*?)^```", (docs / "index.md").read_text(), re.MULTILINE | re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    pages = {path.stem for path in docs.glob("*.md")} - {"index"}
    outside = {entry for entry in listed if entry.startswith("../")}
    assert trees and sorted({*listed} - outside) == sorted(pages), "docs/index.md lists every page of docs/"
    assert len(listed) == len({*listed}), "and each once"
    assert all((docs / f"{entry}.md").exists() for entry in outside)


def test_the_picture_shows_the_recorded_figures(root: Path, tmp_path: Path) -> None:
    picture, drawn = module_at(root / "docs" / "picture.py"), tmp_path / "picture.svg"
    picture.main(["--output", str(drawn)])
    same = drawn.read_text() == (root / "docs" / "picture.svg").read_text()
    assert same, "the figures in benchmarks/README.md are others now: python docs/picture.py"
    assert len(drawn.read_bytes()) < 100_000
    with pytest.raises(ValueError, match="has no table with the column 'batch 1'"):
        picture.table("| | batch 2 |\n|---|--:|\n| pdnn | 1 |\n", "batch 1")


def test_every_public_module_is_listed(public_api: ModuleType) -> None:
    listed = public_api.listed_modules()
    assert len(listed) == len({*listed})
    missing = sorted(public_api.public_modules() - {*listed})
    assert not missing, f"docs/api.md lists every module with __all__; it lacks {missing}"


def test_every_public_name_has_a_page(public_api: ModuleType) -> None:
    """The build makes a page of each of these names, and fails if one is missing."""
    paged = {name for module in public_api.listed_modules() for name in public_api.public_names(module)}
    modules = {module.rpartition(".")[2] for module in public_api.listed_modules()}
    for module in public_api.public_modules():
        offered = {*getattr(importlib.import_module(module), "__all__", ())}
        assert offered <= paged | modules, f"{module}: {sorted(offered - paged - modules)}"
    assert public_api.pages()["pdnn.nn.layers.Linear"] == "pdnn.nn.Linear"


def test_no_two_pages_differ_in_case_alone(public_api: ModuleType) -> None:
    """File systems of macOS and Windows would keep one of them."""
    modules, others = public_api.listed_modules(), public_api.file_names()
    names = [f"{module}.{name}" for module in modules for name in public_api.public_names(module)]
    files = [others.get(name, name).lower() for name in names]
    assert others["pdnn.strategies.schedule"] == "pdnn.strategies.schedule-function"
    assert len(files) == len({*files})


def test_every_environment_variable_is_on_its_page(root: Path) -> None:
    python = [path.read_text() for path in (root / "python" / "pdnn").rglob("*.py")]
    core = [path.read_text() for path in (root / "cpp" / "pdnn").rglob("*.cpp")]
    read = {
        *re.findall(r"environ\b[^\n]*?\"(PDNN_\w+)\"", "\n".join(python)),
        *re.findall(r"(?:getenv|seconds\w*)\(\"(PDNN_\w+)\"", "\n".join(core)),
    }
    assert {"PDNN_THREADS", "PDNN_ISA"} <= read
    page = (root / "docs" / "environment.md").read_text()
    assert {name for name in read if f"`{name}`" not in page} == set()
