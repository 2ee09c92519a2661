"""Modules of the user's own: parts, names, one flat memory, files and copies."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import DataLoader, Dataset

RNG = np.random.default_rng(0)


class Net(nn.Module):
    """Linear, Tanh and another module, defined out of the alphabet's order."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.zeta, self.act = nn.Linear(4, 3), nn.Tanh()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))

    def forward(self, x: object) -> object:
        return self.body(self.act(self.zeta(x)))  # type: ignore[operator]


class Wrapper(nn.Module):
    def __init__(self, module: nn.Module, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.module = module


NAMES = ["zeta.weight", "zeta.bias", "body.0.weight", "body.0.bias", "body.2.weight"]


def test_parts_are_named_in_the_order_of_definition() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert list(net.state_dict()) == NAMES
    paths = ["", "zeta", "act", "body", "body.0", "body.1", "body.2"]
    assert [path for path, _ in net.named_modules()] == paths
    assert [type(child).__name__ for child in net.children()] == ["Linear", "Tanh", "Sequential"]
    assert repr(net).startswith("Net(\n  (zeta): Linear(in_features=4")


def test_parameters_lie_in_one_array_and_so_do_those_of_each_part() -> None:
    net = Net(dtype="float64", seed=3)
    np.testing.assert_array_equal(
        net.flat_parameters, np.concatenate([p.data.ravel() for p in net.parameters()])
    )
    assert net.flat_parameters.size == net.flat_gradients.size == 12 + 3 + 9 + 3 + 6
    net.body.flat_parameters[:] = 5
    assert (net.flat_parameters[15:] == 5).all()
    net.zeta.weight.grad[...] = 2
    assert (net.flat_gradients[:12] == 2).all()
    assert net.body.dtype == net.act.dtype == "float64"


def test_initial_values_are_those_of_the_static_form() -> None:
    net = Net(seed=3)
    static = nn.Sequential(
        nn.Linear(4, 3),
        nn.Tanh(),
        nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)),
        seed=3,
    )
    np.testing.assert_array_equal(net.flat_parameters, static.flat_parameters)
    assert (net.flat_parameters != Net(seed=4).flat_parameters).any()
    pdnn.manual_seed(1)
    first, second = Net().flat_parameters, Net().flat_parameters
    pdnn.manual_seed(1)
    np.testing.assert_array_equal(Net().flat_parameters, first)
    assert (first != second).any()


def test_values_are_changed_in_place_by_their_attribute() -> None:
    net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.BatchNorm1d(2))
    net(np.ones((4, 3), np.float32))
    net[0].weight.data[...] = 1
    net[0].weight *= 0.5
    net[1].running_mean += 2
    assert net[0].weight.data.tolist() == [[0.5, 0.5]] * 3 and (net[1].running_mean.data >= 2).all()


def test_config_is_an_attribute_of_ones_own_models_alone() -> None:
    class Own(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__(seed=0)
            self.config = config
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            self.calls = 1
            return self.linear(x)

    own = Own({"width": 3})
    own(np.ones((2, 3), np.float32))
    assert own.config == {"width": 3}  # type: ignore[comparison-overlap]

    class Listed(nn.Sequential):
        def __init__(self, config: Any) -> None:
            super().__init__(nn.Linear(3, 3))
            self.config = config

    with pytest.raises(TypeError, match=r"Listed\.config: every layer has a method of this name"):
        Listed({})


def test_parts_cannot_be_added_once_parameters_are_gathered() -> None:
    net = Net()
    net.flat_parameters  # noqa: B018
    with pytest.raises(ValueError, match=r"Net\.more: .*gathered already"):
        net.more = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"Net\.zeta: .*gathered already"):
        net.zeta = None
    with pytest.raises(ValueError, match=r"Net\.zeta: .*gathered already"):
        del net.zeta
    with pytest.raises(ValueError, match=r"Linear\.weight: .*gathered already"):
        del net.zeta.weight
    net.act = nn.ReLU()  # has none
    parts = nn.ModuleList([nn.Linear(2, 2)])
    Wrapper(parts).flat_parameters  # noqa: B018
    with pytest.raises(ValueError, match="gathered already"):
        parts.append(nn.Linear(2, 2))


def test_values_do_not_take_the_place_of_a_parameter() -> None:
    """They would be no part of the model."""
    layer = nn.Linear(2, 3)
    for value in (np.ones((2, 3), np.float32), None):
        with pytest.raises(TypeError, match=rf"Linear\.weight: got {type(value).__name__}, expected a Param"):
            layer.weight = value  # type: ignore[assignment]
    layer.weight = nn.Linear(2, 3).weight
    model = nn.Sequential(layer)
    model.parameters()
    masked = np.ma.masked_array(np.ones((2, 3)), np.eye(2, 3))
    before = model.flat_parameters.copy()
    with pytest.raises(ValueError, match=r"Parameter: 0\.weight has masked entries"):
        layer.weight.data = masked
    with pytest.raises(ValueError, match=r"load_state_dict: 0\.weight has masked entries"):
        model.load_state_dict({**model.state_dict(), "0.weight": masked})
    np.testing.assert_array_equal(model.flat_parameters, before)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_is_a_function(kind: str) -> None:
    with pytest.raises(TypeError, match="hook is of type int, expected a function"):
        getattr(nn.Linear(2, 3).weight, kind)(3)


def test_what_a_layer_was_made_with_is_fixed_once_the_core_has_it() -> None:
    """It would go on with the former number."""
    x = np.random.default_rng(0).normal(1, 2, (50, 20)).astype("float32")
    for make in (
        lambda *layers: nn.Sequential(*layers, seed=1),
        lambda *layers: Wrapper(nn.ModuleList(layers)),
    ):
        model = make(nn.BatchNorm1d(20), nn.Dropout(0.5))
        *_, norm, dropout = model.modules()
        norm.momentum = 1.0  # type: ignore[assignment]
        model.parameters()
        norm(x)
        np.testing.assert_allclose(norm.running_mean.data, x.mean(0), rtol=1e-5)  # type: ignore[union-attr]
        for layer, name in ((norm, "momentum"), (dropout, "p")):
            with pytest.raises(ValueError, match=rf"\.{name}: it is fixed since .* copy\.deepcopy"):
                setattr(layer, name, 0.0)
        twin = copy.deepcopy(model)
        *_, norm, dropout = twin.modules()
        norm.momentum, dropout.p = 0.0, 0.0  # type: ignore[assignment]
        twin.parameters()
        norm(2 * x)
        np.testing.assert_allclose(norm.running_mean.data, x.mean(0), rtol=1e-5)  # type: ignore[union-attr]
        np.testing.assert_array_equal(dropout(x).data, x)


def test_a_module_used_twice_counts_once() -> None:
    net = Wrapper(nn.Linear(3, 3))
    net.again = net.module
    assert [name for name, _ in net.named_parameters()] == ["module.weight", "module.bias"]
    assert net.flat_parameters.size == 12
    assert [path for path, _ in net.named_modules()] == ["", "module"]


@pytest.mark.parametrize("second", [nn.Linear(3, 3), nn.Linear(3, 3, bias=False), nn.Embedding(3, 3)])
def test_layers_share_no_parameters(second: Any) -> None:
    """Their arrays would be at other places, or transposed, for the core."""
    first = nn.Linear(3, 3)
    second.weight = first.weight
    for model in (nn.Sequential(first, second), Wrapper(nn.ModuleList([first, second]))):
        with pytest.raises(
            ValueError, match=r"1\.weight is (module\.)?0\.weight; layers share no parameters"
        ):
            model.parameters()


def test_a_wrapper_shares_the_memory_of_what_it_wraps() -> None:
    net = nn.Sequential(nn.Linear(4, 3), dtype="float64", seed=1)
    before = net.flat_parameters
    wrapped = Wrapper(net)
    assert np.shares_memory(wrapped.flat_parameters, before)
    assert wrapped.dtype == "float64"
    assert [name for name, _ in wrapped.named_parameters()] == ["module.0.weight", "module.0.bias"]
    assert net.predict(np.ones((1, 4))).shape == (1, 3)
    part = Wrapper(Net(seed=1))
    part.flat_parameters  # noqa: B018
    assert np.shares_memory(Wrapper(part.module.body).flat_parameters, part.flat_parameters)


def test_a_larger_model_takes_the_values_along() -> None:
    body, head = nn.Sequential(nn.Linear(4, 3), seed=1), nn.Linear(3, 2)
    old = body.flat_parameters
    values = old.copy()
    alone = Wrapper(body)
    assert alone.flat_parameters is not None
    both = Wrapper(nn.ModuleList([body, head]), seed=1)
    np.testing.assert_array_equal(both.flat_parameters[:15], values)
    old[:] = 0  # a view taken before keeps its old memory
    np.testing.assert_array_equal(body.flat_parameters, values)
    assert np.shares_memory(alone.flat_parameters, both.flat_parameters)
    with pytest.raises(ValueError, match="belong to another model"):
        pdnn.Trainer(body, nn.CrossEntropyLoss(), optim.SGD(body.parameters(), lr=0.1))


def test_half_a_model_is_refused() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    nn.Sequential(first, second).flat_parameters  # noqa: B018
    with pytest.raises(ValueError, match=r"belongs to another model, with 1\.weight"):
        nn.Sequential(first, nn.Linear(2, 2)).flat_parameters  # noqa: B018


def test_a_model_has_one_dtype() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), dtype="float64")
    assert Wrapper(inner).dtype == "float64"
    with pytest.raises(ValueError, match="float32 and float64"):
        Wrapper(inner, dtype="float32").flat_parameters  # noqa: B018
    assert inner.flat_parameters.dtype == "float64"
    for wrap in (Wrapper, nn.Sequential):  # also of a part that has been used
        for dtype in ("float32", "bfloat16"):
            with pytest.raises(ValueError, match=rf"{dtype} and float64|float64 and {dtype}"):
                wrap(inner, dtype=dtype).flat_parameters  # noqa: B018
    with pytest.raises(ValueError, match="Net: dtype int8; expected float32, float64 or bfloat16"):
        Net(dtype="int8")


def test_modes_reach_all_parts() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.body.train()
    assert [module.training for module in net.modules()] == [False, False, False, True, True, True, True]


def test_state_goes_to_a_file_and_back(tmp_path: Path) -> None:
    net, other = Net(seed=1), Net(seed=2)
    net.save(tmp_path / "net.safetensors")
    other.load(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(other.flat_parameters, net.flat_parameters)
    with pytest.raises(ValueError, match="holds no pdnn architecture"):
        pdnn.load_model(tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match=r"missing \['body.0.bias'"):
        other.load_state_dict({"zeta.weight": np.ones((4, 3))})
    with pytest.raises(ValueError, match=r"zeta.weight has shape \(3, 4\), expected \(4, 3\)"):
        other.load_state_dict(net.state_dict() | {"zeta.weight": np.ones((3, 4))})
    np.testing.assert_array_equal(other.flat_parameters, net.flat_parameters)


def test_a_file_does_not_describe_what_it_has_no_code_of(tmp_path: Path) -> None:
    class ReLU(nn.ReLU):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 2

    class Twice(nn.Sequential):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 2

    class Wide(nn.Linear):
        """Whose name is not known where the file is read."""

    class Kept(nn.Sequential):
        """Read as a Sequential."""

    file, x = tmp_path / "net.safetensors", np.ones((1, 4), np.float32)
    (kept := Kept(nn.Linear(4, 3))).save(file)
    np.testing.assert_array_equal(pdnn.load_model(file).predict(x), kept.predict(x))
    for make in (
        lambda seed: nn.Sequential(nn.Linear(4, 3), ReLU(), seed=seed),
        lambda seed: Twice(nn.Linear(4, 3), seed=seed),
        lambda seed: nn.Sequential(nn.Residual(Wide(4, 4)), seed=seed),
    ):
        model, other = make(1), make(2)
        model.save(file)
        with pytest.raises(ValueError, match="holds no pdnn architecture; build the model and call its load"):
            pdnn.load_model(file)
        other.load(file)
        np.testing.assert_array_equal(other.predict(x), model.predict(x))


def test_no_initial_values_are_drawn_where_there_are_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first use of a copy took 20 times as long as the copy."""
    model, net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), seed=1), Net(seed=1)
    model.save(tmp_path / "model.safetensors")
    net.parameters()
    model_of, seeds = pdnn._core.float32.Model, []

    def make(network: Any, seed: int | None) -> Any:
        seeds.append(seed)
        return model_of(network, seed)

    monkeypatch.setattr(pdnn._core.float32, "Model", make)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    copies.append(pdnn.load_model(tmp_path / "model.safetensors"))
    assert {each.fingerprint() for each in copies} == {model.fingerprint()}
    assert seeds == [None] * 3
    nn.Sequential(copies[0], nn.Linear(3, 2), seed=5).parameters()
    assert seeds[3:] == [5]  # a part has none yet
    own = copy.deepcopy(net)
    monkeypatch.delattr(pdnn._core.float32.Layer, "initialize")
    assert own.fingerprint() == net.fingerprint()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_are_equal_and_independent(duplicate: object) -> None:
    net = Net(dtype="float64")
    net.flat_parameters[:] = np.arange(33)
    for twin, want in [(duplicate(net), net), (duplicate(net.body), net.body)]:  # type: ignore[operator]
        np.testing.assert_array_equal(twin.flat_parameters, want.flat_parameters)
        twin.flat_parameters[:] = 0
        assert want.flat_parameters[1:].all()
    fresh = Net(seed=9)
    np.testing.assert_array_equal(duplicate(fresh).flat_parameters, fresh.flat_parameters)  # type: ignore[operator]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_of_an_unused_model_draw_its_values(duplicate: Callable[[Any], Any]) -> None:
    for make in (Net, lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))):
        pdnn.manual_seed(5)
        want = make().fingerprint()
        pdnn.manual_seed(5)
        net = make()
        twins = [duplicate(net), duplicate(net)]
        assert {net.fingerprint(), *(twin.fingerprint() for twin in twins)} == {want}
        after = nn.Linear(2, 2).fingerprint()
        pdnn.manual_seed(5)
        make().fingerprint()
        assert nn.Linear(2, 2).fingerprint() == after  # a copy takes no number of the sequence
        duplicate(nn.Sequential(nn.Linear(4, 3), seed=7))
        pdnn.manual_seed(5)
        duplicate(nn.Sequential(nn.Linear(4, 3), seed=7))
        assert make().fingerprint() == want


def test_parts_of_a_copied_model_differ() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    twin = copy.deepcopy(net)
    for each in (net, twin):
        assert not np.array_equal(each[0].flat_parameters, each[1].flat_parameters)
    np.testing.assert_array_equal(net[1].flat_parameters, twin[1].flat_parameters)


def test_a_trainer_takes_what_has_a_static_form() -> None:
    class Twice(nn.Linear):
        def forward(self, x: object) -> object:
            return x

    class Called(nn.Linear):
        def __call__(self, x: np.ndarray) -> Any:
            return super().__call__(x) * 2

    x = np.ones((1, 2), np.float32)
    once, twice = nn.Sequential(nn.Linear(2, 2), seed=3), nn.Sequential(Called(2, 2), seed=3)
    np.testing.assert_array_equal(twice(x).data, once(x).data * 2)
    optimizer = optim.SGD(nn.Sequential(nn.Linear(2, 2)).parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"model is of type Net, expected an nn\.Sequential.*by hand"):
        pdnn.Trainer(Net(), nn.CrossEntropyLoss(), optimizer)  # type: ignore[arg-type]
    for layer in (Net(), Twice(2, 2), Called(2, 2)):
        model = nn.Sequential(layer)
        assert model.flat_parameters.size
        with pytest.raises(TypeError, match=r"has its forward in Python.*write the loop by hand"):
            pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer)


def test_parameters_belong_to_layers() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter("factor", (1,))

    with pytest.raises(TypeError, match="Scale: has a Parameter of its own"):
        Scale().flat_parameters  # noqa: B018
    with pytest.raises(TypeError, match="ModuleList: got int"):
        nn.ModuleList([1])  # type: ignore[list-item]


def test_a_sequential_of_nothing_is_the_identity() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__(dtype="float64", seed=1)
            self.body = nn.Linear(6, 6)
            self.shortcut = nn.Sequential()

        def forward(self, x: Any) -> Any:
            return self.body(x) + self.shortcut(x)

    x = RNG.standard_normal((4, 6))
    images = RNG.standard_normal((4, 2, 3, 5))
    nothing = nn.Sequential(dtype="float64")
    for inputs in (x, images):
        np.testing.assert_array_equal(nothing.predict(inputs), inputs)
        np.testing.assert_array_equal(nothing(inputs).numpy(), inputs)
    block = Block()
    outputs = block(x)
    np.testing.assert_allclose(outputs.numpy(), block.body(x).numpy() + x, rtol=1e-14)

    loss, labels = nn.CrossEntropyLoss(), np.arange(4) % 3
    network = nn.Sequential(
        nn.Sequential(),
        nn.Linear(6, 6),
        nn.Residual(nn.Sequential()),
        nn.Sequential(nn.Sequential()),
        nn.Linear(6, 3),
        nn.Sequential(),
        dtype="float64",
        seed=1,
    )
    plain = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3), dtype="float64", seed=2)
    weights = [parameter.data for parameter in network.parameters()]
    for parameter, weight, factor in zip(plain.parameters(), weights, [2, 2, 1, 1], strict=True):
        parameter.data = factor * weight
    np.testing.assert_allclose(network.predict(x), plain.predict(x), rtol=1e-14)
    value, gradient = network.gradient(x, labels, loss)
    want_value, want = plain.gradient(x, labels, loss)
    assert value == pytest.approx(want_value, rel=1e-14)
    np.testing.assert_allclose(gradient[:42], 2 * want[:42], rtol=1e-12)
    np.testing.assert_allclose(gradient[42:], want[42:], rtol=1e-12)
    loss(network(x), labels).backward()
    np.testing.assert_allclose(network.flat_gradients, gradient, rtol=1e-12)


@pytest.mark.parametrize(
    ("spec", "ranks"), [("team:2", 1), ("pool:2", 1), ("ddp", 2), ("pipeline:3/2", 3), ("tp:2", 2)]
)
@pytest.mark.filterwarnings("ignore:strategy:UserWarning")
def test_a_sequential_of_nothing_is_the_identity_under_every_strategy(spec: str, ranks: int) -> None:
    x, labels = RNG.standard_normal((12, 6)), np.arange(12) % 3

    def train(strategy: str) -> Any:
        network = nn.Sequential(
            nn.Linear(6, 9),
            nn.Sequential(),
            nn.Tanh(),
            nn.Sequential(),
            nn.Linear(9, 9),
            nn.Residual(nn.Sequential()),
            nn.Linear(9, 8),
            nn.Tanh(),
            nn.Linear(8, 3),
            dtype="float64",
            seed=1,
        )
        sgd = optim.SGD(network.parameters(), 0.1)
        trainer = pdnn.Trainer(network, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        trainer.fit((x, labels), 2, 5, verbose=False)
        return network.flat_parameters.copy()

    want = train("serial")
    for got in pdnn.run(train, spec, ranks=ranks, backend="threads"):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.ELU("x"), "ELU: alpha is 'x', expected a finite number"),
        (lambda: nn.LeakyReLU(None), "LeakyReLU: negative_slope is None, expected"),
        (lambda: nn.Softplus(beta="2"), "Softplus: beta is '2', expected"),
        (lambda: nn.Softplus(threshold=[1]), r"Softplus: threshold is \[1\], expected"),
        (lambda: nn.Dropout("x"), "Dropout: p is 'x', expected"),
    ],
)
def test_what_is_no_number_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_nan_is_no_number_of_a_layer() -> None:
    for make in (lambda: nn.ELU(math.nan), lambda: nn.Softplus(threshold=math.nan)):
        with pytest.raises(ValueError, match=r"(alpha|threshold) = nan; expected a finite number"):
            make()


def test_arrays_larger_than_any_memory_are_refused() -> None:
    for width in (2**31, 2**32):
        with pytest.raises(ValueError, match=f"{width}x{width} elements is larger than any memory"):
            nn.Sequential(nn.Linear(width, width)).predict(np.zeros((1, 2), np.float32))


ROW = np.ones((1, 2), "float32")


class Odd(nn.Module):
    @property
    def width(self) -> int:
        return self.nothing  # type: ignore[attr-defined,no-any-return]


def trainer_of(net: nn.Sequential) -> Any:
    return pdnn.Trainer(net, nn.CrossEntropyLoss(), optim.SGD(net.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("find", "words"),
    [
        (lambda net: net.to("cpu"), r"'Sequential' .* no attribute 'to'; all arrays .* leave it out$"),
        (lambda net: net.double(), "'double'; pass dtype="),
        (lambda net: net.zero_grad(), r"'zero_grad'; call zero_grad\(\) of the optimizer"),
        (lambda net: net.nothing, "'Sequential' object has no attribute 'nothing'$"),
        (lambda net: Odd().width, "'Odd' object has no attribute 'nothing'$"),
        (lambda net: net.predict_proba(ROW), r"'predict_proba'; a pdnn\.Trainer has predict_classes"),
        (lambda net: trainer_of(net).predict_proba(ROW), r"nn\.Softmax\(\)\(trainer\.predict\(x\)\)\.data$"),
        (lambda net: trainer_of(net).compile(), "are arguments of pdnn.Trainer"),
        (lambda net: trainer_of(net).history.val_loss, r"write history\.history\[\"val_loss\"\]"),
        (lambda net: trainer_of(net).optimizer.add_param_group({}), "pass all groups when it is made"),
        (lambda net: optim.StepLR(trainer_of(net).optimizer, 3).state_dict(), r"its state is last_epoch"),
        (lambda net: net(ROW).argmax(1), r"'argmax'; its array has one, tensor\.data\.argmax"),
        (lambda net: net(ROW).cuda(), "'cuda'; all arrays are"),
        (lambda net: net[0].weight.mean(), r"'Parameter' .* 'mean'; its array has one, data\.mean$"),
        (lambda net: net[0].weight.numel(), "'Parameter' object has no attribute 'numel'; write size$"),
        (lambda net: net(ROW).view(-1), "'view'; write reshape"),
        (lambda net: next(iter(DataLoader(Dataset(ROW, [0]))))[0].to("cpu"), "'to'; all arrays"),
    ],
)
def test_an_attribute_of_torch_is_told_what_to_write(find: Callable[[Any], object], words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        find(nn.Sequential(nn.Linear(2, 2)))


def test_advice_hides_nothing_that_another_base_has() -> None:
    class Scoring:
        def score(self) -> str:
            return "scored"

    class Scored(pdnn.Trainer, Scoring):  # type: ignore[misc]
        pass

    class Inherits(Scored):
        pass

    for kind in (Scored, Inherits):
        model = nn.Sequential(nn.Linear(2, 2))
        made = kind(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))
        assert made.score() == "scored"
        with pytest.raises(AttributeError, match="'predict_proba'; after"):
            made.predict_proba  # type: ignore[attr-defined]  # noqa: B018


def test_a_layer_that_is_inside_a_sequential_twice_is_refused() -> None:
    """The core had two, one of which nobody could see."""
    shared = nn.Linear(3, 3)
    for twice in (
        [nn.Sequential(shared), nn.Residual(shared)],
        [nn.Sequential(shared), nn.Sequential(shared)],
    ):
        with pytest.raises(ValueError, match="a layer with parameters is inside it twice"):
            nn.Sequential(*twice, nn.Linear(3, 2)).predict(np.zeros((1, 3), np.float32))
    relu = nn.ReLU()
    nn.Sequential(nn.Sequential(relu), nn.Linear(3, 3), nn.Residual(relu)).predict(
        np.zeros((1, 3), np.float32)
    )


def test_a_models_own_arrays_are_loaded_under_other_names() -> None:
    for form in ("pdnn", "torch"):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), seed=1)
        state = model.state_dict(format=form)
        before = {name: np.array(values) for name, values in state.items()}
        state["0.weight"], state["1.weight"] = state["1.weight"], state["0.weight"]
        model.load_state_dict(state, format=form)
        after = model.state_dict(format=form)
        np.testing.assert_array_equal(after["0.weight"], before["1.weight"])
        np.testing.assert_array_equal(after["1.weight"], before["0.weight"])


def test_loading_does_not_compare_each_array_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took half a second for 500 layers."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(40)), seed=1)
    state = {name: values + 1 for name, values in model.state_dict().items()}
    compared = []

    def compare(one: Any, other: Any, compare: Any = np.may_share_memory) -> bool:
        compared.append(other)
        return bool(compare(one, other))

    monkeypatch.setattr(np, "may_share_memory", compare)
    model.load_state_dict(state)
    assert len(compared) <= 2 * len(state)
    np.testing.assert_equal(model.state_dict(), state)


def test_masked_and_complex_values_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 3), seed=1)
    weight, _ = model.parameters()
    masked = np.ma.masked_greater(np.full((2, 3), 9.0, np.float32), 5)
    before = weight.data.copy()
    with pytest.raises((TypeError, ValueError), match="mask"):
        weight += masked
    with pytest.raises((TypeError, ValueError), match="mask"):
        model.load_state_dict({**model.state_dict(format="torch"), "0.weight": masked.T}, format="torch")
    with pytest.raises(TypeError, match="complex"):
        weight.data = np.full((2, 3), 1j)
    np.testing.assert_array_equal(weight.data, before)


class _Mixed:
    def __new__(cls, size: int) -> Any:
        return super().__new__(cls)


class _OfMixed(nn.Module, _Mixed):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(size, 2)


class _WithoutInit(nn.Module):
    def __new__(cls) -> Any:
        return object.__new__(cls)

    def __init__(self) -> None:
        self.layer = nn.Linear(3, 2)


@pytest.mark.parametrize("make", [_WithoutInit, lambda: pdnn.models.mlp([3, 2])])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_models_that_are_made_in_other_ways_are_copied(make: Callable[[], nn.Module], protocol: int) -> None:
    pdnn.manual_seed(4)
    model = make()
    copies = [pickle.loads(pickle.dumps(model, protocol))]
    copies += [copy.deepcopy(copies[0]), pickle.loads(pickle.dumps(copies[0], protocol))]
    assert {each.fingerprint() for each in copies} == {model.fingerprint()}


def test_a_module_may_have_a_base_that_is_made_of_arguments() -> None:
    pdnn.manual_seed(4)
    model = _OfMixed(3)
    pdnn.manual_seed(4)
    np.testing.assert_array_equal(model.flat_parameters, nn.Sequential(nn.Linear(3, 2)).flat_parameters)
