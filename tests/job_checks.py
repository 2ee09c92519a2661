"""Jobs of which one rank's is different: refused by every rank before the first step, both sides named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.data import Dataset

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
    "of_trainer": {},
    "decay_every": 1,
    "labels": [0, 1, 2, 3],
    "weight": None,
    "of_fit": {},
    "callbacks": [],
}


def fit(comm: pdnn.comm.Communicator, **changes: Any) -> None:
    """Trains by `JOB`, but for the changes."""
    job = JOB | changes
    model = models.mlp(job["sizes"], job["activation"], dtype=job["dtype"], seed=2)
    optimizer = job["optimizer"](model.parameters(), lr=job["lr"])
    schedule = optim.StepLR(optimizer, job["decay_every"])
    options = {"strategy": job["strategy"], "seed": job["seed"], "comm": comm, **job["of_trainer"]}
    trainer = pdnn.Trainer(model, job["loss"], optimizer, schedule=schedule, **options)
    x, y = np.ones((job["rows"], 12)), np.array(job["labels"])[np.arange(job["rows"]) % 4]
    options = {"callbacks": job["callbacks"], "verbose": False, **job["of_fit"]}
    trainer.fit(Dataset(x, y, weight=job["weight"]), job["epochs"], job["batch_size"], **options)


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
    "clipping": ({"of_trainer": {"clip_norm": 1.0}}, r"clipping \(1\.0, None\), rank 0 has \(None, None\)"),
    "not finite": ({"of_trainer": {"on_nonfinite": "skip"}}, "on_nonfinite skip, rank 0 has raise"),
    "metrics": ({"of_trainer": {"metrics": ["mae"]}}, r"metrics \['mae'\], rank 0 has \[\]"),
    "schedule": ({"decay_every": 2}, "schedule .*StepLR.*, rank 0 has .*StepLR"),
    "schedule per": ({"of_trainer": {"schedule_per": "step"}}, "schedule .*'step'.*, rank 0 has .*'epoch'"),
    "weights": ({"weight": np.ones(53)}, "row weights True, rank 0 has False"),
    "shuffle": ({"of_fit": {"shuffle": False}}, "shuffle False, rank 0 has True"),
    "validation": ({"of_fit": {"validation": (np.ones((5, 12)), np.arange(5) % 4)}}, "validation rows 5"),
    "order": ({"labels": [3, 2, 1, 0]}, "training data with the digest "),
    "names": ({"labels": ["b", "c", "d", "e"]}, r"classes \['b', 'c', 'd', 'e'\], rank 0 has None"),
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
