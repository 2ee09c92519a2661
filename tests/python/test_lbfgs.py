"""LBFGS by hand: PyTorch's and SciPy's minima, its stopping rules, its memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import comm, ddp, models, nn, optim
from pdnn.optim.line_search import Point, strong_wolfe

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 8))
CLASSES = RNG.integers(0, 3, 120)
VALUES = X @ RNG.normal(size=(8, 2)) + RNG.normal(size=(120, 2))
EXACT = {"tolerance_grad": 1e-10, "tolerance_change": 0.0, "max_iter": 100}
SEARCHES = (None, "strong_wolfe")

Function = Callable[[Any], tuple[float, Any]]


def objective(model: nn.Sequential, x: Any, y: Any, criterion: nn.Loss, l2: float = 0.0) -> Function:
    """Loss and gradient as a function of the parameters, which stay as they are."""

    def function(w: Any) -> tuple[float, Any]:
        kept = model.flat_parameters.copy()
        model.flat_parameters[...] = w
        loss, gradient = model.gradient(x, y, criterion)
        model.flat_parameters[...] = kept
        return loss + l2 / 2 * float(w @ w), gradient + l2 * w

    return function


def closure_of(model: nn.Sequential, function: Function) -> Callable[[], float]:
    def closure() -> float:
        loss, model.flat_gradients[...] = function(model.flat_parameters)
        return loss

    return closure


def linear(outputs: int, dtype: str = "float64") -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, outputs), dtype=dtype, seed=1)


def minimum(model: nn.Sequential, function: Function, steps: int = 5, **options: Any) -> Any:
    """Where steps of pdnn's LBFGS end."""
    optimizer = optim.LBFGS(model.parameters(), **(EXACT | options))
    for _ in range(steps):
        optimizer.step(closure_of(model, function))
    return model.flat_parameters.copy()


def torchs(start: Any, function: Function, steps: int = 5, **options: Any) -> Any:
    """Where steps of torch's LBFGS end."""
    torch = pytest.importorskip("torch")
    w = torch.tensor(start.copy(), requires_grad=True)
    optimizer = torch.optim.LBFGS([w], **(EXACT | options))

    def closure() -> Any:
        loss, gradient = function(w.detach().numpy())
        w.grad = torch.from_numpy(np.array(gradient))
        return torch.tensor(loss, dtype=torch.float64)

    for _ in range(steps):
        optimizer.step(closure)
    return w.detach().numpy()


def scipys(start: Any, function: Function) -> Any:
    """Where SciPy's L-BFGS-B ends."""
    optimize = pytest.importorskip("scipy.optimize")
    options = {"gtol": 1e-10, "ftol": 1e-20, "maxcor": 100, "maxiter": 1000}
    return optimize.minimize(function, start, jac=True, method="L-BFGS-B", options=options).x


def problem(name: str) -> tuple[nn.Sequential, Function]:
    if name == "logistic":
        model = linear(3)
        return model, objective(model, X, CLASSES, nn.CrossEntropyLoss(), l2=0.1)
    model = linear(2)
    return model, objective(model, X, VALUES, nn.MSELoss())


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ["logistic", "linear"])
def test_convex_minima_equal_torchs_and_scipys(name: str, search: str | None) -> None:
    model, function = problem(name)
    start = model.flat_parameters.copy()
    mine = minimum(model, function, line_search_fn=search)
    others = [torchs(start, function, line_search_fn=search), scipys(start, function)]
    for theirs in others:
        assert abs(function(mine)[0] - function(theirs)[0]) <= 1e-12
        assert np.abs(mine - theirs).max() <= 1e-8 * max(1.0, np.abs(mine).max())
    if name == "linear":
        solved = np.linalg.lstsq(np.c_[X, np.ones(len(X))], VALUES, rcond=None)[0]
        np.testing.assert_allclose(mine, solved.ravel(), rtol=0, atol=1e-8)


def rosenbrock(w: Any) -> tuple[float, Any]:
    a, b = w[0], w[1] - w[0] ** 2
    return (1 - a) ** 2 + 100 * b**2, np.array([2 * (a - 1) - 400 * a * b, 200 * b])


def test_a_curved_valley_is_followed_to_its_minimum() -> None:
    model = nn.Sequential(nn.Linear(1, 1), dtype="float64", seed=1)
    model.flat_parameters[...] = -1.2, 1
    found = minimum(model, rosenbrock, line_search_fn="strong_wolfe")
    np.testing.assert_allclose(found, 1, rtol=0, atol=1e-8)
    np.testing.assert_allclose(torchs(np.array([-1.2, 1]), rosenbrock, line_search_fn="strong_wolfe"), found)


def test_iterations_without_a_search_equal_torchs() -> None:
    model = models.mlp([8, 6, 2], "tanh", dtype="float64", seed=1)
    function, start = objective(model, X, VALUES, nn.MSELoss()), model.flat_parameters.copy()
    options = {"lr": 0.5, "max_iter": 3, "history_size": 4}
    mine = minimum(model, function, 6, **options)
    assert np.abs(mine - torchs(start, function, 6, **options)).max() <= 1e-9
    assert function(mine)[0] < function(start)[0] / 2


def test_small_units_hide_no_curvature() -> None:
    """Pairs with s·y below 1e-10, which torch leaves out, are learned: the steps know no units."""
    x, y = X * np.geomspace(1, 10, 8), VALUES * 1e-7
    model = linear(2)
    model.flat_parameters[...] *= 1e-7
    function, start = objective(model, x, y, nn.MSELoss()), model.flat_parameters.copy()
    least = function(np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0].ravel())[0]
    options = {"line_search_fn": "strong_wolfe", "tolerance_grad": 0.0, "max_iter": 40}
    mine, theirs = minimum(model, function, 1, **options), torchs(start, function, 1, **options)
    assert function(mine)[0] <= least * (1 + 1e-12)
    assert function(theirs)[0] > least * 1.01


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_units_of_the_samples_hide_no_curvature_in_float32(unit: float, search: str | None) -> None:
    x = (X * unit * np.linspace(300, 1500, 8)).astype(np.float32)
    y = (x @ np.full((8, 1), 1 / unit / 1000) + 0.1 * RNG.normal(size=(120, 1))).astype(np.float32)
    model = nn.Sequential(nn.Linear(8, 1, bias=False), seed=0)
    model.flat_parameters[...] = 0
    optimizer = optim.LBFGS(model.parameters(), line_search_fn=search, max_iter=100, max_eval=200)
    for _ in range(2):
        optimizer.step(lambda: model.gradient(x, y, nn.MSELoss(), out=model.flat_gradients)[0])
    least = np.linalg.lstsq(x.astype(np.float64), y, rcond=None)[1][0] / len(x)
    assert float(nn.MSELoss()(model.predict(x), y)) <= 1.001 * least


@pytest.mark.parametrize("eager", [False, True])
def test_a_copy_with_its_model_steps_at_once(eager: bool) -> None:
    def made() -> tuple[nn.Sequential, optim.LBFGS]:
        model = linear(3)
        return model, optim.LBFGS(model.parameters(), max_iter=5)

    def step(model: nn.Sequential, optimizer: optim.LBFGS) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            if not eager:
                return model.gradient(X, CLASSES, nn.CrossEntropyLoss(), out=model.flat_gradients)[0]
            loss = nn.CrossEntropyLoss()(model(X), CLASSES)
            loss.backward()
            return loss

        return optimizer.step(closure), optimizer.state_dict()["steps"], model.fingerprint()

    assert step(*copy.deepcopy(made())) == step(*made())


def test_a_network_comes_at_least_as_low_as_with_torch() -> None:
    model = models.mlp([4, 32, 16, 4], "tanh", dtype="float64", seed=1)
    x = RNG.normal(size=(50, 4))
    function, start = objective(model, x, np.sin(x), nn.MSELoss()), model.flat_parameters.copy()
    options = {"line_search_fn": "strong_wolfe", "max_iter": 150, "history_size": 20}
    mine = minimum(model, function, 1, **options)
    assert function(mine)[0] <= 2 * function(torchs(start, function, 1, **options))[0] <= 1e-3


@pytest.mark.parametrize("search", SEARCHES)
def test_float32_reaches_its_precision(search: str | None) -> None:
    model = linear(3, "float32")
    x = X.astype(np.float32)
    optimizer = optim.LBFGS(
        model.parameters(), max_iter=200, tolerance_change=0, line_search_fn=search, weight_decay=0.1
    )
    optimizer.step(lambda: model.gradient(x, CLASSES, nn.CrossEntropyLoss(), out=model.flat_gradients)[0])
    exact, function = problem("logistic")
    np.testing.assert_allclose(
        model.flat_parameters, minimum(exact, function, line_search_fn="strong_wolfe"), rtol=0, atol=3e-5
    )


def test_weight_decay_is_part_of_the_loss() -> None:
    by_option, by_hand = linear(3), linear(3)
    plain = objective(by_option, X, CLASSES, nn.CrossEntropyLoss())
    full = objective(by_hand, X, CLASSES, nn.CrossEntropyLoss(), l2=0.1)
    wanted = minimum(by_hand, full, line_search_fn="strong_wolfe")
    found = minimum(by_option, plain, line_search_fn="strong_wolfe", weight_decay=0.1)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_parameters_in_no_group_stay() -> None:
    model = linear(3)
    weight, bias = model.parameters()
    kept, before = bias.data.copy(), weight.data.copy()
    optimizer = optim.LBFGS([weight], line_search_fn="strong_wolfe")
    closure = closure_of(model, objective(model, X, CLASSES, nn.CrossEntropyLoss()))
    loss = optimizer.step(closure)
    np.testing.assert_array_equal(bias.data, kept)
    assert (weight.data != before).any() and closure() < loss


def test_eager_closures_give_the_same_steps() -> None:
    eager, static = (models.mlp([8, 5, 3], "tanh", dtype="float64", seed=1) for _ in range(2))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.LBFGS(eager.parameters(), line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = criterion(eager(X), CLASSES)
        loss.backward()
        return loss

    other = optim.LBFGS(static.parameters(), line_search_fn="strong_wolfe")
    for _ in range(2):
        loss = optimizer.step(closure)
        assert loss == other.step(closure_of(static, objective(static, X, CLASSES, criterion)))
    np.testing.assert_array_equal(eager.flat_parameters, static.flat_parameters)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_step_ends_as_it_was_told(search: str | None) -> None:
    function = problem("logistic")[1]

    def evaluations(**options: Any) -> int:
        model, _ = problem("logistic")
        optimizer = optim.LBFGS(model.parameters(), line_search_fn=search, **options)
        optimizer.step(closure_of(model, function))
        return int(optimizer.state_dict()["steps"])

    assert evaluations(max_iter=1, max_eval=1) <= 2  # as torch: the limit is looked at after an iteration
    assert evaluations(max_iter=50, max_eval=4) <= 5
    assert evaluations(max_iter=50, max_eval=4, lr=1e-6) <= 5  # though a search would try on
    assert evaluations(tolerance_grad=1e3) == 1
    assert evaluations(max_iter=50, tolerance_change=1.0) <= 3
    assert 10 < evaluations(max_iter=50) < 50


def test_a_search_that_has_found_nothing_goes_on() -> None:
    """Else every later step would try the same point again."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    y = np.sin(2 * x[:, :1])
    for options in ({"max_iter": 1}, {"max_iter": 2}, {"max_iter": 20, "max_eval": 2}):
        model = models.mlp([5, 16, 1], "tanh", dtype="float64", seed=3)
        optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe", **options)
        loss = 1.0
        while optimizer.state_dict()["steps"] < 500:
            loss = optimizer.step(
                lambda: model.gradient(x, y, nn.MSELoss(), out=model.flat_gradients)[0]  # noqa: B023
            )
        assert loss < 2e-3


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("change", ["group", "decay"])
def test_of_another_loss_curvature_is_learned_anew(search: str | None, change: str) -> None:
    """Differences of gradients would have those terms that are new, too."""
    model, function = problem("logistic")
    parameters = list(model.parameters())
    some = parameters[:1] if change == "group" else parameters
    optimizer = optim.LBFGS(some, line_search_fn=search, max_iter=3)
    closure = closure_of(model, function)
    for _ in range(3):
        optimizer.step(closure)
    if change == "group":
        optimizer.param_groups.append({"params": parameters[1:], "lr": 1.0, "weight_decay": 0.0})
    else:
        optimizer.param_groups[0]["weight_decay"] = 0.5
    kept = model.flat_parameters.copy()
    optimizer.step(closure)
    changed = model.flat_parameters.copy()
    model.flat_parameters[...] = kept
    decay = optimizer.param_groups[0]["weight_decay"]
    optim.LBFGS(parameters, line_search_fn=search, max_iter=3, weight_decay=decay).step(closure)
    np.testing.assert_array_equal(changed, model.flat_parameters)


def test_a_state_brings_its_curvature_and_its_groups() -> None:
    ends = []
    for decay in (0.5, 0.1):
        model, function = problem("logistic")
        optimizer = optim.LBFGS(model.parameters(), max_iter=3, weight_decay=0.5)
        optimizer.step(closure_of(model, function))
        state, kept = optimizer.state_dict(), model.flat_parameters.copy()
        if decay == 0.1:  # one that has made steps of another loss
            optimizer = optim.LBFGS(model.parameters(), max_iter=3, weight_decay=decay)
            optimizer.step(closure_of(model, function))
            optimizer.load_state_dict(state)
            model.flat_parameters[...] = kept
        optimizer.step(closure_of(model, function))
        ends.append(model.flat_parameters.copy())
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("search", SEARCHES)
def test_memory_is_resumed_bit_for_bit(search: str | None) -> None:
    options = {"history_size": 3, "max_iter": 4, "line_search_fn": search}
    model, function = problem("logistic")
    optimizer = optim.LBFGS(model.parameters(), **options)
    for _ in range(2):
        optimizer.step(closure_of(model, function))
    state, kept = copy.deepcopy(optimizer.state_dict()), model.flat_parameters.copy()
    optimizer.step(closure_of(model, function))

    other, _ = problem("logistic")
    other.flat_parameters[...] = kept
    resumed = optim.LBFGS(other.parameters(), **options)
    resumed.load_state_dict(state)
    resumed.step(closure_of(other, function))
    np.testing.assert_array_equal(other.flat_parameters, model.flat_parameters)
    assert resumed.state_dict()["steps"] == optimizer.state_dict()["steps"]
    with pytest.raises(ValueError, match="load_state_dict"):
        optim.LBFGS(other.parameters(), history_size=4).load_state_dict(state)


def test_ranks_that_add_up_in_the_closure_make_the_same_steps() -> None:
    def work() -> tuple[bytes, float]:
        model, world = linear(3), comm.world()
        mine = slice(world.rank, None, world.size)
        criterion = nn.CrossEntropyLoss("sum")

        def closure() -> float:
            loss, _ = model.gradient(
                np.ascontiguousarray(X[mine]), CLASSES[mine], criterion, out=model.flat_gradients
            )
            world.all_reduce(model.flat_gradients)
            return float(world.all_reduce(np.array([loss]))[0])

        optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe", weight_decay=1.2)
        for _ in range(2):
            optimizer.step(closure)
        return model.flat_parameters.tobytes(), closure()

    alone, several = work(), comm.run_threads(work, 3)
    assert len(set(several)) == 1
    assert several[0][1] == pytest.approx(alone[1], rel=1e-12)


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    model, function = problem("linear")
    start = model.flat_parameters.copy()
    optimizer = optim.LBFGS(model.parameters())

    def closure() -> float:
        model.flat_gradients[...] = 1
        return float("nan")

    with pytest.raises(FloatingPointError, match="loss is nan"):
        optimizer.step(closure)
    np.testing.assert_array_equal(model.flat_parameters, start)
    far = optim.LBFGS(model.parameters(), lr=1e200)
    with pytest.raises(FloatingPointError, match="lower lr"), np.errstate(over="ignore", invalid="ignore"):
        far.step(closure_of(model, function))
    np.testing.assert_array_equal(model.flat_parameters, start)


def test_an_error_in_a_closure_leaves_the_last_iteration() -> None:
    model, function = problem("logistic")
    optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    start, calls = model.flat_parameters.copy(), iter((True, False))

    def closure() -> float:
        if next(calls):
            return closure_of(model, function)()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    np.testing.assert_array_equal(model.flat_parameters, start)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "of type NoneType"),
        (np.ones(4), "of type ndarray"),
        (pdnn.Tensor(np.ones(4)), "of type Tensor"),
        ("a", "of type str"),
    ],
)
def test_a_closure_that_returns_no_loss_changes_nothing(result: Any, words: str) -> None:
    model, function = problem("logistic")
    optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    start, calls = model.flat_parameters.copy(), iter((True, False))

    def closure() -> Any:
        loss = closure_of(model, function)()
        return loss if next(calls) else result

    with pytest.raises(
        TypeError, match=f"LBFGS: closure returned .*{words}, no loss; .*calls its backward and returns"
    ):
        optimizer.step(closure)
    np.testing.assert_array_equal(model.flat_parameters, start)


@pytest.mark.parametrize("closure", [None, 3.0])
def test_a_closure_is_a_function(closure: Any) -> None:
    with pytest.raises(
        TypeError, match=r"LBFGS: closure is of type .*calls its backward and returns the loss"
    ):
        optim.LBFGS(linear(2).parameters()).step(closure)


def along(loss: Callable[[float], float], slope: Callable[[float], float]) -> Callable[[float], Point]:
    def look(step: float) -> Point:
        return Point(step, loss(step), slope(step), np.zeros(1))

    return look


@pytest.mark.parametrize("first", [1e-4, 0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("center", [0.01, 1.0, 30.0])
def test_a_search_meets_the_strong_wolfe_conditions(first: float, center: float) -> None:
    look = along(
        lambda t: -center / (t * t + 2 * center**2) * t,
        lambda t: center * (t * t - 2 * center**2) / (t * t + 2 * center**2) ** 2,
    )
    start = look(0)
    found = strong_wolfe(look, start, first, least=1e-12, looks=40, most=40, noise=0.0)
    assert found.loss <= start.loss + 1e-4 * found.step * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)
    assert found.step > 0


def test_a_step_ends_where_the_loss_stays_equal() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), dtype="float64")
    model.flat_parameters[...] = 1
    optimizer = optim.LBFGS(model.parameters(), lr=2.0, max_iter=50)
    optimizer.step(closure_of(model, lambda w: (float(w @ w) / 2, w)))  # from 1 to -1
    assert optimizer.state_dict()["steps"] == 2


@pytest.mark.parametrize("seed", [0, 18, 29, 30])
def test_a_search_over_waves_meets_them_too(seed: int) -> None:
    random = np.random.default_rng(seed)
    height, speed, phase = random.normal(size=4), random.uniform(0.2, 4, 4), random.uniform(0, 6, 4)
    look = along(
        lambda t: float(height @ np.sin(speed * t + phase)) + 0.02 * t * t,
        lambda t: float(height * speed @ np.cos(speed * t + phase)) + 0.04 * t,
    )
    start = look(0)
    found = strong_wolfe(look, start, 10 ** random.uniform(-2, 1.5), least=1e-9, looks=25, most=25, noise=0.0)
    assert found.loss <= start.loss + 1e-4 * found.step * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)


def test_a_search_comes_back_from_where_nothing_is_finite() -> None:
    look = along(
        lambda t: (t - 1) ** 2 if t < 2 else float("inf"), lambda t: 2 * (t - 1) if t < 2 else float("nan")
    )
    found = strong_wolfe(look, look(0), 1e3, least=1e-12, looks=25, most=25, noise=0.0)
    assert 0 < found.step < 2 and found.loss < 1


def test_a_search_without_success_stays() -> None:
    look = along(lambda t: t, lambda t: -1.0)  # a slope that lies
    assert strong_wolfe(look, look(0), 1.0, least=1e-12, looks=9, most=9, noise=0.0).step == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iter": 0}, "max_iter = 0"),
        ({"max_eval": 0}, "max_eval = 0"),
        ({"history_size": 0}, "history_size = 0"),
        ({"max_iter": 2.5}, r"LBFGS: max_iter is 2.5, expected an integer from 1"),
        ({"max_eval": "9"}, "max_eval is '9'"),
        ({"history_size": True}, "history_size is True"),
        ({"tolerance_change": "a"}, "tolerance_change is 'a'"),
        ({"tolerance_grad": -1.0}, "tolerance_grad = -1"),
        ({"line_search_fn": "armijo"}, '"strong_wolfe" or None'),
        ({"lr": float("nan")}, "lr = nan"),
    ],
)
def test_wrong_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        optim.LBFGS(linear(2).parameters(), **options)


def test_what_cannot_evaluate_a_batch_again_says_so() -> None:
    model = linear(3)
    optimizer = optim.LBFGS(model.parameters())
    with pytest.raises(TypeError, match=r"optimizer.step\(closure\)"):
        model.step(X, CLASSES, nn.CrossEntropyLoss(), optimizer)
    with pytest.raises(TypeError, match="in its closure"):
        ddp.DistributedOptimizer(optimizer)
    weight, bias = model.parameters()
    with pytest.raises(ValueError, match="a step has one length"):
        optim.LBFGS([{"params": weight, "lr": 0.1}, {"params": bias}])


@pytest.mark.parametrize("search", SEARCHES)
def test_a_learning_rate_of_0_moves_nothing(search: str | None) -> None:
    model = linear(3)
    before = model.flat_parameters.copy()
    optimizer = optim.LBFGS(model.parameters(), lr=0.0, line_search_fn=search)
    function = objective(model, X, CLASSES, nn.CrossEntropyLoss())
    for _ in range(2):
        assert optimizer.step(closure_of(model, function)) == pytest.approx(function(before)[0])
    np.testing.assert_array_equal(model.flat_parameters, before)


def test_the_advice_is_not_what_is_done_already() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    with pytest.raises(FloatingPointError, match=r"in the data or lower lr$"):
        optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe").step(lambda: np.nan)
    with pytest.raises(FloatingPointError, match=r'lower lr, or pass line_search_fn="strong_wolfe"$'):
        optim.LBFGS(model.parameters()).step(lambda: np.nan)


@pytest.mark.parametrize(("loss", "slope", "said"), [(np.nan, 1.0, "nan"), (1.0, np.nan, "1")])
def test_the_error_says_which_loss_it_was(loss: float, slope: float, said: str) -> None:
    model, calls = nn.Sequential(nn.Linear(2, 1)), []

    def closure() -> float:
        calls.append(1)
        model.flat_gradients[...] = slope if len(calls) == 2 else 1.0
        return loss if len(calls) == 2 else 1.0

    with pytest.raises(FloatingPointError, match=f"the loss is {said}, and"):
        optim.LBFGS(model.parameters()).step(closure)
