"""Whole jobs through the public interface, beside what their steps alone would take, and beside peers.

python benchmarks/jobs.py [--blocks 10] [--peers numpy,jax,jax-0.4.31,torch] [--json FILE]

* An epoch of MNIST (60,000 images, bytes as they are in the files, shuffled, batch 105, float32) against 572
  times the bare step, and the most memory that it takes. Without MNIST in the folder mnist/ of PDNN_DATA this
  job is left out.
* A network of 8-8-8 at batch 1: what a step costs beside its arithmetic.
* The same by epochs of 200 steps, all the time of `fit` included; a peer has a call an epoch.
* The thread-pool exercise's own epoch: float64, 100 batches of 105 rows, then the loss of all 10,500.

One core; the method is measure.py's, the peers are peers.py's.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import measure
import peers
import pytorch
from digits import mnist_folder
from step import W0, W0_DOUBLE, forced_cores
from workers import Runner, Side

MNIST_ROWS = 60_000
TINY = peers.Network("8-8-8", (8, 8, 8), "sigmoid", True, 1, steps=5000)
SHORT = replace(TINY, name="8-8-8 by epochs of 200", steps=200)
SHORT_EPOCHS = 50
JOB = replace(W0_DOUBLE, name="784-256-10, 100 × 105 rows and the loss of all", steps=100)
EPOCH = "an epoch of MNIST"


def mnist_epoch(folder: Path) -> Runner:
    """Seconds of one shuffled epoch of `Trainer.fit`, divided by its steps."""
    import pdnn

    train = pdnn.datasets.mnist(folder, train=True)
    model = pdnn.models.mlp(W0.sizes, W0.activation, seed=0)
    optimizer = pdnn.optim.SGD(model.parameters(), lr=peers.LEARNING_RATE)
    trainer = pdnn.Trainer(model, pdnn.nn.CrossEntropyLoss(), optimizer, strategy="serial")
    steps = -(-len(train) // W0.batch)

    def run() -> tuple[float, float]:
        seconds = trainer.fit(train, batch_size=W0.batch, verbose=False).history["seconds"][-1]
        return seconds / steps, np.nan

    return run


def whole_fit(network: peers.Network, epochs: int) -> Runner:
    """Seconds of a shuffled `Trainer.fit` of some epochs, all of it, divided by its steps."""
    trainer, data = peers.make_trainer(network, "serial")

    def fit() -> float:
        return float(trainer.fit(data, epochs, network.batch, verbose=False).history["loss"][-1])

    return peers.timed(replace(network, steps=network.steps * epochs), fit)


def peak_memory() -> float:
    """Megabytes that a process takes at most which loads MNIST and trains for an epoch."""
    program = [sys.executable, __file__, "--memory"]
    return float(subprocess.run(program, capture_output=True, text=True, check=True).stdout)


def comparisons(wanted: Sequence[str]) -> list[tuple[str, list[Side]]]:
    """What is compared, pdnn's own side first."""
    bare = Side("the bare step", peers.pdnn_trainer, (W0, "serial", False))
    tiny = [Side("pdnn", peers.pdnn_trainer, (TINY, "serial", False))]
    short = [Side("pdnn, whole fits", whole_fit, (SHORT, SHORT_EPOCHS))]
    job = [Side("pdnn", peers.pdnn_trainer, (JOB, "serial", False, True))]
    for name, python in {"jax": "", "jax-0.4.31": str(peers.OLD_JAX)}.items():
        if name in wanted:
            label = f"{name.replace('jax', 'JAX').replace('-', ' ')}, jit and scan"
            tiny.append(Side(label, peers.jax_scan, (TINY,), python=python))
            short.append(Side(label, peers.jax_scan, (SHORT,), python=python))
    if "numpy" in wanted:
        tiny.append(Side("NumPy as installed", peers.numpy_step, (TINY,)))
        job.append(Side("NumPy as installed", peers.numpy_step, (JOB, True)))
        for core in forced_cores():
            environment = {"OPENBLAS_CORETYPE": core}
            job.append(Side(f"NumPy, {core}", peers.numpy_step, (JOB, True), 1, environment))
    if "torch" in wanted:
        tiny.append(Side("PyTorch eager", pytorch.torch_eager, (TINY, 1, False)))
    found = [(TINY.name + ", batch 1", tiny), (SHORT.name + ", batch 1", short), (JOB.name, job)]
    if folder := mnist_folder():
        found.insert(0, (EPOCH, [Side("pdnn, shuffled bytes", mnist_epoch, (folder,)), bare]))
    return found


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--blocks", type=measure.count, default=10, help="blocks a side (default %(default)s)"
    )
    measure.add_warm_up(parser)
    peers.add_peers(parser, "numpy,jax,jax-0.4.31,torch")
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    parser.add_argument("--memory", action="store_true", help="the megabytes of MNIST's epoch, nothing else")
    options = parser.parse_args(arguments)
    folder = mnist_folder()
    if options.memory:
        if folder is None:
            parser.error("--memory: MNIST is not here; PDNN_DATA names the folder that has it in mnist/")
        mnist_epoch(folder)()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    wanted = peers.found(options.peers)
    report = measure.begin()
    if folder is None:
        print("MNIST is not here (PDNN_DATA names the folder that has it in mnist/): its epoch is left out")
    for what, sides in comparisons(wanted):
        results, _ = measure.alternate(sides, options.blocks, lambda: 0.0, 1e-3 * options.warm_up)
        times = [1e6 * measure.fastest_quarter(result.seconds) for result in results]
        rows = [
            {"side": side.name, "microseconds": time, "ratio": time / times[0], "blas": result.blas}
            for side, time, result in zip(sides, times, results, strict=True)
        ]
        report["results"].append({"what": what, "sides": rows})
        print(f"\n{what}\n{'':28} {'µs a step':>10} {'× pdnn':>7}")
        for row in rows:
            print(f"{row['side']:28} {row['microseconds']:10.2f} {row['ratio']:7.2f}", flush=True)
        if what == EPOCH:
            steps, memory = -(-MNIST_ROWS // W0.batch), peak_memory()
            report["results"][-1]["megabytes"] = memory
            print(
                f"{steps} steps: {times[0] * steps / 1e6:.3f} s an epoch; {memory:.0f} MB of memory at most"
            )
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
