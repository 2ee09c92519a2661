"""Pairs of Linear layers that ranks hold together equal the layers of one rank; ranks as threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pdnn
from pdnn import nn, optim

Array = npt.NDArray[Any]
IN, HIDDEN, OUT, ROWS = 6, 7, 4, 10


def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((ROWS, IN)), rng.integers(0, OUT, ROWS)


def part(array: Array, axis: int, comm: pdnn.comm.Communicator) -> Array:
    return np.array_split(array, comm.size, axis)[comm.rank]


def check_part(model: nn.Module, whole: nn.Module, comm: pdnn.comm.Communicator) -> None:
    """Two pairs: columns, rows, columns, rows; biases of rows are everybody's."""
    arrays = [parameter.data for parameter in whole.parameters()]
    axes = [1, 0, 0, None] * (len(arrays) // 4)
    for own, array, axis in zip(model.parameters(), arrays, axes, strict=True):
        want = array if axis is None else part(array, axis, comm)
        np.testing.assert_allclose(own.data, want, rtol=1e-12, atol=1e-14)


def layers(comm: pdnn.comm.Communicator | None, hidden: int) -> list[nn.Module]:
    if comm is None:
        first, second = nn.Linear(IN, hidden), nn.Linear(hidden, 5)
        third, fourth = nn.Linear(5, hidden), nn.Linear(hidden, OUT)
    else:
        first, second = (
            nn.ColumnParallelLinear(IN, hidden, comm=comm),
            nn.RowParallelLinear(hidden, 5, comm=comm),
        )
        third, fourth = (
            nn.ColumnParallelLinear(5, hidden, comm=comm),
            nn.RowParallelLinear(hidden, OUT, comm=comm),
        )
    return [first, nn.Tanh(), second, nn.ReLU(), third, nn.Sigmoid(), fourth]


@pytest.mark.parametrize("hidden", [HIDDEN, 2])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_trainer_and_eager_loops_train_pairs_as_one_rank(ranks: int, hidden: int) -> None:
    x, y = data()

    def trained(comm: pdnn.comm.Communicator | None) -> nn.Sequential:
        model = nn.Sequential(*layers(comm, hidden), dtype="float64", seed=5)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), optimizer, strategy="serial", comm=pdnn.comm.SELF, seed=1
        )
        trainer.fit((x, y), epochs=3, batch_size=4, validation=(x, y), verbose=False)
        return model

    class Net(nn.Module):
        def __init__(self, comm: pdnn.comm.Communicator | None) -> None:
            super().__init__(dtype="float64", seed=5)
            self.parts = nn.ModuleList(layers(comm, hidden))

        def forward(self, x: Any) -> Any:
            for layer in self.parts:
                x = layer(x)
            return x

    def by_hand(comm: pdnn.comm.Communicator | None) -> nn.Module:
        model, criterion = Net(comm), nn.CrossEntropyLoss()
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        return model

    whole, whole_by_hand, wanted = trained(None), by_hand(None), nn.Sequential(*layers(None, hidden), seed=5)
    outputs = whole.predict(x)

    def check() -> None:
        comm = pdnn.world()
        fresh = nn.Sequential(*layers(comm, hidden), seed=5)
        check_part(fresh, wanted, comm)  # initial values, to the last bit
        model = trained(comm)
        check_part(model, whole, comm)
        np.testing.assert_allclose(model.predict(x), outputs, rtol=1e-12)
        check_part(by_hand(comm), whole_by_hand, comm)

    pdnn.run(check, ranks=ranks, backend="threads")


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_without_a_part_of_the_first_pair_goes_back_as_far_as_the_others(ranks: int) -> None:
    x, y = np.random.default_rng(0).standard_normal((8, 3)), np.arange(8) % 4

    def train(strategy: str) -> np.ndarray:
        pairs = nn.Linear(3, 1, bias=False), nn.Tanh(), nn.Linear(1, 6, bias=False), nn.Tanh()
        end = nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)
        model = nn.Sequential(*pairs, *end, dtype="float64", seed=1)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1), strategy=strategy
        )
        trainer.fit((x, y), 2, 4, verbose=False)
        return model.flat_parameters.copy()

    want = train("serial")
    for got in pdnn.run(train, f"tp:{ranks}", ranks=ranks, backend="threads"):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)


def test_initial_values_are_exactly_the_part() -> None:
    whole = [parameter.data for parameter in nn.Sequential(*layers(None, HIDDEN), seed=5).parameters()]

    def check() -> None:
        comm = pdnn.world()
        own = [parameter.data for parameter in nn.Sequential(*layers(comm, HIDDEN), seed=5).parameters()]
        np.testing.assert_array_equal(own[0], part(whole[0], 1, comm))
        np.testing.assert_array_equal(own[1], part(whole[1], 0, comm))
        np.testing.assert_array_equal(own[2], part(whole[2], 0, comm))
        np.testing.assert_array_equal(own[3], whole[3])

    pdnn.run(check, ranks=2, backend="threads")


def test_ranks_with_different_parts_are_no_replicas() -> None:
    x, y = data()

    def fit() -> None:
        model = nn.Sequential(*layers(pdnn.world(), 8), dtype="float64", seed=5)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1), strategy="ddp"
        )
        trainer.fit((x, y), epochs=1, batch_size=4, verbose=False)

    with pytest.raises(ValueError, match=r"rank 1 has layers .*'rank': 1"):
        pdnn.run(fit, ranks=2, backend="threads")


def test_widths_are_checked_and_a_layer_says_which_part_it_is() -> None:
    with pytest.raises(ValueError, match="ColumnParallelLinear: in_features = 0; expected an integer from 1"):
        nn.ColumnParallelLinear(0, 3, comm=pdnn.comm.SELF)
    layer = nn.RowParallelLinear(4, 3, bias=False, comm=pdnn.comm.SELF)
    assert repr(layer) == "RowParallelLinear(in_features=4, out_features=3, bias=False, rank=0, ranks=1)"


def test_the_norm_of_a_part_is_no_norm_to_clip_by() -> None:
    model = nn.Sequential(*layers(pdnn.comm.SELF, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="clip_norm needs the whole gradient"):
        pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, clip_norm=1.0)


@pytest.mark.parametrize("spec", ["pool:2", "hogwild:2"])
def test_workers_that_go_ahead_by_themselves_are_refused(spec: str) -> None:
    x, y = data()
    inner = nn.Residual(nn.ColumnParallelLinear(IN, IN, comm=pdnn.comm.SELF))
    for network in (nn.Sequential(*layers(pdnn.comm.SELF, 3)), nn.Sequential(inner, nn.Linear(IN, OUT))):
        optimizer = optim.SGD(network.parameters(), lr=0.1)
        trainer = pdnn.Trainer(network, nn.CrossEntropyLoss(), optimizer, strategy=spec)
        with pytest.raises(ValueError, match="dealt out to ranks needs them at the same passes"):
            trainer.fit((x, y), verbose=False)
