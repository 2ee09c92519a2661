"""The shape of the code: which folder may look at which, where two worlds meet, what importing costs."""

from __future__ import annotations

import ast
import compileall
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

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
    "codec": ["core", "kernels"],
    "parallel": ["core", "kernels", "threads", "nn", "optim", "comm", "codec"],
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
began = time.process_time()  # what it costs, not what else runs on this machine
import numpy
between, before = time.process_time(), set(sys.modules)
import pdnn
print(1e3 * (between - began), 1e3 * (time.process_time() - between))
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def test_import_is_cheap_and_loads_nothing_optional(run_python: Callable[..., Completed]) -> None:
    for folder in importlib.import_module("pdnn").__path__:  # as pip leaves them
        compileall.compile_dir(folder, quiet=2)
    outputs = [run_python(["-c", IMPORT_COST]).stdout.splitlines() for _ in range(7)]
    optional = {"cloudpickle", "IPython", "matplotlib", "mpi4py", "pooch", "scipy", "sklearn", "tqdm"}
    assert not optional & set(outputs[0][1].split())
    numpy, pdnn = (
        min(column) for column in zip(*(map(float, costs.split()) for costs, _ in outputs), strict=True)
    )
    assert pdnn <= 50 * max(1, numpy / 70), (
        "50 ms where NumPy takes 70, in proportion where the machine is slower"
    )


def public_modules() -> Iterator[ModuleType]:
    pdnn = importlib.import_module("pdnn")
    yield pdnn
    for module in pkgutil.iter_modules(pdnn.__path__):
        if not module.name.startswith("_"):
            yield importlib.import_module(f"pdnn.{module.name}")


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: what it lists, or else what it defines itself."""
    own = [
        name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__
    ]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def test_every_public_name_says_what_it_is() -> None:
    silent = []
    for module in public_modules():
        assert inspect.getdoc(module), module.__name__
        for name in public_names(module):
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isroutine(thing)):
                continue
            members = vars(thing).items() if inspect.isclass(thing) else ()
            promises = {name: thing} | {
                f"{name}.{member}": getattr(thing, member)
                for member, value in members
                if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
            }
            silent += [
                f"{module.__name__}.{path}"
                for path, promise in promises.items()
                if not inspect.getdoc(promise)
            ]
    assert not silent


MOST_QUESTIONS = 12


def questions_of_kind(tree: ast.AST, names: set[str], words: set[str]) -> Iterator[str]:
    """Code that asks of which kind a strategy is, in whatever form, instead of asking the strategy."""

    def names_a_kind(node: ast.AST) -> bool:
        return any({getattr(part, "id", ""), getattr(part, "attr", "")} & names for part in ast.walk(node))

    def spells_a_kind(node: ast.AST) -> bool:
        strings = [str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)]
        return any(re.split(r"[^a-z-]", string)[0] in words for string in strings)

    def is_strategy(node: ast.AST) -> bool:
        return bool(re.search(r"strategy|engine|\bgrid\b", ast.unparse(node)))

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kind]):
                found = names_a_kind(kind)
            case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[thing, *_]):
                found = is_strategy(thing) and "strategies." not in ast.unparse(thing)
            case ast.Call(func=ast.Attribute(value=thing, attr="startswith" | "endswith" | "removeprefix")):
                found = is_strategy(thing) and spells_a_kind(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
                found = any(is_strategy(argument) and spells_a_kind(node) for argument in node.args)
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                found = any(is_strategy(side) for side in sides) and any(
                    spells_a_kind(side) or (names_a_kind(side) and not isinstance(side, ast.Call))
                    for side in sides
                )
            case ast.MatchClass(cls=kind):
                found = names_a_kind(kind)
            case _:
                found = False
        if found:
            yield ast.unparse(node)


def test_strategies_are_asked_not_told_apart() -> None:
    strategies = importlib.import_module("pdnn.strategies")
    classes = [thing for thing in vars(strategies).values() if inspect.isclass(thing)]
    names = {kind.__name__ for kind in classes if issubclass(kind, strategies.Strategy)}
    words = {re.split(r"[^a-z-]", kind.pattern)[0] for kind in strategies.base.KINDS}
    assert {"Team", "ModelAveraging", "Grid"} <= names
    assert {"team", "average", "tp"} <= words
    wrong = """
isinstance(strategy, (Team, strategies.Pool))
type(strategy) is Grid
hasattr(self.strategy, "workers")
strategy == "serial"
str(strategy).startswith("ddp+")
match strategy:
    case Hogwild(): pass
"""
    assert len(list(questions_of_kind(ast.parse(wrong), names, words))) == 6, "the test sees every form"
    found = [
        f"{path.relative_to(ROOT)}: {test}"
        for path in sorted((ROOT / "python" / "pdnn").rglob("*.py"))
        for test in questions_of_kind(ast.parse(path.read_text()), names, words)
    ]
    assert len(found) <= MOST_QUESTIONS, "\n".join(["ask the strategy instead:", *found])
