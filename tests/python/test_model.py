"""Models: memory shared with NumPy, copies, names, seeds, and what they refuse."""

from __future__ import annotations

import copy
import gc
import pickle
import time
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.comm import run_threads
from processes import Completed


def small(**options: object) -> nn.Sequential:
    layers = nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)
    return nn.Sequential(*layers, **{"seed": 1, **options})  # type: ignore[arg-type]


def test_parameters_share_memory_with_the_flat_array_and_the_core() -> None:
    model = small(dtype="float64")
    weight = next(model.parameters())
    x = np.ones((1, 4))
    before = model.predict(x)
    weight.data[...] = 0
    assert not model.flat_parameters[:12].any()
    assert (model.predict(x) != before).any()
    model.flat_parameters[:] = 2
    assert (weight.data == 2).all()
    model.layers[0].bias.data = [1, 2, 3]
    np.testing.assert_array_equal(model.flat_parameters[12:15], [1, 2, 3])


def test_views_outlive_the_model() -> None:
    model = small()
    weight, flat = next(model.parameters()).data, model.flat_parameters
    want = flat.copy()
    del model
    gc.collect()
    np.testing.assert_array_equal(flat, want)
    np.testing.assert_array_equal(weight.ravel(), want[:12])


def fitted(strategy: str) -> list[nn.Sequential]:
    x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
    model = small()
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=0.1), strategy=strategy
    )
    trainer.fit(x, y, 2, validation=(x, y), callbacks=[pdnn.callbacks.Callback()], verbose=False)
    trainer.predict(x)
    return [model]


def stepped() -> list[nn.Sequential]:
    x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
    by_hand, in_the_core = small(), small()
    optimizer = optim.SGD(by_hand.parameters(), lr=0.1)
    nn.CrossEntropyLoss()(by_hand(x), y).backward()
    optimizer.step()
    in_the_core.step(x, y, nn.CrossEntropyLoss(), optim.SGD(in_the_core.parameters(), lr=0.1))
    return [by_hand, in_the_core]


def copied() -> list[nn.Sequential]:
    model = small()
    model.flat_parameters[0] = 0
    return [model, copy.deepcopy(model), nn.Sequential(model), model[:2]]


@pytest.mark.parametrize(
    "made",
    [stepped, copied, *(partial(fitted, strategy) for strategy in ("serial", "team:2", "pool:2/2"))],
    ids=["stepped", "copied", "serial", "team", "pool"],
)
def test_a_model_that_nobody_has_is_gone_at_once(made: Callable[[], list[nn.Sequential]]) -> None:
    made()  # what is made once stays
    gc.collect()
    gc.disable()  # a service that makes models would have gigabytes of them before the collector comes
    try:
        models = made()
        memory = [weakref.ref(part) for model in models for part in (model, model.place().store)]
        del models
        assert [each for each in memory if each() is not None] == []
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_parameters_of_a_model_that_is_gone_are_still_where_they_were() -> None:
    model = small()
    flat, want, last = model.flat_parameters, model.flat_parameters.copy(), model.layers[2]
    optimizer = optim.SGD(last.parameters(), lr=1)
    del model
    for parameter in optimizer.parameters():
        parameter.grad = np.ones(parameter.shape)
    optimizer.step()
    want[15:] -= 1
    np.testing.assert_array_equal(flat, want)
    optimizer.zero_grad()
    assert not last.flat_gradients.any()
    whole = nn.Sequential(last, nn.Linear(2, 1))
    np.testing.assert_array_equal(whole.flat_parameters[:8], want[15:])


def test_a_parameter_refuses_another_shape() -> None:
    weight = next(small().parameters())
    with pytest.raises(ValueError, match=r"0\.weight.*\(3, 4\).*\(4, 3\)"):
        weight.data = np.zeros((3, 4))
    with pytest.raises(ValueError, match=r"0\.weight.*\(3, 4\).*\(4, 3\)"):
        weight.grad = np.zeros((3, 4))


def test_assigning_values_or_a_gradient_copies_into_the_flat_arrays() -> None:
    model = small(dtype="float64")
    weight = next(model.parameters())
    weight.data = np.full((4, 3), 5.0)
    weight.grad = np.full((4, 3), 2.0)
    weight.grad *= 3
    weight.data -= 0.5 * weight.grad
    assert (model.flat_gradients[:12] == 6).all() and (model.flat_parameters[:12] == 2).all()


def test_a_parameter_of_no_model_says_so() -> None:
    with pytest.raises(ValueError, match="belongs to no model"):
        _ = nn.Linear(2, 2).weight.data


@pytest.mark.parametrize(
    ("x", "kind", "words"),
    [
        (np.zeros((2, 5)), ValueError, "input has 5 features, this layer takes 4"),
        (np.zeros((2, 4), np.float32), TypeError, "float32.*expected float64"),
        (np.zeros((2, 4), np.uint8), TypeError, "uint8.*scale"),
        (np.zeros((4, 2)).T, ValueError, "not C-contiguous"),
        (np.zeros(4), ValueError, "one row a sample"),
        (np.zeros((2, 2, 2)), ValueError, "Flatten"),
        ([[1.0] * 4], TypeError, "NumPy array"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_by_name(x: object, kind: type[Exception], words: str) -> None:
    model = small(dtype="float64")
    with pytest.raises(kind, match=words):
        model.predict(x)  # type: ignore[arg-type]
    with pytest.raises(kind, match=words):
        model.gradient(x, np.zeros(2, np.int64), nn.CrossEntropyLoss())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("y", "loss", "kind", "words"),
    [
        (np.array([0, 2]), nn.CrossEntropyLoss(), ValueError, "label 2 of row 1 is outside 0 … 1"),
        (np.array([0, -1]), nn.CrossEntropyLoss(), ValueError, "label -1 of row 1"),
        (np.array([0]), nn.CrossEntropyLoss(), ValueError, r"\(1,\) for 2 samples"),
        (np.array([[1, 1], [0, 1]]), nn.CrossEntropyLoss(), ValueError, "not one-hot"),
        (np.zeros((2, 3)), nn.CrossEntropyLoss(), ValueError, r"\(2, 3\), expected \(n,\) or \(n, 2\)"),
        (np.array([0, 1]), nn.MSELoss(), ValueError, "targets are classes"),
        (np.array([0, 39]), nn.MSELoss(), ValueError, r"targets are classes, expected values .* \(n, 2\)"),
        (np.zeros((2, 3)), nn.MSELoss(), ValueError, r"have shape \(2, 3\), expected \(n, 2\)"),
        (np.zeros((2, 2)), nn.NLLLoss(), ValueError, "one class a row"),
        (np.array(["a", "b"]), nn.CrossEntropyLoss(), TypeError, "expected integers or floats"),
        (np.zeros(2), nn.CrossEntropyLoss(), ValueError, "integer classes"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    y: np.ndarray, loss: nn.Loss, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        small().gradient(np.zeros((2, 4), np.float32), y, loss)


def test_one_hot_rows_are_classes() -> None:
    model, x, y = small(), np.ones((3, 4), np.float32), np.array([1, 0, 1])
    want = model.gradient(x, y, nn.CrossEntropyLoss())
    for labels in (np.eye(2, dtype=np.uint8)[y], np.eye(2)[y], np.eye(2, dtype=bool)[y], y.astype(np.uint8)):
        loss, gradient = model.gradient(x, labels, nn.CrossEntropyLoss())
        assert loss == pytest.approx(want[0])
        np.testing.assert_allclose(gradient, want[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_equal_and_independent(duplicate: object) -> None:
    model = small()
    model.flat_parameters[:] = np.arange(23)
    twin = duplicate(model)  # type: ignore[operator]
    np.testing.assert_array_equal(twin.flat_parameters, model.flat_parameters)
    next(twin.parameters()).data[...] = 0
    assert not twin.flat_parameters[:12].any()
    assert model.flat_parameters[1] == 1


def test_names_and_shapes_are_torchs_order() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 3)), nn.Linear(3, 2, bias=False))
    shapes = [(name, parameter.shape) for name, parameter in model.named_parameters()]
    assert shapes == [("0.0.weight", (4, 3)), ("0.0.bias", (3,)), ("1.weight", (3, 2))]


def test_seeds_decide_initial_values() -> None:
    assert (small(seed=1).flat_parameters == small(seed=1).flat_parameters).all()
    assert (small(seed=1).flat_parameters != small(seed=2).flat_parameters).any()
    pdnn.manual_seed(3)
    first, second = small(seed=None).flat_parameters, small(seed=None).flat_parameters
    pdnn.manual_seed(3)
    np.testing.assert_array_equal(small(seed=None).flat_parameters, first)
    assert (first != second).any()


def test_initializers_have_their_widths() -> None:
    def weight(init: nn.init.Initializer) -> np.ndarray:
        layer = nn.Linear(300, 200, weight_init=init, bias_init=nn.init.constant(0.5))
        nn.Sequential(layer, dtype="float64", seed=0).flat_parameters  # noqa: B018
        assert layer.bias is not None
        assert (layer.bias.data == 0.5).all()
        return layer.weight.data

    for init, bound in [
        (nn.init.uniform(0.12), 0.12),
        (nn.init.fan_in_uniform(), 300**-0.5),
        (nn.init.kaiming_uniform(), (6 / 300) ** 0.5),
        (nn.init.xavier_uniform(), (6 / 500) ** 0.5),
    ]:
        values = weight(init)
        assert np.abs(values).max() <= bound
        assert values.std() == pytest.approx(bound / 3**0.5, rel=0.02)
        assert abs(values.mean()) < 0.01 * bound
    for init, std in [
        (nn.init.normal(0.001), 0.001),
        (nn.init.kaiming_normal(), (2 / 300) ** 0.5),
        (nn.init.xavier_normal(), (2 / 500) ** 0.5),
    ]:
        assert weight(init).std() == pytest.approx(std, rel=0.02)
    assert not weight(nn.init.zeros()).any()


class Alike(nn.ReLU):
    """Says that it equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


def test_layers_that_are_equal_are_not_the_same() -> None:
    x, alike = np.array([[-1, 2]], np.float32), Alike()
    np.testing.assert_array_equal(nn.Sequential(Alike(), nn.ReLU(), alike).predict(x), [[0, 2]])
    with pytest.raises(ValueError, match="layer 2 is the same object as layer 0"):
        nn.Sequential(alike, Alike(), alike)


def test_layers_are_used_once() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="same object as layer 0"):
        nn.Sequential(layer, layer)
    with pytest.raises(ValueError, match="layer 3 is the same object as layer 1"):
        nn.Sequential(nn.Linear(2, 2), layer, nn.ReLU(), layer, layer)
    nn.Sequential(layer).flat_parameters  # noqa: B018
    x = np.ones((1, 2), np.float32)
    with pytest.raises(ValueError, match="belong to another model"):
        nn.Sequential(layer).gradient(x, np.zeros(1, np.int64), nn.CrossEntropyLoss())
    np.testing.assert_array_equal(nn.Sequential(layer).predict(x), nn.Sequential(layer)(x).data)


def test_dropout_drops_in_training_mode_only() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(100, 1), seed=0)
    x, y = np.ones((1, 100), np.float32), np.zeros((1, 1), np.float32)

    def dropped(seed: int) -> int:
        return int((model.gradient(x, y, nn.MSELoss(), seed=seed)[1][:100] == 0).sum())

    assert 20 < dropped(1) < 80
    model.eval()
    assert dropped(1) == 0
    assert model.predict(x)[0, 0] == pytest.approx(float(model.flat_parameters.sum()), rel=1e-5)


def test_mlp_says_what_it_takes() -> None:
    assert [len(models.mlp([3, 4, 5])), len(models.mlp([3, 5]))] == [3, 1]
    with pytest.raises(ValueError, match="at least an input and an output"):
        models.mlp([3])
    with pytest.raises(ValueError, match="activation 'swish'"):
        models.mlp([3, 2], "swish")


def test_saved_models_come_back(tmp_path: object) -> None:
    model = nn.Sequential(
        nn.Flatten(), nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.2)), nn.Linear(3, 2), dtype="float64"
    )
    path = f"{tmp_path}/model.safetensors"
    model.save(path)
    twin = pdnn.load_model(path)
    assert repr(twin) == repr(model)
    assert twin.dtype == "float64"
    np.testing.assert_array_equal(twin.flat_parameters, model.flat_parameters)
    assert twin.fingerprint() == model.fingerprint()
    twin.flat_parameters[-1] = np.nextafter(twin.flat_parameters[-1], 2)
    assert twin.fingerprint() != model.fingerprint()
    with pytest.raises(ValueError, match="missing"):
        small().load(path)


@pytest.mark.parametrize("rows", [255, 256])
def test_more_memory_than_a_number_can_count_is_refused(rows: int) -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1, padding=2**27 - 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(MemoryError, match=r"no memory for [1-9]"):
        model.predict(np.zeros((rows, 1, 2, 2), np.float32))


def test_memory_of_large_batches_is_let_go(run_python: Callable[..., Completed]) -> None:
    code = """
import numpy as np
from pdnn import models, nn

def mebibytes():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024

model = models.mlp([64, 512, 512, 10], "relu", seed=1)
x, y = np.zeros((16000, 64), np.float32), np.zeros(16000, np.int64)
model.predict(x[:1])
before = mebibytes()
for rows in range(4000, 16001, 4000):  # 8 kB a row at least
    model.predict(x[:rows])
    model.gradient(x[:rows], y[:rows], nn.CrossEntropyLoss())
assert mebibytes() - before < 250, mebibytes()  # one of the largest
model.predict(x[:1])
assert mebibytes() - before < 80, mebibytes()
"""
    run_python(["-c", code], timeout=60)


def test_ranks_that_are_threads_draw_seeds_of_their_own() -> None:
    """They drew from one counter, and the model of all was that of whichever came first."""

    def job() -> list[float]:
        time.sleep(0.02 * (1 - pdnn.world().rank))  # rank 1 comes first
        return [float(nn.Sequential(nn.Linear(2, 2)).flat_parameters.sum()) for _ in range(2)]

    pdnn.manual_seed(0)
    first, second = run_threads(job, 2)
    pdnn.manual_seed(0)
    assert first == second == [float(nn.Sequential(nn.Linear(2, 2)).flat_parameters.sum()) for _ in range(2)]


def test_ranks_that_are_threads_go_on_from_the_models_that_were_there() -> None:
    def drawn() -> float:
        return float(nn.Sequential(nn.Linear(2, 2)).flat_parameters.sum())

    pdnn.manual_seed(3)
    want = [drawn(), drawn()]
    pdnn.manual_seed(3)
    assert [drawn(), *run_threads(drawn, 2)] == [*want, want[1]]


def test_models_have_the_seed_under_which_they_were_built() -> None:
    def built(seed: int) -> nn.Sequential:
        pdnn.manual_seed(seed)
        return models.mlp([4, 3])

    first, second, third = built(0), built(0), built(1)  # used after all were built
    assert first.fingerprint() == second.fingerprint() != third.fingerprint()
    assert copy.deepcopy(built(1)).fingerprint() == pickle.loads(pickle.dumps(built(1))).fingerprint()
    assert built(1).fingerprint() == third.fingerprint()


@pytest.mark.parametrize("container", [list, tuple, dict])
def test_modules_in_a_container_of_python_are_told(container: type) -> None:
    """They were no parts: neither trained nor saved."""

    class Net(nn.Module):
        def __init__(self, parts: bool) -> None:
            super().__init__()
            layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
            self.blocks = dict(enumerate(layers)) if container is dict else container(layers)
            self.head = nn.Linear(3, 1)
            if parts:
                self.first, self.second = layers

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = (
                container([(1, {nn.Linear(3, 3)})]) if container is not dict else {1: [nn.Linear(3, 3)]}
            )
            self.head = nn.Linear(3, 1)

    for made in (Net(False), Pairs()):
        with pytest.raises(TypeError, match=rf"blocks: modules in a {container.__name__} are no parts of a"):
            list(made.parameters())
    assert len(list(Net(True).parameters())) == 6


def test_dropout_in_a_list_is_told_too() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    net.drops = [nn.Dropout(0.5)]  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"drops: modules in a list are no parts of a"):
        list(net.parameters())


def test_views_and_activations_may_be_in_a_list() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
            self.views = [self.body[:1], self.body[1:]]
            self.activations = {"relu": nn.ReLU(), "tanh": nn.Tanh()}

        def forward(self, x: pdnn.Tensor) -> pdnn.Tensor:
            return self.views[1](self.activations["tanh"](self.views[0](x)))

    assert Net()(np.ones((4, 2), np.float32)).shape == (4, 1)


def test_modules_of_ones_own_in_a_list_are_told() -> None:
    """Within them may be other lists, and they may look at `training`."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(3, 3)]

    class Noise(nn.Module):
        def forward(self, x: pdnn.Tensor) -> pdnn.Tensor:
            return x

    class Net(nn.Module):
        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.blocks = [part]

    for part in (Own(), Noise()):
        with pytest.raises(TypeError, match=r"Net\.blocks: modules in a list"):
            list(Net(part).parameters())
