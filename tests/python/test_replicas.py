"""Ranks equal one process, as replicas or together, whichever way they agree; ranks as threads."""

from __future__ import annotations

import functools

import pytest

import pdnn
import replicas

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores


@functools.cache
def alone(model: str) -> replicas.Tensors:
    """What one process has trained."""
    return replicas.trained(replicas.NARROW[model], "serial", pdnn.comm.SELF)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("model", replicas.NARROW)
@pytest.mark.parametrize("way", replicas.WAYS)
def test_replicas_equal_one_process(way: str, model: str, ranks: int) -> None:
    if not replicas.fits(way, model, ranks):
        pytest.skip("pieces cannot synchronize a layer, or there are more stages than layers")
    case = replicas.NARROW[model]
    of_ranks = pdnn.run(lambda: replicas.WAYS[way](case, pdnn.world()), ranks=ranks, backend="threads")
    for got in of_ranks:
        replicas.check_equal(got, alone(model), case)


@pytest.mark.parametrize("spec", ["ddp", "ddp+team:2", "ddp+pool:2"])
def test_masks_of_dropout_are_those_of_one_process(spec: str) -> None:
    case = replicas.NARROW["cnn"]
    want = replicas.trained(case, "serial", pdnn.comm.SELF, dropout=0.4)
    with pytest.raises(AssertionError, match="off by"):
        replicas.check_equal(alone("cnn"), want, case)
    for got in pdnn.run(
        lambda: replicas.trained(case, spec, pdnn.world(), dropout=0.4), ranks=3, backend="threads"
    ):
        replicas.check_equal(got, want, case)


def test_the_comparison_sees_a_mean_of_means() -> None:
    case = replicas.NARROW["mlp"]

    def mean_of_means() -> replicas.Tensors:
        comm = pdnn.world()
        model = case.build(0)
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: comm.all_reduce(gradient, op="mean"))
        optimizer = case.optimizer(model.parameters())
        x, y = case.data()
        for start in range(0, len(x), case.batch):
            cut = slice(start, start + case.batch)
            own = slice(comm.rank, None, comm.size)  # 4 and 3 rows of 7, as if they weighed the same
            optimizer.zero_grad()
            case.loss(model(x[cut][own]), y[cut][own]).backward()
            optimizer.step()
        return replicas.tensors(model)

    got = pdnn.run(mean_of_means, ranks=2, backend="threads")[0]
    with pytest.raises(AssertionError, match="off by"):
        replicas.check_equal(got, alone("mlp"), case)
