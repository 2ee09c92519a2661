"""libpdnn: installed, found by CMake, and used by examples/cpp, whose programs train what Python trains."""

from __future__ import annotations

import re
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset
from pdnn.models import load_model
from processes import run

ROWS = 300


@dataclass
class Installed:
    """An installed tree, the examples built against it, and digits in IDX files."""

    prefix: Path
    programs: Path
    data: Dataset

    def __call__(self, program: str, *arguments: str) -> str:
        """The output of an example, which gets to know nothing of Python."""
        without = {"PYTHONPATH": None, "VIRTUAL_ENV": None}
        return run([self.programs / program, *arguments], timeout=60, env=without, cwd=self.programs).stdout

    @property
    def library(self) -> Path:
        (found,) = self.prefix.glob("lib*/libpdnn.so")
        return found


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    built = sorted(root.glob("build/*/libpdnn.so"), key=lambda library: library.stat().st_mtime)
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


def test_the_shared_library_is_small(installed: Installed) -> None:
    assert installed.library.stat().st_size < 6e6
    assert installed.library.resolve().name == f"libpdnn.so.{pdnn.__version__}"
