"""Training under mpiexec: any number of ranks gives what one process gives."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import processes
from pdnn.files import safetensors

pytestmark = pytest.mark.mpi
RANKS = Path(__file__).with_name("training_ranks.py")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_strategy_equals_serial(
    mpiexec: Callable[..., processes.Completed], ranks: int, tmp_path: Path
) -> None:
    done = mpiexec(ranks, ["-W", "ignore::UserWarning", RANKS, tmp_path], timeout=100)
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: all equal" in done.stdout


def test_train_py_gives_the_same_on_one_two_and_three_ranks(
    mpiexec: Callable[..., processes.Completed],
    run_python: Callable[..., processes.Completed],
    root: Path,
    tmp_path: Path,
) -> None:
    job = [root / "train.py", "--dtype", "float64", "--epochs", "1", "--out"]
    run_python([*job, tmp_path / "1"], timeout=100)
    for ranks in (2, 3):
        mpiexec(ranks, [*job, tmp_path / str(ranks)], timeout=100)
    want = safetensors.read(tmp_path / "1" / "model.safetensors")[0]
    history = json.loads((tmp_path / "1" / "history.json").read_text())["history"]
    for ranks in (2, 3):
        got = safetensors.read(tmp_path / str(ranks) / "model.safetensors")[0]
        for name, values in want.items():
            assert np.abs(got[name] - values).max() <= 1e-11 * np.abs(values).max()
        own = json.loads((tmp_path / str(ranks) / "history.json").read_text())["history"]
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            np.testing.assert_allclose(own[name], history[name], rtol=1e-9)
        assert (tmp_path / str(ranks) / "history.png").stat().st_size > 5000


def test_sigterm_ends_all_ranks_between_two_steps(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        "import os, numpy as np, pdnn\n"
        "from pdnn import models, nn, optim\n"
        "model = models.mlp([50, 40, 5], seed=0)\n"
        "x, y = np.ones((5000, 50), np.float32), np.arange(5000) % 5\n"
        "sgd = optim.SGD(model.parameters(), lr=0.1)\n"
        "trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy='ddp')\n"
        "class Tell(pdnn.callbacks.Callback):\n"
        "    def on_epoch_end(self, trainer, epoch, logs):\n"
        "        if epoch == 0: print('begins', os.getpid(), flush=True)\n"
        "try:\n"
        "    trainer.fit((x, y), 10**6, 100, callbacks=[Tell()], verbose=False)\n"
        "finally:\n"
        "    open(f'{__file__}.{pdnn.world().rank}', 'w').write(f'{trainer.step} steps')\n"
        "    pdnn.world().barrier()\n"  # mpiexec ends the others when one has ended
    )
    child = processes.start(processes.mpi_command(2, [script]))
    try:
        assert child.stdout is not None
        pids: list[int] = []
        while len(pids) < 2:
            line = child.stdout.readline()
            assert line, "the job has ended"
            pids += map(int, re.findall(r"begins (\d+)", line))
        for pid in pids:  # mpiexec itself would give them half a second
            os.kill(pid, signal.SIGTERM)
        child.communicate(timeout=60)
        assert child.returncode != 0
    finally:
        processes.stop(child)
    ends = [Path(f"{script}.{rank}").read_text() for rank in range(2)]
    assert ends[0] == ends[1] != "0 steps"
