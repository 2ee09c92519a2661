"""AVX2 and AVX-512 train a float32 network of Linear layers with the same bits."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

import pdnn

PROGRAM = """
import numpy as np
import pdnn
from pdnn import nn, optim

for seed in range(4):
    for strategy in ("serial", "serial/8"):
        rng = np.random.default_rng(seed)
        model = nn.Sequential(
            nn.Linear(784, 256), nn.Sigmoid(), nn.Linear(256, 70), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(70, 10), seed=1)
        x, y = rng.normal(size=(150, 784)).astype(np.float32), rng.integers(0, 10, 150).astype(np.int32)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=1e-3),
                               strategy=strategy, clip_norm=0.5)
        history = trainer.fit(pdnn.data.Dataset(x, y), epochs=2, batch_size=41, verbose=False)
        print(strategy, model.fingerprint(), history.history["loss"][-1].hex())
"""


def test_avx2_and_avx512_train_with_the_same_bits(run_python: Callable[..., CompletedProcess[str]]) -> None:
    if "v4" not in pdnn._core.supported_isas():
        pytest.skip("this processor lacks AVX-512")
    lines = {
        isa: run_python(["-c", PROGRAM], env={"PDNN_ISA": isa}).stdout.splitlines() for isa in ("v3", "v4")
    }
    assert len(set(lines["v3"])) == 8
    assert lines["v3"] == lines["v4"]
