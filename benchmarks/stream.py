"""A data set on disk beside the same one in memory: memory that a training holds, and the speed of its steps.

  python benchmarks/stream.py --gigabytes 1             # a minute
  python benchmarks/stream.py --gigabytes 4 --rounds 2
  python benchmarks/stream.py --gigabytes 20 --rounds 0 # beyond memory: the stream alone, and what it holds

A file of random float32 samples, 1,024 numbers each, is written once (and stays with --file). The stream
trains first, one epoch of 1024-256-10 in batches of 256, shuffled by blocks; meanwhile a thread looks every
10 ms what the process holds, from /proc/self/status: RssAnon, which no file can give back, and RssFile, the
pages of the file. Then the samples are read into memory, and both train in turns, an epoch each. The speed
is the median of the rounds' ratios of seconds, memory over stream.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import sleep

import numpy as np

import pdnn
from pdnn import models, nn, optim
from pdnn.data import Dataset, Stream

FEATURES, CLASSES, BATCH = 1024, 10, 256


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


def epoch(data: Dataset, strategy: str) -> float:
    """Seconds of an epoch's steps."""
    model = models.mlp([FEATURES, 256, CLASSES], seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    return trainer.fit(data, 1, BATCH, verbose=False).history["seconds"][0]


def main() -> None:
    """Prints what a stream holds, and how fast it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3, help="0: the stream alone")
    parser.add_argument("--strategy", default="serial")
    parser.add_argument("--file", type=Path, help="where the samples are, or shall be")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        file = options.file or Path(folder, "x.npy")
        rows = int(options.gigabytes * 2**30 / 4 / FEATURES)
        if not file.exists():
            write(file, rows)
        stream = Stream(file, np.random.default_rng(1).integers(0, CLASSES, rows, dtype=np.int32))
        watch = Watch()
        watch.start()
        seconds = epoch(stream, options.strategy)
        held = watch.end()
        print(f"{stream!r}, {stream.x.nbytes / 2**30:.1f} GB, {options.strategy}")
        print(
            f"held at most: {held['RssAnon'] / 2**20:.0f} MB, and {held['RssFile'] / 2**20:.0f} MB of files"
        )
        print(f"first epoch: {rows / seconds:,.0f} rows/s", flush=True)
        if options.rounds == 0:
            return
        memory = Dataset(np.array(stream.x), stream.y)
        ratios = []
        for number in range(options.rounds):
            sides = [stream, memory] if number % 2 == 0 else [memory, stream]
            times = {id(side): epoch(side, options.strategy) for side in sides}
            ratios.append(times[id(memory)] / times[id(stream)])
            print(
                f"stream {rows / times[id(stream)]:,.0f} rows/s, "
                f"memory {rows / times[id(memory)]:,.0f} rows/s, ratio {ratios[-1]:.3f}",
                flush=True,
            )
        print(f"speed over that in memory: {median(ratios):.3f}")


if __name__ == "__main__":
    main()
