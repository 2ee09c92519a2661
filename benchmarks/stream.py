"""A data set on disk beside the same one in memory: memory that a training holds, and the speed of its steps.

  python benchmarks/stream.py --gigabytes 1             # a minute
  python benchmarks/stream.py --gigabytes 4
  python benchmarks/stream.py --gigabytes 20 --rounds 0 # beyond memory: the stream alone, and what it holds

A file of random float32 samples, 1,024 numbers each, is written once (and stays with --file). The stream
trains first, one epoch of 1024-256-10 in batches of 256, shuffled by blocks; meanwhile a thread looks every
10 ms what the process holds, from /proc/self/status: RssAnon, which no file can give back, and RssFile, the
pages of the file. Then the samples are read into memory, and both train in turns, on an eighth of them a
turn, the other one first every second time. The speed is the median of the turns' ratios of seconds, memory
over stream; that of the processor's seconds counts all threads and leaves out other programs.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import process_time, sleep

import numpy as np

import pdnn
from pdnn import models, nn, optim
from pdnn.data import Dataset, Stream

FEATURES, CLASSES, BATCH = 1024, 10, 256
PARTS = 8


def write(file: Path, rows: int) -> None:
    """The samples: random, a quarter of a gigabyte at a time, the same ones again with a little noise."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(file, "w+", np.float32, (rows, FEATURES))
    part = rng.standard_normal((1 << 16, FEATURES), np.float32)
    for begin in range(0, rows, len(part)):
        x[begin : begin + len(part)] = part[: rows - begin] * np.float32(1 + begin / rows)
        x.flush()


class Watch(threading.Thread):
    """The largest RssAnon and RssFile while it runs, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = {"RssAnon": 0, "RssFile": 0}
        self._end = threading.Event()

    def run(self) -> None:
        """Looks every 10 ms."""
        while not self._end.is_set():
            status = Path("/proc/self/status").read_text()
            for name, most in self.most.items():
                (kilobytes,) = re.findall(rf"{name}:\s+(\d+) kB", status)
                self.most[name] = max(most, 1024 * int(kilobytes))
            sleep(0.01)

    def end(self) -> dict[str, int]:
        """What it saw."""
        self._end.set()
        self.join()
        return self.most


def epoch(data: Dataset, strategy: str) -> tuple[float, float]:
    """Seconds of an epoch's steps, and the processor's of all threads in a `fit`."""
    model = models.mlp([FEATURES, 256, CLASSES], seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    before = process_time()
    history = trainer.fit(data, 1, BATCH, verbose=False).history
    return history["seconds"][0], process_time() - before


def main() -> None:
    """Prints what a stream holds, and how fast it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of a file that is made (default 1)")
    parser.add_argument("--rounds", type=int, default=1, help="0: the stream alone")
    parser.add_argument("--strategy", default="serial")
    parser.add_argument("--file", type=Path, help="where the samples are, or shall be")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        file = options.file or Path(folder, "x.npy")
        if not file.exists():
            write(file, int(options.gigabytes * 2**30 / 4 / FEATURES))
        rows = len(np.load(file, mmap_mode="r"))
        stream = Stream(file, np.random.default_rng(1).integers(0, CLASSES, rows, dtype=np.int32))
        watch = Watch()
        watch.start()
        seconds, _ = epoch(stream, options.strategy)
        held = watch.end()
        print(f"{stream!r}, {stream.x.nbytes / 2**30:.1f} GB, {options.strategy}")
        print(
            f"held at most: {held['RssAnon'] / 2**20:.0f} MB, and {held['RssFile'] / 2**20:.0f} MB of files"
        )
        print(f"first epoch: {rows / seconds:,.0f} rows/s", flush=True)
        if options.rounds == 0:
            return
        memory = Dataset(np.array(stream.x), stream.y)
        wall, processor, best = [], [], [0.0, 0.0]
        for turn in range(PARTS * options.rounds):
            part = slice(turn % PARTS * rows // PARTS, (turn % PARTS + 1) * rows // PARTS)
            taken = np.zeros((2, 2))
            for side in (0, 1) if turn % 2 else (1, 0):
                taken[side] = epoch((stream, memory)[side][part], options.strategy)
                best[side] = max(best[side], (part.stop - part.start) / taken[side, 0])
            wall.append(taken[1, 0] / taken[0, 0])
            processor.append(taken[1, 1] / taken[0, 1])
        print(f"fastest turn: {best[0]:,.0f} rows/s of the stream, {best[1]:,.0f} rows/s in memory")
        print(f"speed over that in memory: {median(wall):.3f}")
        print(f"by the processor's seconds: {median(processor):.3f}")


if __name__ == "__main__":
    main()
