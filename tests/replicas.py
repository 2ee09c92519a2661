"""Ways in which ranks train a network, as replicas or together, and networks: each must equal one process.

As a script it is what MPI ranks run: ``replicas.py NARROW FULL``, the names of cases.

Every case is five steps in float64, the last of fewer rows. The narrow networks' batches have 7 rows and the
last one 2, so that ranks 2 and 3 have none. What may differ is the order in which gradients are added, so
tensors are compared by max |a - b| / max |b|, within what five steps make of such a difference.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

import pdnn
from pdnn import ddp, exercises, models, nn, optim
from pdnn.strategies import DataParallel, Engine, Grid, Pipeline, Pool, Serial, Team, TensorParallel

Array = npt.NDArray[Any]
Tensors = dict[str, Array]

STEPS, CLASSES = 5, 5


@dataclass(frozen=True)
class Case:
    """A network, how it is trained, and how far rounding may take it.

    Parameters
    ----------
    build : function
        Makes the model; called with the probability of its Dropout, if it has any.
    loss : Loss
    optimizer : function
        Makes the optimizer of the parameters that it is given.
    sample : tuple of int
    tolerance : float
    batch, last : int
        Rows of a batch, and of the last one.
    """

    build: Callable[[float], nn.Sequential]
    loss: nn.Loss
    optimizer: Callable[[Any], optim.Optimizer]
    sample: tuple[int, ...]
    tolerance: float
    batch: int = 7
    last: int = 2

    def data(self) -> tuple[Array, Array]:
        """Samples and classes of all five batches."""
        rng = np.random.default_rng(1)
        rows = (STEPS - 1) * self.batch + self.last
        return rng.standard_normal((rows, *self.sample)), rng.integers(0, CLASSES, rows)


def _sgd(lr: float) -> Callable[[Any], optim.Optimizer]:
    return lambda parameters: optim.SGD(parameters, lr=lr, momentum=0.9)


def _adam(parameters: Any) -> optim.Optimizer:
    return optim.Adam(parameters, lr=1e-3, weight_decay=1e-3)


def _narrow_cnn(dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(1, 3, 5), nn.MaxPool2d(2), nn.ReLU()]
    layers += [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(dropout), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 6), nn.Linear(6, CLASSES)]
    return nn.Sequential(*layers, nn.LogSoftmax(), dtype="float64", seed=4)


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=(kernel - 1) // 2)
    return [convolution, nn.BatchNorm2d(outputs, sync=True), nn.ReLU()]


def _narrow_resnet(_: float) -> nn.Sequential:
    return nn.Sequential(
        *_conv_bn(3, 3, 5, 2),
        nn.Residual(nn.Sequential(*_conv_bn(3, 3, 3, 1), *_conv_bn(3, 3, 3, 1))),
        *_conv_bn(3, 4, 3, 2),
        nn.Residual(nn.Sequential(*_conv_bn(4, 4, 3, 1), *_conv_bn(4, 4, 3, 1))),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.ReLU(),
        nn.Linear(6, CLASSES),
        dtype="float64",
        seed=4,
    )


def _mlp(*sizes: int, activation: str, bias: bool) -> Callable[[float], nn.Sequential]:
    return lambda _: models.mlp(sizes, activation, bias=bias, dtype="float64", seed=4)


NARROW = {
    "mlp": Case(
        _mlp(20, 9, CLASSES, activation="sigmoid", bias=True), nn.CrossEntropyLoss(), _sgd(0.1), (20,), 1e-12
    ),
    "tanh": Case(
        _mlp(16, 8, 8, 8, CLASSES, activation="tanh", bias=False),
        nn.CrossEntropyLoss(),
        _sgd(0.1),
        (16,),
        1e-10,
    ),
    "cnn": Case(_narrow_cnn, nn.NLLLoss(), _sgd(0.1), (1, 16, 16), 1e-12),
    "resnet": Case(_narrow_resnet, nn.CrossEntropyLoss(), _adam, (3, 8, 8), 1e-9),
}
FULL = {
    "mlp": Case(
        _mlp(784, 256, 10, activation="sigmoid", bias=True),
        nn.CrossEntropyLoss(),
        _sgd(0.01),
        (784,),
        1e-12,
        105,
        52,
    ),
    "tanh": Case(
        _mlp(1024, 256, 256, 256, 32, activation="tanh", bias=False),
        nn.CrossEntropyLoss(),
        _sgd(0.1),
        (1024,),
        1e-10,
        64,
        31,
    ),
    "cnn": Case(
        lambda dropout: exercises.lenet_psgd(dropout=dropout, dtype="float64", seed=4),
        nn.NLLLoss(),
        _sgd(0.1),
        (1, 32, 32),
        1e-12,
        25,
        12,
    ),
    "resnet": Case(
        lambda _: models.ResNet9(dtype="float64", seed=4),
        nn.CrossEntropyLoss(),
        _adam,
        (3, 32, 32),
        1e-9,
        25,
        12,
    ),
}


def trained(case: Case, strategy: Any, comm: pdnn.comm.Communicator, dropout: float = 0) -> Tensors:
    """By a Trainer; a rank other than 0 starts from other values, which it must not keep."""
    model = case.build(dropout)
    model.flat_parameters[:] += comm.rank
    trainer = pdnn.Trainer(model, case.loss, case.optimizer(model.parameters()), strategy=strategy, comm=comm)
    trainer.fit(case.data(), batch_size=case.batch, shuffle=False, verbose=False)
    return tensors(model)


def agreed(
    case: Case,
    comm: pdnn.comm.Communicator,
    engine: Engine,
    buckets: int | None = 0,
    shared_memory: bool | None = None,
) -> Tensors:
    """By a Trainer, data parallel; 0 buckets: as many as it likes, if any."""
    size = None if buckets == 0 else _bucket_bytes(case.build(0), buckets)
    return trained(case, DataParallel(engine, bucket_bytes=size, shared_memory=shared_memory), comm)


def of_different_engines(case: Case, comm: pdnn.comm.Communicator, buckets: int | None = 0) -> Tensors:
    """By a Trainer, data parallel, every other rank with a pool, by the same leaves."""
    return agreed(case, comm, Pool(2) if comm.rank % 2 else Serial(8), buckets)


def split(case: Case, comm: pdnn.comm.Communicator, engine: Engine) -> Tensors:
    """By a Trainer, tensor parallel: all ranks hold one replica together."""
    return trained(case, TensorParallel(comm.size, engine), comm)


def split_in_pairs(case: Case, comm: pdnn.comm.Communicator) -> Tensors:
    """By a Trainer; two ranks hold a replica together, if the number of ranks is even."""
    return trained(case, Grid(tensor=TensorParallel(2 - comm.size % 2), data=DataParallel()), comm)


def piped(case: Case, comm: pdnn.comm.Communicator, schedule: str, engine: Engine | None = None) -> Tensors:
    """By a Trainer; a stage, or two, on each rank, and micro-batches that do not divide a batch."""
    return trained(case, Pipeline(comm.size, 3, schedule, engine=engine or Serial()), comm)


def piped_in_pairs(case: Case, comm: pdnn.comm.Communicator) -> Tensors:
    """By a Trainer; replicas of two stages, if the number of ranks is even."""
    return trained(case, Grid(Pipeline(2 - comm.size % 2, 3), data=DataParallel()), comm)


def piped_and_split(case: Case, comm: pdnn.comm.Communicator) -> Tensors:
    """By a Trainer; the ranks of a stage, two of them if their number is even, cut its layers."""
    pairs = 2 - comm.size % 2
    return trained(case, Grid(Pipeline(comm.size // pairs, 3), TensorParallel(pairs)), comm)


def by_hand(case: Case, comm: pdnn.comm.Communicator) -> Tensors:
    """By a loop whose hooks add up the gradients: every rank has its rows of each batch."""
    model = case.build(0)
    for parameter in model.parameters():
        comm.broadcast(parameter.data, root=0)
        parameter.register_hook(lambda gradient: comm.all_reduce(gradient))
    optimizer = case.optimizer(model.parameters())
    criterion = type(case.loss)(reduction="sum")
    for batch, x, y in _own_rows(case, comm):
        optimizer.zero_grad()
        (criterion(model(x), y) / batch).backward()
        optimizer.step()
    return tensors(model)


def horovod_style(case: Case, comm: pdnn.comm.Communicator, buckets: int | None) -> Tensors:
    """By a loop with a `ddp.DistributedOptimizer`; about so many buckets, None: one for each parameter."""
    model = case.build(0)
    ddp.broadcast_parameters(model)
    optimizer = ddp.DistributedOptimizer(
        case.optimizer(model.parameters()),
        bucket_bytes=1 if buckets is None else _bucket_bytes(model, buckets),
    )
    for _, x, y in _own_rows(case, comm):
        optimizer.zero_grad()
        case.loss(model(x), y).backward()
        optimizer.step()
    return tensors(model)


def _own_rows(case: Case, comm: pdnn.comm.Communicator) -> Iterator[tuple[int, Array, Array]]:
    """The rows of every batch on all ranks, and this rank's of them."""
    x, y = case.data()
    for start in range(0, len(x), case.batch):
        batch = np.arange(start, min(start + case.batch, len(x)))
        own = np.array_split(batch, comm.size)[comm.rank]
        yield len(batch), x[own], y[own]


def _bucket_bytes(model: nn.Module, buckets: int | None) -> int:
    """The size of a bucket that cuts a model in about so many; None: in as many as it has parameters."""
    sizes = [parameter.data.nbytes for parameter in model.parameters()]
    return -(-sum(sizes) // (buckets or len(sizes)))


SCHEDULES = ("gpipe", "1f1b", "interleaved")
BUCKETS = {"a bucket for each parameter": None, "seven buckets": 7, "one bucket": 1}
ENGINES = {"": Serial(), "+team:2": Team(2), "+pool:2": Pool(2)}
WAYS: dict[str, Callable[[Case, pdnn.comm.Communicator], Tensors]] = {
    **{f"ddp{name}": partial(agreed, engine=engine) for name, engine in ENGINES.items()},
    **{
        f"ddp{name}, shared memory": partial(agreed, engine=engine, shared_memory=True)
        for name, engine in ENGINES.items()
    },
    **{
        f"ddp{name}, {cut}": partial(agreed, engine=engine, buckets=number)
        for name, engine in ENGINES.items()
        for cut, number in BUCKETS.items()
    },
    "ddp, a pool on some ranks": of_different_engines,
    "ddp, a pool on some ranks, seven buckets": partial(of_different_engines, buckets=7),
    "hooks": by_hand,
    **{f"pdnn.ddp, {cut}": partial(horovod_style, buckets=number) for cut, number in BUCKETS.items()},
    "tp": partial(split, engine=Serial()),
    "tp+team:2": partial(split, engine=Team(2)),
    "tp:2 x ddp": split_in_pairs,
    **{f"pipeline, {name}": partial(piped, schedule=name) for name in SCHEDULES},
    "pipeline+team:2": partial(piped, schedule="1f1b", engine=Team(2)),
    "pipeline:2 x ddp": piped_in_pairs,
    "pipeline x tp:2": piped_and_split,
}
"""How ranks may train a case together, by name."""
WITH_FULL = (
    "ddp",
    "ddp+team:2",
    "ddp, shared memory",
    "ddp, seven buckets",
    "hooks",
    "pdnn.ddp, seven buckets",
    "tp",
    "pipeline, 1f1b",
)
"""Those that also train the networks of full size."""


def fits(way: str, model: str, ranks: int) -> bool:
    """Whether a way can train a model: pieces that go one by one cannot synchronize, a stage has a layer."""
    if model == "resnet":
        return not ("pool" in way or "pipeline" in way)
    if "pipeline" not in way:
        return True
    stages = min(ranks, 3) if " x " in way else ranks * (2 if "interleaved" in way else 1)
    return stages <= len(NARROW[model].build(0))


def tensors(model: nn.Module) -> Tensors:
    """Copies of the parameters and of what layers have learned beside."""
    return {name: np.array(value) for name, value in model.state_dict().items()}


def check_equal(got: Mapping[str, Array], want: Mapping[str, Array], case: Case) -> None:
    """Raises AssertionError where a tensor is further off than the case's tolerance; names it."""
    assert got.keys() == want.keys()
    drifting = _biases_before_normalization(case)
    for name, values in want.items():
        difference, largest = np.abs(got[name] - values).max(), np.abs(values).max()
        tolerance = case.tolerance * (1000 if name in drifting else 1)
        assert difference <= tolerance * largest, f"{name}: off by {difference / largest:.1e}"


@cache
def _biases_before_normalization(case: Case) -> set[str]:
    """Biases that a BatchNorm takes away again: Adam makes steps of a gradient that is rounding alone."""
    model = case.build(0)
    modules = list(model.modules())
    normalized = [
        module.bias
        for module, following in pairwise(modules)
        if isinstance(module, nn.Conv2d) and isinstance(following, nn.BatchNorm2d)
    ]
    return {name for name, own in model.named_parameters() if any(own is bias for bias in normalized)}


def check(model: str, case: Case, ways: Iterable[str], comm: pdnn.comm.Communicator) -> None:
    """Trains one case in some ways, and in one process."""
    want = trained(case, "serial", pdnn.comm.SELF)
    for way in ways:
        if fits(way, model, comm.size):
            try:
                check_equal(WAYS[way](case, comm), want, case)
            except Exception as error:
                raise AssertionError(f"{way}, {model}, rank {comm.rank} of {comm.size}: {error}") from error


def main(narrow: str, full: str) -> None:
    """The ranks' program; the arguments are names with commas between them."""
    warnings.filterwarnings("ignore", "strategy", UserWarning)  # more threads than cores
    comm = pdnn.world()
    for model in filter(None, narrow.split(",")):
        check(model, NARROW[model], WAYS, comm)
    for model in filter(None, full.split(",")):
        check(model, FULL[model], WITH_FULL, comm)
    print(f"rank {comm.rank} of {comm.size}: all equal", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
