"""AVX2 and AVX-512 train with the same bits: no sum of these layers depends on the width of vectors."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

import pdnn

PROGRAM = """
import numpy as np
import pdnn
from pdnn import nn, optim

def networks(dtype):
    yield (784,), nn.Sequential(
        nn.Linear(784, 256), nn.Sigmoid(), nn.Linear(256, 70), nn.LayerNorm(70), nn.GELU(), nn.Dropout(0.2),
        nn.Linear(70, 10), dtype=dtype, seed=1)
    yield (1, 12, 12), nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 20, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(320, 10), dtype=dtype, seed=1)

rng = np.random.default_rng(0)
for dtype in ("float32", "float64"):
    for shape, model in networks(dtype):
        x, y = rng.normal(size=(150, *shape)).astype(dtype), rng.integers(0, 10, 150).astype(np.int32)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=1e-3),
                               strategy="serial", clip_norm=0.5)
        history = trainer.fit(pdnn.data.Dataset(x, y), epochs=2, batch_size=41)
        print(dtype, len(shape), model.fingerprint(), history.history["loss"][-1].hex())
"""


def test_avx2_and_avx512_train_with_the_same_bits(run_python: Callable[..., CompletedProcess[str]]) -> None:
    if "v4" not in pdnn._core.supported_isas():
        pytest.skip("this processor lacks AVX-512")
    lines = {
        isa: run_python(["-c", PROGRAM], env={"PDNN_ISA": isa}).stdout.splitlines() for isa in ("v3", "v4")
    }
    fingerprints = {isa: [line for line in shown if line.startswith("float")] for isa, shown in lines.items()}
    assert len(fingerprints["v3"]) == 4
    assert fingerprints["v3"] == fingerprints["v4"]
