"""A network and its minibatches between processes: messages, split layers, a pipeline, fewer bytes.

    mpiexec -n 2 python examples/model_pipeline_quantized.py                  # all parts
    mpiexec -n 2 python examples/model_pipeline_quantized.py codecs --epochs 50

The last questions of the thread-pool exercise (threadpool_minibatches.py), with its network 784-256-10, its
digits and its minibatches of 105, on MPI ranks. "messages": a master sends parameters and minibatches and
gets gradients back. "split": both products are cut between the ranks. "pipeline": each rank has a layer, and
micro-batches pass through. "codecs": what passes there, in fewer bytes. Every part counts the bytes that
leave the ranks, beside their formula.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpool_minibatches import BATCH, L2, Batching, make_trainer, network

import pdnn
from pdnn import codec, nn, optim
from pdnn.callbacks import Callback
from pdnn.cli.values import can_draw, positive_int
from pdnn.comm import Communicator
from pdnn.data import Dataset
from pdnn.strategies import Pipeline, Timeline, schedule

Array = np.ndarray[Any, np.dtype[np.float64]]

FLOAT = 8  # bytes; the exercise computes in float64
WIDTHS = 784, 256, 10
PARAMETERS = 784 * 256 + 256 + 256 * 10 + 10
BORDER = 2  # the layer with which the second stage begins: 256 values a row pass there
CODECS = None, "fp16", "bf16", "int8", "1bit", "topk:0.1"
PARTS = "messages", "split", "pipeline", "codecs"


def minibatches(data: Dataset, count: int) -> list[tuple[Array, Array]]:
    """Samples, and classes one-hot, of the first minibatches."""
    x = data.x[: count * BATCH].astype(float)
    targets = np.eye(WIDTHS[-1])[data.y[: count * BATCH]]
    return list(zip(np.split(x, count), np.split(targets, count), strict=True))


# ---- a master, its workers and messages


def bytes_of_messages() -> tuple[int, int]:
    """Formula: what a minibatch costs on the way out, and its gradient on the way back."""
    return FLOAT * (PARAMETERS + BATCH * WIDTHS[0] + BATCH * WIDTHS[-1]), FLOAT * PARAMETERS


def gradient_by_messages(
    model: nn.Sequential, batches: Sequence[tuple[Array, Array]], comm: Communicator
) -> Array:
    """The mean gradient of some minibatches, each computed by a worker; rank 0 is the master.

    Only rank 0 needs the minibatches; the others use their number and shapes, and get 0 as the result. The
    parameters travel with every minibatch, so that a worker need not remember anything.
    """
    total, gradient = np.zeros(PARAMETERS), np.empty(PARAMETERS)
    workers = comm.size - 1
    if comm.rank == 0:
        for first in range(0, len(batches), workers):
            wave = batches[first : first + workers]
            for worker, arrays in enumerate(wave, 1):
                for array in (model.flat_parameters, *arrays):
                    comm.send(array, worker, check=False)
            for worker in range(1, len(wave) + 1):
                comm.recv(worker, out=gradient, check=False)
                total += gradient
        return total / len(batches)
    x, targets = np.empty((BATCH, WIDTHS[0])), np.empty((BATCH, WIDTHS[-1]))
    for _ in range(comm.rank - 1, len(batches), workers):
        for array in (model.flat_parameters, x, targets):
            comm.recv(0, out=array, check=False)
        _, mine = model.gradient(x, targets, nn.CrossEntropyLoss())
        comm.send(mine, 0, check=False)
    return total


@dataclass
class Count:
    """Bytes that left a rank, counted and by the formula, and how far the result is from one process's."""

    counted: list[int]
    formula: list[int]
    off: float


def messages(data: Dataset, round_size: int = 25) -> Count:
    """A round of the exercise; its mean gradient against that of one process. Of rank 0 and of a worker."""
    comm = pdnn.world()
    model, batches = network(), minibatches(data, round_size)
    before = comm.traffic.bytes
    mean = gradient_by_messages(model, batches, comm)
    sent = comm.all_gather(np.array([comm.traffic.bytes - before]))
    direct = np.mean([network().gradient(*batch, nn.CrossEntropyLoss())[1] for batch in batches], axis=0)
    off = float(np.abs(mean - direct).max() / np.abs(direct).max()) if comm.rank == 0 else 0.0
    out, back = bytes_of_messages()
    counted = [int(sent[0][0]), int(sum(count[0] for count in sent[1:]))]
    return Count(counted, [round_size * out, round_size * back], off)


# ---- both layers split


def gradient_by_halves(model: nn.Sequential, x: Array, targets: Array, comm: Communicator) -> list[Array]:
    """The gradients of this rank's parts of W1, b1 and W2, and of b2, by NumPy.

    The hidden neurons are dealt out: columns of W1 and rows of W2. Each rank's h W2 is a part of the sum that
    the outputs are, which an all-reduce adds up. Nothing travels on the way back.
    """
    own = np.array_split(np.arange(WIDTHS[1]), comm.size)[comm.rank]
    w1, b1, w2, b2 = (parameter.data for parameter in model.parameters())
    h = 1 / (1 + np.exp(-(x @ w1[:, own] + b1[own])))
    y = comm.all_reduce(h @ w2[own], check=False) + b2
    e = np.exp(y - y.max(axis=1, keepdims=True))
    dy = (e / e.sum(axis=1, keepdims=True) - targets) / len(x)
    dh = dy @ w2[own].T * h * (1 - h)
    return [x.T @ dh, dh.sum(axis=0), h.T @ dy, dy.sum(axis=0)]


def split(data: Dataset) -> Count:
    """A minibatch's gradient by halves; this rank's parts against those of the whole."""
    comm, model = pdnn.world(), network()
    ((x, targets),) = minibatches(data, 1)
    before = comm.traffic.bytes
    parts = gradient_by_halves(model, x, targets, comm)
    sent = comm.all_gather(np.array([comm.traffic.bytes - before]))
    _, flat = model.gradient(x, targets, nn.CrossEntropyLoss())
    sizes = np.cumsum([parameter.data.size for parameter in model.parameters()])
    pieces = zip(np.split(flat, sizes[:-1]), model.parameters(), strict=True)
    whole = [piece.reshape(parameter.shape) for piece, parameter in pieces]
    own = np.array_split(np.arange(WIDTHS[1]), comm.size)[comm.rank]
    cut = [whole[0][:, own], whole[1][own], whole[2][own], whole[3]]
    off = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(parts, cut, strict=True))
    formula = 2 * (comm.size - 1) * BATCH * WIDTHS[-1] * FLOAT // comm.size
    return Count([int(count[0]) for count in sent], [formula] * comm.size, off)


def split_by_trainer(data: Dataset, updates: int = 5) -> float:
    """Some updates under "tp:…" against serial ones: max |a - b| / max |b| of the parameters."""
    return difference(data, f"tp:{pdnn.world().size}", updates)


def difference(data: Dataset, strategy: str | Pipeline, updates: int = 5) -> float:
    """Some updates by a strategy, and by one process."""
    few = data[: updates * BATCH]
    found = []
    for chosen, comm in ((strategy, None), ("serial", pdnn.comm.SELF)):
        model = network()
        groups = [{"params": [p], "weight_decay": a} for p, a in zip(model.parameters(), L2, strict=True)]
        sgd = optim.SGD(groups, lr=1e-3)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=chosen, comm=comm)
        trainer.fit(few, 1, BATCH, shuffle=False, verbose=False)
        found.append(model.flat_parameters)
    return float(np.abs(found[0] - found[1]).max() / np.abs(found[1]).max())


# ---- a pipeline


@dataclass
class Steps(Callback):
    """Keeps the timeline of every epoch."""

    kept: list[Timeline] = field(default_factory=list)

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        assert trainer.history.timeline is not None
        self.kept.append(trainer.history.timeline)


def pipelined(layers: Sequence[int], rows: int, micro_batches: int, plan: str, steps: int) -> Timeline:
    """The fastest of some steps of a network cut in the middle, one stage a rank."""
    stages = pdnn.world().size
    cut = tuple(2 * (len(layers) - 1) * stage // stages for stage in range(1, stages))
    model = pdnn.models.mlp(layers, "sigmoid", seed=1)
    sgd = optim.SGD(model.parameters(), lr=1e-3)
    strategy = Pipeline(stages, micro_batches, plan, cut)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    rng = np.random.default_rng(0)
    data = rng.random((rows, layers[0]), np.float32), rng.integers(0, layers[-1], rows)
    watch = Steps()
    trainer.fit(data, steps + 2, rows, timeline=True, verbose=False, callbacks=[watch])
    return min(watch.kept[2:], key=lambda step: step.seconds)


def simulated(step: Timeline, plan: str) -> Timeline:
    """The same schedule with the mean times of the passes, and messages that take none."""
    micros = sum(event.what == "forward" for event in step.lanes[0])
    forward, backward = (
        [sum(e.end - e.begin for e in lane if e.what == what) / micros for lane in step.lanes]
        for what in ("forward", "backward")
    )
    return schedule(plan, len(step.lanes), micros).simulate(forward, backward)


# ---- fewer bytes


def bytes_of_epoch(name: str | None, rows: int, micro_batches: int) -> int:
    """Formula: what a rank sends through the border in an epoch, up or down, in float64."""
    pieces = [
        len(piece)
        for begin in range(0, rows, BATCH)
        for piece in np.array_split(np.arange(begin, min(begin + BATCH, rows)), micro_batches)
    ]
    if name is None:
        return sum(pieces) * WIDTHS[1] * FLOAT
    return sum(codec.parse(name).bytes((piece, WIDTHS[1]), "float64") for piece in pieces)


@dataclass
class Coded:
    """A training with a codec between the stages."""

    name: str
    counted: int
    formula: int
    loss: list[float]
    accuracy: list[float]
    milliseconds: float
    coding_milliseconds: float


def train_coded(
    train: Dataset, test: Dataset, names: Sequence[str | None], epochs: int, micro_batches: int
) -> list[Coded]:
    """The exercise's training, 100 updates an epoch, as a pipeline of two stages, with each codec."""
    found = []
    for name in names:
        strategy = Pipeline(2, micro_batches, cut=(BORDER,), codec=name)
        trainer, accuracy = make_trainer(strategy), []

        class Test(Callback):
            def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
                accuracy.append(trainer.evaluate(test)["accuracy"])  # noqa: B023  called in this turn

        Batching(train).fit(trainer, epochs, 1, Test())
        history = trainer.history
        stats = history.compression[-1]
        fastest = int(np.argmin(history.history["seconds"]))
        coding = (
            history.compression[fastest]["encode_seconds"] + history.compression[fastest]["decode_seconds"]
        )
        found.append(
            Coded(
                name or "none",
                int(stats["bytes"]),
                bytes_of_epoch(name, len(train), micro_batches),
                history.history["loss"],
                accuracy,
                1e3 * history.history["seconds"][fastest],
                1e3 * coding,
            )
        )
    return found


def draw_coded(axes: Any, runs: Sequence[Coded]) -> None:
    """Test error against megabytes sent."""
    for run in runs:
        sent = run.counted * np.arange(1, len(run.accuracy) + 1) / 1e6
        axes.plot(sent, 1 - np.array(run.accuracy), ".-", label=run.name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="megabytes that a rank has sent",
        ylabel="test error (1 - accuracy)",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def show(counts: Count, names: Sequence[str]) -> None:
    """A line for each, and how far the result is off."""
    for name, counted, formula in zip(names, counts.counted, counts.formula, strict=True):
        print(f"{name}: {counted:,} bytes counted, {formula:,} by the formula")
    print(f"off by {counts.off:.0e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all unless given")
    parser.add_argument("--epochs", type=positive_int, default=20, help="with each codec (%(default)s)")
    parser.add_argument(
        "--steps", type=positive_int, default=20, help="of a pipeline that are timed (%(default)s)"
    )
    parser.add_argument("--micro-batches", type=positive_int, default=5, help="of a minibatch (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/pipeline"), help="folder (%(default)s)")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"unknown part {sorted(unknown)[0]!r}; expected some of {', '.join(PARTS)}")
    parts = args.parts or PARTS
    comm = pdnn.world()
    if comm.size != 2:
        parser.error(f"for two ranks, this world has {comm.size}; mpiexec -n 2 python …")
    first = comm.rank == 0
    draws = {"pipeline", "codecs"} & set(parts)
    if draws:
        can_draw(parser)
    if first and draws:
        args.out.mkdir(parents=True, exist_ok=True)
    train, test = pdnn.datasets.mnist_mini(scale=1)  # raw 0 … 255, as the exercise takes them
    if "messages" in parts:
        counts = messages(train)
        if first:
            print("\nA round of 25 minibatches over messages")
            show(counts, ["master to worker", "worker to master"])
    if "split" in parts:
        counts, off = split(train), split_by_trainer(train)
        if first:
            print("\nBoth layers split")
            show(counts, [f"rank {rank}" for rank in range(comm.size)])
            print(f'by a Trainer, "tp:2" against serial after 5 updates: off by {off:.0e}')
    if "pipeline" in parts:
        off = difference(train, Pipeline(2, args.micro_batches, cut=(BORDER,)))
        if first:
            print(f"\nA pipeline of two stages; against serial after 5 updates: off by {off:.0e}")
        for title, layers, rows in (("784-256-10", WIDTHS, BATCH), ("16 layers of 256", (256,) * 17, 512)):
            for micros in (1, 2, 4, 8):
                step = pipelined(layers, rows, micros, "1f1b", args.steps)
                if first:
                    ideal, same = 1 / (micros + 1), simulated(step, "1f1b").bubble
                    print(
                        f"{title}, {micros} micro-batches: bubble {step.bubble:.3f}, of equal stages "
                        f"{ideal:.3f}, simulated with the stages' times {same:.3f}"
                    )
        if first:
            step.plot(args.out / "step.png")
    if "codecs" in parts:
        runs = train_coded(train, test, CODECS, args.epochs, args.micro_batches)
        if first:
            from matplotlib.figure import Figure

            print(f"\nCodecs between the stages, {args.epochs} epochs of {len(train)} rows")
            print("codec     bytes a rank sends in an epoch, by the formula  accuracy    loss  ms  coding")
            for run in runs:
                print(
                    f"{run.name:9} {run.counted:30,} {run.formula:15,} {run.accuracy[-1]:9.4f} "
                    f"{run.loss[-1]:7.4f} {run.milliseconds:3.0f} {run.coding_milliseconds:7.1f}"
                )
            figure = Figure(figsize=(6, 4), layout="constrained")
            draw_coded(figure.add_subplot(), runs)
            figure.savefig(args.out / "codecs.png", dpi=120)
    if first and draws:
        print(f"\npictures in {args.out}")


if __name__ == "__main__":
    main()
