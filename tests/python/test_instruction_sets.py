"""AVX2 and AVX-512 train with the same bits: every layer, both types of number, in reproducible mode."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

import pdnn

PROGRAM = """
import hashlib
import sys
import numpy as np
import pdnn
from pdnn import nn, optim


def mlp():
    return [
        nn.Linear(50, 45), nn.LayerNorm(45), nn.GELU(), nn.Linear(45, 40), nn.ELU(), nn.Sigmoid(),
        nn.Dropout(0.2), nn.Linear(40, 33), nn.Tanh(), nn.Linear(33, 29), nn.SiLU(), nn.Linear(29, 20),
        nn.LeakyReLU(), nn.Softplus(), nn.Linear(20, 11), nn.ReLU(), nn.Linear(11, 7)]


def block(channels):
    return nn.Residual(nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels, sync=True), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1)))


def cnn():
    return [
        nn.Conv2d(2, 9, 3, padding=1), nn.BatchNorm2d(9, sync=True), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(9, 18, 3), nn.GELU(), nn.AvgPool2d(2, stride=1), nn.Flatten(), nn.Linear(108, 7)]


def residual():
    return [
        nn.Conv2d(2, 9, 3), nn.Tanh(), block(9), nn.ReLU(), nn.Conv2d(9, 17, 3, stride=2), block(17),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(17, sync=True), nn.Linear(17, 7),
        nn.LogSoftmax()]


RULES = (
    lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    lambda params: optim.Adam(params, lr=1e-2, weight_decay=1e-3),
    lambda params: optim.AdamW(params, lr=1e-2),
    lambda params: optim.RMSprop(params, lr=1e-3, momentum=0.5, centered=True),
    lambda params: optim.Lion(params, lr=1e-3, weight_decay=0.1),
    lambda params: optim.SGD(params, lr=0.05),
)
ROWS, BATCH, CLASSES = 75, 33, 7
for seed in range(int(sys.argv[1])):
    rng = np.random.default_rng(seed)
    for make, shape in (mlp, (50,)), (cnn, (2, 12, 11)), (residual, (2, 12, 11)):
        for dtype in "float32", "float64":
            model = nn.Sequential(*make(), dtype=dtype, seed=seed)
            x, y = rng.normal(size=(ROWS, *shape)).astype(dtype), rng.integers(0, CLASSES, ROWS)
            loss = nn.CrossEntropyLoss()
            if make is residual:
                loss = nn.NLLLoss()
            elif seed % 2:
                y = rng.dirichlet(np.ones(CLASSES), ROWS).astype(dtype)
            rule, strategy = RULES[rng.integers(len(RULES))], rng.choice(["serial/8", "serial/3", "serial/1"])
            trainer = pdnn.Trainer(model, loss, rule(model.parameters()), strategy=strategy,
                                   clip_norm=rng.choice([None, 0.5]))
            history = trainer.fit(pdnn.data.Dataset(x, y), 2, BATCH, verbose=False).history
            outputs = hashlib.sha256(trainer.predict(x).tobytes() + model.flat_buffers.tobytes())
            print(make.__name__, dtype, type(trainer.optimizer).__name__, strategy, seed, model.fingerprint(),
                  outputs.hexdigest(), *(each.hex() for each in history["loss"]))
"""


def check(run_python: Callable[..., CompletedProcess[str]], seeds: int) -> None:
    """A line of each training: what was trained, and the bits of parameters, outputs and losses."""
    if "v4" not in pdnn._core.supported_isas():
        pytest.skip("this processor lacks AVX-512")
    avx2, avx512 = (
        run_python(["-c", PROGRAM, str(seeds)], env={"PDNN_ISA": isa}).stdout.splitlines()
        for isa in ("v3", "v4")
    )
    assert len(set(avx2)) == 6 * seeds
    assert avx2 == avx512


def test_avx2_and_avx512_train_with_the_same_bits(run_python: Callable[..., CompletedProcess[str]]) -> None:
    check(run_python, 4)


@pytest.mark.long
def test_many_trainings_have_the_same_bits(run_python: Callable[..., CompletedProcess[str]]) -> None:
    check(run_python, 60)
