"""Jobs of which one rank's is different: refused by every rank before the first step, both sides named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim

JOB: dict[str, Any] = {
    "sizes": [12, 9, 4],
    "activation": "sigmoid",
    "dtype": "float64",
    "strategy": "ddp",
    "rows": 53,
    "batch_size": 17,
    "epochs": 1,
    "lr": 0.3,
    "loss": nn.CrossEntropyLoss(),
    "optimizer": optim.SGD,
    "seed": 0,
    "callbacks": [],
}


def fit(comm: pdnn.comm.Communicator, **changes: Any) -> None:
    """Trains by `JOB`, but for the changes."""
    job = JOB | changes
    model = models.mlp(job["sizes"], job["activation"], dtype=job["dtype"], seed=2)
    optimizer = job["optimizer"](model.parameters(), lr=job["lr"])
    trainer = pdnn.Trainer(
        model, job["loss"], optimizer, strategy=job["strategy"], seed=job["seed"], comm=comm
    )
    data = np.ones((job["rows"], 12)), np.arange(job["rows"]) % 4
    trainer.fit(data, job["epochs"], job["batch_size"], callbacks=job["callbacks"], verbose=False)


DIFFERENCES = {
    "model": ({"sizes": [12, 8, 4]}, r"model .*\(12, 8\).*, rank 0 has .*\(12, 9\)"),
    "activation": ({"activation": "tanh"}, r"layers .*Tanh.*, rank 0 has .*Sigmoid"),
    "dtype": ({"dtype": "float32"}, "dtype float32, rank 0 has float64"),
    "batch": ({"batch_size": 18}, "batch size 18, rank 0 has 17"),
    "rows": ({"rows": 54}, "training rows 54, rank 0 has 53"),
    "epochs": ({"epochs": 2}, "epochs 2, rank 0 has 1"),
    "strategy": ({"strategy": "scatter-gather"}, "strategy .*catter.*, rank 0 has "),
    "loss": ({"loss": nn.MSELoss()}, r"loss MSELoss.*, rank 0 has CrossEntropyLoss"),
    "rule": ({"optimizer": optim.Adam}, "optimizer .*Adam.*, rank 0 has .*SGD"),
    "rate": ({"lr": 0.2}, "groups .*0.2.*, rank 0 has .*0.3"),
    "seed": ({"seed": 1}, "seed 1, rank 0 has 0"),
}
"""What rank 1 has other than rank 0, and what every rank says."""


def check_difference(what: str, comm: pdnn.comm.Communicator) -> None:
    """Rank 1 comes with a difference: every rank says so, and the same ranks train afterwards."""
    changes, said = DIFFERENCES[what]
    with pytest.raises(ValueError, match=f"rank 1 has {said}"):
        fit(comm, **(changes if comm.rank == 1 else {}))
    fit(comm)


def check_kernels(comm: pdnn.comm.Communicator) -> None:
    """Ranks whose kernels have other bits do not begin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pdnn.training.kernels_of", lambda dtype: f"{dtype} of rank {comm.rank}")
        with pytest.raises(ValueError, match="rank 1 has kernels float64 of rank 1, rank 0 has float64 of"):
            fit(comm)
    fit(comm)


def check_engines(comm: pdnn.comm.Communicator) -> None:
    """How a rank makes its gradient is its own business, by the same leaves."""
    fit(comm, strategy="ddp/8" if comm.rank == 0 else "ddp+pool:1/8")


def main() -> None:
    """What MPI ranks run: every check."""
    comm = pdnn.world()
    for what in DIFFERENCES:
        check_difference(what, comm)
    check_kernels(comm)
    check_engines(comm)
    print(f"rank {comm.rank} of {comm.size}: all refused", flush=True)


if __name__ == "__main__":
    main()
