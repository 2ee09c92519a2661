"""The data-parallel exercise under mpiexec: by hand and by the Trainer, as one process on joint batches."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Subset
from processes import Completed

pytestmark = pytest.mark.mpi

Mpiexec = Callable[..., Completed]

FEATURES = 128  # so that the data, which every process draws, are there at once


@functools.cache
def alone(ranks: int, reduce: str, steps: int, every: int) -> list[float]:
    """All ranks' batches as one, through the Trainer; summed gradients are a learning rate times as high."""
    seen, _ = pdnn.datasets.make_classification(
        n_samples=2000, n_train=1000, n_features=FEATURES, n_informative=FEATURES // 2
    )
    init = nn.init.kaiming_uniform()
    sizes = [(FEATURES, 256), (256, 256), (256, 256)]
    layers = [nn.Linear(a, b, bias=False, weight_init=init) for a, b in sizes]
    last = nn.Linear(256, 32, bias=False, weight_init=init)
    model = nn.Sequential(
        layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2], nn.Tanh(), last, seed=3, dtype="float64"
    )
    descent = optim.SGD(model.parameters(), lr=0.1 * (ranks if reduce == "sum" else 1))
    schedule = optim.LinearLR(descent, 1.0, 0.3, total_iters=1000)
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), descent, strategy="serial", schedule=schedule, schedule_per="step"
    )
    losses = []
    for step in range(steps):
        batches = [(ranks * step + rank) % 15 for rank in range(ranks)]
        rows = np.concatenate([np.arange(64) + 64 * batch for batch in batches])
        trainer.fit(Subset(seen, rows), 1, 64 * ranks, shuffle=False, verbose=False)
        if step % every == 0:
            losses.append(trainer.evaluate(seen)["loss"])
    return losses


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_ranks_equal_one_process_on_their_joint_batches(
    mpiexec: Mpiexec, run_python: Callable[..., Completed], root: Path, ranks: int
) -> None:
    options = ["--niters", "4", "--every", "3", "--train-size", "2000", "--dim-in", str(FEATURES)]
    options += ["--seed", "3", "--dtype", "float64"]
    script = [root / "examples" / "data_parallel.py", *options]
    if ranks == 2:  # the script starts them itself
        output = run_python([*script, "--world-size", "2"], timeout=110).stdout
    else:
        output = mpiexec(ranks, script, timeout=110).stdout
    assert f"'world_size': {ranks}" in output.splitlines()[0]
    assert "all ranks have the same data: True" in output
    assert output.count("all ranks are close to rank 0") == 4 * ranks
    runs = re.split(r"(\w+) of gradients, by (\w+), seed 3\n", output)[1:]
    assert [runs[k : k + 2] for k in range(0, 12, 3)] == [
        [reduce, way] for reduce in ("mean", "sum") for way in ("trainer", "hand")
    ]
    for reduce, _, text in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
        losses = [float(found) for found in re.findall(r"test_loss (\S+)", text)]
        np.testing.assert_allclose(losses, alone(ranks, reduce, 4, 3), rtol=0, atol=2e-4)
    apart = [float(found) for found in re.findall(r"by hand and by trainer differ by (\S+)", output)]
    assert len(apart) == 2 and max(apart) <= 1e-10


@pytest.mark.full_length
@pytest.mark.timeout(900)
def test_medians_over_five_seeds_lie_in_the_measured_ranges(mpiexec: Mpiexec, root: Path) -> None:
    output = mpiexec(2, [root / "examples" / "data_parallel.py", "--seeds", "5"], timeout=800).stdout
    assert output.count(" inside") == 4 * 5 and " outside" not in output, output


def test_a_parameter_that_one_rank_does_not_use_is_an_error_and_no_hang(
    mpiexec: Mpiexec, root: Path, tmp_path: Path
) -> None:
    script = tmp_path / "unused.py"
    script.write_text(
        "import sys, numpy as np, pdnn\n"
        f"sys.path.insert(0, {str(root / 'examples')!r})\n"
        "from data_parallel_by_hand import DataParallel\n"
        "first, second = (pdnn.nn.Sequential(pdnn.nn.Linear(4, n, bias=False)) for n in (4, 3))\n"
        "class Both(pdnn.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(seed=0)\n"
        "        self.first, self.second = first, second\n"
        "    def forward(self, x):\n"
        "        return self.second(self.first(x) if pdnn.world().rank == 0 else x)\n"
        "model = DataParallel(Both())\n"
        "for step in range(int(sys.argv[1])):\n"
        "    model(np.ones((2, 4), np.float32)).sum().backward()\n"
    )
    once = mpiexec(2, [script, "1"], check=False, env={"PDNN_TIMEOUT": "1"})
    assert once.returncode != 0 and "all_reduce: no answer from" in once.stdout
    twice = mpiexec(2, [script, "2"], check=False, timeout=50)  # less than ranks wait for each other
    assert twice.returncode != 0
    assert "rank 1 called all_reduce((4, 3) float32, op=mean), rank 0 all_reduce((4, 4)" in twice.stdout
