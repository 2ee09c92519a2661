"""ResNet9 on CIFAR-10 in the style of Horovod: a loop by hand, data parallel with six lines of pdnn.ddp.

    mpiexec -n 2 python examples/resnet9_cifar10.py --epochs 10
    mpiexec -n 3 python examples/resnet9_cifar10.py --data FOLDER --reshuffle

The data are read from FOLDER or $PDNN_DATA/cifar10, or downloaded. Several ranks take the same steps as
one, to rounding: batches are those of one process, gradients are weighted by rows, and batches are
normalized as a whole.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import pdnn
from pdnn import ddp, nn, optim
from pdnn.data import Dataset, Subset
from pdnn.exercises import published


@dataclass
class Config:
    """What is trained; the defaults are the exercise's."""

    epochs: int = 10
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-3
    seed: int = 0
    dtype: str = "float32"
    reshuffle: bool = False
    local_statistics: bool = False
    every: int = 100


@dataclass
class Result:
    """What came of it, the same on every rank.

    Attributes
    ----------
    losses : list of float
        Mean loss of each batch, over all ranks.
    accuracies : list of float
        Of each epoch, on the rows as they were trained with.
    seconds : float
    model : nn.Sequential
    """

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    model: nn.Sequential = field(default_factory=nn.Sequential)


def train(config: Config, dataset: Dataset | Subset, show: Callable[[str], object] = print) -> Result:
    """Trains on all ranks; collective."""
    rank, device = ddp.init()
    train_set, _ = ddp.partition_dataset(
        dataset, config.batch_size, device=device, dtype=config.dtype, verbose=False
    )
    model = pdnn.models.ResNet9(
        device=device, sync=not config.local_statistics, dtype=config.dtype, seed=config.seed + rank
    )
    ddp.broadcast_parameters(model)  # rank 0's is what counts
    opt = ddp.DistributedOptimizer(
        optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    )
    loss_fn, result = nn.SoftmaxLoss(), Result(model=model)
    model.train()
    pdnn.world().barrier()  # the clock starts and stops for all ranks together
    began = time.perf_counter()
    for epoch in range(config.epochs):
        show(f"epoch: {epoch + 1}/{config.epochs}")
        if config.reshuffle:
            train_set.set_epoch(epoch)
        sums = np.zeros((len(train_set), 3))  # of each batch, on this rank: losses, right answers, rows
        for batch, (x, y) in enumerate(train_set):
            opt.reset_grad()
            out = model(x)
            loss = loss_fn(out, y)
            loss.backward()
            opt.step()
            sums[batch] = loss.item() * len(y), (out.numpy().argmax(axis=1) == y).sum(), len(y)
            if batch % config.every == 0:
                losses, right, rows = ddp.allreduce(sums.sum(axis=0), op=ddp.Sum)
                show(f"acc: {right / rows:.4f}; avg_loss: {losses / rows:.4f}")
        sums = ddp.allreduce(sums, op=ddp.Sum)
        result.losses += (sums[:, 0] / sums[:, 2]).tolist()
        result.accuracies.append(float(sums[:, 1].sum() / sums[:, 2].sum()))
    pdnn.world().barrier()
    result.seconds = time.perf_counter() - began
    show(f"Training Time: {result.seconds:.2f}")
    return result


def published_lines(result: Result, ranks: int) -> list[str]:
    """The exercise's figures beside these, as far as its training and this one were as long."""
    lines = [
        f"loss at batch {batch}: {result.losses[batch]:.2f}, published {loss:.2f}"
        for batch, loss in published.RESNET9_LOSS.value.items()
        if batch < len(result.losses)
    ]
    if result.accuracies and ranks in published.RESNET9_EPOCH_ACCURACY.value:
        least, most = published.RESNET9_EPOCH_ACCURACY.value[ranks]
        theirs = f"{least}" if least == most else f"{least} to {most}"
        lines.append(f"accuracy of epoch 1: {result.accuracies[0]:.3f}, published {theirs}")
    if len(result.accuracies) >= 10:
        theirs = f"{published.RESNET9_FINAL_ACCURACY.value}"
        lines.append(f"accuracy of epoch 10: {result.accuracies[9]:.3f}, published {theirs} of one process")
    return lines


def accuracy(model: nn.Sequential, dataset: Dataset | Subset, batch_size: int = 250) -> float:
    """The share of right answers; each rank takes its part of the rows."""
    part, _ = ddp.partition_dataset(dataset, batch_size, dtype=model.dtype, verbose=False)
    model.eval()
    with pdnn.no_grad():
        right = sum(int((model(x).numpy().argmax(axis=1) == y).sum()) for x, y in part)
    return float(ddp.allreduce(right, op=ddp.Sum) / len(dataset))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = Config()
    parser.add_argument("--data", metavar="FOLDER", help="CIFAR-10's files, or one of its archives")
    parser.add_argument("--epochs", type=int, default=known.epochs, help="(%(default)s)")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=known.batch_size,
        help="rows of a step, over all ranks (%(default)s)",
    )
    parser.add_argument("--lr", type=float, default=known.lr, help="Adam's learning rate (%(default)s)")
    parser.add_argument("--weight-decay", type=float, default=known.weight_decay, help="L2 (%(default)s)")
    parser.add_argument("--seed", type=int, default=known.seed, help="of the parameters (%(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default=known.dtype)
    parser.add_argument("--reshuffle", action="store_true", help="other parts every epoch")
    parser.add_argument(
        "--local-statistics",
        action="store_true",
        help="normalize each rank's rows by themselves, as the published version does",
    )
    parser.add_argument("--every", type=int, default=known.every, help="batches between lines (%(default)s)")
    parser.add_argument("--all-ranks", action="store_true", help="let every rank print")
    args = parser.parse_args()
    if min(args.batch_size, args.every) < 1 or args.epochs < 0:
        parser.error("--batch-size and --every are at least 1, --epochs at least 0")
    options = {name: value for name, value in vars(args).items() if name not in ("data", "all_ranks")}

    rank, _ = ddp.init()
    speaks = args.all_ranks or rank == 0
    seen, held_out = pdnn.datasets.cifar10(args.data)
    ddp.partition_dataset(seen, args.batch_size, verbose=speaks)  # tells how many rows are whose
    result = train(Config(**options), seen, lambda line: speaks and print(line, flush=True))
    if args.local_statistics:  # each rank has its own running statistics; their mean makes them one model
        result.model.flat_buffers[:] = ddp.allreduce(result.model.flat_buffers)
    tested = accuracy(result.model, held_out)
    if speaks:
        print(f"test accuracy: {tested:.4f}")
        if args.batch_size == 128 and len(seen) == 50_000:
            for line in published_lines(result, ddp.size()):
                print(line)


if __name__ == "__main__":
    main()
