"""Eager mode: graphs recorded call by call, their gradients, hooks, and what is refused."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.recording import recording

Kind = TypeVar("Kind")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 6))
Y = RNG.integers(0, 3, 12)


class Branches(nn.Module):
    """Two branches, one of them used twice, a skip connection, and every operation of Tensors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"dtype": "float64", "seed": 1, **options})
        self.stem = nn.Linear(6, 4)
        self.left = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())
        self.right, self.act = nn.Linear(4, 4), nn.Tanh()
        self.head = nn.Linear(8, 3)

    def forward(self, x: pdnn.Tensor) -> pdnn.Tensor:
        h = self.act(self.stem(x))
        left = self.left(self.left(h)) - 0.5 * h
        right = (h + self.act(self.right(h)) * h / 2 + 1) - x.reshape(-1, 6).data[:, :4]
        return self.head(pdnn.cat([left, -right], dim=-1))  # type: ignore[no-any-return]


def loss_of(net: nn.Module, x: Any = X, y: Any = Y) -> pdnn.Tensor:
    return nn.CrossEntropyLoss()(net(x), y)


def differences(net: nn.Module, loss: Any) -> np.ndarray:
    """The gradient by central differences."""
    flat, h = net.flat_parameters, 1e-6
    slopes = np.empty_like(flat)
    for i, value in enumerate(flat.copy()):
        flat[i] = value + h
        above = loss(net).item()
        flat[i] = value - h
        slopes[i] = (above - loss(net).item()) / (2 * h)
        flat[i] = value
    return slopes


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / (np.linalg.norm(a) + np.linalg.norm(b)))


# ---- gradients


def test_gradients_match_finite_differences() -> None:
    net = Branches()
    loss_of(net).backward()
    want = differences(net, loss_of)
    assert relative(net.flat_gradients, want) <= 1e-7
    wrong = net.flat_gradients.copy()
    wrong[30] *= 1.001
    assert relative(wrong, want) > 1e-7  # the check can fail


def test_losses_of_ones_own_have_gradients() -> None:
    def loss(net: nn.Module) -> pdnn.Tensor:
        y = net(X)
        distance = y - np.ones((12, 3))
        return (distance * distance).mean() + 0.1 * y.sum() + 2 * nn.CrossEntropyLoss("sum")(y, Y)

    net = Branches()
    loss(net).backward()
    assert relative(net.flat_gradients, differences(net, loss)) <= 1e-7


def test_a_loss_takes_terms_of_a_float32_model() -> None:
    """A loss is a float64; so is its sum with a number of another model, and its product."""
    net, want = models.mlp([6, 3], seed=1), models.mlp([6, 3], dtype="float64", seed=1)
    want.flat_parameters[...] = net.flat_parameters
    for model, x in ((net, X.astype(np.float32)), (want, X)):
        for swap in (False, True):
            y = model(x)
            loss, term = nn.CrossEntropyLoss()(y, Y), 0.1 * (y * y).mean()
            total = (term + loss) * term if swap else (loss + term) * term - loss
            assert total.dtype == np.float64
            total.backward()
        assert model.flat_gradients.dtype == model.dtype
    assert relative(net.flat_gradients, want.flat_gradients) <= 1e-5


def test_eager_and_static_training_agree() -> None:
    def build() -> nn.Sequential:
        layers = nn.Linear(6, 7), nn.Sigmoid(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)
        return nn.Sequential(*layers, seed=4, dtype="float64")

    class ByHand(nn.Module):
        def __init__(self) -> None:
            super().__init__(dtype="float64", seed=4)
            self.fc1, self.act1 = nn.Linear(6, 7), nn.Sigmoid()
            self.fc2, self.act2, self.fc3 = nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            return self.fc3(self.act2(self.fc2(self.act1(self.fc1(x)))))

    static, whole, by_hand = build(), build(), ByHand()
    optimizer = optim.SGD(static.parameters(), lr=0.3, momentum=0.9)
    trainer = pdnn.Trainer(static, nn.CrossEntropyLoss(), optimizer, strategy="serial")
    trainer.fit((X, Y), epochs=5, batch_size=12, shuffle=False, verbose=False)
    for net in (whole, by_hand):
        np.testing.assert_array_equal(net.flat_parameters, build().flat_parameters)
        optimizer = optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()
    np.testing.assert_array_equal(whole.flat_parameters, static.flat_parameters)  # one node: bit for bit
    np.testing.assert_allclose(by_hand.flat_parameters, static.flat_parameters, rtol=0, atol=1e-15)


def test_five_steps_equal_torch() -> None:
    torch = pytest.importorskip("torch", reason="the same net in PyTorch is the oracle")
    net = Branches()
    parameters = {name: torch.tensor(p.data.copy(), requires_grad=True) for name, p in net.named_parameters()}

    def linear(name: str, x: Any) -> Any:
        return x @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    def forward(x: Any) -> Any:
        h = torch.tanh(linear("stem", x))
        left = torch.sigmoid(linear("left.0", torch.sigmoid(linear("left.0", h)))) - 0.5 * h
        right = (h + torch.tanh(linear("right", h)) * h / 2 + 1) - x[:, :4]
        return linear("head", torch.cat([left, -right], dim=1))

    ours = optim.SGD(net.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)
    theirs = torch.optim.SGD(parameters.values(), lr=0.5, momentum=0.9, weight_decay=0.01)
    for _ in range(5):
        ours.zero_grad()
        loss = loss_of(net)
        loss.backward()
        ours.step()
        theirs.zero_grad()
        want = torch.nn.functional.cross_entropy(forward(torch.tensor(X)), torch.tensor(Y))
        want.backward()
        theirs.step()
        assert loss.item() == pytest.approx(want.item(), rel=1e-12)
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(parameter.data, parameters[name].detach().numpy(), rtol=1e-10, atol=1e-12)


def test_gradients_add_up_until_they_are_zeroed() -> None:
    net = Branches()
    loss_of(net).backward()
    once = net.flat_gradients.copy()
    loss_of(net).backward()
    np.testing.assert_allclose(net.flat_gradients, 2 * once, rtol=1e-14)
    optim.SGD(net.parameters(), lr=0.1).zero_grad()
    assert not net.flat_gradients.any()


def test_a_shape_may_be_numbers_or_a_tuple() -> None:
    net = Branches()
    y = net(X)
    shapes = [y.reshape(6, 6), y.reshape((6, 6)), y.reshape([-1, 6])]
    assert {each.shape for each in shapes} == {(6, 6)}
    assert y.reshape(-1).shape == y.reshape((36,)).shape == (36,)
    assert y.sum().reshape().shape == y.sum().reshape(()).shape == ()
    y.reshape((6, 6)).sum().backward()
    np.testing.assert_array_equal(net.head.bias.grad, [12, 12, 12])  # type: ignore[union-attr]


def test_targets_may_be_tensors_that_nothing_lies_behind() -> None:
    net = Branches()
    y = net(X)
    with pdnn.no_grad():
        want, free = net(X + 1), nn.MSELoss()(y, y)
    assert nn.MSELoss()(y, y.detach()).item() == free.item() == 0
    assert nn.MSELoss()(y, want).item() == nn.MSELoss()(y, want.numpy()).item() > 0


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.BCEWithLogitsLoss("sum")])
@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (3, 2, 7), (0, 2, 7)])
def test_targets_may_have_the_shape_of_images(loss: nn.Loss, shape: tuple[int, ...]) -> None:
    kind = nn.Conv2d if len(shape) == 4 else nn.Conv1d
    net = nn.Sequential(kind(2, 2, 3, padding=1), nn.Sigmoid(), dtype="float64", seed=1)
    x, target = np.random.default_rng(2).random((2, *shape))
    want, gradient = net.gradient(x, target.reshape(shape[0], -1) if shape[0] else np.zeros((0, 14)), loss)
    for given in (target, pdnn.Tensor(target), target.transpose(0, 2, 1, *range(3, len(shape)))):
        net.flat_gradients[...] = 0
        if given.shape != shape:
            with pytest.raises(ValueError, match=r"labels have shape .* expected .*\(n, "):
                loss(net(x), given)
            continue
        value = loss(net(x), given)
        value.backward()
        assert value.item() == pytest.approx(want, rel=1e-14)
        np.testing.assert_allclose(net.flat_gradients, gradient, rtol=1e-12)


def test_values_that_a_mask_hides_are_refused() -> None:
    net, criterion = models.mlp([6, 3], dtype="float64"), nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    x, y, weight = (np.ma.masked_array(each, each == each.flat[0]) for each in (X, Y, np.ones(12)))
    before = net.flat_parameters.copy()
    calls: dict[str, list[Callable[[], object]]] = {
        "x": [
            lambda: net(x),
            lambda: net.predict(x),
            lambda: net.gradient(x, Y, criterion),
            lambda: net.step(x, Y, criterion, optimizer),
        ],
        "y": [
            lambda: criterion(net(X), y),
            lambda: net.gradient(X, y, criterion),
            lambda: net.step(X, y, criterion, optimizer),
        ],
        "weight": [
            lambda: criterion(net(X), Y, weight),
            lambda: net.step(X, Y, criterion, optimizer, weight),
        ],
    }
    for name, refused in calls.items():
        for call in refused:
            with pytest.raises(ValueError, match=f": {name} has masked entries; fill them"):
                call()
    np.testing.assert_array_equal(net.flat_parameters, before)
    loss = net.step(np.ma.masked_array(X), np.ma.masked_array(Y), criterion, optimizer)  # hides nothing
    net.flat_parameters[...] = before
    assert loss == float(criterion(net(X), Y))


@pytest.mark.parametrize("hook", [False, True])
def test_threads_take_turns_in_adding_up_gradients(hook: bool) -> None:
    """Whole numbers, whose sums are exact in every order."""
    net, criterion = nn.Sequential(nn.Linear(64, 64), dtype="float64", seed=1), nn.MSELoss("sum")
    net.flat_parameters[:] = 1
    x, y = RNG.integers(-9, 9, (2, 64, 64)).astype("float64")
    criterion(net(x), y).backward()
    once = net.flat_gradients.copy()
    if hook:
        next(net.parameters()).register_hook(lambda grad: grad)
    threads = [
        threading.Thread(target=lambda: [criterion(net(x), y).backward() for _ in range(100)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(net.flat_gradients, 401 * once)


@pytest.mark.parametrize("cleared", [[0, 1], [1, 0], [1]])
def test_an_optimizer_zeroes_the_gradients_of_its_own_parameters(cleared: list[int]) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4), seed=0)
    groups = [{"params": list(net[index].parameters())} for index in cleared]
    rule, views = optim.SGD(groups, lr=0.1), [parameter.grad for parameter in net.parameters()]
    for view in views:
        view[...] = 1
    rule.zero_grad()
    assert [bool(view.any()) for view in views] == [0 not in cleared] * 2 + [False] * 2


def test_a_batch_without_rows_goes_through() -> None:
    net = Branches()
    loss = loss_of(net, X[:0], Y[:0])
    loss.backward()
    assert loss.item() == 0
    assert not net.flat_gradients.any()


def test_the_program_of_the_documentation_runs() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.act, self.fc2 = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.fc2(self.act(self.fc1(x)))

    train, _ = pdnn.datasets.mnist_mini()
    pdnn.manual_seed(0)
    net, criterion = Net(), nn.CrossEntropyLoss()
    groups = [
        {"params": [net.fc1.weight], "weight_decay": 1e-2},
        {"params": [net.fc1.bias, net.fc2.weight, net.fc2.bias]},
    ]
    opt = optim.SGD(groups, lr=0.1)
    losses = []
    for x, y in pdnn.data.DataLoader(train, batch_size=64, shuffle=True):
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.8 * losses[0]
    assert net.fc1.weight.grad.shape == (784, 256)


# ---- images, running statistics


IMAGES = RNG.normal(size=(12, 2, 6, 6))


def image_layers(sync: bool = False) -> list[nn.Module]:
    return [
        nn.Conv2d(2, 3, 3, padding=1, bias=False),
        nn.BatchNorm2d(3, sync=sync),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4, 3),
    ]


class OneByOne(nn.Module):
    """Layers called one after another, each a node of its own."""

    def __init__(self, layers: list[nn.Module], **options: Any) -> None:
        super().__init__(dtype="float64", **options)
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def train_by_hand(net: nn.Module, x: np.ndarray, y: np.ndarray, steps: int = 5) -> nn.Module:
    optimizer = optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(net, x, y).backward()
        optimizer.step()
    return net


def test_eager_and_static_training_agree_on_images() -> None:
    def build() -> nn.Sequential:
        return nn.Sequential(*image_layers(), seed=4, dtype="float64")

    static, one_by_one = build(), OneByOne(image_layers())
    trainer = pdnn.Trainer(
        static, nn.CrossEntropyLoss(), optim.SGD(static.parameters(), lr=0.3, momentum=0.9), strategy="serial"
    )
    initial = static.flat_parameters.copy()
    trainer.fit((IMAGES, Y), epochs=5, batch_size=12, shuffle=False, verbose=False)
    whole = train_by_hand(build(), IMAGES, Y)
    np.testing.assert_array_equal(whole.flat_parameters, static.flat_parameters)
    np.testing.assert_array_equal(whole.flat_buffers, static.flat_buffers)
    one_by_one.flat_parameters[:] = initial
    train_by_hand(one_by_one, IMAGES, Y)
    np.testing.assert_allclose(one_by_one.flat_parameters, static.flat_parameters, rtol=0, atol=1e-13)
    np.testing.assert_allclose(one_by_one.flat_buffers, static.flat_buffers, rtol=0, atol=1e-13)
    for net in (static, whole, one_by_one):
        net.eval()
    np.testing.assert_array_equal(whole(IMAGES).data, static.predict(IMAGES))
    np.testing.assert_allclose(one_by_one(IMAGES).data, static.predict(IMAGES), rtol=0, atol=1e-12)
    before = one_by_one.flat_buffers.copy()
    one_by_one(IMAGES)
    np.testing.assert_array_equal(one_by_one.flat_buffers, before)  # evaluation learns nothing


def test_images_keep_their_public_shape_and_order() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__(dtype="float64", seed=2)
            self.one, self.two = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 1, 3, padding=1)
            self.act, self.flat, self.head = nn.Sigmoid(), nn.Flatten(), nn.Linear(5 * 36, 3)

        def forward(self, x: Any) -> Any:
            y = x + self.act(self.one(x)) * self.one(x)
            return self.head(self.flat(pdnn.cat([x, y, self.two(y)], dim=1)))

    net = Skip()
    one = net.one(IMAGES) if net.flat_parameters.size else None
    assert one is not None and one.shape == (12, 2, 6, 6)
    weight, bias = net.one.weight.data, net.one.bias.data  # type: ignore[union-attr]
    padded = np.pad(IMAGES, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    want = np.einsum("nchwij,ijco->nohw", windows, weight) + bias[:, np.newaxis, np.newaxis]
    np.testing.assert_allclose(one.data, want, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(net.flat(one).data, one.flatten(1).data)
    np.testing.assert_array_equal(one.flatten(1).data, one.data.reshape(12, 72))

    def loss(net: nn.Module) -> pdnn.Tensor:
        return loss_of(net, IMAGES)

    loss(net).backward()
    assert relative(net.flat_gradients, differences(net, loss)) <= 1e-7


def test_residuals_take_modules_in_python_and_parts_in_other_modes() -> None:
    class Block(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.body = nn.Sequential(*layers)

        def forward(self, x: Any) -> Any:
            return self.body(x)

    def layers() -> list[nn.Module]:
        return [nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU()]

    end = [nn.Flatten(), nn.Linear(72, 3)]
    mixed = nn.Sequential(nn.Residual(Block(*layers())), *end, seed=1, dtype="float64")
    whole = nn.Sequential(
        nn.Residual(nn.Sequential(*layers())), nn.Flatten(), nn.Linear(72, 3), seed=1, dtype="float64"
    )
    mixed.flat_parameters[:] = whole.flat_parameters
    for net in (mixed, whole):
        loss_of(net, IMAGES).backward()
    np.testing.assert_allclose(mixed.flat_gradients, whole.flat_gradients, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(mixed.flat_buffers, whole.flat_buffers)
    whole[0].fn[1].eval()  # type: ignore[attr-defined]
    assert whole(IMAGES).shape == (12, 3)
    np.testing.assert_array_equal(mixed.flat_buffers, whole.flat_buffers)


@pytest.mark.parametrize("ranks", [2, 3])
def test_synchronized_statistics_are_those_of_the_whole_batch(ranks: int) -> None:
    def rank() -> tuple[np.ndarray, np.ndarray]:
        comm = pdnn.world()
        net = nn.Sequential(*image_layers(sync=True), seed=4, dtype="float64")
        for p in net.parameters():
            p.register_hook(lambda grad: comm.all_reduce(grad, op="mean"))
        share = slice(12 // ranks * comm.rank, 12 // ranks * (comm.rank + 1))
        train_by_hand(net, IMAGES[share], Y[share])
        return net.flat_parameters.copy(), net.flat_buffers.copy()

    alone = nn.Sequential(*image_layers(), seed=4, dtype="float64")
    train_by_hand(alone, IMAGES, Y)
    for parameters, state in pdnn.run(rank, ranks=ranks, backend="threads"):
        np.testing.assert_allclose(parameters, alone.flat_parameters, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state, alone.flat_buffers, rtol=0, atol=1e-12)


# ---- modes and randomness


def test_running_statistics_are_of_no_other_rank() -> None:
    norm = nn.Sequential(nn.BatchNorm1d(3, sync=True), dtype="float64")
    x = np.ones((4, 3))
    assert norm(x).node.synchronized
    norm.eval()
    assert not norm(x).node.synchronized


def test_nothing_is_recorded_under_no_grad() -> None:
    net = Branches()
    with pdnn.no_grad():
        with pdnn.no_grad():
            assert not net(X).requires_grad
        loss = loss_of(net)
        assert not loss.requires_grad
    with pytest.raises(ValueError, match="nothing is behind this Tensor"):
        loss.backward()
    assert loss_of(net).requires_grad
    assert not net(X).detach().requires_grad

    @pdnn.no_grad()
    def evaluate() -> float:
        assert not net(X).requires_grad
        return loss_of(net).item()

    assert evaluate() == evaluate() == loss.item()
    elsewhere: list[bool] = []
    with pdnn.no_grad():
        thread = threading.Thread(target=lambda: elsewhere.append(net(X).requires_grad))
        thread.start()
        thread.join()
    assert elsewhere == [True]  # each thread has a switch of its own


def test_no_grad_decorates_no_function_whose_body_runs_later() -> None:
    def generator() -> Iterator[int]:
        yield 0

    async def coroutine() -> None:
        pass

    async def both() -> AsyncIterator[int]:
        yield 0

    for function in (generator, coroutine, both):
        with pytest.raises(TypeError, match="is a generator or coroutine function, whose body runs after"):
            pdnn.no_grad()(function)
    with pytest.raises(TypeError, match=r"write @no_grad\(\), with brackets"):
        pdnn.no_grad(lambda: 0)  # type: ignore[arg-type]


def test_dropout_masks_follow_the_seed_and_the_calls() -> None:
    def masks(seed: int) -> list[np.ndarray]:
        net = nn.Sequential(nn.Dropout(0.5), seed=seed, dtype="float64")
        return [net(np.ones((4, 8))).data for _ in range(3)]

    first, again, other = masks(1), masks(1), masks(2)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != first[1]).any()
    assert (first[0] != other[0]).any()
    looked_at = nn.Sequential(nn.Dropout(0.5), seed=1, dtype="float64")
    looked_at.eval()
    looked_at(np.ones((4, 8)))  # draws none
    looked_at.train()
    assert (looked_at(np.ones((4, 8))).data == first[0]).all()
    assert set(np.unique(first[0])) == {0.0, 2.0}
    net = nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5), seed=1, dtype="float64")
    net(np.ones((4, 8))).sum().backward()  # backward draws the same mask
    columns = net[0].bias.grad  # type: ignore[attr-defined]
    net[0].weight.data[...] = 0  # type: ignore[attr-defined]
    net[0].bias.data[...] = 1  # type: ignore[attr-defined]
    twin = copy.deepcopy(net)
    np.testing.assert_array_equal(twin(np.ones((4, 8))).data.sum(axis=0), columns)


def test_a_part_can_be_in_another_mode() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3), seed=1, dtype="float64")
    x = np.ones((4, 8))
    net[0].eval()
    np.testing.assert_array_equal(net(x).data, net.predict(x))
    net.train()
    assert (net(x).data != net.predict(x)).any()
    assert net.training and net[0].training  # predict left them as they were


def test_predict_takes_layers_with_their_forward_in_python() -> None:
    net = nn.Sequential(Branches(), nn.Dropout(0.9), dtype="float64")
    np.testing.assert_array_equal(net.predict(X), net[0](X).data)
    assert net.training and net[1].training


def test_a_layer_may_be_changed_in_python() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Any) -> Any:
            return 2 * super().forward(x)

    plain = nn.Sequential(nn.Linear(6, 3), seed=1, dtype="float64")
    net = nn.Sequential(Doubled(6, 3), seed=1, dtype="float64")
    np.testing.assert_array_equal(net(X).data, 2 * plain(X).data)


# ---- hooks


def test_hooks_run_once_a_pass_when_the_gradient_is_final() -> None:
    net = Branches()
    loss_of(net).backward()
    want = {name: p.grad.copy() for name, p in net.named_parameters()}
    net.flat_gradients[:] = 0
    seen: list[str] = []
    for name, parameter in net.named_parameters():

        def hook(grad: np.ndarray, name: str = name) -> None:
            seen.append(name)
            np.testing.assert_allclose(grad, want[name], rtol=1e-12, atol=1e-15)

        parameter.register_hook(hook)
    loss_of(net).backward()
    assert sorted(seen) == sorted(want)  # left.0 was used twice, and is announced once
    assert seen[:2] == ["head.bias", "head.weight"]
    assert seen[-2:] == ["stem.bias", "stem.weight"]
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(parameter.grad, want[name], rtol=1e-12, atol=1e-15)
    loss_of(net).backward()  # hooks see the gradient of their own pass, not the sum
    assert len(seen) == 2 * len(want)


def test_hooks_within_a_fused_network_run_while_it_goes_back() -> None:
    net = models.mlp([6, 5, 4, 3], "sigmoid", dtype="float64", seed=1)
    seen: list[str] = []
    below = next(net.parameters())

    def hook(name: str, finished: bool) -> None:
        seen.append(name)
        assert below.grad.any() == finished

    for name, parameter in net.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: hook(name, name.startswith("0")))
    loss_of(net).backward()
    assert seen == ["4.bias", "4.weight", "2.bias", "2.weight", "0.bias", "0.weight"]


def test_hooks_change_gradients() -> None:
    net = Branches()
    loss_of(net).backward()
    want = net.flat_gradients.copy()
    net.flat_gradients[:] = 0
    weight, bias = net.head.weight, net.head.bias
    handles = [
        weight.register_hook(lambda grad: grad.__imul__(2)),
        weight.register_hook(lambda grad: grad + 1),
        bias.register_hook(lambda grad: grad.fill(7)),
    ]
    counted: list[str] = []
    weight.register_post_accumulate_grad_hook(lambda p: counted.append(p.name))
    before = weight.grad.copy()
    loss_of(net).backward()
    np.testing.assert_allclose(weight.grad.ravel(), before.ravel() + 2 * want[-27:-3] + 1, rtol=1e-12)
    assert (bias.grad == 7).all()
    np.testing.assert_allclose(net.flat_gradients[:-27], want[:-27], rtol=1e-12, atol=1e-15)
    for handle in handles:
        handle.remove()
        handle.remove()
    net.flat_gradients[:] = 0
    loss_of(net).backward()
    np.testing.assert_array_equal(net.flat_gradients, want)
    assert counted == ["head.weight"] * 2


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_may_take_itself_back(register: str) -> None:
    net, calls = Branches(), []

    def once(seen: Any) -> None:
        calls.append(seen)
        handle.remove()

    handle = getattr(next(net.parameters()), register)(once)
    for _ in range(2):
        loss_of(net).backward()
    assert len(calls) == 1


def test_a_failing_hook_leaves_nothing_behind() -> None:
    net = Branches()
    loss_of(net).backward()
    want = net.flat_gradients.copy()
    net.flat_gradients[:] = 0
    handle = net.stem.weight.register_hook(lambda grad: grad[:1])
    with pytest.raises(ValueError, match=r"stem\.weight: a hook returned shape \(1, 4\), expected \(6, 4\)"):
        loss_of(net).backward()
    handle.remove()

    def fail(grad: np.ndarray) -> None:
        raise KeyError("mine")

    handle = net.left[0].weight.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        loss_of(net).backward()
    handle.remove()
    net.flat_gradients[:] = 0
    net.stem.bias.register_hook(lambda grad: None)
    loss_of(net).backward()
    np.testing.assert_allclose(net.flat_gradients, want, rtol=1e-12, atol=1e-15)


def test_a_trainer_refuses_hooks() -> None:
    net = models.mlp([6, 3], dtype="float64")
    trainer = pdnn.Trainer(net, nn.CrossEntropyLoss(), optim.SGD(net.parameters(), lr=0.1))
    handle = net[0].bias.register_hook(print)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="hooks, which only backward passes by hand run"):
        trainer.fit((X, Y), verbose=False)
    handle.remove()
    trainer.fit((X, Y), verbose=False)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_data_parallel_by_hand_equals_one_process(ranks: int) -> None:
    class MyDP(nn.Module):
        def __init__(self, module: nn.Module, average: bool = True) -> None:
            super().__init__()
            comm = pdnn.world()
            self.module = module
            for p in module.parameters():
                comm.broadcast(p.data, root=0)
                p.register_hook(lambda grad: comm.all_reduce(grad, op="mean" if average else "sum"))

        def forward(self, x: Any) -> Any:
            return self.module(x)

    def train(net: nn.Module, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        optimizer = optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(net, x, y).backward()
            optimizer.step()
        return net.flat_parameters.copy()

    def rank() -> np.ndarray:
        comm = pdnn.world()
        share = slice(12 // ranks * comm.rank, 12 // ranks * (comm.rank + 1))
        return train(MyDP(Branches(seed=comm.rank)), X[share], Y[share])

    serial = train(Branches(seed=0), X, Y)
    for result in pdnn.run(rank, ranks=ranks, backend="threads"):
        np.testing.assert_allclose(result, serial, rtol=0, atol=1e-13 * np.abs(serial).max())


@pytest.mark.parametrize("changed", [None, "head.bias", "left.0.weight"])
def test_closeness_is_judged_the_same_on_every_rank(changed: str | None) -> None:
    def rank() -> tuple[bool, str | None, int, float, str]:
        comm = pdnn.world()
        net = Branches(dtype="float32")
        for name, parameter in net.named_parameters():
            if name == changed and comm.rank == 2:
                parameter.data[-1] += 0.5
        net.flat_parameters[:] *= 1 + 1e-7 * comm.rank  # what rounding does is close enough
        close = pdnn.ddp.check_parameter_closeness(net)
        return bool(close), close.name, close.rank, close.difference, str(close)

    results = pdnn.run(rank, ranks=3, backend="threads")
    assert all(result == results[0] for result in results)
    close, name, number, difference, text = results[0]
    assert close == (changed is None)
    if changed is not None:
        assert (name, number) == (changed, 2)
        assert difference == pytest.approx(0.5, rel=1e-5)
        assert f"{changed} of rank 2 differs from rank 0's by 0.5" in text


def test_closeness_needs_numbers_and_the_same_model() -> None:
    def rank(nan: bool) -> bool:
        comm = pdnn.world()
        net = Branches() if nan else models.mlp([2, 2 + comm.rank])
        if comm.rank == 1:
            net.flat_parameters[0] = np.nan
        return bool(pdnn.ddp.check_parameter_closeness(net, comm))

    assert pdnn.run(rank, True, ranks=2, backend="threads") == [False, False]
    with pytest.raises(ValueError, match="broadcast"):
        pdnn.run(rank, False, ranks=2, backend="threads")
    infinite = Branches()
    infinite.flat_parameters[0] = np.inf
    for net in (Branches(), infinite):
        assert pdnn.ddp.check_parameter_closeness(net)


# ---- memory


def test_graphs_are_let_go() -> None:
    net = Branches()
    gc.disable()
    try:
        loss = loss_of(net)
        middle = weakref.ref(net(X))
        assert middle() is None  # a graph that nobody holds goes at once
        hidden = net.stem(X)
        kept = weakref.ref(hidden.node)
        loss = nn.MSELoss()(hidden, np.zeros((12, 4)))
        del hidden
        assert kept() is not None  # the loss needs it
        loss.backward()
        assert kept() is not None and kept().freed  # its arrays are gone
        del loss
        assert kept() is None
    finally:
        gc.enable()


def test_a_second_backward_pass_is_refused() -> None:
    net = Branches()
    y = net(X)
    loss, other = nn.CrossEntropyLoss()(y, Y), nn.CrossEntropyLoss()(y, Y)
    loss.backward()
    want = net.flat_gradients.copy()
    for again in (loss, other):
        with pytest.raises(ValueError, match="went through this graph before"):
            again.backward()
    np.testing.assert_array_equal(net.flat_gradients, want)


def test_long_graphs_neither_recurse_nor_stay() -> None:
    net = nn.Sequential(nn.Linear(2, 2), dtype="float64", seed=0)
    y = net(np.ones((1, 2)))
    for _ in range(5000):
        y = y + 0.0
    y.sum().backward()
    assert net[0].bias.grad.tolist() == [1, 1]  # type: ignore[attr-defined]


# ---- what is refused


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda net: net(X.astype(np.uint8)), TypeError, "uint8; raw integers need their scale.*DataLoader"),
        (lambda net: net(X * 1j), TypeError, "x is complex128, this model takes float64$"),
        (lambda net: net(X.astype(np.float32)), TypeError, r"float32, this model is float64.*astype"),
        (lambda net: net.stem(X.astype(np.float32)), TypeError, "float32, this model is float64"),
        (lambda net: net(X.tolist()), TypeError, "got list, expected a NumPy array"),
        (lambda net: net(X[:, :5].copy()), ValueError, "input has 5 features, this layer takes 6"),
        (lambda net: net.stem(X[0]), ValueError, r"x has shape \(6,\), .*pass x\[None\]"),
        (lambda net: net.stem(X, X), TypeError, "takes one batch"),
        (lambda net: net(X).backward(), ValueError, r"shape \(12, 3\); only a loss"),
        (lambda net: net(X) + np.ones((12, 2)), ValueError, r"\(12, 3\).*\(12, 2\)"),
        (lambda net: net(X) + np.ones((12, 3), np.float32), ValueError, "float32"),
        (lambda net: net(X) + "a", TypeError, r"\+ with str"),
        (lambda net: net(X) / net(X), TypeError, "takes a number"),
        (lambda net: pdnn.cat([net(X), net.stem(X)]), ValueError, "along axis 0"),
        (lambda net: pdnn.cat([]), ValueError, "along axis 0"),
        (lambda net: pdnn.cat([net(X), net(X)], dim=2), ValueError, "along axis 2; expected"),
        (lambda net: net(X).flatten(2), ValueError, "start_dim 2"),
        (lambda net: pdnn.Tensor(np.zeros(3, int)), TypeError, "int64"),
        (lambda net: net(X) == Y, TypeError, r"== and != do not compare.*tensor\.data =="),
        (lambda net: net(X) != net(X), TypeError, r"== and != do not compare"),
        (lambda net: loss_of(net) == 0, TypeError, r"== and != do not compare"),
        (lambda net: nn.Module()(X), NotImplementedError, r"define forward\(self, x\)"),
        (lambda net: loss_of(net, y=Y + 1), ValueError, "label 3 of row"),
        (lambda net: loss_of(net, y=Y[:5]), ValueError, r"\(5,\) for 12 samples"),
        (lambda net: nn.MSELoss()(net(X), net(X)), ValueError, r"behind the targets.*detach\(\)"),
        (lambda net: nn.MSELoss()([1.0], Y), TypeError, "outputs are of type list, expected a pdnn.Tensor"),
        (lambda net: nn.MSELoss()(np.ones(3), Y), ValueError, r"outputs have shape \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call: Any, kind: type[Exception], words: str) -> None:
    net = Branches()
    net(X)
    with pytest.raises(kind, match=words):
        call(net)


def test_layers_without_parameters_take_either_width() -> None:
    for dtype in (np.float32, np.float64):
        y = nn.ReLU()(np.array([[-1, 2]], dtype))
        assert y.dtype == dtype
        assert y.data.tolist() == [[0, 2]]
        assert not y.requires_grad


def test_threads_may_be_within_one_no_grad() -> None:
    """The first to leave got an error, and recorded nothing afterwards."""
    shared, meet = pdnn.no_grad(), threading.Barrier(2, timeout=30)
    found: list[bool] = []

    def within(first: bool) -> None:
        with shared:
            meet.wait()
            if not first:
                meet.wait()  # until the other has left
        found.append(recording())
        if first:
            meet.wait()

    threads = [threading.Thread(target=within, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [True, True]


def test_a_generator_that_another_thread_began_ends_no_recording() -> None:
    """This thread recorded nothing afterwards, but within the next no_grad."""

    def batches() -> Iterator[int]:
        with pdnn.no_grad():
            yield 1

    for within in (False, True):
        begun = batches()
        thread = threading.Thread(target=next, args=(begun,))
        thread.start()
        thread.join(30)
        with pdnn.no_grad() if within else nullcontext():
            begun.close()
            assert recording() is not within
        assert recording()
        with pdnn.no_grad():
            assert not recording()


def test_a_module_may_be_generic_or_registered() -> None:
    class Registering:
        known: ClassVar[list[str]] = []

        def __init_subclass__(cls, name: str = "", **given: Any) -> None:
            super().__init_subclass__(**given)
            Registering.known.append(name)

    class Net(nn.Module, Registering, Generic[Kind], name="net"):
        pass

    assert Registering.known == ["net"]
    assert Net[int]() is not None


def test_a_graph_older_than_a_larger_model_is_refused() -> None:
    """Its gradients went to memory that nobody reads any more."""
    net = nn.Sequential(nn.Linear(6, 3), seed=1, dtype="float64")
    loss = nn.CrossEntropyLoss()(net(X), Y)
    larger = nn.Sequential(net, nn.Linear(3, 3), dtype="float64")
    list(larger.parameters())
    with pytest.raises(ValueError, match="a larger model has taken the parameters"):
        loss.backward()


def test_numbers_leave_the_type_of_a_tensor() -> None:
    """A float32 mean times a number was float64 beside NumPy 1, and could not go back."""
    net = nn.Sequential(nn.Linear(6, 3), seed=1)
    for two in (2.0, np.float64(2)):
        found = (net(X.astype(np.float32)).mean() * two + two) / two
        assert found.dtype == np.float32
        found.backward()


@pytest.mark.parametrize("dtype", ["float16", ">f4", "longdouble"])
def test_floats_of_other_types_are_refused(dtype: str) -> None:
    for call in (nn.ReLU(), lambda x: nn.MSELoss()(x, Y)):
        with pytest.raises(TypeError, match="expected float32 or float64"):
            call(X.astype(dtype))


def test_a_mean_of_nothing_is_0() -> None:
    assert pdnn.Tensor(np.zeros((0, 3))).mean().item() == 0


def test_only_a_single_number_is_true_or_false() -> None:
    y = pdnn.Tensor(np.zeros((2, 3)))
    assert not y.sum() and (y + 1).sum()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(y)


def test_operations_are_told_by_their_own_names() -> None:
    y = pdnn.Tensor(np.zeros((2, 3)))
    for wrong, said in ((np.zeros((2, 2)), "- of"), ([1], "- with list"), (None, "- with NoneType")):
        for call in (lambda w: y - w, lambda w: y.__rsub__(w)):
            with pytest.raises((TypeError, ValueError), match=f"Tensor: {said}"):
                call(wrong)
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
    with pytest.raises(TypeError, match=r"\+ with torch.Tensor"):
        y + torch.zeros(2, 3)


def test_a_single_number_is_formatted_as_one() -> None:
    loss = nn.MSELoss()(pdnn.Tensor(np.ones((2, 1))), np.zeros((2, 1)))
    assert f"{loss:.3f}" == "1.000" and f"{loss}" == str(loss)
    with pytest.raises(TypeError, match="unsupported format"):
        f"{pdnn.Tensor(np.zeros(2)):.3f}"


@pytest.mark.parametrize("first", [2.0, np.array([4.0, 5.0])], ids=["number", "array"])
def test_a_tensor_is_taken_from_what_stands_before_it(first: Any) -> None:
    w = np.array([1.0, 3.0])
    np.testing.assert_array_equal((first - pdnn.Tensor(w)).data, first - w)
