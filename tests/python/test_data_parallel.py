"""Data parallel, ranks as threads: how gradients travel, what is added up, what is left afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim, strategies
from pdnn.callbacks import Callback
from pdnn.strategies import DataParallel, Pool, Team
from processes import Completed

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

RNG = np.random.default_rng(5)
DATA = RNG.standard_normal((44, 300)), RNG.integers(0, 5, 44)
CHOICES = [
    DataParallel(shared_memory=True),
    DataParallel(shared_memory=False),
    DataParallel(Team(2), shared_memory=True),
    DataParallel(Pool(2, 3), shared_memory=True),
    DataParallel(bucket_bytes=40_000),
    DataParallel(Team(2), bucket_bytes=4_000),
]


def trained(
    strategy: Any, *, lr: float = 0.1, seed: int = 3, rule: str = "adam", **options: Any
) -> pdnn.Trainer:
    """Two epochs in batches of 12; the first weight is large enough to be dealt out by panels."""
    model = models.mlp([300, 70, 5], "tanh", dtype="float64", seed=seed)
    optimizer = (
        optim.Adam(model.parameters(), lr=lr) if rule == "adam" else optim.SGD(model.parameters(), lr=lr)
    )
    comm = pdnn.comm.SELF if strategy == "serial" else None
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy, comm=comm)
    trainer.fit(DATA, **({"epochs": 2, "batch_size": 12, "verbose": False} | options))
    return trainer


def left(trainer: pdnn.Trainer) -> dict[str, np.ndarray]:
    """Parameters, gradients of the last step, and what the optimizer remembers."""
    gradients = np.concatenate([parameter.grad.ravel() for parameter in trainer.model.parameters()])
    arrays = trainer.optimizer.state_arrays()
    return {"parameters": trainer.model.flat_parameters, "gradients": gradients, **arrays}


@pytest.mark.parametrize("strategy", ["scatter-gather", "pipeline:2"])
def test_every_rank_ends_with_the_state_of_the_optimizer(strategy: str) -> None:
    def steps_after(strategy: str) -> np.ndarray:
        trainer = trained(strategy)
        for _ in range(3):
            trainer.model.step(*DATA, trainer.loss, trainer.optimizer)
        return trainer.model.flat_parameters

    want = steps_after("serial")
    for got in pdnn.run(lambda: steps_after(strategy), ranks=2, backend="threads"):
        assert np.abs(got - want).max() <= 1e-12 * np.abs(want).max()


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("strategy", CHOICES, ids=repr)
def test_parameters_gradients_and_memory_are_those_of_one_process(strategy: DataParallel, ranks: int) -> None:
    want = left(trained("serial"))
    for got in pdnn.run(lambda: left(trained(strategy)), ranks=ranks, backend="threads"):
        for name, array in want.items():
            assert np.abs(got[name] - array).max() <= 1e-12 * np.abs(array).max(), name


@pytest.mark.parametrize(("ranks", "batches"), [(2, (1, 64, 65, 66)), (3, (2, 96, 97, 98)), (4, (129, 130))])
@pytest.mark.parametrize("shared_memory", [True, False])
def test_ranks_with_other_numbers_of_rows_cut_the_gradient_alike(
    shared_memory: bool, ranks: int, batches: tuple[int, ...]
) -> None:
    """Small networks are computed in another way for up to 32 rows than for more or none."""
    rows = RNG.standard_normal((2 * max(batches), 6)), RNG.integers(0, 3, 2 * max(batches))

    def train(strategy: Any, batch: int) -> np.ndarray:
        model = models.mlp([6, 8, 3], "tanh", dtype="float64", seed=1)
        sgd = optim.SGD(model.parameters(), 0.01, momentum=0.9)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        trainer.fit(rows, 2, batch, verbose=False)
        return model.flat_parameters.copy()

    for batch in batches:
        want = train("serial", batch)
        for got in pdnn.run(
            train, DataParallel(shared_memory=shared_memory), batch, ranks=ranks, backend="threads"
        ):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-12, err_msg=f"batch {batch}")


@pytest.mark.parametrize("strategy", CHOICES, ids=repr)
def test_clipping_sees_the_gradient_of_the_whole_batch(strategy: DataParallel) -> None:
    def clipped(strategy: Any) -> dict[str, np.ndarray]:
        model = models.mlp([300, 70, 5], "tanh", dtype="float64", seed=3)
        sgd = optim.SGD(model.parameters(), lr=0.5)
        comm = pdnn.comm.SELF if strategy == "serial" else None
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), sgd, strategy=strategy, comm=comm, clip_norm=0.01
        )
        trainer.fit(DATA, epochs=1, batch_size=12, verbose=False)
        return left(trainer)

    want = clipped("serial")
    for got in pdnn.run(lambda: clipped(strategy), ranks=2, backend="threads"):
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shared", [True, False])
def test_the_sum_of_the_ranks_means_is_a_step_as_many_times_as_long(shared: bool) -> None:
    want = trained("serial", lr=0.2, rule="sgd", shuffle=False).model.flat_parameters
    strategy = DataParallel(average="sum", shared_memory=shared)
    for got in pdnn.run(
        lambda: trained(strategy, lr=0.1, rule="sgd", shuffle=False), ranks=2, backend="threads"
    ):
        np.testing.assert_allclose(got.model.flat_parameters, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("strategy", CHOICES, ids=repr)
def test_parameters_state_and_optimizer_are_rank_zeros_from_the_start(strategy: DataParallel) -> None:
    def continued() -> np.ndarray:
        rank = pdnn.world().rank
        model = models.mlp([300, 70, 5], "tanh", dtype="float64", seed=rank)
        adam = optim.Adam(model.parameters(), lr=0.1)
        alone = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy="serial", comm=pdnn.comm.SELF)
        alone.fit(DATA, epochs=1 + rank, batch_size=12, verbose=False)
        together = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy)
        together.fit(DATA, epochs=1, batch_size=12, verbose=False)
        return model.flat_parameters

    one, other = pdnn.run(continued, ranks=2, backend="threads")
    np.testing.assert_array_equal(one, other)
    alone = pdnn.run(continued, ranks=1, backend="threads")[0]
    np.testing.assert_allclose(one, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("strategy", CHOICES, ids=repr)
def test_callbacks_see_the_model_of_now_and_may_change_it(strategy: DataParallel) -> None:
    class Halve(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            trainer.model.flat_parameters[:] *= 0.5

    want = trained("serial", callbacks=[Halve()]).model.flat_parameters
    for got in pdnn.run(lambda: trained(strategy, callbacks=[Halve()]), ranks=2, backend="threads"):
        np.testing.assert_allclose(got.model.flat_parameters, want, rtol=0, atol=1e-12)


def test_history_tells_what_was_hidden() -> None:
    for strategy in CHOICES:
        for trainer in pdnn.run(lambda s=strategy: trained(s), ranks=2, backend="threads"):
            assert len(trainer.history.hidden) == 2
            assert all(0 <= share <= 1 for share in trainer.history.hidden)
            assert all(epoch["agreement"] + epoch["hidden"] > 0 for epoch in trainer.history.phases)
    assert trained("serial").history.hidden == [0, 0]


def test_how_it_is_spelled() -> None:
    assert strategies.parse("ddp:sum") == DataParallel(average="sum")
    assert strategies.parse("ddp:sum+team:2") == DataParallel(Team(2), average="sum")
    assert str(DataParallel(Pool(2), average="sum")) == "ddp:sum+pool:2/8"
    with pytest.raises(ValueError, match=r'average "max"; expected "mean" or "sum"'):
        DataParallel(average="max")
    with pytest.raises(ValueError, match="bucket_bytes = 0; expected an integer from 1"):
        DataParallel(bucket_bytes=0)
    with pytest.raises(ValueError, match="shared_memory=True sends none"):
        DataParallel(bucket_bytes=8, shared_memory=True)


def test_ranks_that_want_to_travel_differently_are_refused() -> None:
    def differ() -> str:
        with pytest.raises(ValueError, match=r"rank 1 has strategy ddp .*800.* rank 0 has ddp") as caught:
            trained(DataParallel(bucket_bytes=800) if pdnn.world().rank else "ddp")
        return str(caught.value)

    one, other = pdnn.run(differ, ranks=2, backend="threads")
    assert one == other


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("validation", (DATA, None), "validation rows None, rank 0 has 44"),
        ("checkpoint", ("run", None), "checkpoints False, rank 0 has True"),
        ("every", (1, 2), "every 2, rank 0 has 1"),
        ("every_steps", (3, None), "every_steps None, rank 0 has 3"),
        ("elastic", (3, 4), "elastic 4, rank 0 has 3"),
    ],
)
def test_ranks_that_would_pause_at_other_steps_are_refused(
    name: str, values: tuple[Any, Any], told: str, tmp_path: Path
) -> None:
    """The classic mistake: ``if rank == 0`` around the validation or the checkpoint."""

    def differ() -> None:
        options = {"checkpoint": tmp_path} if name.startswith("every") else {}
        own = values[pdnn.world().rank]
        with pytest.raises(ValueError, match=f"fit: rank 1 has {told}; every rank must start the same job"):
            trained("ddp", **options, **{name: tmp_path / own if isinstance(own, str) else own})

    pdnn.run(differ, ranks=2, backend="threads")


def test_ranks_with_fewer_rows_are_told_of_rows() -> None:
    """And not of batches, which are no larger than all rows."""

    def differ() -> None:
        model = models.mlp([12, 4], seed=1)
        sgd, rows = optim.SGD(model.parameters(), lr=0.1), 8 - 2 * pdnn.world().rank
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="ddp")
        trainer.fit(np.ones((rows, 12)), np.zeros(rows, int), verbose=False)

    with pytest.raises(ValueError, match="fit: rank 1 has training rows 6, rank 0 has 8"):
        pdnn.run(differ, ranks=2, backend="threads")


@pytest.mark.parametrize("what", ["x", "y", "weight", "scale", "rows", "validation"])
def test_ranks_that_hold_different_data_are_refused(what: str) -> None:
    """The classic mistake: rows drawn, or divided into parts, without a seed."""

    def differ() -> None:
        mine = {"x": np.ones((300, 6)), "y": np.arange(300) % 3, "weight": np.ones(300), "scale": 1.0}
        mine |= {"rows": np.arange(300) // 2, "validation": np.ones((4, 6))}
        if pdnn.world().rank == 1:
            mine[what] = mine[what] * 2
        held_out = mine.pop("validation"), np.zeros(4, int)
        rows = mine.pop("rows")
        of = "validation" if what == "validation" else "training"
        told = rf"fit: rank 1 has {of} data with the digest \w{{8}}, rank 0 has \w{{8}}; .* on the same data"
        model = models.mlp([6, 5])
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1), strategy="ddp"
        )
        with pytest.raises(ValueError, match=told):
            trainer.fit(pdnn.data.Dataset(**mine)[rows], validation=held_out)

    pdnn.run(differ, ranks=2, backend="threads")


@pytest.mark.parametrize("where", ["on_train_begin", "on_epoch_end", "on_train_end"])
@pytest.mark.parametrize("strategy", CHOICES, ids=repr)
def test_a_rank_that_fails_between_steps_releases_the_others(strategy: DataParallel, where: str) -> None:
    def fail(*_: object) -> None:
        if pdnn.world().rank == 1:
            raise KeyError("the real one")

    callback = Callback()
    setattr(callback, where, fail)

    heard: list[str] = []

    def train() -> None:
        try:
            trained(strategy, callbacks=[callback])
        except pdnn.CommunicationError as error:
            heard.append(str(error))
            raise

    with pytest.raises(KeyError, match="the real one"):
        pdnn.run(train, ranks=2, backend="threads")
    assert heard == ["communicator: rank 1 failed"]


@pytest.mark.parametrize(("key", "value"), [("lr", 0.01), ("weight_decay", 0.5)])
def test_a_number_of_a_group_that_one_rank_alone_changes_is_told_on_all(key: str, value: float) -> None:
    class Change(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            if pdnn.world().rank == 0:
                trainer.optimizer.param_groups[0][key] = value

    def work() -> None:
        told = f"rank 1 has groups .*, rank 0 has .*'{key}': {value}.*must set the same on every rank"
        with pytest.raises(ValueError, match=told):
            trained("ddp", callbacks=[Change()])

    pdnn.run(work, ranks=2, backend="threads")


@pytest.mark.parametrize("strategy", CHOICES, ids=repr)
def test_ranks_that_catch_an_error_of_one_of_them_train_on(strategy: DataParallel) -> None:
    class Fails(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            if pdnn.world().rank == 1:
                raise LookupError("rank 1 has had enough")

    def job() -> Any:
        model = models.mlp([300, 70, 5], "tanh", dtype="float64", seed=3)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        options: dict[str, Any] = {"validation": DATA, "verbose": False}
        with pytest.raises(LookupError if pdnn.world().rank == 1 else pdnn.CommunicationError):
            trainer.fit(DATA, 2, 12, callbacks=[Fails()], **options)
        trainer.fit(DATA, 2, 12, **options)
        return trainer.epoch, trainer.model.flat_parameters

    (epochs, first), (_, second) = pdnn.run(job, ranks=2, backend="threads")
    assert epochs == 3  # the epoch before the error counts
    np.testing.assert_array_equal(first, second)


def test_views_of_optimizer_state_outlive_the_epoch_they_were_taken_in(
    run_python: Callable[..., Completed],
) -> None:
    code = """
import gc
import numpy as np
import pdnn
from pdnn import models, nn, optim
from pdnn.progress import Progress
from pdnn.strategies import DataParallel

x, y = np.ones((400_000, 20), np.float32), np.arange(400_000) % 4

class Enough(Exception): pass

def job():
    model = models.mlp([20, 300, 4], seed=3)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.Adam(model.parameters()), strategy=shared)
    views = []
    def at_step(self, *arguments):
        if pdnn.world().rank == 0:  # the threads of all ranks come here
            views.extend(trainer.optimizer.state_arrays().values())
            raise Enough
    if pdnn.world().rank == 0:
        Progress.at_step = at_step
    try:
        trainer.fit((x, y), 1, 4, verbose=False)
    except (Enough, pdnn.CommunicationError):
        pass
    del trainer, model
    gc.collect()
    return sum(float(view.sum()) for view in views) != 0, len(views) > 0

shared = DataParallel(shared_memory=True)
print(pdnn.run(job, ranks=2, backend="threads"))
"""
    assert "(True, True)" in run_python(["-W", "ignore::UserWarning", "-c", code]).stdout
