"""What docs/install.md says is enough for all notebooks and examples: a fresh environment, home and cache.

    pytest --full-length -m full_length tests/notebooks/test_installed.py -s   # half an hour; prints minutes

MNIST comes from an HTTP server of the test, in the place of the network.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import processes
from data_root import real_data

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NO_DATA = "could not be downloaded"
EXAMPLES = {
    "gradient_codecs": (1, ["--network", "mlp", "--epochs", "1"]),
    "data_parallel": (2, ["--niters", "20", "--every", "10"]),
    "hogwild": (1, ["--sweep", "1", "2", "--epochs", "1"]),
    "matmul_collectives": (2, []),
    "model_pipeline_quantized": (2, ["--epochs", "2"]),
    "parameter_averaging": (2, ["--epochs", "1"]),
    "resnet9_cifar10": (2, ["--epochs", "1"]),
    "scatter_gather": (2, ["--fast"]),
    "sklearn_mlp": (1, ["--fast"]),
    "threadpool_minibatches": (1, ["--fast"]),
    "understanding_training": (1, ["--niters", "101"]),
}
"""Scripts, with the number of ranks and their words; the other files of examples/ are imported by these."""

pytestmark = [pytest.mark.full_length, pytest.mark.timeout(2400)]
Run = Callable[..., processes.Completed]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command of the fresh environment, in a copy of the clone, with hardly a variable set."""
    folder = tmp_path_factory.mktemp("installed")
    clone, home = folder / "clone", folder / "home"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "build", "*.so", "__pycache__", "out"))
    home.mkdir()
    processes.run([sys.executable, "-m", "venv", folder / "venv"], timeout=120)
    scripts = folder / "venv" / "bin"
    processes.run([scripts / "pip", "install", "--quiet", ".[notebooks,sklearn]"], cwd=clone, timeout=900)

    def run(command: list[str], **variables: str) -> processes.Completed:
        given = {"HOME": home, "PATH": f"{scripts}:/usr/bin:/bin", "OMPI_ALLOW_RUN_AS_ROOT": 1}
        given |= {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1, "MPLBACKEND": "agg", **variables}
        words = ["env", "-i", *(f"{name}={value}" for name, value in given.items()), *command]
        began = time.perf_counter()
        child = processes.run(words, cwd=clone / "notebooks", check=False, timeout=2300)
        print(
            f"{' '.join(command)}: {(time.perf_counter() - began) / 60:.1f} minutes, code {child.returncode}"
        )
        return child

    return run


@pytest.fixture(scope="module")
def mirror() -> Iterator[str]:
    folder = real_data("mnist")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_without_network_and_data_keeps_its_word(run: Run, path: Path, tmp_path: Path) -> None:
    """It runs to its end on what is in the package, or stops with clear words."""
    nowhere = "http://127.0.0.1:9"
    child = run(
        ["jupyter", "execute", path.name],
        http_proxy=nowhere,
        https_proxy=nowhere,
        XDG_CACHE_HOME=str(tmp_path),
    )
    if child.returncode:
        assert NO_DATA in child.stdout and "To bring it by hand" in child.stdout, child.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_full(run: Run, mirror: str, path: Path) -> None:
    child = run(["jupyter", "execute", path.name], PDNN_MIRROR=mirror)
    if child.returncode and f"cifar-10-binary.tar.gz {NO_DATA}" in child.stdout:
        pytest.skip("CIFAR-10 cannot be downloaded here")
    assert child.returncode == 0, child.stdout


def test_every_example_is_known() -> None:
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py") if "__main__" in path.read_text()}
    assert scripts == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(run: Run, mirror: str, name: str, tmp_path: Path) -> None:
    ranks, words = EXAMPLES[name]
    out = ["--out", str(tmp_path)] if "--out" in (ROOT / "examples" / f"{name}.py").read_text() else []
    launch = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
    child = run([*launch, "python", f"../examples/{name}.py", *words, *out], PDNN_MIRROR=mirror)
    if child.returncode and f"cifar-10-binary.tar.gz {NO_DATA}" in child.stdout:
        pytest.skip("CIFAR-10 cannot be downloaded here")
    assert child.returncode == 0, child.stdout
