"""What does not fit is refused where it is passed, by its name, and changes nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import callbacks, datasets, models, nn, optim, strategies
from pdnn.comm import run_threads
from pdnn.data import (
    BatchSampler,
    DataLoader,
    DataPartitioner,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    minibatches,
    train_test_split,
)
from pdnn.datasets import make_classification
from pdnn.strategies import schedule

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (60, 8), dtype=np.uint8)
Y = (X[:, 0] // 64).astype(int)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), seed=1)


def trainer(strategy: str = "serial", **options: Any) -> pdnn.Trainer:
    model = network()
    rule = optim.SGD(model.parameters(), 0.1)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), rule, strategy=strategy, **options)


def without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in state.items() if other != name}


def group_with(state: dict[str, Any], **numbers: Any) -> dict[str, Any]:
    return {**state, "param_groups": [{**state["param_groups"][0], **numbers}]}


def group_without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {**state, "param_groups": [without(state["param_groups"][0], name)]}


OPTIMIZER_STATES: list[tuple[Callable[[dict[str, Any]], dict[str, Any]], type[Exception], str]] = [
    *(
        (lambda s, n=n: without(s, n), ValueError, f"missing .'{n}'")
        for n in ("steps", "param_groups", "state")
    ),
    (lambda s: None, TypeError, "SGD.load_state_dict: got NoneType, expected a dict"),  # type: ignore
    (lambda s: {**s, "state": None}, TypeError, "SGD.load_state_dict: state: got NoneType, expected a dict"),
    (lambda s: {**s, "param_groups": None}, TypeError, "param_groups is None, expected a list of dicts"),
    (lambda s: {**s, "steps": "3"}, TypeError, "steps is '3', expected an integer"),
    (lambda s: {**s, "steps": -1}, ValueError, "steps = -1"),
    (
        lambda s: group_without(s, "weight_decay"),
        ValueError,
        "group 0 has .'lr'., expected .'lr', 'weight_decay'",
    ),
    (lambda s: group_with(s, momentum=0.9), ValueError, "group 0 has .'lr', 'momentum', 'weight_decay'"),
    (lambda s: group_with(s, lr="a"), TypeError, "lr is 'a'"),
    (lambda s: {**s, "state": {"velocity": np.full(108, "x")}}, ValueError, "velocity has dtype <U1"),
]


@pytest.mark.parametrize(("change", "error", "words"), OPTIMIZER_STATES)
def test_an_optimizer_takes_a_whole_state_or_nothing(
    change: Callable[[dict[str, Any]], dict[str, Any]], error: type[Exception], words: str
) -> None:
    model = network()
    one, other = (optim.SGD(model.parameters(), lr, momentum=0.9) for lr in (0.1, 0.5))
    model.flat_gradients[...] = 1
    one.step()
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(error, match=words):
        other.load_state_dict(change(one.state_dict()))
    np.testing.assert_equal(other.state_dict(), before)


def test_a_state_of_a_schedule_goes_to_an_optimizer_without_one() -> None:
    model = network()
    one, other = (optim.SGD(model.parameters(), lr) for lr in (0.1, 0.5))
    optim.StepLR(one, 1).step()
    other.load_state_dict(one.state_dict())
    assert other.param_groups[0]["lr"] == pytest.approx(0.01)


def test_a_model_takes_a_whole_state_or_nothing() -> None:
    model = network()
    before = model.fingerprint()
    state = {name: np.zeros_like(array) for name, array in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"load_state_dict: 2.bias has dtype <U1, expected real numbers"):
        model.load_state_dict(state | {"2.bias": np.full(4, "x")})
    with pytest.raises(ValueError, match=r"load_state_dict: 2.bias has dtype complex128, expected real"):
        model.load_state_dict(state | {"2.bias": np.full(4, 1j)})
    for wrong in (None, "model.safetensors", [*state.values()]):
        with pytest.raises(TypeError, match=r"load_state_dict: got .*, expected a dict as state_dict\(\)"):
            model.load_state_dict(wrong)  # type: ignore[arg-type]
    assert model.fingerprint() == before


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (4, r"input_shape is 4, expected the shape of one sample, such as \(784,\)"),
        ("4", "input_shape is '4', expected the shape of one sample"),
        ((4.0,), "a size in input_shape is 4.0, expected an integer from 0"),
    ],
)
def test_shapes_of_samples_are_checked(shape: Any, said: str, tmp_path: Path) -> None:
    for call in (network().summary, partial(network().to_c, tmp_path / "model.c")):
        with pytest.raises(TypeError, match=said):
            call(shape)


# ---- fit


FIT: list[tuple[dict[str, Any], str]] = [
    ({"epochs": "2"}, "epochs is '2', expected an integer from 0"),
    ({"epochs": None}, "epochs is None, expected an integer from 0"),
    ({"epochs": True}, "epochs is True"),
    ({"batch_size": "8"}, "batch_size is '8', expected an integer from 1"),
    ({"batch_size": 2.5}, "batch_size is 2.5"),
    ({"elastic": "a"}, "elastic is 'a', expected an integer from 0"),
    ({"checkpoint": "unused", "every": None}, "every is None"),
    ({"checkpoint": "unused", "every_steps": 2.5}, "every_steps is 2.5, expected an integer from 1"),
    ({"checkpoint": "unused", "keep": 1.5}, "keep is 1.5, expected an integer from 1"),
    ({"checkpoint": "unused", "every_seconds": "1"}, "every_seconds is '1', expected a number from 0"),
    ({"shuffle": "no"}, "shuffle is 'no', expected True or False"),
    ({"resume": "no"}, "resume is 'no', expected True or False"),
    ({"timeline": 1}, "timeline is 1, expected True or False"),
    ({"augment": 3}, "augment is 3, expected a PadCropFlip or None"),
]


@pytest.mark.parametrize(("arguments", "words"), FIT)
def test_fit_names_the_argument(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=f"^fit: {words}"):
        trainer().fit((X, Y), **{"epochs": 1, "verbose": False, **arguments})


def test_an_empty_name_of_a_checkpoint_is_not_the_current_directory() -> None:
    with pytest.raises(ValueError, match=r"^fit: checkpoint=.. is no path"):
        trainer().fit((X, Y), 1, checkpoint="", verbose=False)


def test_fit_on_ranks_takes_the_integers_of_numpy(tmp_path: Path) -> None:
    numbers = {"epochs": 2, "batch_size": 8, "every": 1, "every_steps": 2, "keep": 1}

    def work(integers: dict[str, Any]) -> list[float]:
        folder = tmp_path / type(integers["epochs"]).__name__
        return trainer("ddp").fit((X, Y), checkpoint=folder, verbose=False, **integers).history["loss"]

    few, own = numbers, {name: np.int64(value) for name, value in numbers.items()}
    losses = (run_threads(lambda numbers=numbers: work(numbers), 2) for numbers in (own, few))
    np.testing.assert_allclose(*losses, rtol=1e-6)  # two runs may add up in other orders


def test_a_loader_names_what_is_no_augmentation() -> None:
    with pytest.raises(TypeError, match="DataLoader: augment is 3, expected a PadCropFlip or None"):
        DataLoader(Dataset(X, Y), augment=3)  # type: ignore[arg-type]


# ---- the constructor of a Trainer


def test_an_unknown_argument_is_told_of_the_trainer() -> None:
    """It was told of a class that nobody has written."""
    with pytest.raises(TypeError, match=r"^Trainer.__init__\(\) got an unexpected keyword argument 'metric'"):
        trainer(metric="r2")
    assert pickle.loads(pickle.dumps(pdnn.Trainer.__init__)) is pdnn.Trainer.__init__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": "a"}, "Trainer: seed is 'a', expected an integer"),
        ({"seed": None}, "Trainer: seed is None, expected an integer"),
        ({"seed": 1.5}, "Trainer: seed is 1.5, expected an integer"),
        ({"clip_norm": "1"}, "Trainer: clip_norm is '1', expected a number"),
        ({"clip_value": [1]}, r"Trainer: clip_value is \[1\], expected a number"),
        ({"comm": 3}, "Trainer: comm is of type int, expected a pdnn.comm.Communicator"),
    ],
)
def test_a_trainer_names_the_argument(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        trainer(**arguments)


# ---- optimizers and schedules


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        (lambda own: [{"parms": own}], ValueError, r"a parameter group has \['parms'\], and no \"params\""),
        (
            lambda own: own[0],
            TypeError,
            r"params is of type Parameter, expected only Parameters, as model.param",
        ),
        (lambda own: 3, TypeError, "params is of type int, expected only Parameters"),
        (lambda own: [own[0].data], TypeError, "got ndarray, expected only Parameters"),
        (
            lambda own: [{"params": [own[0].data]}],
            TypeError,
            "got ndarray in a parameter group, expected Param",
        ),
        (lambda own: [{"params": "0.weight"}], TypeError, "got str in a parameter group"),
        (lambda own: [{"params": 3}], TypeError, "got int in a parameter group"),
        (lambda own: [own[0], {"params": own[1]}], TypeError, "got dict in a parameter group"),
        (
            lambda own: [{"params": own[1]}, own[0]],
            TypeError,
            "got Parameter, expected only Parameters, .* or only dicts",
        ),
    ],
)
def test_an_optimizer_says_what_parameters_are(
    params: Callable[[list[nn.Parameter]], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=f"^SGD: {words}"):
        optim.SGD(params(list(network().parameters())), 0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda sgd: optim.LambdaLR(sgd, 3),
            "LambdaLR: lr_lambda is 3, expected a function or a list of them",
        ),
        (lambda sgd: optim.LambdaLR(sgd.param_groups, lambda t: 1.0), "LambdaLR: got list, expected one of"),
        (lambda sgd: optim.LambdaLR(sgd, [3]), r"LambdaLR: lr_lambda is \[3\], expected"),
        (lambda sgd: optim.StepLR(sgd, 1, "a"), "StepLR: gamma is 'a', expected a number from 0"),
        (lambda sgd: optim.CosineAnnealingLR(sgd, None), "CosineAnnealingLR: T_max is None, expected"),
    ],
)
def test_a_schedule_names_the_argument(make: Callable[[optim.Optimizer], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make(optim.SGD(network().parameters(), 0.1))


# ---- layers, models and data sets


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear("8", 4), "Linear: in_features is '8', expected an integer from 1"),
        (lambda: nn.Linear(8.0, 4), "Linear: in_features is 8.0"),
        (lambda: nn.Linear(8, None), "Linear: out_features is None"),
        (lambda: nn.Linear(8, 4, weight_init=nn.init.zeros), r"Linear: weight_init is <f.*init.zeros\(\)"),
        (lambda: nn.Conv2d(8, 4, 3, bias_init="zeros"), "Conv2d: bias_init is 'zeros', expected what"),
        (lambda: nn.Embedding(8, 4, weight_init=1), "Embedding: weight_init is 1, expected what"),
        (lambda: nn.BatchNorm2d(8, momentum=None), r"BatchNorm2d: momentum is None, expected .* \[0, 1\]"),
        (lambda: nn.BatchNorm1d(8, eps="a"), "BatchNorm1d: eps is 'a', expected a number above 0"),
        (lambda: nn.LayerNorm(8, eps=None), "LayerNorm: eps is None"),
        (lambda: nn.LayerNorm(None), "LayerNorm: normalized_shape is None, expected an integer"),
        (lambda: nn.LayerNorm((4.5,)), "LayerNorm: normalized_shape is 4.5, expected an integer"),
        (lambda: nn.Embedding(8, 4, "a"), "Embedding: padding_idx is 'a', expected an integer"),
        (lambda: nn.Embedding(8, 4, 1.5), "Embedding: padding_idx is 1.5, expected an integer"),
        (
            lambda: network().gradient(X / 1.0, Y, nn.MSELoss(), seed="a"),
            "gradient: seed is 'a', expected an",
        ),
        (lambda: nn.Sequential(dtype=3), "Sequential: dtype is 3, expected float32, float64 or bfloat16"),
        (lambda: nn.Conv2d(3, "8", 3), "Conv2d: out_channels is '8'"),
        (lambda: nn.Conv2d(4, 4, 3, groups=2.0), "Conv2d: groups is 2.0"),
        (lambda: nn.BatchNorm1d(8.0), "BatchNorm1d: num_features is 8.0"),
        (lambda: nn.Embedding(8, "4"), "Embedding: embedding_dim is '4'"),
        (lambda: nn.Sequential(nn.Linear(8, 4), seed=1.5), "Sequential: seed is 1.5, expected an integer"),
        (lambda: pdnn.manual_seed("a"), "manual_seed: seed is 'a', expected an integer"),
        (lambda: nn.LeakyReLU(True), "LeakyReLU: negative_slope is True, expected a finite number"),
        (lambda: nn.BatchNorm2d(8, True), "BatchNorm2d: eps is True, expected a number above 0"),
        (lambda: nn.CrossEntropyLoss(label_smoothing=True), "CrossEntropyLoss: label_smoothing is True"),
        (
            lambda: optim.SGD(network().parameters(), 0.1, 0.9, weight_decay=True),
            "SGD: weight_decay is True, expected",
        ),
        (lambda: pdnn.models.mlp(3), "mlp: sizes is 3, expected the widths"),
        (lambda: pdnn.models.mlp([3, 4, 2], ["relu"]), r"mlp: activation \['relu'\]; expected one of"),  # type: ignore[arg-type]
        (lambda: schedule("1f1b", "4", 8), "schedule: stages is '4', expected an integer"),
        (
            lambda: make_classification(n_train="9"),
            "make_classification: n_train is '9', expected an integer",
        ),
        (lambda: train_test_split(Dataset(X, Y), seed="a"), "train_test_split: seed is 'a', expected an"),
        (lambda: DataPartitioner(Dataset(X, Y), 0.5), "DataPartitioner: sizes is 0.5, expected a share"),
        (
            lambda: DataPartitioner(Dataset(X, Y), "ab"),
            "DataPartitioner: a share in sizes is 'a'",
        ),
        (lambda: minibatches(1.5, 2), "minibatches: n is 1.5, expected an integer from 0"),
        (lambda: minibatches(3, "a"), "minibatches: batch_size is 'a', expected an integer from 1"),
        (lambda: nn.ColumnParallelLinear(3, 4, comm=None), "ColumnParallelLinear: comm is of type NoneType"),
        (lambda: trainer().evaluate(X, Y, comm="a"), "evaluate: comm is of type str, expected a .*Communic"),
        (lambda: pdnn.callbacks.CSVLogger(3), "expected str, bytes or os.PathLike object, not int"),
        (lambda: nn.ModuleList(3), "ModuleList: modules is of type int, expected a list of Modules"),
        (lambda: pdnn.cat("ab"), "cat: tensors is of type str, expected a list of Tensors"),
        (
            lambda: nn.utils.clip_grad_norm_(3, 1.0),
            "clip_grad_norm_: parameters is of type int, expected Param",
        ),
        (lambda: RandomSampler(None), "RandomSampler: got NoneType, expected a Dataset, or something else"),
        (lambda: SequentialSampler(3), "SequentialSampler: got int, expected a Dataset, or something else"),
        (lambda: DistributedSampler(3), "DistributedSampler: got int, expected a Dataset, or something else"),
        (lambda: train_test_split((X, Y)), "train_test_split: dataset is of type tuple, expected a Dataset"),
        (lambda: run_threads(2, 2), "run_threads: function is of type int, expected what a rank calls"),
    ],
)
def test_a_layer_or_a_model_names_the_argument(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.SGD(network().parameters(), lr=10**400),
        lambda: optim.Adam(network().parameters(), eps=10**400),
        lambda: nn.HuberLoss(delta=10**400),
        lambda: nn.LayerNorm(8, eps=10**400),
        lambda: Dataset(X, Y, scale=10**400),
    ],
)
def test_an_integer_that_no_float_can_hold_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=f": [a-z]+ = {10**400}; expected a "):
        make()


def test_no_weights_of_classes_are_not_weights_of_1() -> None:
    with pytest.raises(ValueError, match=r"CrossEntropyLoss, classes: weight has shape \(0,\)"):
        nn.CrossEntropyLoss(weight=[])


@pytest.mark.parametrize("part", [Dataset(X[:5], Y[:5]), Subset(Dataset(X, Y), range(2, 7))])
def test_rows_to_gather_are_checked(part: Dataset | Subset) -> None:
    name = type(part).__name__
    with pytest.raises(IndexError, match=f"{name}.gather: index 7 lies outside a data set of 5 rows"):
        part.gather([7])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"{name}.gather: the indices have dtype float64, expected integers"):
        part.gather([1.5])  # type: ignore[arg-type]
    np.testing.assert_array_equal(part.gather([-1, 0])[0], part.gather()[0][[-1, 0]])  # type: ignore[arg-type]


FLOAT, INT = np.float32(0.25), np.int64(1)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.ELU(FLOAT),
        lambda: nn.LeakyReLU(FLOAT),
        lambda: nn.Softplus(FLOAT, INT),
        lambda: nn.Dropout(FLOAT),
        lambda: nn.BatchNorm1d(np.int64(8), FLOAT, INT, sync=np.True_),
        lambda: nn.LayerNorm(np.int64(8), FLOAT),
        lambda: nn.Sequential(nn.Embedding(256, 1, np.int64(-1)), nn.Flatten()),
        lambda: nn.Sequential(nn.Embedding(256, 8), nn.Transpose(), nn.AdaptiveAvgPool1d(INT), nn.Flatten()),
    ],
)
def test_layers_of_numpys_numbers_are_saved(layer: Callable[[], nn.Module], tmp_path: Path) -> None:
    model = nn.Sequential(layer(), nn.Linear(8, 4), seed=1)
    model.save(tmp_path / "model.safetensors")
    loaded = pdnn.load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X / np.float32(1)), model.predict(X / np.float32(1)))


@pytest.mark.parametrize(
    "rule",
    [
        lambda p: optim.SGD(p, FLOAT, momentum=FLOAT, weight_decay=FLOAT, nesterov=np.True_),
        lambda p: optim.AdamW(p, FLOAT, betas=np.array([0.5, 0.5]), eps=FLOAT),
        lambda p: optim.RMSprop(p, FLOAT, alpha=FLOAT, eps=FLOAT, momentum=FLOAT, centered=np.True_),
        lambda p: optim.LBFGS(p, FLOAT, max_iter=INT, tolerance_grad=FLOAT, tolerance_change=FLOAT),
    ],
)
@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: optim.LinearLR(o, FLOAT, FLOAT, total_iters=INT),
        lambda o: optim.StepLR(o, INT, FLOAT),
        lambda o: optim.MultiStepLR(o, np.array([2, 1]), FLOAT),
        lambda o: optim.ExponentialLR(o, FLOAT),
        lambda o: optim.CosineAnnealingLR(o, INT, FLOAT),
        lambda o: optim.SequentialLR(o, [optim.ConstantLR(o, FLOAT, INT), optim.StepLR(o, 2)], np.array([1])),
    ],
)
def test_rules_and_schedules_of_numpys_numbers_are_in_checkpoints(
    rule: Callable[[Any], optim.Optimizer],
    schedule: Callable[[optim.Optimizer], optim.LRScheduler],
    tmp_path: Path,
) -> None:
    model = network()
    optimizer = rule(model.parameters())
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, schedule=schedule(optimizer))
    trainer.fit(X / np.float32(255), Y, epochs=1, batch_size=60, verbose=False, checkpoint=tmp_path)
    trainer.load(tmp_path / "checkpoint.safetensors")


def test_a_mean_of_images_takes_torchs_two_sizes() -> None:
    assert nn.AdaptiveAvgPool2d((1, 1)).config() == {"output_size": 1}
    with pytest.raises(ValueError, match="AdaptiveAvgPool2d: output_size 'a'; expected a whole number"):
        nn.AdaptiveAvgPool2d("a")  # type: ignore[arg-type]


def test_a_milestone_is_an_integer() -> None:
    rule = optim.SGD(network().parameters(), 1)
    with pytest.raises(TypeError, match=r"SequentialLR: a milestone is 1\.5, expected an integer"):
        optim.SequentialLR(rule, [optim.StepLR(rule, 1), optim.StepLR(rule, 1)], [1.5])  # type: ignore[list-item]


# ---- flags


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda flag: nn.Linear(8, 4, flag), "bias"),
        (lambda flag: nn.Conv2d(8, 4, 3, bias=flag), "bias"),
        (lambda flag: nn.BatchNorm1d(8, sync=flag), "sync"),
        (lambda flag: nn.PoissonNLLLoss(log_input=flag), "log_input"),
        (lambda flag: nn.PoissonNLLLoss(full=flag), "full"),
        (lambda flag: optim.SGD(network().parameters(), 0.1, 0.9, nesterov=flag), "nesterov"),
        (lambda flag: optim.RMSprop(network().parameters(), centered=flag), "centered"),
        (lambda flag: RandomSampler(range(3), flag), "RandomSampler: replacement"),
        (lambda flag: network().train(flag), "mode"),
        (lambda flag: callbacks.CSVLogger("x", append=flag), "append"),
        (lambda flag: callbacks.EarlyStopping(restore_best=flag), "restore_best"),
        (lambda flag: BatchSampler(range(3), 2, flag), "drop_last"),
        (lambda flag: DistributedSampler(range(3), 2, 0, shuffle=flag), "shuffle"),
        (lambda flag: DistributedSampler(range(3), 2, 0, drop_last=flag), "drop_last"),
        (lambda flag: strategies.ModelAveraging(same_init=flag), "same_init"),
        (lambda flag: strategies.ScatterGather(once=flag), "once"),
        (lambda flag: models.mlp([3, 2], flatten=flag), "flatten"),
    ],
)
def test_a_word_is_no_flag(make: Callable[[Any], Any], name: str) -> None:
    for wrong in ("no", "relu", 3, None):
        with pytest.raises(TypeError, match=rf"{name} is {wrong!r}, expected True or False"):
            make(wrong)
    for right in (True, False, np.True_, np.False_):
        make(right)


def test_a_number_is_no_path() -> None:
    for read in (datasets.csv, datasets.npz, pdnn.load_model):
        with pytest.raises(TypeError):
            read(9)


def test_a_strategy_is_spelled_by_a_string() -> None:
    with pytest.raises(TypeError, match="strategy 3 is of type int, expected a string"):
        strategies.parse(3)  # type: ignore[arg-type]
