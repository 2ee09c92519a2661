"""LeNet-5 on handwritten digits, by pdnn and by PyTorch: epochs, and whole trainings with their accuracy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import nan
from pathlib import Path
from time import perf_counter
from typing import Any

import pytorch
from workers import Runner


@dataclass(frozen=True)
class LeNet5:
    """LeNet-5 with ReLU and pooling by maxima, as SimpleChains.jl's authors have it, on digits in batches."""

    name: str = "LeNet-5, MNIST"
    dtype: str = "float32"
    batch: int = 128
    epochs: int = 10
    rate: float = 3e-4

    @property
    def steps(self) -> int:
        """An epoch is one block, told as one step."""
        return 1

    def data(self, train: bool) -> Any:
        """A data set of pdnn's, bytes of shape (n, 1, 28, 28)."""
        import pdnn

        if folder := mnist_folder():
            return pdnn.datasets.mnist(folder, train=train, image=True)
        return pdnn.datasets.mnist_mini(train, image=True)

    def build(self, dtype: str = "float32") -> Any:
        """The network by pdnn."""
        from pdnn import nn

        convolutions = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
        convolutions += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        layers = [nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
        return nn.Sequential(*convolutions, *layers, dtype=dtype, seed=0)


def mnist_folder() -> Path | None:
    """The folder of MNIST's four files, if PDNN_DATA names one."""
    folder = Path(os.environ.get("PDNN_DATA", ""), "mnist")
    return folder if os.environ.get("PDNN_DATA") and folder.is_dir() else None


def pdnn_lenet(job: LeNet5, strategy: str, dtype: str, whole: bool) -> Runner:
    """`Trainer.fit`, timed from outside: an epoch of rows in order, or the whole job and its accuracy."""
    import pdnn

    train, test = job.data(True), job.data(False)

    def begin() -> Any:
        model = job.build(dtype)
        adam = pdnn.optim.Adam(model.parameters(), lr=job.rate)
        return pdnn.Trainer(model, pdnn.nn.CrossEntropyLoss(), adam, strategy=strategy)

    trainer = begin()

    def epoch() -> tuple[float, float]:
        start = perf_counter()
        history = trainer.fit(train, 1, job.batch, shuffle=False, verbose=False)
        return perf_counter() - start, history.history["loss"][-1]

    def all_epochs() -> tuple[float, float, dict[str, float]]:
        start = perf_counter()
        anew = begin()
        anew.fit(train, job.epochs, job.batch, verbose=False)
        seconds = perf_counter() - start
        return seconds, nan, {"accuracy": anew.evaluate(test)["accuracy"]}

    return all_epochs if whole else epoch


def torch_lenet(job: LeNet5, threads: int, compiled: bool, half: bool, whole: bool) -> Runner:
    """The same by PyTorch: tensors of float32 in memory, its fused Adam."""
    import torch
    from torch import nn

    pytorch.take_threads(threads)
    torch.manual_seed(0)
    (x, y), (test_x, test_y) = (
        tuple(map(torch.from_numpy, job.data(train).gather())) for train in (True, False)
    )
    y, test_y = y.long(), test_y.long()
    criterion = nn.CrossEntropyLoss()
    state = {name: torch.from_numpy(v.copy()) for name, v in job.build().state_dict(format="torch").items()}

    convolutions = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
    convolutions += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    layers = [nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    model = nn.Sequential(*convolutions, *layers)
    adam = torch.optim.Adam(model.parameters(), lr=job.rate, fused=True)

    def begin_again() -> None:
        """In the same memory, for which a step is compiled once."""
        model.load_state_dict(state)
        for moments in adam.state.values():
            for value in moments.values():
                value.zero_()

    def step(x: Any, y: Any) -> Any:
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = criterion(model(x), y)
        loss.backward()
        adam.step()
        return loss.detach()

    step = torch.compile(step) if compiled else step

    def one_epoch(order: Any) -> float:
        rows = order.split(job.batch)
        return sum(float(step(x[part], y[part])) * len(part) for part in rows) / len(x)

    begin_again()
    in_order = torch.arange(len(x))

    def epoch() -> tuple[float, float]:
        start = perf_counter()
        loss = one_epoch(in_order)
        return perf_counter() - start, loss

    def all_epochs() -> tuple[float, float, dict[str, float]]:
        start = perf_counter()
        begin_again()
        for _ in range(job.epochs):
            one_epoch(torch.randperm(len(x)))
        seconds = perf_counter() - start
        with torch.no_grad():
            right = (model(test_x).argmax(1) == test_y).double().mean()
        return seconds, nan, {"accuracy": float(right)}

    return all_epochs if whole else epoch
