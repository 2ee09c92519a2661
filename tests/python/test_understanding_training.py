"""The first part of the data-parallelism exercise: PyTorch's steps, the script's lines, measured curves."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import processes
from modules import module_at
from pdnn.data import Dataset

Run = Callable[..., processes.Completed]


@pytest.fixture(scope="module")
def w3(root: Path) -> ModuleType:
    """examples/understanding_training.py, imported."""
    return module_at(root / "examples" / "understanding_training.py")


def test_the_network_is_the_exercises(w3: ModuleType) -> None:
    model = w3.network(w3.Config())
    assert model.flat_parameters.size == 401_408
    for parameter in model.parameters():
        bound = np.sqrt(6 / parameter.shape[0])
        assert 0.99 * bound < np.abs(parameter.data).max() <= bound


def test_batches_follow_each_other_and_never_touch_the_last_forty_rows(w3: ModuleType) -> None:
    rng = np.random.default_rng(0)
    seen = Dataset(rng.normal(size=(1000, 1024)), rng.integers(0, 32, 1000))
    poisoned = Dataset(seen.x.copy(), seen.y)
    poisoned.x[960:] = np.nan
    config = w3.Config(dtype="float64")
    whole, pieces = (w3.make_trainer(config) for _ in range(2))
    w3.train_steps(whole, config, seen, 17)
    for count in (1, 13, 3):
        w3.train_steps(pieces, config, poisoned, count)
    np.testing.assert_array_equal(pieces.model.flat_parameters, whole.model.flat_parameters)
    assert whole.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * (1 - 0.7 * 17 / 1000), rel=1e-15)


@pytest.mark.parametrize("strategy", ["serial", "team:2"])
def test_five_steps_equal_torch(w3: ModuleType, strategy: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    seen = Dataset(12 * rng.normal(size=(1000, 1024)), rng.integers(0, 32, 1000))
    config = w3.Config(dtype="float64", strategy=strategy)
    trainer = w3.make_trainer(config)
    weights = [torch.from_numpy(p.data.copy()).requires_grad_() for p in trainer.model.parameters()]
    descent = torch.optim.SGD(weights, lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(descent, 1.0, 0.3, 1000)
    w3.train_steps(trainer, config, seen, 5)
    for first in range(0, 5 * 64, 64):
        x = torch.from_numpy(seen.x[first : first + 64])
        for weight in weights[:-1]:
            x = torch.tanh(x @ weight)
        descent.zero_grad()
        torch.nn.functional.cross_entropy(
            x @ weights[-1], torch.from_numpy(seen.y[first : first + 64])
        ).backward()
        descent.step()
        schedule.step()
    for theirs, ours in zip(weights, trainer.model.parameters(), strict=True):
        want = theirs.detach().numpy()
        assert np.abs(ours.data - want).max() <= 1e-10 * np.abs(want).max()


def test_the_script_writes_its_lines(root: Path, run_python: Run) -> None:
    script = root / "examples" / "understanding_training.py"
    words = ["--niters", "25", "--every", "10", "--train-size", "1100", "--seeds", "2"]
    lines = run_python([script, *words]).stdout.splitlines()
    told = ast.literal_eval(lines[0])
    published = "n_layers dim_in n_classes dim_hidden train_size batch_size learning_rate niters port"
    assert list(told)[:9] == published.split()
    assert [told[name] for name in published.split()] == [4, 1024, 32, 256, 1100, 64, 0.1, 25, 29000]
    number = r"(\d+\.\d{4})"
    losses_of = rf"train_loss {number} \| test_loss {number}"
    more = rf"batch_loss {number} \| held_out_loss {number}"
    pattern = rf"step +(\d+) \| {losses_of} \| step time \d+\.\d+ms \| {more}"
    found = [match for match in (re.fullmatch(pattern, line) for line in lines) if match]
    assert [int(match[1]) for match in found] == [0, 10, 20, 0, 10, 20]
    losses = [float(match[3]) for match in found]
    assert 3 < losses[0] < 5 and losses[2] < losses[1] < losses[0]
    assert losses[3:] != losses[:3]
    assert float(found[0][2]) > losses[0], "the train loss is the one before the first update"
    assert run_python([script, "--train-size", "1000"], check=False).returncode == 2


def test_sizes_are_options(root: Path, run_python: Run) -> None:
    script = root / "examples" / "understanding_training.py"
    sizes = ["--n-layers", "2", "--dim-in", "20", "--n-classes", "3", "--dim-hidden", "8"]
    words = [
        *sizes,
        "--batch-size",
        "100",
        "--learning-rate",
        "0.01",
        "--niters",
        "3",
        "--train-size",
        "1100",
    ]
    said = run_python([script, *words, "--port", "29500", "--every", "2"]).stdout
    assert "'dim_hidden': 8" in said and "'port': 29500" in said
    losses = [float(loss) for loss in re.findall(r"test_loss (\S+)", said)]
    assert len(losses) == 2 and losses[1] < losses[0] < 3
    assert run_python([script, *words, "--n-layers", "0"], check=False).returncode == 2


@pytest.mark.full_length
@pytest.mark.timeout(600)
def test_medians_over_five_seeds_lie_in_the_measured_ranges(w3: ModuleType) -> None:
    import pdnn

    seen, held_out = pdnn.datasets.make_classification()
    runs = []
    for seed in range(5):
        config = w3.Config(seed=seed)
        trainer = w3.make_trainer(config)
        runs.append(w3.train(trainer, config, seen, held_out[:500], show=lambda line: None))
    verdicts = w3.beside(w3.RANGES, w3.medians(runs), seeds=5)[1:]
    assert len(verdicts) == len(w3.RANGES)
    assert all(verdict.endswith(" inside") for verdict in verdicts), verdicts
    assert min(line.held_out_loss for lines in runs for line in lines) > 3  # chance: log 32 = 3.47
