"""The data-parallel loop by hand under mpiexec: its losses are those of one process on the joint batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Subset
from processes import Completed

Mpiexec = Callable[..., Completed]


def alone(steps: int, every: int) -> list[float]:
    """Both ranks' batches as one, through the Trainer; summed gradients are a doubled learning rate."""
    seen, _ = pdnn.datasets.make_classification(n_samples=2000, n_train=1000)
    init = nn.init.kaiming_uniform()
    layers = [nn.Linear(a, b, bias=False, weight_init=init) for a, b in [(1024, 256), (256, 256), (256, 256)]]
    last = nn.Linear(256, 32, bias=False, weight_init=init)
    model = nn.Sequential(
        layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2], nn.Tanh(), last, seed=3, dtype="float64"
    )
    descent = optim.SGD(model.parameters(), lr=0.2)
    schedule = optim.LinearLR(descent, 1.0, 0.3, total_iters=1000)
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), descent, strategy="serial", schedule=schedule, schedule_per="step"
    )
    losses = []
    for step in range(steps):
        rows = np.concatenate([np.arange(64) + (2 * step + rank) % 15 * 64 for rank in (0, 1)])
        trainer.fit(Subset(seen, rows), 1, 128, shuffle=False, verbose=False)
        if step % every == 0:
            losses.append(trainer.evaluate(seen)["loss"])
    return losses


@pytest.mark.mpi
def test_two_ranks_equal_one_on_their_joint_batches(mpiexec: Mpiexec, root: Path) -> None:
    pytest.importorskip("sklearn", reason="draws the data")
    script = root / "examples" / "data_parallel_by_hand.py"
    options = ["--sum", "--steps", "5", "--every", "2", "--samples", "2000", "--seed", "3"]
    output = mpiexec(2, [script, *options, "--dtype", "float64"]).stdout  # float32's rounding grows too fast
    losses = [float(found) for found in re.findall(r"test_loss (\S+)", output)]
    np.testing.assert_allclose(losses, alone(5, 2), rtol=0, atol=2e-4)
    assert output.count("all ranks are close to rank 0") == 2
