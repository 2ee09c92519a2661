"""Memory that is shared: parameters, Tensors, gradients and parts of models, seen by NumPy without a copy."""

from __future__ import annotations

import multiprocessing.pool
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import ddp, nn, optim

X = np.random.default_rng(0).normal(size=(6, 4))
Y = np.array([0, 1, 1, 0, 1, 0])
LOSS = nn.CrossEntropyLoss()


def small(**options: Any) -> nn.Sequential:
    layers = nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 2)
    return nn.Sequential(*layers, **{"seed": 1, "dtype": "float64", **options})


WAYS: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray,
    "asarray of its dtype": lambda a: np.asarray(a, dtype="float64"),
    "array without a copy": lambda a: np.array(a, copy=None if np.__version__ >= "2" else False),
    "as NumPy 1 asks": lambda a: a.__array__("float64"),
    "buffer": lambda a: np.asarray(a.__buffer__(0)),
    "DLPack": np.from_dlpack,
}


@pytest.mark.parametrize("way", WAYS)
def test_parameters_buffers_and_tensors_share_memory_with_arrays(way: str) -> None:
    model = small()
    (_, mean), *_ = model.named_buffers()
    for owner in (*model.parameters(), mean, model(X), LOSS(model(X), Y)):
        array = WAYS[way](owner)
        assert array.shape == owner.shape
        assert np.shares_memory(array, owner.data)
    assert np.shares_memory(WAYS[way](next(model.parameters())), model.flat_parameters)
    assert np.shares_memory(WAYS[way](mean), model.flat_buffers)


def test_writing_to_such_an_array_changes_the_model() -> None:
    model = small().eval()
    *_, weight, bias = map(np.asarray, model.parameters())
    before = model.predict(X)
    weight *= 2
    np.testing.assert_allclose(model.predict(X), 2 * (before - bias) + bias, rtol=1e-12)


def test_a_parameter_is_changed_in_place() -> None:
    """Not a copy of it, which would leave the model as it is."""
    model, want = small(), small().flat_parameters.copy()
    with pdnn.no_grad():
        for given in model.parameters():
            p = given
            p -= 0.5 * np.ones(p.shape)
            p += 2
            p *= np.float32(3)
            p /= 4
            assert p is given
    np.testing.assert_allclose(model.flat_parameters, (want + 1.5) * 0.75, rtol=1e-14)
    with pytest.raises(ValueError, match="broadcast"):
        p -= np.ones((2, *p.shape))


def test_images_of_a_convolution_are_a_view_too() -> None:
    tensor = nn.Sequential(nn.Conv2d(2, 3, 3))(np.ones((2, 2, 5, 5), np.float32))
    assert not tensor.data.flags.c_contiguous
    assert np.shares_memory(np.asarray(tensor), tensor.data)
    assert np.shares_memory(np.from_dlpack(tensor), tensor.data)


def test_a_copy_is_made_where_one_is_asked_for() -> None:
    weight = next(small().parameters())
    for copy in (np.array(weight), weight.__array__(copy=True), np.asarray(weight, dtype="float32")):
        assert not np.shares_memory(copy, weight.data)
        np.testing.assert_allclose(copy, weight.data, rtol=1e-6)
    assert np.asarray(weight, dtype="float32").dtype == np.float32
    with pytest.raises(ValueError, match=r"are float64; as float32.*copy=False"):
        weight.__array__("float32", copy=False)


@pytest.mark.parametrize("way", [np.asarray, np.from_dlpack])
def test_a_parameter_without_memory_is_no_array(way: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="belongs to no model yet"):
        way(nn.Linear(2, 2).weight)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python asks classes for buffers since 3.12")
def test_memoryview_of_a_parameter() -> None:
    weight = next(small().parameters())
    view = memoryview(weight)  # type: ignore[arg-type, unused-ignore]
    assert view.shape == (4, 3)
    assert np.shares_memory(np.asarray(view), weight.data)


def test_torch_shares_memory_too() -> None:
    torch = pytest.importorskip("torch")
    model = small()
    weight = torch.from_dlpack(next(model.parameters()))
    weight[0, 0] = 7
    assert model.flat_parameters[0] == 7
    outputs = model(X)
    assert np.shares_memory(torch.from_dlpack(outputs).numpy(), outputs.data)


# ---- gradients into the caller's memory


def test_a_gradient_is_written_to_the_callers_array() -> None:
    model = small()
    loss, want = model.gradient(X, Y, LOSS)
    rows = np.full((2, want.size), np.nan)
    value, gradient = model.gradient(X, Y, LOSS, out=rows[1])
    assert value == loss
    assert gradient.base is rows
    np.testing.assert_array_equal(rows[1], want)
    assert np.isnan(rows[0]).all()


def test_a_step_by_hand_without_a_copy() -> None:
    models = small(), small()
    descents = [optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    for _ in range(3):
        models[0].flat_gradients[...] = models[0].gradient(X, Y, LOSS)[1]
        _, gradient = models[1].gradient(X, Y, LOSS, out=models[1].flat_gradients)
        assert np.shares_memory(gradient, models[1][0].weight.grad)
        for descent in descents:
            descent.step()
    np.testing.assert_array_equal(models[0].flat_parameters, models[1].flat_parameters)


def test_threads_write_gradients_into_rows_of_one_array() -> None:
    model = small()
    batches = [(X[i:], Y[i:]) for i in range(5)]
    rows = np.empty((5, model.flat_parameters.size))
    with multiprocessing.pool.ThreadPool(3) as pool:
        pool.starmap(
            lambda batch, row: model.gradient(*batch, LOSS, out=row), zip(batches, rows, strict=True)
        )
    np.testing.assert_array_equal(rows, [model.gradient(*batch, LOSS)[1] for batch in batches])


def read_only(size: int) -> np.ndarray:
    array = np.zeros(size)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "kind", "words"),
    [
        (lambda size: [0.0] * size, TypeError, "out is of type list, expected a NumPy array"),
        (
            lambda size: np.zeros(size, np.float32),
            TypeError,
            "out: got an array of float32, expected float64",
        ),
        (lambda size: np.zeros(size + 1), ValueError, r"out has shape \(30,\), expected \(29,\)"),
        (lambda size: np.zeros((1, size)), ValueError, r"out has shape \(1, 29\), expected \(29,\)"),
        (lambda size: np.zeros(2 * size)[::2], ValueError, "out: the .* array is not C-contiguous"),
        (read_only, ValueError, "out: the array is read-only"),
    ],
)
def test_an_array_that_cannot_take_the_gradient_is_refused(
    out: Callable[[int], Any], kind: type[Exception], words: str
) -> None:
    model = small()
    with pytest.raises(kind, match=words):
        model.gradient(X, Y, LOSS, out=out(model.flat_parameters.size))


def test_a_gradient_does_not_overwrite_what_the_call_reads() -> None:
    model, batch = small(), np.zeros((10, 4))
    with pytest.raises(ValueError, match="out shares memory with the parameters"):
        model.gradient(X, Y, LOSS, out=model.flat_parameters)
    with pytest.raises(ValueError, match="out shares memory with x"):
        model.gradient(batch, np.zeros(10, int), LOSS, out=batch.ravel()[:29])
    targets = np.zeros((29, 2))
    with pytest.raises(ValueError, match="out shares memory with y"):
        model.gradient(np.zeros((29, 4)), targets, nn.MSELoss(), out=targets.ravel()[:29])


# ---- names for a flat array


def test_split_gives_names_and_shapes_to_a_flat_array() -> None:
    model = small()
    _, gradient = model.gradient(X, Y, LOSS)
    parts = model.split(gradient)
    assert {name: part.shape for name, part in parts.items()} == {
        name: parameter.shape for name, parameter in model.named_parameters()
    }
    assert all(np.shares_memory(part, gradient) for part in parts.values())
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in parts.values()]), gradient)
    parts["3.bias"][...] = 5
    np.testing.assert_array_equal(gradient[-2:], 5)
    parameters = model.split(model.flat_parameters)
    assert all(np.shares_memory(parameters[name], p.data) for name, p in model.named_parameters())


def test_split_shares_memory_of_any_dtype_and_step() -> None:
    model = small()
    for flat in (np.zeros(29, bool), np.zeros((29, 2))[:, 1], np.zeros(29)[::-1]):
        assert all(np.shares_memory(part, flat) for part in model.split(flat).values())


def test_split_of_a_part_counts_from_its_beginning() -> None:
    model = small()
    head = nn.Sequential(model, nn.Linear(2, 2))[1:]
    parts = head.split(np.arange(6.0))
    np.testing.assert_array_equal(parts["0.weight"], [[0, 1], [2, 3]])
    np.testing.assert_array_equal(parts["0.bias"], [4, 5])


@pytest.mark.parametrize(
    ("flat", "kind", "words"),
    [
        (np.zeros(28), ValueError, r"split: got shape \(28,\), expected \(29,\).*Sequential"),
        (np.zeros((29, 1)), ValueError, r"split: got shape \(29, 1\)"),
        ([0.0] * 29, TypeError, "split: got list"),
    ],
)
def test_split_refuses_another_shape(flat: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        small().split(flat)


# ---- parts of a Sequential


def test_a_slice_is_a_sequential_over_the_same_memory() -> None:
    model = small().eval()
    body, head = model[:3], model[3:]
    assert isinstance(body, nn.Sequential)
    assert [*body, *head] == list(model)
    assert np.shares_memory(body.flat_parameters, model.flat_parameters)
    assert len(body.flat_parameters) + len(head.flat_parameters) == len(model.flat_parameters)
    np.testing.assert_allclose(head.predict(body.predict(X)), model.predict(X), rtol=1e-12)
    head.flat_parameters[...] = 0
    assert not model.predict(X).any()
    assert list(body.state_dict()) == [name for name in model.state_dict() if not name.startswith("3.")]


def test_a_slice_taken_first_has_the_models_initial_values() -> None:
    head = small()[3:]
    np.testing.assert_array_equal(head.flat_parameters, small().flat_parameters[-8:])


def test_gradients_of_slices_are_the_models() -> None:
    model = small()
    _, want = model.gradient(X, Y, LOSS)
    body, head = model[:2], model[2:]
    LOSS(head(body(X)), Y).backward()
    np.testing.assert_allclose(model.flat_gradients, want, rtol=1e-10, atol=1e-14)
    assert np.shares_memory(body.flat_gradients, model.flat_gradients)


def test_what_a_slice_is_not() -> None:
    model = small()
    with pytest.raises(ValueError, match="slice with step 2"):
        model[::2]
    with pytest.raises(ValueError, match="belong to another model"):
        model[:2].gradient(X, np.zeros((6, 3)), nn.MSELoss())
    assert len(model[4:]) == 0
    assert model[-1] is model.layers[3]
    assert not small().eval()[:2].training


def test_predict_looks_for_signals_while_it_computes() -> None:
    model = nn.Sequential(nn.Linear(4, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1))
    x = np.ones((4096, 4), np.float32)

    def handler(*_: object) -> None:
        model.flat_parameters[...] = 0  # so outputs of rows that are computed afterwards are zero

    before = signal.signal(signal.SIGVTALRM, handler)
    model.predict(x[:1])
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)  # of processor time: within the first rows
        outputs = model.predict(x)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert outputs[0] != 0
    assert outputs[-1] == 0


# ---- ranks


def by_hand() -> None:
    """The exercise's wrapper, under the names that it has there."""
    comm = pdnn.world()
    given: list[np.ndarray] = []

    def hook(grad: np.ndarray) -> None:
        given.append(grad)
        comm.all_reduce(grad, op="mean")

    class MyDP(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module
            for p in module.parameters():
                comm.broadcast(np.asarray(p), root=0)
                p.register_hook(hook)

        def forward(self, x: Any) -> Any:
            return self.module(x)

    module = small(seed=comm.rank)
    model, memory = MyDP(module), module.flat_parameters
    np.testing.assert_array_equal(memory, small(seed=0).flat_parameters)
    descent = optim.SGD(model.parameters(), lr=0.1)
    before = memory.copy()
    LOSS(model(X[comm.rank :: comm.size]), Y[comm.rank :: comm.size]).backward()
    descent.step()
    shares(model, memory)
    np.testing.assert_allclose(memory, before - 0.1 * model.flat_gradients, rtol=1e-12)
    addresses = [
        [grad.ctypes.data for grad in grads] for grads in (given, [p.grad for p in model.parameters()])
    ]
    theirs, own = ({address - min(some) for address in some} for some in addresses)
    assert theirs == own and len(own) == len(given), "the gradients that hooks get lie in one array, too"


def horovod_style() -> None:
    """The ResNet9 exercise's loop, on a smaller network."""
    ddp.init()
    train_set, _ = ddp.partition_dataset(pdnn.data.Dataset(X, Y), 4, dtype="float64", verbose=False)
    model = small(seed=pdnn.world().rank)
    memory = model.flat_parameters
    ddp.broadcast_parameters(model)
    opt = ddp.DistributedOptimizer(optim.Adam(model.parameters(), lr=0.1))
    for x, y in train_set:
        opt.zero_grad()
        out = model(x)
        LOSS(out, y).backward()
        opt.step()
        assert np.shares_memory(out.numpy(), np.asarray(out))
        shares(model, memory)
    assert abs(memory - small(seed=0).flat_parameters).max() > 0.1


def shares(model: nn.Module, memory: np.ndarray) -> None:
    assert np.shares_memory(model.flat_parameters, memory)
    for parameter in model.parameters():
        assert np.shares_memory(np.asarray(parameter), memory)
        assert np.shares_memory(parameter.grad, model.flat_gradients)


@pytest.mark.parametrize("program", [by_hand, horovod_style])
def test_ranks_broadcast_reduce_and_update_in_the_models_own_memory(program: Callable[[], None]) -> None:
    pdnn.run(program, ranks=2, backend="threads")
