"""Two jobs that others quote, by pdnn and by its peers, beside the figures that were published.

python benchmarks/quoted.py [--quick] [--jobs expm,lenet] [--peers torch,jax] [--json FILE]

* expm: the exponentials of 10,000 2x2 matrices, by 4-32-16-4 with tanh, squared loss and Adam; every update
  is of all rows.
* lenet: LeNet-5 on MNIST with Adam, 10 epochs; the data set is in $PDNN_DATA/mnist, or else the digits that
  are part of pdnn stand in. The seconds of an epoch are of rows in order; then each side trains once anew,
  shuffled, for all epochs, and tells how many of the test images it gets right.

The published figures are those of SimpleChains.jl and of what its authors compared it with, on processors of
their own; their source is printed below them. Core-seconds, the seconds times the cores, assume that all
cores worked. How ours are measured: measure.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import measure
import peers
import pytorch
import workers
from digits import LeNet5, mnist_folder, pdnn_lenet, torch_lenet
from measure import Method
from peers import Network
from pytorch import TorchJob
from step import OWN, ROUGH
from workers import Runner, Side

Array = npt.NDArray[Any]

SOURCE = "C. Elrod, N. Korsbo, C. Rackauckas, 14 April 2022, https://julialang.org/blog/2022/04/simple-chains"


class Published(NamedTuple):
    """What others have measured: seconds of the whole job on so many cores, once it was compiled."""

    library: str
    processor: str
    cores: int
    seconds: float


EXPM_STEPS = 10_000
EXPM_PUBLISHED = [
    Published("SimpleChains.jl", "Core i9-10980XE", 18, 0.412),
    Published("SimpleChains.jl", "EPYC 7513", 32, 0.717),
    Published("PyTorch", "Core i9-10980XE", 18, 15.22),
    Published("PyTorch", "EPYC 7513", 32, 68.02),
]
LENET_PUBLISHED = [
    Published("SimpleChains.jl", "Core i9-10980XE", 18, 1.230),
    Published("SimpleChains.jl", "EPYC 7513", 32, 3.084),
    Published("SimpleChains.jl", "Core i7-1165G7", 4, 5.321),
    Published("PyTorch", "Core i9-10980XE", 18, 10.78),
    Published("PyTorch", "EPYC 7513", 32, 14.86),
    Published("Flux.jl", "Core i9-10980XE", 18, 44.24),
    Published("Flux.jl", "EPYC 7513", 32, 73.76),
]
"""The fastest run of each; batches of PyTorch's had 2,048 rows, SimpleChains.jl's went by its threads."""


@dataclass(frozen=True)
class Expm(Network):
    """A network that maps a 2x2 matrix to its exponential; each block is so many steps of all rows."""

    rate: float = 1e-3

    def data(self) -> tuple[Array, Array]:
        """Matrices (batch, 4), normally distributed, and their exponentials (batch, 4)."""
        a = np.random.default_rng(1).standard_normal((self.batch, 2, 2))
        half = np.trace(a, axis1=1, axis2=2)[:, None, None] / 2
        rest = a - half * np.eye(2)  # whose square is -det(rest) times the unit matrix
        root = np.sqrt(-np.linalg.det(rest).astype(complex))[:, None, None]
        exponential = np.exp(half) * (np.cosh(root) * np.eye(2) + np.sinh(root) / root * rest)
        samples, targets = (values.reshape(-1, 4).astype(self.dtype) for values in (a, exponential.real))
        return samples, targets


EXPM = Expm("4-32-16-4 tanh, 10,000 rows, Adam", (4, 32, 16, 4), "tanh", True, 10_000)


def pdnn_expm(job: Expm, strategy: str, dtype: str) -> Runner:
    """`Trainer.fit`, an epoch of one step each, timed from outside."""
    import pdnn

    model = pdnn.models.mlp(job.sizes, job.activation, dtype=dtype, seed=0)
    values = [value for layer in job.parameters() for value in layer if value is not None]
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = value
    adam = pdnn.optim.Adam(model.parameters(), lr=job.rate)
    trainer = pdnn.Trainer(model, pdnn.nn.MSELoss(), adam, strategy=strategy)
    data = pdnn.data.Dataset(*job.data())

    def block() -> float:
        history = trainer.fit(data, job.steps, job.batch, shuffle=False, verbose=False)
        return fmean(history.history["loss"][-job.steps :])

    return peers.timed(job, block)


def torch_expm(job: Expm) -> TorchJob:
    """The network, PyTorch's fused Adam, and the one batch as often as a block has steps."""
    import torch

    model = pytorch.torch_mlp(job, False).model
    adam = torch.optim.Adam(model.parameters(), lr=job.rate, fused=True)
    x, y = (torch.from_numpy(values) for values in job.data())
    return TorchJob(model, torch.nn.MSELoss(), adam, [(x, y)] * job.steps)


def torch_expm_eager(job: Expm, threads: int) -> Runner:
    """In eager mode."""
    return pytorch.torch_steps(job, lambda: torch_expm(job), threads)


def torch_expm_compiled(job: Expm, threads: int, half: bool) -> Runner:
    """The whole step compiled."""
    return pytorch.torch_compiled(job, lambda: torch_expm(job), threads, half)


def jax_expm(job: Expm) -> Runner:
    """JAX: a block is one compiled loop; Adam as its authors wrote it (Kingma, Ba, 2015, Algorithm 1)."""
    import jax
    from jax import numpy as jnp

    x, y = map(jnp.asarray, job.data())

    def mean_loss(layers: Any) -> Any:
        out = x
        for number, (w, b) in enumerate(layers):
            out = out @ w + b
            out = jnp.tanh(out) if number + 1 < len(layers) else out
        return ((out - y) ** 2).mean()

    def step(state: Any, _: Any) -> Any:
        layers, first, second, count = state
        loss, gradients = jax.value_and_grad(mean_loss)(layers)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

        def updated(p: Any, m: Any, v: Any) -> Any:
            return p - job.rate * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

        return (jax.tree.map(updated, layers, first, second), first, second, count), loss

    steps = jax.jit(lambda state: jax.lax.scan(step, state, None, job.steps), donate_argnums=0)
    layers = jax.tree.map(jnp.asarray, job.parameters())
    zeros = [jax.tree.map(jnp.zeros_like, layers) for _ in range(2)]
    state = (layers, *zeros, jnp.zeros((), jnp.float32))

    def block() -> float:
        nonlocal state
        state, losses = steps(state)
        return float(losses.mean())

    return peers.timed(job, block)


def expm_sides(job: Expm, cores: int, wanted: Collection[str]) -> list[Side]:
    """pdnn, and every wanted peer."""
    strategy = "serial" if cores == 1 else f"team:{cores}"
    found = [
        Side(name, pdnn_expm, (job, strategy, dtype), cores, tolerance=ROUGH)
        for name, dtype in OWN[job.dtype].items()
    ]
    if "jax" in wanted:
        found.append(Side("JAX, jit and scan", jax_expm, (job,), cores, tolerance=ROUGH))
    if "jax-0.4.31" in wanted:
        old = str(peers.OLD_JAX)
        found.append(Side("JAX 0.4.31, jit and scan", jax_expm, (job,), cores, python=old, tolerance=ROUGH))
    if "torch" in wanted:
        found.append(Side("PyTorch eager", torch_expm_eager, (job, cores), cores, tolerance=ROUGH))
        for name, half in (("PyTorch, compiled", False), ("PyTorch, compiled, bfloat16", True)):
            arguments = (job, cores, half)
            found.append(Side(name, torch_expm_compiled, arguments, cores, tolerance=5 * ROUGH))
    return found


def lenet_sides(job: LeNet5, cores: int, wanted: Collection[str], whole: bool) -> list[Side]:
    """pdnn, and PyTorch if it is wanted; Adam enlarges rounding, so losses of an epoch differ by percents."""
    strategy = "serial" if cores == 1 else f"team:{cores}"
    found = [
        Side(name, pdnn_lenet, (job, strategy, dtype, whole), cores, tolerance=5 * ROUGH)
        for name, dtype in OWN[job.dtype].items()
    ]
    if "torch" in wanted:
        forms = {
            "PyTorch eager": (False, False),
            "PyTorch, compiled": (True, False),
            "PyTorch, compiled, bfloat16": (True, True),
        }
        for name, form in forms.items():
            arguments = (job, cores, *form, whole)
            found.append(Side(name, torch_lenet, arguments, cores, tolerance=5 * ROUGH))
    return found


def compare(entries: Sequence[Side], job: Expm | LeNet5, method: Method) -> dict[str, Any]:
    """Runs one comparison; seconds of a step, or of an epoch."""
    found = measure.compare(entries, method)
    measure.check_losses(entries, [result.check for result in found.results])
    report = found.report(job, cores=max(side.cores for side in entries))
    if report["kept"]:
        times = [found.seconds(number) for number in range(len(entries))]
        report["sides"] = [
            {"side": side.name, "seconds": time, "ratio": time / times[0]}
            for side, time in zip(entries, times, strict=True)
        ]
    return report


def once(side: Side) -> tuple[float, float]:
    """Seconds of the whole job in a process of its own, after one to warm it up, and the accuracy."""
    worker = workers.start(side)
    try:
        worker.run(0)
        seconds, _, _, parts = worker.run(0)
    finally:
        worker.stop()
    return seconds, parts["accuracy"]


def table(report: dict[str, Any], times: int, published: Sequence[Published]) -> str:
    """Ours for the whole job of so many steps or epochs, and what others have published."""
    lines = [f"{report['network']}, {report['cores']} core{'s'[: report['cores'] > 1]}"]
    if report["cores"] > 1:
        lines.append(measure.round_trip_line(report))
    if not report["sides"]:
        return "\n".join([*lines, measure.NO_FIGURES])
    titles = f"{'':28} {'each, µs':>12} {'× pdnn':>7} {'all, s':>8} {'core-seconds':>13}"
    lines.append(titles + f" {'once, s':>8} {'right':>7}" * ("once" in report["sides"][0]))
    for row in report["sides"]:
        whole = times * row["seconds"]
        told = f" {row['once']:8.2f} {row['accuracy']:7.2%}" if "once" in row else ""
        lines.append(
            f"{row['side']:28} {1e6 * row['seconds']:12.1f} {row['ratio']:7.2f} {whole:8.2f} "
            f"{whole * report['cores']:13.2f}{told}"
        )
    lines.append("published:")
    for each in published:
        name = f"{each.library}, {each.processor}"
        lines.append(f"{name:34} {each.cores:6} cores {each.seconds:8.2f} {each.seconds * each.cores:13.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_options(parser, quick="1 core, few blocks, one epoch: rough figures", round_trip=150)
    measure.add_names(parser, "--jobs", ["expm", "lenet"])
    peers.add_peers(parser, "jax,jax-0.4.31,torch")
    parser.add_argument("--batch", type=int, default=LeNet5.batch, help="LeNet-5's (default %(default)s)")
    options = parser.parse_args(arguments)
    wanted = peers.found(options.peers)
    method, report = measure.method(options), measure.begin(source=SOURCE)
    lenet = LeNet5(batch=options.batch, epochs=1 if options.quick else LeNet5.epochs)
    if "lenet" in options.jobs and mnist_folder() is None:
        print("MNIST is not here (PDNN_DATA names the folder that has it in mnist/): 10,500 digits stand in")
    counts = [1] if options.quick or len(os.sched_getaffinity(0)) == 1 else [1, 2]
    for cores in counts:
        if "expm" in options.jobs:
            found = compare(expm_sides(EXPM, cores, wanted), EXPM, method)
            print("\n" + table(found, EXPM_STEPS, EXPM_PUBLISHED), flush=True)
            report["results"].append(found)
        if "lenet" in options.jobs:
            found = compare(lenet_sides(lenet, cores, wanted, False), lenet, method)
            for row, side in zip(found["sides"], lenet_sides(lenet, cores, wanted, True), strict=False):
                row["once"], row["accuracy"] = once(side)
            found |= {"batch": lenet.batch, "epochs": lenet.epochs}
            print("\n" + table(found, lenet.epochs, LENET_PUBLISHED), flush=True)
            report["results"].append(found)
    print(f"\npublished by {SOURCE}")
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
