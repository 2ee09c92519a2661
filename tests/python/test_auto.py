"""Auto: takes as many threads as pay, says why, leaves no trace, and tells where an exchange does not pay."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import elastic_job
import pdnn
import surviving_fit
from pdnn import estimate, models, nn, optim, strategies
from pdnn.comm import SELF, Communicator, run_threads
from pdnn.estimate import Alternatives, Link, Machine, Network, Steps, auto, turns
from pdnn.estimate.calibration import Calibration
from pdnn.strategies import DataParallel, Engine, Serial, Strategy, Team
from pdnn.strategies.engines import engines_up_to
from test_spares import with_spares

GIGABIT = Link(5e-5, 1.25e8)
"""A link of 1 Gbit/s."""


def team_of(threads: int, leaves: int = 0) -> Engine:
    return Team(threads, leaves) if threads > 1 else Serial(leaves)


@pytest.mark.parametrize(
    ("cores", "threads"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])]
)
def test_teams_of_powers_of_two_up_to_all_cores_are_tried(cores: int, threads: list[int]) -> None:
    assert engines_up_to(cores) == [team_of(number) for number in threads]
    assert auto.candidates(1, cores, 8) == [team_of(number, 8) for number in threads]
    assert auto.candidates(4, cores) == [DataParallel(team_of(number)) for number in threads]


@pytest.mark.parametrize(
    ("microseconds", "chosen", "tried"),
    [
        ({1: 40, 2: 58, 4: 90}, 1, [1, 2, 4]),
        ({1: 40, 2: 70}, 1, [1, 2]),  # hopeless: no larger ones
        ({1: 40, 2: 45, 4: 30, 8: 29.5}, 4, [1, 2, 4, 8]),  # twice the threads for 2 % do not pay
        ({1: 40, 2: 25, 4: 15, 8: 10}, 8, [1, 2, 4, 8]),
        ({1: 40, 2: 25, 4: 38, 8: 10}, 2, [1, 2, 4]),
    ],
)
def test_as_many_threads_are_taken_as_pay(
    microseconds: dict[int, float], chosen: int, tried: list[int]
) -> None:
    def race(
        among: Sequence[Strategy], rows: int, ranks: Communicator, everyone: Communicator
    ) -> list[float]:
        assert (rows, ranks, everyone) == (32, SELF, SELF)
        assert len(among) == 2
        return [1e-6 * microseconds[each.engine.threads] for each in among]

    choice = auto.choose(race, 32, SELF, 8)
    assert choice.strategy == team_of(chosen)
    assert list(choice.measured) == [str(team_of(number)) for number in tried]
    best = min(choice.measured.values())
    assert choice.measured[str(choice.strategy)] <= 1.05 * best


def test_the_line_has_the_choice_and_the_figures() -> None:
    def race(among: Sequence[Strategy], *_: object) -> list[float]:
        return [{1: 41.5e-6, 2: 300e-6}[each.engine.threads] for each in among]

    assert auto.choose(race, 32, SELF, 2).why == "auto: serial; measured serial 41.5 µs, team:2 300 µs a step"
    assert auto.choose(race, 32, SELF, 1).why == "auto: serial; this process has one core"


def race_over(exchange: float, step: float) -> auto.Race:
    """Ranks whose gradients take `exchange` seconds to add up; a codec sends a tenth. Threads do not help."""

    def race(
        among: Sequence[Strategy], rows: int, ranks: Communicator, everyone: Communicator
    ) -> list[float]:
        found = []
        for strategy in among:
            assert rows == 64 or isinstance(strategy, Engine)
            own = rows / 64 * step * (1 + 0.1 * (strategy.engine.threads - 1))
            if isinstance(strategy, DataParallel):
                own = own / ranks.size + exchange * (0.1 if strategy.codec else 1)
            elif isinstance(strategy, strategies.ModelAveraging):
                assert strategy.every == 1
                own += exchange
            found.append(own if ranks.size > 1 or isinstance(strategy, Engine) else 1.0)
        everyone.barrier()
        return found

    return race


def test_ranks_that_pay_are_told_beside_one_alone() -> None:
    choices = run_threads(lambda: auto.choose(race_over(1e-4, 1e-3), 64, pdnn.world(), 1), 2)
    assert choices[0] == choices[1]
    why = "auto: ddp on 2 ranks; measured 600 µs a step, one rank alone 1 ms"
    assert choices[0].why == why
    assert choices[0].strategy == DataParallel()


def test_where_the_exchange_does_not_pay_it_is_said_what_would() -> None:
    """A step of 1.2 ms whose gradients take 13.7 ms, as over a link of 1 Gbit/s."""
    choices = run_threads(lambda: auto.choose(race_over(13.7e-3, 1.2e-3), 64, pdnn.world(), 2), 2)
    assert choices[0] == choices[1]
    assert choices[0].strategy == DataParallel()
    assert choices[0].why == (
        "auto: ddp on 2 ranks; measured 14.3 ms a step (a rank's share: serial 600 µs, team:2 660 µs), "
        "one rank alone 1.2 ms: the exchange costs more than it brings; "
        "what would pay: 1 rank 1.2 ms, average:128 1.31 ms (each rank a step of its own)"
    )
    (choice, _) = run_threads(lambda: auto.choose(race_over(2e-3, 1.2e-3), 64, pdnn.world(), 1), 2)
    assert choice.why.endswith("ddp:bf16 800 µs")
    (choice, _) = run_threads(lambda: auto.choose(race_over(2e-3, 1.2e-3), 64, pdnn.world(), 1, 8), 2)
    assert choice.strategy == DataParallel(Serial(8))
    assert choice.why.endswith("what would pay: 1 rank 1.2 ms")  # nothing else has reproducible sums


@dataclass
class FakeCompute:
    """Steps of so many seconds a row, half of them in each of two stages."""

    row: float

    def step(self, network: Network, rows: int, threads: int = 1) -> float:
        return self.row * rows

    def stages(self, network: Network, cut: tuple[int, ...], rows: int) -> list[tuple[float, float]]:
        return [(self.row * rows / 6, self.row * rows / 3) for _ in range(len(cut) + 1)]

    def cut(self, network: Network, stages: int, rows: int) -> tuple[int, ...]:
        return tuple(range(2, 2 * stages, 2))


def steps_over(between: Link, ranks: int, cores: int) -> Steps:
    model = models.mlp([1024, 256, 256, 256, 32], seed=0)
    inside = Link(1e-6, 1e10)
    machine = Machine("described", 8, cores, 1e11, 0, 1e10, 1e-6, inside=inside, between=between)
    return Steps(Network(model, (1024,)), 64, ranks, FakeCompute(1.2e-3 / 64), machine)


def test_described_machines_tell_what_would_pay() -> None:
    slow = steps_over(GIGABIT, 4, cores=2)
    seconds = slow.estimate(DataParallel()).seconds
    found = Alternatives.estimated(slow, DataParallel(), seconds)
    assert found.alone == pytest.approx(1.2e-3)
    assert not found.pays
    assert found.instead["2 ranks of one machine"] < found.alone < seconds
    (average,) = (name for name in found.instead if name.startswith("average:"))
    assert found.instead[average] <= 1.1 * found.alone
    every = slow.estimate(strategies.parse(average)).seconds
    assert found.instead[average] == pytest.approx(every, rel=1e-6)
    assert "the exchange costs more than it brings; what would pay: 1 rank 1.2 ms, 2 ranks" in str(found)

    fast = steps_over(Link(1e-6, 1e10), 4, cores=2)
    found = Alternatives.estimated(fast, DataParallel(), fast.estimate(DataParallel()).seconds)
    assert found.pays
    assert not found.instead
    assert str(found) == "one rank alone 1.2 ms"


def test_the_fastest_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = steps_over(replace(GIGABIT, latency=5e-3), 2, cores=1)  # no other strategy pays either
    monkeypatch.setattr(Calibration, "steps", lambda *_: steps)

    def choose() -> estimate.Choice:
        own = trainer("fastest")
        own.fit(data(), 1, 32, verbose=False)
        assert isinstance(own.choice, estimate.Choice)
        return own.choice

    monkeypatch.setenv("PDNN_THREADS", "1")
    (choice, other) = run_threads(choose, 2)
    assert choice.why == other.why
    assert choice.why.startswith(f"fastest: {choice.strategy}; estimated ")
    assert "one rank alone 1.2 ms: the exchange costs more than it brings; what would pay" in choice.why


def trainer(strategy: str | Strategy, **options: object) -> pdnn.Trainer:
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4), seed=3)
    adam = optim.Adam(model.parameters(), lr=0.01)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy, seed=5, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "blocks"),
    [
        (([0.02], [0.01]), 3),  # clear
        (([0.04], [0.01]), 2),  # very clear
        (([0.002, 0.004], [0.001, 0.003]), 3),  # clear each time, on a machine whose speed changes
        (([0.02, 0.01], [0.015]), 5),  # not the same one is faster each time: all that LONG has time for
        (([0.0021], [0.002]), 7),  # nearly as fast: as many as ever
    ],
)
def test_trials_take_turns_until_it_is_clear(seconds: tuple[list[float], list[float]], blocks: int) -> None:
    calls = [0, 0]

    def trial(which: int) -> Callable[[int], float]:
        def steps(count: int) -> float:
            calls[which] += 1
            times = seconds[which]  # the first two calls, and then every other one, do not count
            return times[calls[which] // 2 % len(times)]

        return steps

    result = turns.in_turns([trial(0), trial(1)], SELF)
    assert calls == [2 + 2 * blocks] * 2
    assert result[1] == seconds[1][0]


def test_steps_in_which_threads_cannot_meet_are_not_raced() -> None:
    made = [0, 0]

    def trial(which: int) -> Callable[[int], float]:
        def steps(count: int) -> float:
            made[which] += count
            return 1e-6

        return steps

    assert turns.in_turns([trial(0), trial(1)], SELF) == [1e-6, np.inf]
    assert made == [2 + turns.FIRST, 0]
    choice = auto.choose(lambda among, *_: [1e-6, np.inf][: len(among)], 32, SELF, 8)
    assert choice.strategy == Serial() and choice.measured == {"serial": 1e-6}


def test_each_trial_makes_as_many_steps_as_a_block_lasts() -> None:
    seconds, most = [1e-4, 1e-3], [0, 0]

    def trial(which: int) -> Callable[[int], float]:
        def steps(count: int) -> float:
            most[which] = max(most[which], count)
            return seconds[which]

        return steps

    assert turns.in_turns([trial(0), trial(1)], SELF) == seconds
    assert most == [20, 2]


def test_a_single_way_is_measured_as_often_as_there_is_time() -> None:
    calls = []

    def steps(count: int) -> float:
        calls.append(count)
        return 1e-3 if len(calls) != 4 else 1.0  # one disturbed block of seven

    assert turns.in_turns([steps], SELF) == [1e-3]
    assert len(calls) == 2 + 2 * turns.MOST


def data(rows: int = 90) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    return rng.random((rows, 20), dtype=np.float32), rng.integers(0, 4, rows)


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, float]], list[int]]:
    """Steps are made as ever, but take what a test says, by their threads; lists what was measured."""

    def decide(seconds: dict[int, float]) -> list[int]:
        calls: list[int] = []
        in_turns = turns.in_turns

        def decided_turns(trials: Sequence[estimate.compute.Trial], comm: Communicator) -> list[float]:
            calls.append(len(trials))
            in_turns(trials, comm)
            return [seconds[trial.strategy.engine.threads] for trial in trials]

        monkeypatch.setattr("pdnn.estimate.calibration.in_turns", decided_turns)
        return calls

    monkeypatch.setenv("PDNN_THREADS", "2")
    return decide


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.5}, {"reproducible": True}])
def test_measuring_leaves_no_trace(
    threads: int, options: dict[str, object], decided: Callable[[dict[int, float]], list[int]]
) -> None:
    calls = decided({threads: 1e-6, 3 - threads: 1e-3})
    chosen = trainer("auto", **options)
    named = trainer(team_of(threads), **options)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    histories = []
    for own in (chosen, named):
        own.fit(data(), 2, 32, verbose=False)
        own.fit(data(), 1, 32, verbose=False)
        histories.append(own.history)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[union-attr]
    assert str(chosen.strategy) == str(named.strategy)
    assert calls == [2]  # once a shape
    assert histories[0].fingerprint == histories[1].fingerprint
    assert histories[0].history["loss"] == histories[1].history["loss"]
    states = chosen.optimizer.state_arrays(), named.optimizer.state_arrays()
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[1])
    assert chosen.step == named.step == 9


def test_every_shape_is_measured_once_and_told_once(
    decided: Callable[[dict[int, float]], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    calls = decided({1: 2e-6, 2: 1e-6})
    own = trainer("auto")
    for batch in (32, 16, 32):
        own.fit(data(), 1, batch)
    assert calls == [2, 2]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("auto")]
    assert lines == ["auto: team:2; measured serial 2 µs, team:2 1 µs a step"] * 2
    own.fit(data(), 1, 8, verbose=False)
    assert not capsys.readouterr().out


def test_images_are_measured_as_they_are_trained(decided: Callable[[dict[int, float]], list[int]]) -> None:
    decided({1: 2e-6, 2: 1e-6})
    x = np.random.default_rng(0).random((40, 3, 8, 8), dtype=np.float32)
    y = np.arange(40) % 4
    prints = []
    for strategy in ("auto", "team:2"):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4), seed=0)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        own = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        prints.append(own.fit(x, y, 2, 16, augment=pdnn.data.PadCropFlip(2), verbose=False).fingerprint)
    assert prints[0] == prints[1]


def test_a_resumed_training_keeps_its_threads(
    tmp_path: Path, decided: Callable[[dict[int, float]], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    calls = decided({1: 2e-6, 2: 1e-6})
    trainer("serial").fit(data(), 1, 32, checkpoint=str(tmp_path), verbose=False)
    own = trainer("auto")
    own.fit(data(), 2, 32, checkpoint=str(tmp_path), resume=True)
    assert not calls
    assert capsys.readouterr().out.startswith("auto: serial; as the checkpoint has it\n")
    pool = tmp_path / "pool"
    trainer("pool:2").fit(data(), 1, 32, checkpoint=pool, verbose=False)
    own = trainer("auto")  # which takes no pools
    own.fit(data(), 2, 32, checkpoint=pool, resume=True, verbose=False)
    assert calls == [2]
    assert own.strategy == Team(2)


def test_ranks_choose_the_same_and_train_alike() -> None:
    def train(strategy: str) -> tuple[str, str]:
        own = trainer(strategy)
        own.fit(data(), 2, 32, verbose=False)
        return str(own.strategy), own.history.fingerprint

    chosen = run_threads(lambda: train("auto"), 2)
    assert len(set(chosen)) == 1
    named = run_threads(lambda: train(chosen[0][0]), 2)
    assert chosen == named


def test_a_rank_in_waiting_has_what_the_others_chose() -> None:
    def fit() -> str:
        own = surviving_fit.trainer("auto")
        own.fit(elastic_job.data(300), 1, 16, verbose=False, elastic=4)
        return str(own.strategy)

    chosen = with_spares(2, 1, {}, fit)
    assert len(set(chosen)) == 1
    assert chosen[0].startswith("ddp")


def test_layers_that_ranks_share_are_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(
        nn.ColumnParallelLinear(20, 4, comm=SELF), nn.RowParallelLinear(4, 4, comm=SELF), seed=0
    )
    own = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))
    own.fit(data(), 1, 32)
    assert "not measured: the model has layers that ranks share" in capsys.readouterr().out


def test_named_strategies_that_do_not_pay_say_so_too() -> None:
    def found(strategy: str) -> Alternatives | None:
        return trainer(strategy).alternatives(data(), 32)

    assert found("serial") is None
    assert run_threads(lambda: found("average:4"), 2) == [None, None]
    one, other = run_threads(lambda: found("ddp"), 2)
    assert one is not None
    assert other is not None
    assert (one.alone, one.pays) == (other.alone, other.pays)
    assert one.alone > 0
