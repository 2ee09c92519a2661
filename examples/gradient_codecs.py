"""Gradient compression: two networks of the exercises, trained without a codec and with each.

    python examples/gradient_codecs.py                            # both networks, starts two ranks itself
    python examples/gradient_codecs.py --network mlp --epochs 5 --plot codecs.png
    python examples/gradient_codecs.py --sweep none int8 1bit 1bit-without-feedback --embedded
    python examples/gradient_codecs.py --network mlp --every 8    # models averaged every 8 steps, by codecs
    mpiexec -n 2 python examples/gradient_codecs.py               # the same on ranks started by mpiexec

Every rank makes the gradient of half of each batch; the halves are added up, encoded by the codec. A line of
the table is one training, from the same first weights and over the same batches as all others: accuracy on
the test images, bytes that leave a rank in a step, how many times fewer than the gradient itself needs,
seconds of an epoch, the share of the gradient that an encoding loses (a part of which error feedback sends
later), and microseconds of a step to encode and decode.

``1bit``, ``topk`` and ``powersgd`` lose most of a gradient, the same parts in each step, and feed the error
back; the lines "without feedback" show the result without that.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pdnn
from pdnn import nn, optim
from pdnn.cli.values import output, picture, positive_int
from pdnn.data import Dataset
from pdnn.strategies import DataParallel, ModelAveraging

WITHOUT = "-without-feedback"
WAYS = (
    "none",
    "fp16",
    "bf16",
    "int8",
    "1bit",
    f"1bit{WITHOUT}",
    "topk:0.01",
    f"topk:0.01{WITHOUT}",
    "powersgd:2",
    f"powersgd:2{WITHOUT}",
)


@dataclass(frozen=True)
class Row:
    """What came of one training."""

    network: str
    way: str
    accuracy: float  # on the test images
    loss: float
    bytes: float  # of a step, that leave rank 0
    uncompressed: float  # what they would be
    seconds: float  # of an epoch
    lost: float  # ‖x - decoded‖ / ‖x‖ of the last epoch's encodings
    coding: float  # seconds of a step to encode and decode

    @property
    def ratio(self) -> float:
        """How many times fewer bytes."""
        return self.uncompressed / self.bytes


def strategy_of(way: str, every: int | None) -> DataParallel | ModelAveraging:
    """Gradients as messages, or averages of models now and then, as this way has them."""
    codec = None if way == "none" else way.removesuffix(WITHOUT)
    feedback = False if way.endswith(WITHOUT) else None
    if every is not None:
        return ModelAveraging(every, codec=codec, error_feedback=feedback)
    return DataParallel(shared_memory=False if codec is None else None, codec=codec, error_feedback=feedback)


def build(network: str, seed: int) -> tuple[nn.Sequential, nn.Loss]:
    """784-256-10 of the thread-pool exercise, or the convolutions of the parallel-SGD exercise."""
    if network == "mlp":
        return pdnn.models.mlp([784, 256, 10], "sigmoid", seed=seed), nn.CrossEntropyLoss()
    return pdnn.exercises.lenet_psgd(seed=seed), nn.NLLLoss()


def load(network: str, args: argparse.Namespace) -> tuple[Dataset, Dataset]:
    """Training and test images of the size that the network takes."""
    image: dict[str, Any] = {} if network == "mlp" else {"image": True, "size": 32}
    train, test = (
        pdnn.datasets.mnist_mini(**image) if args.embedded else pdnn.datasets.mnist(args.data, **image)
    )
    return train, test


def train(network: str, way: str, digits: tuple[Dataset, Dataset], args: argparse.Namespace) -> Row:
    """One training on the ranks of this world."""
    model, loss = build(network, args.seed)
    descent = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    trainer = pdnn.Trainer(model, loss, descent, strategy=strategy_of(way, args.every), seed=args.seed)
    ranks = trainer.comm.size
    rows = args.batch_size if args.every is None else args.batch_size // ranks  # behind an update
    history = trainer.fit(digits[0], args.epochs, rows, verbose=False)
    result = trainer.evaluate(digits[1], comm=trainer.comm)
    sums = -(-trainer.step // (args.every or 1))  # fit ends with an average
    plain = sums * (2 * (ranks - 1) * model.flat_parameters.nbytes // ranks)
    stats = {"bytes": plain, "bytes_uncompressed": plain} if way == "none" else total(history.compression)
    return Row(
        network,
        way,
        result["accuracy"],
        result["loss"],
        stats["bytes"] / trainer.step,
        stats["bytes_uncompressed"] / trainer.step,
        median(history.history["seconds"]),
        history.compression[-1].get("error", 0.0),
        (stats.get("encode_seconds", 0.0) + stats.get("decode_seconds", 0.0)) / trainer.step,
    )


def total(stats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Those of all epochs."""
    return {name: sum(epoch.get(name, 0.0) for epoch in stats) for name in stats[-1]}


def sweep(args: argparse.Namespace) -> list[Row]:
    """All trainings, one after another, on every rank of this world; rank 0 tells."""
    comm = pdnn.world()
    say = print if comm.rank == 0 else lambda *_, **__: None
    rows = []
    for network in args.network:
        digits = load(network, args)
        when = "" if args.every is None else f", averages every {args.every} steps"
        say(
            f"\n{network}: {len(digits[0]):,} images, {args.epochs} epochs of batches of {args.batch_size} "
            f"over {comm.size} ranks, lr {args.lr:g}, momentum {args.momentum:g}{when}"
        )
        say(
            f"{'codec':28}{'accuracy':>9}{'bytes a step':>14}{'fewer':>8}{'s an epoch':>12}"
            f"{'lost':>8}{'coding':>10}"
        )
        for way in args.sweep:
            row = train(network, way, digits, args)
            rows.append(row)
            say(
                f"{way.replace('-', ' '):28}{row.accuracy:9.4f}{row.bytes:14,.0f}{row.ratio:7.1f}x"
                f"{row.seconds:12.2f}{row.lost:8.2%}{1e6 * row.coding:7.0f} µs",
                flush=True,
            )
    return rows


def draw(rows: list[Row], path: str) -> None:
    """Test error against bytes a step, a panel for each network; hollow: without feedback."""
    from matplotlib.figure import Figure

    networks = list(dict.fromkeys(row.network for row in rows))
    names = list(dict.fromkeys(row.way.removesuffix(WITHOUT) for row in rows))
    figure = Figure(figsize=(5.5 * len(networks), 4), layout="constrained")
    for place, network in enumerate(networks, 1):
        axes = figure.add_subplot(1, len(networks), place)
        for row in rows:
            if row.network != network:
                continue
            name, error = row.way.removesuffix(WITHOUT), 1 - row.accuracy
            color = f"C{names.index(name)}"
            face = "none" if row.way.endswith(WITHOUT) else color
            axes.plot(row.bytes, error, "o", color=color, markerfacecolor=face)
            axes.annotate(
                name, (row.bytes, error), (4, 4), textcoords="offset points", fontsize=8, color=color
            )
        axes.set(
            title=network,
            xlabel="bytes a step (hollow: without feedback)",
            ylabel="test error (1 - accuracy)",
            xscale="log",
            yscale="log",
        )
        axes.margins(0.12)  # for the names
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of MNIST's files (else downloaded)")
    parser.add_argument("--embedded", action="store_true", help="the small set of digits that is in pdnn")
    parser.add_argument(
        "--network", nargs="+", choices=("mlp", "lenet"), default=["mlp", "lenet"], help="(both)"
    )
    parser.add_argument("--sweep", nargs="+", default=WAYS, metavar="CODEC", help=f"({' '.join(WAYS)})")
    parser.add_argument("--epochs", type=positive_int, default=5, help="(%(default)s)")
    parser.add_argument("--batch-size", type=positive_int, default=128, help="over all ranks (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.1, help="(%(default)s)")
    parser.add_argument("--momentum", type=float, default=0.0, help="(%(default)s)")
    parser.add_argument(
        "--every", type=positive_int, metavar="K", help="average models every K steps, not gradients"
    )
    parser.add_argument(
        "--ranks", type=positive_int, default=2, help="to start, unless they are there (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (%(default)s)")
    parser.add_argument("--plot", type=picture, metavar="FILE", help="accuracy against bytes, a picture")
    parser.add_argument("--json", type=output, metavar="FILE", help="all that was measured")
    args = parser.parse_args()
    if args.ranks == 1:
        parser.error("--ranks 1: one rank sends nothing to encode; at least 2 are needed")
    for way in args.sweep:
        strategy_of(way, args.every)  # says at once what is none
    world = pdnn.world()
    rows = sweep(args) if world.size > 1 else pdnn.run(sweep, args, ranks=args.ranks)[0]
    if world.rank == 0:
        if args.json:
            Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        if args.plot:
            draw(rows, args.plot)


if __name__ == "__main__":
    main()
