"""Kills a training that writes a checkpoint after every step, at random moments: what it leaves is whole.

As a script: ``checkpoint_kills.py KILLS FOLDER``. Every training begins where the one before was killed. Each
checkpoint found must be that of an uninterrupted training after as many steps, to the bit, and none may be
older than the one before.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

import pdnn
from pdnn import models, nn, optim
from pdnn.checkpoint import Content
from pdnn.checkpoint.folder import newest

X = np.random.default_rng(0).standard_normal((60, 10))
Y = np.arange(60) % 3
BATCH, STEPS, EPOCHS = 7, 9, 500


def tell(pipe: int) -> None:
    """From now on a byte says that a checkpoint is begun, and so the one before it written."""
    write = pdnn.checkpoint.Writer.write

    def telling(self: pdnn.checkpoint.Writer, content: Content) -> None:
        write(self, content)
        os.write(pipe, b".")

    pdnn.checkpoint.Writer.write = telling  # type: ignore[method-assign]


def train(epochs: int = EPOCHS, **options: object) -> pdnn.Trainer:
    """The training that is killed."""
    model = models.mlp([10, 8, 3], dtype="float64", seed=1)
    adam = optim.Adam(model.parameters(), lr=0.01)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy="serial", seed=3)
    trainer.fit((X, Y), epochs, BATCH, verbose=False, **options)  # type: ignore[arg-type]
    return trainer


def of_every_step(folder: Path) -> dict[int, bytes]:
    """What the checkpoint of each step must hold."""
    found = {}
    write = pdnn.checkpoint.Writer.write

    def look(self: object, content: Content) -> None:
        found[int(content.state["step"])] = b"".join(a.tobytes() for _, a in sorted(content.arrays.items()))

    pdnn.checkpoint.Writer.write = look  # type: ignore[assignment, method-assign]
    try:
        train(checkpoint=folder / "none", every_steps=1)
    finally:
        pdnn.checkpoint.Writer.write = write  # type: ignore[method-assign]
    return found


def main(kills: int, folder: Path) -> None:
    """Kills it so many times."""
    want = of_every_step(folder)
    assert len(want) == STEPS * EPOCHS
    began = time.perf_counter()
    train(1, checkpoint=folder / "first", every_steps=1)
    a_step = (time.perf_counter() - began) / STEPS  # most of it is the disk's
    moments, reached, seen = random.Random(0), 0, 0
    for _ in range(kills):
        hear, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                tell(told)
                train(checkpoint=folder, every_steps=1, keep=2, resume=True)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(told)
        for _ in range(moments.randrange(1, 4)):
            os.read(hear, 1)
        time.sleep(moments.uniform(0, a_step))
        os.kill(child, signal.SIGKILL)
        os.close(hear)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it ended before it was killed"
        found = newest(folder, warn=True)
        if found is not None:
            step = found[1].state["step"]
            assert step >= reached, f"after step {reached} was there, step {step} is"
            got = b"".join(a.tobytes() for _, a in sorted(found[1].arrays.items()))
            assert got == want[step], f"the checkpoint of step {step} holds something else"
            seen += step > reached
            reached = step
        if reached > STEPS * EPOCHS - 1000:
            shutil.rmtree(folder)
            reached = 0
    assert seen > kills // 4, "the trainings hardly got on"
    print(f"{kills} kills, {seen} of them after new checkpoints, the last one of step {reached}")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
