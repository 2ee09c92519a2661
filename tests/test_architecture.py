"""The shape of the code: which folder may look at which, where two worlds meet, what importing costs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from processes import Completed

ROOT = Path(__file__).resolve().parents[1]
CPP = ROOT / "cpp"

# Each folder of cpp/pdnn may include itself and these; what stands here is also told in docs/architecture.md.
MAY_LOOK_AT = {
    "core": [],
    "kernels": ["core"],
    "threads": ["core"],
    "nn": ["core", "kernels", "threads"],
    "optim": ["core", "kernels", "threads"],
    "comm": ["core", "threads"],
    "parallel": ["core", "kernels", "threads", "nn", "optim", "comm"],
}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (CPP / folder).rglob("*.[ch]pp"))


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+["<](.*)[">]', path.read_text(), re.MULTILINE)


def named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(CPP)) for path in paths]


def test_every_folder_has_its_place() -> None:
    folders = {path.name for path in (CPP / "pdnn").iterdir() if path.is_dir()}
    assert folders == set(MAY_LOOK_AT)
    tested = {path.name for path in (CPP / "tests").iterdir() if path.is_dir()}
    assert tested <= folders, "cpp/tests mirrors cpp/pdnn"


@pytest.mark.parametrize("folder", MAY_LOOK_AT)
def test_a_folder_looks_only_at_those_before_it(folder: str) -> None:
    allowed = {folder, *MAY_LOOK_AT[folder]}
    wrong = [
        f"{path.relative_to(CPP)} includes {include}"
        for path in sources(f"pdnn/{folder}")
        for include in includes(path)
        if include.startswith("pdnn/") and include.split("/")[1] not in allowed
    ]
    assert not wrong


def test_includes_name_files_from_the_root() -> None:
    wrong = [
        f"{path.relative_to(CPP)} includes {include}"
        for path in sources("pdnn", "bindings", "tests")
        for include in re.findall(r'#\s*include\s+"(.*)"', path.read_text())
        if not (CPP / include).exists()
    ]
    assert not wrong


def test_mpi_is_named_in_one_source_file() -> None:
    users = [path for path in sources("pdnn", "bindings", "tests") if "mpi.h" in includes(path)]
    assert len(users) == 1, named(users)
    assert users[0].parent == CPP / "pdnn" / "comm"
    assert users[0].suffix == ".cpp"


def test_python_is_named_in_the_bindings_only() -> None:
    users = [
        path
        for path in sources("pdnn", "tests")
        if any(re.match(r"pybind11|Python\.h|numpy", include) for include in includes(path))
    ]
    assert not named(users)


def test_every_file_opens_with_what_it_is() -> None:
    def opens_well(path: Path) -> bool:
        lines = path.read_text().splitlines()
        if path.suffix == ".hpp":
            return lines[0] == "#pragma once" and lines[1].startswith("///")
        return lines[0].startswith("//")

    headers = [path for path in sources("pdnn", "bindings", "tests") if path.suffix == ".hpp"]
    tests = [path for path in sources("tests") if path.suffix == ".cpp"]
    assert not named([path for path in headers + tests if not opens_well(path)])


IMPORT_COST = """
import sys, time
import numpy
before = set(sys.modules)
began = time.perf_counter()
import pdnn
print(1e3 * (time.perf_counter() - began))
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def test_import_is_cheap_and_loads_nothing_optional(run_python: Callable[..., Completed]) -> None:
    outputs = [run_python(["-c", IMPORT_COST]).stdout.splitlines() for _ in range(7)]
    loaded = set(outputs[0][1].split())
    assert not loaded & {
        "cloudpickle",
        "IPython",
        "matplotlib",
        "mpi4py",
        "pooch",
        "scipy",
        "sklearn",
        "tqdm",
    }
    assert min(float(milliseconds) for milliseconds, _ in outputs) <= 50


def public_modules() -> Iterator[object]:
    pdnn = importlib.import_module("pdnn")
    yield pdnn
    for module in pkgutil.iter_modules(pdnn.__path__):
        if not module.name.startswith("_"):
            yield importlib.import_module(f"pdnn.{module.name}")


def test_every_public_name_says_what_it_is() -> None:
    silent = []
    for module in public_modules():
        where = module.__name__  # type: ignore[attr-defined]
        assert inspect.getdoc(module), where
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isroutine(thing)):
                continue
            if not inspect.getdoc(thing):
                silent.append(f"{where}.{name}")
            if inspect.isclass(thing):
                silent += [
                    f"{where}.{name}.{member}"
                    for member, value in vars(thing).items()
                    if not member.startswith("_")
                    and (inspect.isroutine(value) or isinstance(value, property))
                    and not inspect.getdoc(getattr(thing, member))
                ]
    assert not silent


def test_every_public_module_lists_its_names() -> None:
    without = [module.__name__ for module in public_modules() if not hasattr(module, "__all__")]  # type: ignore[attr-defined]
    assert not without
