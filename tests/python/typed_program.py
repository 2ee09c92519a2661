"""A program with types, as users write it: it runs, and type checkers have nothing to say (test_types.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import pdnn
from pdnn import ddp, nn, optim, strategies
from pdnn.callbacks import Callback, EarlyStopping
from pdnn.data import DataLoader, Dataset
from pdnn.metrics import top_k

Array = npt.NDArray[np.float32]


class Net(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, hidden), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(hidden, 3) for _ in range(2))
        print(self.inner[0].weight.shape, self.heads[0].weight.shape)

    def forward(self, x: pdnn.Tensor) -> Any:
        return self.heads[0](self.inner(x))


class Scale(nn.CustomLayer):
    def __init__(self, features: int) -> None:
        super().__init__(features=features)

    def make(self, dtype: str) -> object:
        raise NotImplementedError(f"{self.features} {self.weight.shape} {dtype}")


class Halving(Callback):
    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        trainer.optimizer.param_groups[0]["lr"] *= 0.5
        trainer.stop_training = logs["val_loss"] < 1e-3
        print(epoch, trainer.model[0].weight.grad.shape)


def off(y: Array, prediction: Array) -> np.float32:
    mean: np.float32 = np.abs(prediction - 1).mean()
    return mean


def off_by_one(y: npt.NDArray[Any], prediction: npt.NDArray[Any]) -> float:
    return float((prediction.argmax(1) != y).mean())


def static(train: Dataset, test: Dataset) -> None:
    for strategy in ("serial", strategies.Team(2), strategies.parse("pool:2/4")):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3), seed=1)
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        model[0].weight.data *= 0.5
        last = model[-1]
        assert isinstance(last, nn.Linear)
        trainer = pdnn.Trainer(
            model,
            nn.CrossEntropyLoss(),
            optimizer,
            strategy=strategy,
            metrics=[
                "accuracy",
                off,
                {"top": lambda y, outputs: top_k(y, outputs, k=2), "wrong": off_by_one},
            ],
        )
        history = trainer.fit(
            train, epochs=2, validation=test, callbacks=[Halving(), EarlyStopping()], verbose=False
        )
        loss: float = history.history["loss"][-1]
        print(loss, trainer.evaluate(test)["off"], last.out_features, model[:2].predict(test.x).shape)


def by_hand(train: Dataset) -> None:
    net, criterion = Net(8), nn.CrossEntropyLoss()
    optimizer = optim.SGD(
        [
            {"params": [net.inner[0].weight], "weight_decay": 1e-2},
            {"params": [net.inner[0].bias, *net.heads.parameters()]},
        ],
        lr=0.1,
    )
    for x, y in DataLoader(train, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        print(ddp.allreduce(loss.item(), op=ddp.Average))
    state = ddp.State(model=net, epoch=0)
    state.epoch += 1
    for name, parameter in net.named_parameters():
        print(name, parameter.data.mean(), parameter.grad.shape)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    rows = Dataset(rng.random((64, 4), np.float32), rng.integers(0, 3, 64))
    static(rows[:48], rows[48:])
    by_hand(rows[:48])
