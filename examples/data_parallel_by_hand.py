"""Understanding data parallelism, its second part: data parallel training written by hand.

    mpiexec -n 2 python examples/data_parallel_by_hand.py          # gradients averaged over ranks
    mpiexec -n 2 python examples/data_parallel_by_hand.py --sum    # or summed: another optimizer

The network and the data are those of understanding_training.py. A wrapper gives every rank rank 0's
parameters and puts a hook on each gradient that adds it up over the ranks, as soon as a backward pass has
made it. Step s takes batch s · ranks + rank of 64 rows, so that N ranks see N batches a step; the mean keeps
the size of a step, the sum multiplies it by N.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from understanding_training import BATCH, SEEN, network

import pdnn
from pdnn import nn, optim


class DataParallel(nn.Module):
    """A module whose gradients are agreed on by all ranks."""

    def __init__(self, module: nn.Module, average: bool = True) -> None:
        super().__init__()
        comm = pdnn.world()
        self.module = module
        for parameter in module.parameters():
            comm.broadcast(parameter.data, root=0)
            parameter.register_hook(lambda grad: comm.all_reduce(grad, op="mean" if average else "sum"))

    def forward(self, x: Any) -> Any:
        return self.module(x)


def train(model: nn.Module, x: np.ndarray, y: np.ndarray, steps: int, every: int) -> list[float]:
    """Trains on rows 0 … SEEN - 1; the loss over all of them at step 0 and every so many steps."""
    comm, criterion = pdnn.world(), nn.CrossEntropyLoss()
    descent = optim.SGD(model.parameters(), lr=0.1)
    schedule = optim.LinearLR(descent, 1.0, 0.3, total_iters=1000)
    batches, losses = SEEN // BATCH, []
    for step in range(steps):
        first = (step * comm.size + comm.rank) % batches * BATCH
        descent.zero_grad()
        loss = criterion(model(x[first : first + BATCH]), y[first : first + BATCH])
        loss.backward()
        descent.step()
        schedule.step()
        if step % every == 0:
            with pdnn.no_grad():
                losses.append(criterion(model(x), y).item())
            if comm.rank == 0:
                print(f"step {step:4d} | train_loss {loss.item():.4f} | test_loss {losses[-1]:.4f}")
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sum", action="store_true", help="sum gradients over ranks, not their mean")
    parser.add_argument("--steps", type=int, default=1000, help="updates (%(default)s)")
    parser.add_argument("--every", type=int, default=100, help="steps between lines (%(default)s)")
    parser.add_argument("--samples", type=int, default=10_000, help="rows drawn in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the parameters (%(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    args = parser.parse_args()

    seen, _ = pdnn.datasets.make_classification(n_samples=args.samples, n_train=SEEN)
    rank = pdnn.world().rank
    own = network(args.seed + rank, args.dtype)  # rank 0's is what counts
    model = DataParallel(own, average=not args.sum)
    train(model, np.asarray(seen.x, args.dtype), np.asarray(seen.y), args.steps, args.every)
    close = pdnn.parallel.check_parameter_closeness(model)
    print(f"rank {rank}: {close}")
    if not close:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
