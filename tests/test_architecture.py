"""The shape of the code: which folder may look at which, where two worlds meet, what importing costs."""

from __future__ import annotations

import ast
import compileall
import functools
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

# Each folder of cpp/pdnn may include itself and these; docs/architecture.md has the same table.
MAY_LOOK_AT = {
    "core": [],
    "kernels": ["core"],
    "threads": ["core"],
    "custom": [],
    "nn": ["core", "kernels", "threads", "custom"],
    "optim": ["core", "kernels", "threads"],
    "comm": ["core", "threads"],
    "codec": ["core", "kernels"],
    "data": ["core", "kernels", "threads", "nn", "comm"],
    "curvature": ["core", "kernels", "threads", "nn", "comm", "data"],
    "partition": ["core", "kernels", "threads", "nn", "optim", "comm"],
    "engine": ["core", "kernels", "threads", "nn", "optim", "comm", "codec", "data"],
    "reduce": ["core", "kernels", "threads", "nn", "optim", "comm", "codec", "data", "engine"],
    "strategy": [
        *("core", "kernels", "threads", "nn", "optim", "comm", "codec"),
        *("data", "partition", "engine", "reduce"),
    ],
    "library": [
        *("core", "kernels", "threads", "nn", "optim", "comm", "codec"),
        *("data", "partition", "engine", "reduce", "strategy"),
    ],
}
# The installed headers, which library implements; they see nothing else of the core.
PUBLIC = {
    "export.h": [],
    "descriptions.hpp": ["export.h"],
    "pdnn.hpp": ["descriptions.hpp"],
    "eigen.hpp": ["pdnn.hpp"],
    "mpi.hpp": ["pdnn.hpp"],
    "pdnn.h": ["export.h"],
}

# The same for each room of python/pdnn, a folder or a file; "pdnn" is its __init__.py, which offers the rest.
PYTHON_MAY_LOOK_AT = {
    "checks": [],
    "files": [],
    "drawing": ["files"],
    "progress": [],
    "moved": [],
    "deferred": [],
    "advice": [],
    "arrays": [],
    "fit_lock": [],
    "store": ["advice", "arrays", "checks", "fit_lock"],
    "recording": ["_core"],
    "graph": ["arrays", "store"],
    "tensor": ["advice", "arrays", "checks", "recording", "store", "graph"],
    "core": ["_core"],
    "_mpi": [],
    "comm": ["_core", "_mpi", "checks"],
    "launch": ["_core", "checks", "comm", "files"],
    "exchange": ["files"],
    "nn": [
        *("_core", "advice", "arrays", "checks", "core", "comm", "exchange", "files", "moved"),
        *("recording", "store", "graph", "tensor"),
    ],
    "models": ["checks", "exchange", "nn", "files", "moved"],
    "optim": ["_core", "advice", "checks", "core", "comm", "deferred", "store", "tensor", "nn"],
    "data": ["_core", "arrays", "checks", "core", "comm", "nn", "moved", "tensor"],
    "datasets": ["_core", "checks", "data", "files", "moved", "progress"],
    "exercises": ["checks", "core", "comm", "nn", "data", "datasets"],
    "codec": ["_core", "checks", "core", "comm", "moved"],
    "strategies": ["_core", "checks", "comm", "codec", "deferred", "drawing", "files", "moved"],
    "estimate": [
        *("_core", "core", "comm", "launch", "nn", "models", "optim", "data", "codec", "strategies"),
        *("checks", "deferred", "drawing", "files", "moved"),
    ],
    "metrics": ["store"],
    "history": ["_core", "advice", "codec", "drawing", "files", "moved", "estimate", "strategies"],
    "training": [
        *("_core", "checks", "core", "comm", "store", "nn", "optim", "data"),
        *("strategies", "estimate", "history", "metrics"),
    ],
    "checkpoint": ["_core", "checks", "core", "comm", "files", "store", "strategies", "history", "training"],
    "evaluation": ["core", "comm", "store", "data", "metrics", "training"],
    "nonfinite": ["data", "training"],
    "epochs": ["_core", "core", "comm", "store", "data", "history", "strategies", "training", "nonfinite"],
    "closures": ["_core", "store", "optim", "data", "training", "epochs"],
    "estimation": ["comm", "data", "strategies", "progress", "estimate", "evaluation"],
    "copies": ["_core", "core", "comm", "store", "training"],
    "settings": ["checks", "data", "training"],
    "fitting": [
        *("_core", "comm", "store", "data", "progress", "settings"),
        *("checkpoint", "epochs", "closures", "estimation", "copies"),
    ],
    "trainer": ["advice", "comm", "data", "history", "checkpoint", "estimation", "settings", "fitting"],
    "callbacks": ["checks", "deferred", "files", "metrics", "store", "training", "trainer"],
    "sklearn": [
        *("_core", "checks", "core", "comm", "store", "nn", "optim", "data", "strategies", "estimate"),
        *("training", "epochs", "trainer"),
    ],
    "ddp": [
        *("_core", "checks", "core", "comm", "moved", "store", "tensor"),
        *("nn", "models", "optim", "data", "codec"),
    ],
    "parallel": ["comm", "ddp", "exercises", "strategies"],
    "pdnn": [
        *("_core", "comm", "recording", "tensor", "nn", "models", "optim", "data", "datasets", "codec"),
        *("strategies", "estimate", "trainer", "callbacks", "checkpoint", "ddp", "exercises", "parallel"),
        *("launch", "deferred"),
    ],
    "course": [
        *("_core", "comm", "files", "nn", "models", "optim", "data", "exercises", "strategies", "trainer"),
        "pdnn",
    ],
    "sweep": ["_core", "comm", "files", "launch", "strategies", "history"],
    "report": ["drawing", "files", "history", "progress", "sweep"],
    "cli": [
        *("_core", "comm", "files", "nn", "models", "optim", "data", "datasets", "strategies", "estimate"),
        *("exercises", "launch", "course", "sweep", "report", "metrics", "checkpoint", "progress", "history"),
        "pdnn",
    ],
    "__main__": ["cli"],
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
    allowed = {folder, *MAY_LOOK_AT[folder], *(PUBLIC if folder == "library" else ())}
    wrong = [
        f"{path.relative_to(CPP)} includes {include}"
        for path in sources(f"pdnn/{folder}")
        for include in includes(path)
        if include.startswith("pdnn/") and include.split("/")[1] not in allowed
    ]
    assert not wrong


def test_installed_headers_look_at_each_other_only() -> None:
    headers = {path.name: path for path in (CPP / "pdnn").iterdir() if path.is_file()}
    assert set(headers) == set(PUBLIC)
    for name, path in headers.items():
        inner = [include.removeprefix("pdnn/") for include in includes(path) if include.startswith("pdnn/")]
        assert set(inner) <= set(PUBLIC[name]), name


def test_mpi_is_named_in_one_file_of_its_own_module_and_for_users() -> None:
    """Files named mpi_* go into that module and libpdnn_mpi only."""
    room = CPP / "pdnn" / "comm"
    users = [path for path in sources("pdnn", "bindings", "tests") if "mpi.h" in includes(path)]
    assert users == [room / "mpi_call.hpp", CPP / "pdnn" / "mpi.hpp"], named(users)
    headers = {"pdnn/comm/mpi_call.hpp", "pdnn/comm/mpi_notices.hpp"}
    users = [path for path in sources("pdnn", "bindings", "tests") if headers & {*includes(path)}]
    assert {path.parent for path in users} == {room}
    assert all(path.name.startswith("mpi_") for path in users), named(users)
    users = [path for path in sources("pdnn", "bindings", "tests") if "pdnn/mpi.hpp" in includes(path)]
    assert named(users) == ["pdnn/library/mpi_ranks.cpp"]


def test_python_is_named_in_the_bindings_and_for_users_only() -> None:
    users = [
        path
        for path in sources("pdnn", "tests")
        if any(re.match(r"pybind11|Python\.h|numpy", include) for include in includes(path))
    ]
    assert named(users) == ["pdnn/custom/python.hpp"]
    assert not [path for path in sources("pdnn") if "pdnn/custom/python.hpp" in includes(path)]


def test_eigen_is_named_where_it_solves_where_it_checks_and_for_users() -> None:
    users = [
        path
        for path in sources("pdnn", "bindings", "tests")
        if any(include.startswith("Eigen/") for include in includes(path))
    ]
    assert named(users) == ["pdnn/curvature/impl/solvers.hpp", "pdnn/eigen.hpp", "tests/nn/eigen_test.cpp"]
    solvers = named([path for path in sources("pdnn") if "pdnn/curvature/impl/solvers.hpp" in includes(path)])
    assert solvers == ["pdnn/curvature/solvers_v2.cpp", "pdnn/curvature/solvers_v3.cpp"]


def test_every_file_opens_with_what_it_is() -> None:
    def opens_well(path: Path) -> bool:
        lines = path.read_text().splitlines()
        if path.suffix == ".hpp":
            return lines[0] == "#pragma once" and lines[1].startswith("///")
        return lines[0].startswith("//")

    headers = [path for path in sources("pdnn", "bindings", "tests") if path.suffix == ".hpp"]
    tests = [path for path in sources("tests") if path.suffix == ".cpp"]
    assert not named([path for path in headers + tests if not opens_well(path)])


def modules() -> dict[str, Path]:
    """Python's modules by their dotted names."""
    found = {}
    for path in sorted((ROOT / "python" / "pdnn").rglob("*.py")):
        parts = path.relative_to(ROOT / "python").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, known: set[str]) -> set[str]:
    """Modules of pdnn that code imports: anywhere, for types only, or by name where it needs them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names) if module:
                parts = {f"{module}.{alias.name}" for alias in names}
                found |= {part if part in known else module for part in parts}
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name))]):
                found.add(name)
    return {name for name in found if name.split(".")[0] == "pdnn"}


@functools.cache
def arrows() -> dict[str, set[str]]:
    """What each module of Python looks at."""
    paths = modules()
    known = {*paths, "pdnn._core"}
    return {name: imports(ast.parse(path.read_text()), known) - {name} for name, path in paths.items()}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "pdnn"


def test_every_import_is_seen() -> None:
    code = """
import pdnn.a
from pdnn import b, name
if TYPE_CHECKING:
    from pdnn.c import Name
def function():
    from pdnn.d.e import name
    import_module("pdnn.f")
"""
    found = imports(ast.parse(code), {"pdnn.b"})
    assert found == {"pdnn.a", "pdnn.b", "pdnn", "pdnn.c", "pdnn.d.e", "pdnn.f"}


def test_every_room_has_its_place() -> None:
    assert {room(name) for name in modules()} == set(PYTHON_MAY_LOOK_AT)
    before = {"_core"}
    for name, allowed in PYTHON_MAY_LOOK_AT.items():
        assert set(allowed) <= before, f"{name} stands below what it looks at"
        before.add(name)
    used = {(room(name), room(other)) for name, others in arrows().items() for other in others}
    unused = {(name, other) for name, allowed in PYTHON_MAY_LOOK_AT.items() for other in allowed} - used
    assert not unused, "rooms do not look at these"


def test_a_room_looks_only_at_those_before_it() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in arrows().items()
        for other in sorted(others)
        if room(other) not in {room(name), *PYTHON_MAY_LOOK_AT[room(name)]}
    ]
    assert not wrong


def test_no_module_imports_in_a_circle() -> None:
    looks_at = {name: others & modules().keys() for name, others in arrows().items()}
    while free := [name for name, others in looks_at.items() if not others & looks_at.keys()]:
        for name in free:
            del looks_at[name]
    assert not looks_at, "these, or some of these, import each other"


def test_no_file_is_long() -> None:
    code = [*sources("pdnn", "bindings"), *(ROOT / "python" / "pdnn").rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in code}
    assert lengths and not {path: count for path, count in lengths.items() if count > 400}


def test_the_docs_have_these_folders() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|([\w ]*)\| .* \|$", text, re.MULTILINE))
    assert {folder: others.split() for folder, others in rows.items()} == MAY_LOOK_AT
    rooms = re.findall(r"^\| ((?:`\w+` ?)+) \| [^|]* \|$", text, re.MULTILINE)
    assert sorted(" ".join(rooms).replace("`", "").split()) == sorted({*PYTHON_MAY_LOOK_AT} - {"pdnn"})


def test_docs_are_wrapped() -> None:
    """Tables, code and lone links may be longer."""
    code = re.compile(r"^```.*?^```|(?<=\n\n)( {4}[^\n]*\n)+", re.MULTILINE | re.DOTALL)
    docs = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]
    long = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in docs
        for line in code.sub("", path.read_text()).splitlines()
        if len(line) > 100 and not re.match(r"\||\S+$", line)
    ]
    assert docs and not long, "\n".join(long)


IMPORT_COST = """
import sys, time
began = time.thread_time()  # what it costs, not what else runs on this machine, OpenBLAS's threads included
import numpy
between, before = time.thread_time(), set(sys.modules)
import pdnn
print(1e3 * (between - began), 1e3 * (time.thread_time() - between))
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def test_import_is_cheap_and_loads_nothing_optional(run_python: Callable[..., Completed]) -> None:
    for folder in importlib.import_module("pdnn").__path__:  # as pip leaves them
        compileall.compile_dir(folder, quiet=2)
    as_usual = {"OMP_NUM_THREADS": None}  # NumPy's import with its threads, as a user has it
    optional = {"cloudpickle", "IPython", "matplotlib", "mpi4py", "onnx", "onnx_ir", "pooch", "scipy"}
    optional |= {"sklearn", "tqdm"}
    ratios: list[float] = []
    while len(ratios) < 30 and (not ratios or ratios[-1] > 50 / 70):  # what else runs disturbs most of them
        costs, loaded = run_python(["-c", IMPORT_COST], env=as_usual).stdout.splitlines()
        assert not optional & set(loaded.split())
        numpy, pdnn = map(float, costs.split())
        ratios.append(pdnn / max(70, numpy))
    assert ratios[-1] <= 50 / 70, (
        f"50 ms where NumPy takes 70, in proportion where the machine is slower; got {ratios}"
    )


def test_completion_offers_names_that_were_not_asked_for_yet(run_python: Callable[..., Completed]) -> None:
    code = "import {0} as m; print(sorted(set(m.__all__) - set(dir(m))))"
    for name in ("pdnn", "pdnn.callbacks", "pdnn.estimate", "pdnn.optim", "pdnn.strategies"):
        assert run_python(["-c", code.format(name)]).stdout == "[]\n", name


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


MOST_QUESTIONS = 4  # of Engine and Strategy, the bases


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
