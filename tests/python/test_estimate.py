"""Estimates: closed forms against values worked out by hand, probes, and what the fastest strategy is."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pdnn
from pdnn import estimate, exercises, models, nn, optim, strategies
from pdnn.comm import Communicator, costs, run_threads
from pdnn.estimate import Link, Machine, Network, Steps, described, probes
from pdnn.estimate.compute import AnalyticCompute, MeasuredCompute, Samples, timed, together
from pdnn.estimate.formulas import Coded, coded_sum
from pdnn.estimate.machine import load, save
from pdnn.strategies import DataParallel, Pipeline, Serial, Strategy
from processes import Completed

LINK = Link(latency=10.0, bandwidth=2.0)  # seconds and bytes a second that are easy to add up
MACHINE = Machine(
    name="made up",
    nodes=4,
    cores=4,
    flops=1e9,
    half_rows=0.0,
    memory=1e9,
    barrier=1e-6,
    inside=Link(1e-6, 1e9),
    between=Link(1e-4, 1e8),
)


@pytest.mark.parametrize(
    ("form", "seconds", "sent"),
    [
        (costs.recursive_doubling, 2 * 10 + 2 * 600 / 2, 1200),  # two rounds, all of it in each
        (costs.rabenseifner, 4 * 10 + 2 * 3 / 4 * 600 / 2, 900),
        (costs.ring, 6 * 10 + 2 * 3 / 4 * 600 / 2, 900),
        (costs.binomial_broadcast, 2 * 10 + 2 * 600 / 2, 1200),
        (costs.long_broadcast, 5 * 10 + 2 * 3 / 4 * 600 / 2, 900),
        (costs.scatter, 2 * 10 + 3 / 4 * 600 / 2, 450),
        (costs.gathered_codes, 2 * 10 + 3 * 600 / 2, 1800),
        (costs.shared_codes, 5 * 10 + 2 * 3 / 4 * 600 / 2, 900),
    ],
)
def test_collectives_are_their_formulas(
    form: Callable[[Link, int, float], costs.Cost], seconds: float, sent: float
) -> None:
    assert form(LINK, 4, 600) == costs.Cost(seconds, sent)
    assert form(LINK, 1, 600) == costs.NOTHING


def test_an_all_reduce_is_the_faster_of_its_algorithms() -> None:
    assert costs.all_reduce(LINK, 4, 8) == costs.recursive_doubling(LINK, 4, 8)
    assert costs.all_reduce(LINK, 4, 600) == costs.rabenseifner(LINK, 4, 600)
    for ranks in (2, 3, 5, 8):
        assert costs.all_reduce(LINK, ranks, 600) <= costs.ring(LINK, ranks, 600)
    assert costs.broadcast(LINK, 4, 8) == costs.binomial_broadcast(LINK, 4, 8)
    assert costs.broadcast(LINK, 4, 600) == costs.long_broadcast(LINK, 4, 600)


@given(st.floats(0, 1e-3), st.floats(1e6, 1e11))
def test_a_fit_finds_the_link_that_times_come_from(latency: float, bandwidth: float) -> None:
    link = Link(latency, bandwidth)
    found = estimate.fit([(k, size, link.seconds(size, k)) for k, size in ((1, 8), (2, 1e4), (1, 1e7))])
    assert found.latency == pytest.approx(latency, rel=1e-4, abs=1e-3 * link.seconds(8))
    assert found.seconds(1e7) == pytest.approx(link.seconds(1e7), rel=1e-4)


def test_ranks_that_were_counted_are_those_of_a_node() -> None:
    assert [MACHINE.ranks_a_node(4, threads) for threads in (1, 2, 8)] == [4, 2, 1]
    apart = replace(MACHINE, ranks=1, inside=None)  # ranks of four cores each that use one
    assert apart.ranks_a_node(4, 1) == 1
    assert apart.between is not None
    assert apart.all_reduce(4, 8) == costs.all_reduce(apart.between, 4, 8)
    assert Machine.from_dict(apart.to_dict()) == apart


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.9996, "1 s"), (9.996e-4, "1 ms"), (12.3e-6, "12.3 µs")),
        *((999.4, "999 s"), (1234.0, "1234 s"), (86400.0, "86400 s")),
    ],
)
def test_seconds_have_a_unit_and_no_exponent(seconds: float, text: str) -> None:
    assert costs.text(seconds) == text


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"nodes": "a"}, TypeError, "nodes is 'a', expected an integer from 1"),
        ({"ranks": -1}, ValueError, "ranks = -1; expected an integer from 0"),
        ({"flops": math.inf}, ValueError, "flops = inf; expected a finite number above 0"),
        ({"inside": 3}, TypeError, "inside is 3, expected a Link or None"),
    ],
)
def test_a_machine_names_the_number_that_is_none(
    wrong: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=f"^Machine: {words}"):
        replace(MACHINE, **wrong)


def test_a_fit_that_would_be_below_0_is_of_the_other_number_alone() -> None:
    falling = estimate.fit([(1, 8, 3e-6), (1, 1e6, 1e-6)])
    assert falling.latency == pytest.approx(1.2e-6) and falling.bandwidth == pytest.approx(1e15)
    steep = estimate.fit([(1, 1e3, 1e-6), (1, 1e6, 2e-3)])
    assert steep.latency == 0 and 1e6 / 2e-3 < steep.bandwidth < 1e3 / 1e-6


def test_each_node_of_the_tree_over_leaves_travels() -> None:
    turns = costs.summed_nodes(Link(1.0, 1e15), 4, 0, 3)
    assert (turns.seconds, turns.bytes) == (4 * 3, 0)
    assert costs.summed_nodes(Link(0, 1.0), 4, 100, 3).seconds == 4 * 75


def test_a_fit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="two or more"):
        estimate.fit([(1, 8, 1e-6)])
    with pytest.raises(ValueError, match="bandwidth = 0"):
        Link(0, 0)
    with pytest.raises(ValueError, match="latency = -1"):
        Link(-1, 1)


@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 50), st.integers(1, 50))
def test_a_pool_takes_as_long_as_its_simulation(pieces: int, workers: int, piece: int, adding: int) -> None:
    workers = min(workers, pieces)
    free, joined = [0] * workers, 0
    heapify(free)
    for _ in range(pieces):  # free workers take pieces in order, and join in order
        joined = max(heappop(free) + piece, joined) + adding
        heappush(free, joined)
    assert estimate.pool_seconds(pieces, workers, piece, adding) >= joined
    if pieces % workers == 0:
        assert estimate.pool_seconds(pieces, workers, piece, adding) == joined


@dataclass
class FakeCompute:
    """A row takes a second in the whole network and in every stage; threads do not contend."""

    a_row: float = 1.0
    fixed: float = 0.0

    def step(self, network: Network, rows: int, threads: int = 1) -> float:
        return (self.fixed + self.a_row * rows) * network.params / PARAMS

    def stages(self, network: Network, cut: tuple[int, ...], rows: int) -> list[tuple[float, float]]:
        return [(self.a_row * rows / 3, 2 * self.a_row * rows / 3) for _ in range(len(cut) + 1)]

    def cut(self, network: Network, stages: int, rows: int) -> tuple[int, ...]:
        return tuple(range(1, stages))


MLP = Network(models.mlp([20, 8, 4], seed=0), (20,))
PARAMS = MLP.params


def steps(rows: int, ranks: int, machine: Machine = MACHINE, compute: FakeCompute | None = None) -> Steps:
    return Steps(MLP, rows, ranks, compute or FakeCompute(), machine)


def test_a_network_is_known_by_its_layers() -> None:
    assert (MLP.params, MLP.itemsize, MLP.widths) == (20 * 8 + 8 + 8 * 4 + 4, 4, [20, 8, 8, 4])
    assert MLP.flops == 2 * (2 * 20 * 8) + 3 * (2 * 8 * 4)
    assert MLP.pairs == [(0, 2)]
    part, pairs = MLP.tensor_part(3)  # 3 of the 8 columns
    assert part.params == 20 * 3 + 3 + 3 * 4 + 4
    assert pairs == [estimate.network.Pair(forward=4, backward=0)]
    assert MLP.stage_params((1,)) == [168, 36]
    cnn = Network(exercises.lenet_psgd(seed=0), (1, 32, 32))
    assert [cnn.widths[second + 1] for _, second in cnn.pairs] == [256]
    assert cnn.tensor_part(2)[1] == [estimate.network.Pair(forward=256, backward=128)]
    assert Network(models.ResNet9(seed=0), (3, 32, 32)).normalizes
    flat = Network(models.mlp([6, 4, 2], flatten=True, seed=0), (1, 2, 3))  # Flatten comes first
    assert flat.flops == 2 * (2 * 6 * 4) + 3 * (2 * 4 * 2) and flat.tensor_part(2)[1][0].backward == 0


def test_threads_share_the_work_and_meet() -> None:
    serial, team = steps(8, 1).estimate(strategies.Serial()), steps(8, 1).estimate(strategies.Team(4))
    assert (serial.seconds, serial.bytes) == (8, 0)
    assert (team.compute, team.waiting) == (2, pytest.approx(6 * 1e-6))  # two layers both ways, loss, batch
    pool = steps(8, 1).estimate(strategies.Pool(2, 4))
    assert pool.compute == 4 and pool.seconds == pytest.approx(4 + 3 * MLP.size / 1e9)
    assert steps(2, 1).estimate(strategies.Pool(2, 4)).compute == 1  # a piece has a row at least
    wide, narrow = (steps(8, 1).estimate(strategies.Pool(workers, 2)) for workers in (4, 2))
    assert wide.seconds == narrow.seconds  # and a worker a piece


def test_replicas_share_rows_and_agree_on_the_slower_link_once_nodes_are_full() -> None:
    own = steps(8, 4).estimate(DataParallel())
    assert own.compute == 2 and own.bytes == 0
    assert own.communication == pytest.approx(1e-6 + 2 * 3 / 4 * MLP.size / 1e9)
    messages = steps(8, 4).estimate(DataParallel(shared_memory=False))
    assert messages.bytes == pytest.approx(2 * (MLP.size + 12))  # recursive doubling, it is that small
    spread = steps(8, 8).estimate(DataParallel(shared_memory=True))
    across = costs.all_reduce(MACHINE.between or LINK, 2, MLP.size)
    assert spread.communication == pytest.approx(own.communication + across.seconds)
    with pytest.raises(ValueError, match="needs 32 cores, made up has 16"):
        steps(32, 16).estimate(DataParallel(strategies.Team(2)))


def test_a_sum_between_nodes_is_hidden_but_for_its_last_bucket() -> None:
    found = steps(16, 16).estimate(DataParallel(shared_memory=False))  # beside a second of computing
    assert found.communication == pytest.approx(MACHINE.all_reduce(16, MLP.size + 12).seconds / 8)


def test_threads_of_a_rank_are_on_one_node() -> None:
    for spec, ranks in (("team:8", 1), ("ddp+team:8", 2), ("ddp+team:3", 5)):
        with pytest.raises(ValueError, match="has 16, 4 a node, and those of a rank are on one"):
            steps(32, ranks).estimate(strategies.parse(spec))
    with pytest.raises(ValueError, match=r"needs 17 cores, made up has 16$"):
        steps(32, 17).estimate(DataParallel())
    assert steps(32, 4).estimate(strategies.parse("ddp+team:3")).seconds > 0
    points, left_out = estimate.scaling(MLP, 64, ["fastest"], [5], MACHINE)
    assert not left_out and points[0].workers <= 5 * 2


def test_hogwild_is_estimated_on_one_node_only() -> None:
    found = steps(8, 4).estimate(strategies.parse("hogwild-processes:4"))
    assert found.seconds == (8 + 2 * MLP.size / 1e9) / 4  # gradients are read, and written to all
    with pytest.raises(ValueError, match="8 ranks of made up are on several nodes"):
        steps(8, 8).estimate(strategies.parse("hogwild-processes:8"))
    with pytest.raises(ValueError, match=r'^estimate: strategy "hogwild:2" (?!.*Trainer)'):
        estimate.step(MLP.model, (20,), "hogwild:2", 8, 2, MACHINE)


def test_what_is_left_out_gets_no_advice_for_a_training() -> None:
    assert estimate.scaling(MLP, 64, ["serial"], [2], MACHINE)[1][0].endswith('"ddp" fits')


def test_a_picture_of_eleven_strategies_names_and_tells_apart_all_lines() -> None:
    pytest.importorskip("matplotlib")
    points, _ = estimate.scaling(MLP, 64, [f"average:{every}" for every in range(1, 12)], [1, 2], MACHINE)
    figure = described.plot(points, "made up")
    legend = figure.axes[-1].get_legend()
    assert legend is not None and "as many as cores" in [text.get_text() for text in legend.get_texts()]
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == 11


def test_a_pipeline_is_its_schedule_against_the_clock() -> None:
    free = replace(MACHINE, inside=Link(0, 1e15), memory=1e15)
    for spec, bubble in (("pipeline:2/4", 1 / 5), ("pipeline:2/4:gpipe", 1 / 5), ("pipeline:3/6", 2 / 8)):
        strategy = strategies.parse(spec)
        assert isinstance(strategy, strategies.Pipeline)
        found = steps(12, strategy.stages, free).estimate(strategy)
        assert found.compute == pytest.approx(12)  # every stage takes a second a row
        assert found.waiting / found.seconds == pytest.approx(bubble)
    slow = steps(12, 2, replace(MACHINE, inside=Link(5, 1e15))).estimate(strategies.parse("pipeline:2/4"))
    times = [(3 / 3 + 5, 2 * 3 / 3 + 5)] * 2  # on a node ranks move their bytes themselves
    plan = strategies.schedule("1f1b", 2, 4).simulate([f for f, _ in times], [b for _, b in times], message=5)
    assert slow.compute + slow.waiting == pytest.approx(plan.seconds, rel=1e-5)


def test_a_tensor_pair_adds_up_its_outputs() -> None:
    found = steps(8, 4).estimate(strategies.TensorParallel(4))
    part = MLP.tensor_part(4)[0].params
    assert found.compute == pytest.approx(8 * part / PARAMS)
    sums = MACHINE.all_reduce(4, 8 * 4 * 4) + MACHINE.all_reduce(4, 24)
    assert (found.communication, found.bytes) == (pytest.approx(sums.seconds), pytest.approx(sums.bytes))
    both = steps(8, 8).estimate(strategies.parse("tp:4 x ddp"))
    assert both.compute == pytest.approx(found.compute / 2)


@pytest.mark.parametrize(
    "spec",
    [
        "average:8",
        "average:8:master",
        "average:end",
        "elastic-average:8",
        "scatter-gather",
        "hogwild-processes:4",
    ],
)
def test_every_strategy_of_ranks_has_an_estimate(spec: str) -> None:
    found = steps(8, 4).estimate(strategies.parse(spec))
    assert found.seconds > 0 and found.memory > MLP.size
    assert spec in str(found) and "a rank sends" in str(found)
    assert estimate.Estimate.from_dict(found.to_dict()) == found


@pytest.mark.parametrize("spec", ["ddp:int8", "average:10:bf16", "pipeline:2/4:int8", "ddp:topk:0.1"])
def test_codecs_send_what_they_say(spec: str) -> None:
    strategy = strategies.parse(spec)
    plain = steps(8, 2).estimate(strategies.parse(spec.rpartition(":")[0] if spec[0] != "d" else "ddp"))
    found = steps(8, 2).estimate(strategy)
    codec = strategy.codec  # type: ignore[union-attr]
    assert isinstance(codec, pdnn.codec.Codec)
    if isinstance(strategy, strategies.Pipeline):
        assert found.bytes == 4 * codec.bytes(2 * 8) + 24  # a border, up; four micro-batches of two rows
    elif isinstance(strategy, DataParallel):
        assert found.bytes == codec.bytes(MLP.params) + 12 and plain.bytes == 0
    else:
        assert found.bytes == pytest.approx((codec.bytes(MLP.params) + 4) / 10) and found.bytes < plain.bytes
    assert found.compute > plain.compute  # coding takes time
    with pytest.raises(ValueError, match='codec "powersgd:2" is not estimated'):
        steps(8, 2).estimate(DataParallel(codec="powersgd:2"))


def test_averaging_pays_for_its_sum_every_so_many_steps() -> None:
    found = steps(8, 4).estimate(strategies.parse("average:10"))
    size = (MLP.params + 1) * 4
    assert found.compute == 8  # of one rank's own batch
    assert found.communication == pytest.approx(MACHINE.all_reduce(4, size).seconds / 10)
    elastic = steps(8, 4).estimate(strategies.parse("elastic-average:10"))
    assert (elastic.seconds, elastic.bytes) == (found.seconds, found.bytes)


@pytest.mark.parametrize(("ranks", "coding"), [(2, 3 + 2 * 40), (4, (1 + 1 / 4) * 3 + 7 / 4 * 40)])
def test_a_sum_of_codes_is_coded_as_often_as_its_form_says(ranks: int, coding: float) -> None:
    assert coded_sum(Coded(100, encode=3, decode=40), LINK, ranks)[1] == coding


def test_codes_between_stages_are_made_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(encode: float, decode: float) -> float:
        monkeypatch.setattr("pdnn.estimate.formulas.coding_seconds", lambda *_: (encode, decode))
        return steps(8, 2).estimate(strategies.parse("pipeline:2/4:int8")).seconds

    assert seconds(1.0, 0.0) == seconds(0.0, 1.0) > seconds(0.0, 0.0)


def test_codes_of_an_average_are_made_every_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdnn.estimate.formulas.coding_seconds", lambda *_: (3.0, 40.0))
    found = steps(8, 2).estimate(strategies.parse("average:10:int8"))
    assert found.compute == pytest.approx(8 + (3 + 2 * 40) / 10)


def test_running_statistics_are_averaged_too() -> None:
    network = Network(nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), seed=0), (20,))
    found = replace(steps(8, 4), network=network).estimate(strategies.parse("average:10"))
    size = (20 * 8 + 8 + 4 * 8 + 1) * 4
    assert found.communication == pytest.approx(MACHINE.all_reduce(4, size).seconds / 10)


def test_buckets_are_of_messages() -> None:
    bucketed = steps(8, 4).estimate(DataParallel(bucket_bytes=64))
    assert bucketed.bytes == steps(8, 4).estimate(DataParallel(shared_memory=False)).bytes > 0


def test_an_average_by_the_master_goes_through_it_both_ways() -> None:
    found, size = steps(8, 4).estimate(strategies.parse("average:10:master")), (MLP.params + 1) * 4
    assert found.communication == pytest.approx(MACHINE.message(4, 1).seconds(6 * size, 6) / 10)
    assert found.bytes == pytest.approx(3 * size / 10)


def test_the_fastest_has_the_cores_of_all_nodes() -> None:
    (point,), _ = estimate.scaling(MLP, 4096, ["fastest"], [4], replace(MACHINE, barrier=0.0))
    assert point.workers == 4 * 4


def test_efficiency_is_of_the_threads_of_all_ranks() -> None:
    (alone, _, point), _ = estimate.scaling(MLP, 64, ["serial", "ddp+team:2"], [1, 2], MACHINE)
    assert alone.speedup == 1 and point.workers == 4
    assert point.efficiency == point.speedup / 4 == point.to_dict()["efficiency"]


def test_scatter_and_gather_goes_through_the_root() -> None:
    found, link = steps(8, 4).estimate(strategies.parse("scatter-gather")), MACHINE.message(4)
    rows = costs.scatter(link, 4, 8 * (20 * 4 + 4))  # a label is four bytes
    model = costs.broadcast(link, 4, MLP.size + 3 * 4)
    seconds = (rows + costs.scatter(link, 4, 4 * MLP.size) + model).seconds
    assert found.compute == 2 + 4 * MLP.size / 1e9  # the root adds up all gradients
    assert found.communication == pytest.approx(seconds)
    assert found.bytes == pytest.approx(rows.bytes + MLP.size + 3 * 4)
    once = steps(8, 4).estimate(strategies.parse("scatter-gather:once"))
    assert once.communication == pytest.approx(seconds - rows.seconds)


def test_a_choice_tells_what_was_measured_of_it() -> None:
    estimates = tuple(steps(8, 1).estimate(strategies.parse(spec)) for spec in ("serial", "team:2"))
    chosen = estimate.Choice(Serial(), estimates, {"serial": 5.0, "team:2": 6.0})
    assert chosen.seconds == 5 and replace(chosen, measured={}).seconds == 8
    four = tuple(replace(estimates[0], strategy=name) for name in ("serial", "b", "c", "d"))
    assert "estimated serial 8 s, b 8 s, c 8 s a step" in replace(chosen, estimates=four).why


def test_memory_is_the_table_of_what_is_kept() -> None:
    ignoring = 2 * 4 * (2 * MLP.params + 3)  # users' model, and the one that is trained
    model, batch = ignoring + 4 * MLP.params, MLP.batch_bytes  # and a copy of what steps change
    assert steps(8, 1).estimate(strategies.Serial()).memory == model + batch(8)
    leaves = steps(8, 1).estimate(strategies.Team(2, leaves=5))  # three sums of the first layer wait
    assert leaves.memory == model + 3 * 4 * (20 * 8 + 8) + batch(8)
    assert steps(8, 1).estimate(strategies.Team(2, leaves=8)).memory == leaves.memory
    careless = replace(steps(8, 1), undoes=False).estimate(strategies.Serial())
    assert careless.memory == ignoring + batch(8)
    hogwild = steps(8, 1).estimate(strategies.Hogwild(1))  # whose workers copy no parameters
    assert hogwild.memory == ignoring + 4 * MLP.params + batch(8)
    assert steps(8, 4).estimate(DataParallel()).memory == model + batch(2)
    pool = steps(8, 1).estimate(strategies.Pool(2, 4))
    assert pool.memory == model + 2 * 4 * MLP.params + 2 * (4 * MLP.params + batch(2))  # two of four wait
    few, more = (steps(rows, 2).estimate(DataParallel(Serial(8))).memory for rows in (1, 2))
    assert more - few == batch(2) - batch(1)  # a rank has four leaves, and no more rows than there are
    averaged = steps(8, 4).estimate(strategies.ModelAveraging(10))
    assert averaged.memory == model + 4 * (MLP.params + 1) + batch(8)
    elastic = steps(8, 4).estimate(strategies.ElasticAveraging(10))
    assert elastic.memory == model + 4 * (2 * MLP.params + 1) + batch(8)
    pipeline = steps(8, 2).estimate(strategies.parse("pipeline:2/4"))  # half of it, of two pieces' sums, too
    half = (2 * MLP.params + 3) / 2 + (1 + 2) * MLP.params / 2
    assert pipeline.memory == ignoring / 2 + 4 * half + 2 * batch(2) / 2
    scattered = steps(8, 4).estimate(strategies.parse("scatter-gather"))  # and its share, twice
    assert scattered.memory == model + 4 * 4 * (MLP.params + 3) + 1.5 * batch(8)


def test_ranks_that_update_for_themselves_have_the_batch_of_one_rank_each() -> None:
    words = ["ddp", "average:8", "hogwild-processes:N"]
    points = estimate.scaling(MLP, 128, words, [1, 4], replace(MACHINE, nodes=1, cores=4), weak=True)[0]
    rows = {(point.words, point.estimate.ranks): point.estimate.batch_size for point in points}
    assert rows["ddp", 4] == 512
    assert rows["average:8", 4] == rows["hogwild-processes:N", 4] == 128


@pytest.mark.parametrize("name", ['a "b"', "two\nlines", "C:\\new", "ß😀", "\x7f"])
def test_a_machine_of_any_name_is_written_and_read(name: str, tmp_path: Path) -> None:
    save(replace(MACHINE, name=name), tmp_path / "machine.toml")
    assert load(tmp_path / "machine.toml").name == name


def spec_of_fastest(machine: Machine, ranks: int, compute: FakeCompute, rows: int = 64) -> str:
    world = pdnn.comm.SELF
    among = estimate.candidates(MLP, ranks, machine.cores // ranks)
    choice = estimate.choose(steps(rows, ranks, machine, compute), among, world)
    assert not choice.measured  # nothing is measured with a compute model that only pretends
    assert [each.seconds for each in choice.estimates] == sorted(each.seconds for each in choice.estimates)
    assert str(choice.strategy) in choice.why and "µs" in choice.why
    return str(choice.strategy)


def test_the_fastest_is_what_the_machine_makes_cheapest() -> None:
    one, compute = replace(MACHINE, nodes=1, cores=2), FakeCompute(1e-6, 1e-7)
    assert spec_of_fastest(replace(one, memory=1e8), 1, compute) == "team:2"
    assert spec_of_fastest(replace(one, barrier=1.0, memory=1e15), 1, compute) == "pool:2/8"
    assert spec_of_fastest(replace(one, barrier=1.0, memory=1.0), 1, compute) == "serial"
    assert spec_of_fastest(one, 2, compute) == "ddp"
    slow_sums = replace(one, shared=Link(1.0, 1e3), sums=Link(0, 1e5), inside=Link(0, 1e15))
    assert spec_of_fastest(slow_sums, 2, compute) == "pipeline:2"
    wide = replace(slow_sums, sums=Link(1e-9, 1e12), inside=Link(1e-3, 1e15))
    compute = FakeCompute(1e-9, 1e-6)  # few rows cost the same: the only gain is in narrower layers
    assert spec_of_fastest(replace(wide, shared=Link(1.0, 1e3), sums=Link(1e-7, 1e9)), 2, compute) == "tp:2"


def test_candidates_train_what_one_process_does() -> None:
    found = {str(strategy) for strategy in estimate.candidates(MLP, 4, 2)}
    serial = {"ddp", "tp:2 x ddp", "pipeline:2 x ddp", "tp:4"}  # no stage for four of three layers
    assert found == serial | {f"{spec}+team:2" for spec in serial}
    normalized = Network(models.ResNet9(sync=False, seed=0), (3, 32, 32))
    assert {str(strategy) for strategy in estimate.candidates(normalized, 1, 2)} == {"serial", "team:2"}
    assert {str(strategy) for strategy in estimate.candidates(normalized, 2, 1)} == {"ddp", "tp:2"}


def trainer(strategy: str | Strategy, **options: object) -> pdnn.Trainer:
    model = models.mlp([20, 16, 4], seed=0)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, **options)  # type: ignore[arg-type]


def data(rows: int = 70) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    return rng.random((rows, 20), dtype=np.float32), rng.integers(0, 4, rows)


def test_estimating_measures_and_leaves_the_training_alone() -> None:
    one, other = trainer("serial"), trainer("serial")
    found = one.estimate(data(), 32)
    assert 0 < found.seconds < 1 and found.strategy == "serial"
    known = one.calibrate(data(), 32)
    assert known is one.calibrate(data(), 32)
    numbers = [known.machine.flops, known.machine.memory, known.machine.contention]
    assert all(math.isfinite(number) and number > 0 for number in numbers)
    assert one.estimate(data(), 32, "pool:1/4").strategy == "pool:1/4"
    histories = [each.fit(data(), 2, 32, verbose=False) for each in (one, other)]
    assert np.array_equal(one.model.flat_parameters, other.model.flat_parameters)
    measured = histories[0].history["seconds"][-1] / 3
    line = found.beside(measured)
    assert line.startswith("serial: estimated ") and ", measured " in line and ", difference " in line
    with pytest.raises(ValueError, match="70 rows in batches of 0"):
        one.estimate(data(), 0)


def test_the_fastest_trains_what_serial_trains(capsys: pytest.CaptureFixture[str]) -> None:
    fastest, serial = trainer("fastest"), trainer("serial")
    assert fastest.choice is None
    fastest.fit(data(), 2, 32)
    serial.fit(data(), 2, 32, verbose=False)
    assert fastest.choice is not None and fastest.strategy == fastest.choice.strategy
    assert capsys.readouterr().out.startswith(f"fastest: {fastest.strategy}; estimated ")
    assert np.allclose(fastest.model.flat_parameters, serial.model.flat_parameters, atol=1e-6)


def test_a_training_that_is_resumed_keeps_its_strategy(tmp_path: object) -> None:
    first = trainer("pool:1/3")
    first.fit(data(), 1, 32, checkpoint=str(tmp_path), verbose=False)
    second = trainer("fastest")
    second.fit(data(), 2, 32, checkpoint=str(tmp_path), resume=True, verbose=False)
    assert str(second.strategy) == "pool:1/3" and second.epoch == 2


@pytest.mark.parametrize("chosen", ["auto", "fastest"])
@pytest.mark.parametrize("wrote", [Pipeline(1, schedule=[[("forward", 0), ("backward", 0)]]), "team:32"])
def test_what_cannot_be_spelled_or_estimated_is_resumed(
    wrote: str | Strategy, chosen: str, tmp_path: object
) -> None:
    for epochs, strategy in ((1, wrote), (2, chosen)):
        one = trainer(strategy)
        one.fit(data(), epochs, 32, checkpoint=str(tmp_path), resume=True, verbose=False)
    assert one.epoch == 2 and str(one.strategy) in ("serial", "team:2", "pool:2/8")


def test_a_training_that_is_resumed_on_other_ranks_chooses_anew(tmp_path: object) -> None:
    trainer("serial").fit(data(), 1, 32, checkpoint=str(tmp_path), verbose=False)

    def resumed() -> tuple[str, int]:
        own = trainer("fastest")
        own.fit(data(), 2, 32, checkpoint=str(tmp_path), resume=True, verbose=False)
        return str(own.strategy), own.epoch

    (chosen, epoch), *_ = pdnn.run(resumed, ranks=2, backend="threads")
    assert chosen != "serial" and epoch == 2


def test_layers_that_ranks_hold_are_not_estimated() -> None:
    model = nn.Sequential(
        nn.ColumnParallelLinear(20, 4, comm=pdnn.comm.SELF),
        nn.RowParallelLinear(4, 4, comm=pdnn.comm.SELF),
        seed=0,
    )
    one = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1), strategy="serial")
    with pytest.raises(ValueError, match="layers that ranks hold together"):
        one.estimate(data(), 8)


def through_flatten() -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 16), nn.Flatten(), nn.Linear(16, 4), seed=0)


@pytest.mark.parametrize(
    ("between", "pairs"),
    [
        ([], [(0, 1)]),
        ([nn.Flatten()], [(0, 2)]),
        ([nn.GELU(), nn.Dropout(0.1), nn.LeakyReLU()], [(0, 4)]),
        ([nn.LayerNorm(16)], []),
        ([nn.Softmax()], []),
        ([nn.Tanh(), nn.Linear(16, 16), nn.ReLU()], [(0, 2)]),  # the third has no partner
    ],
)
def test_what_is_cut_is_asked_of_the_core(between: list[nn.Module], pairs: list[tuple[int, int]]) -> None:
    model = nn.Sequential(nn.Linear(20, 16), *between, nn.Linear(16, 4), seed=0)
    assert Network(model, (20,)).pairs == pairs
    assert any(
        str(one).startswith("tp:2") for one in estimate.candidates(Network(model, (20,)), 2, 1)
    ) == bool(pairs)


def test_what_trains_in_parts_is_estimated_in_parts() -> None:
    def estimated() -> float:
        model = through_flatten()
        sgd = optim.SGD(model.parameters(), lr=0.1)
        one = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="tp:2")
        one.fit(data(), 1, 32, verbose=False)
        return one.estimate(data(), 32).bytes

    assert all(sent > 0 for sent in run_threads(estimated, 2))


def test_ranks_with_unlike_cores_count_those_that_all_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdnn.comm.cores.cores_of_rank", lambda comm: comm.rank + 1)
    machines = run_threads(lambda: trainer("ddp").calibrate(data(), 32).machine, 2)
    assert machines[0] == machines[1]
    assert machines[0].cores == 2


@pytest.mark.parametrize("first", [1, 2])
def test_machines_with_unlike_numbers_of_ranks_are_known_alike(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many ranks on the first of two machines. Some failed, while others waited in vain."""
    monkeypatch.setattr(Communicator, "machine", lambda self: self.split(int(self.rank >= first), self.rank))
    machines = run_threads(lambda: trainer("ddp").calibrate(data(), 32).machine, 3)
    assert machines[0] == machines[1] == machines[2]
    assert (machines[0].inside is None) == (machines[0].sums is None) == (first == 1)
    assert machines[0].between is not None


def on_a_rank() -> tuple[list[float], str, bytes]:
    """Estimates and the fastest on ranks: all of them know the same."""
    one = trainer("auto")
    found = [one.estimate(data(), 32, spec) for spec in ("ddp", "tp:2", "pipeline:2", "average:4")]
    known = one.calibrate(data(), 32)
    links = (known.machine.inside, known.machine.sums, known.machine.shared)
    assert all(link is not None and math.isfinite(link.seconds(1e6)) for link in links)
    fastest = trainer("fastest")
    fastest.fit(data(), 1, 32, verbose=False)
    return [each.seconds for each in found], str(fastest.strategy), fastest.model.flat_parameters.tobytes()


def bytes_of(strategy: str | strategies.Strategy) -> tuple[float, list[int]]:
    one = trainer(strategy)  # type: ignore[arg-type]
    expected = one.estimate(data(640), 32).bytes
    return expected, one.fit(data(640), 1, 32, verbose=False).bytes[0]


@pytest.mark.parametrize(
    ("strategy", "steps_an_epoch", "at_its_end"),
    [
        (DataParallel(shared_memory=False), 20, 0),
        (DataParallel(Serial(8), shared_memory=False), 20, 0),
        ("ddp:int8", 20, 0),
        ("scatter-gather", 20, 0),
        ("average:2", 10, 56),
        ("average:2:int8", 10, 56),
        ("elastic-average:2", 10, 56),
        ("tp:2", 20, 4900),  # parameters, their gradients and the momentum of 404 come together
        ("pipeline:2", 20, 4900),
    ],
)
def test_ranks_send_what_was_estimated(
    strategy: str | strategies.Strategy, steps_an_epoch: int, at_its_end: int
) -> None:
    expected, sent = pdnn.run(bytes_of, strategy, ranks=2, backend="threads")[0]
    assert expected * steps_an_epoch <= max(sent) <= expected * steps_an_epoch + at_its_end


def on_unlike_ranks(strategy: str) -> None:
    one = trainer(strategy)
    batch = 32 if pdnn.world().rank == 0 else 16
    one.fit(data(), 1, batch, verbose=False) if strategy == "fastest" else one.estimate(data(), batch)


@pytest.mark.parametrize(("strategy", "where"), [("fastest", "fit"), ("ddp", "estimate")])
def test_ranks_with_different_jobs_are_refused_before_they_measure(strategy: str, where: str) -> None:
    with pytest.raises(ValueError, match=f"{where}: rank 1 has batch size 16, rank 0 has 32"):
        pdnn.run(on_unlike_ranks, strategy, ranks=2, backend="threads")


def more_stages_than_layers() -> None:
    one = trainer("pipeline:2:interleaved")  # four stages of three layers
    with pytest.raises(ValueError, match="4 stages of 3 layers"):
        one.estimate(data(), 32)
    with pytest.raises(ValueError, match="4 stages of 3 layers"):
        one.fit(data(), 1, 32, verbose=False)


def more_stages_than_parts() -> None:
    """A convolution and its pooling are computed as one, with other bits than in two stages."""
    layers = [nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3)]
    network = nn.Sequential(*layers, seed=1)
    images = pdnn.data.Dataset(np.ones((32, 1, 8, 8), np.float32), np.zeros(32, np.int64))
    one = pdnn.Trainer(
        network, nn.CrossEntropyLoss(), optim.SGD(network.parameters(), 0.1), strategy="pipeline:4"
    )
    with pytest.raises(ValueError, match="and 1 are computed as one with the layer before"):
        one.estimate(images, 32)
    with pytest.raises(ValueError, match="layers 0 to 1, a convolution and its pooling"):
        one.fit(images, 1, 32, verbose=False)


@pytest.mark.parametrize(("job", "ranks"), [(more_stages_than_layers, 2), (more_stages_than_parts, 4)])
def test_a_strategy_that_does_not_fit_is_refused_on_all_ranks(job: Callable[[], None], ranks: int) -> None:
    pdnn.run(job, ranks=ranks, backend="threads")


def test_cores_contend_where_several_work() -> None:
    compute = AnalyticCompute(replace(MACHINE, contention=2.0, memory=1e30))
    alone = MLP.flops * 8 / 1e9
    assert compute.step(MLP, 8) == pytest.approx(alone)
    for several in (compute.step(MLP, 8, 2), replace(compute, ranks=2).step(MLP, 8)):
        assert several == pytest.approx(2 * alone)
    stages = compute.stages(MLP, (1,), 8)
    assert sum(map(sum, stages)) == pytest.approx(2 * alone)
    assert [backward / forward for forward, backward in stages] == pytest.approx([2, 2])


def test_the_second_fastest_of_some_runs_counts() -> None:
    runs = iter([9e-3, 9e-3, 7e-3, 3e-3, 5e-3, 6e-3, 8e-3, 4e-3, 9e-3])
    assert timed([lambda _: next(runs)], pdnn.comm.SELF) == 4e-3


def test_steps_are_measured_once_for_their_rows_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sgd = optim.SGD(MLP.model.parameters(), lr=0.1)
    samples = Samples(np.zeros((1, 20), np.float32), np.zeros(1, np.int32), 0)
    compute = MeasuredCompute(nn.CrossEntropyLoss(), sgd, samples, pdnn.comm.SELF)
    made: list[int] = []

    def trial(self: object, network: Network, strategy: Strategy, comm: object, rows: int) -> Any:
        made.append(rows)
        return lambda _: float(rows)

    monkeypatch.setattr(MeasuredCompute, "trial", trial)
    for _ in range(2):
        assert [compute.step(MLP, 3), compute.step(MLP, 5), compute.step(MLP, 3, 2)] == [3, 5, 3]
    assert made == [3, 5, 3, 3]
    compute.step(MLP, 1, 100)
    assert len(made) == 4 + 8  # no more copies


def test_a_core_is_measured_alone_and_without_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = 1e10

    def step(self: MeasuredCompute, network: Network, rows: int, threads: int = 1) -> float:
        beside = 1.5 if self.comm.size > 1 else 1.0
        return beside * (40e-6 + 3.5e-6 * rows) + network.size / memory

    monkeypatch.setattr(probes, "adding", lambda itemsize: 1 / memory)
    with monkeypatch.context() as replaced:
        replaced.setattr(MeasuredCompute, "step", step)

        def job() -> Machine:
            sgd = optim.SGD(MLP.model.parameters(), lr=0.1)
            samples = Samples(np.zeros((8, 20), np.float32), np.zeros(8, np.int32), 0)
            compute = MeasuredCompute(nn.CrossEntropyLoss(), sgd, samples, pdnn.world())
            return probes.measure(pdnn.world(), compute, MLP, 64)

        found = pdnn.run(job, ranks=2, backend="threads")
    for machine in found:
        assert machine.contention == pytest.approx(1.5)
        for ranks, beside in ((1, 1.0), (2, 1.5)):
            told = AnalyticCompute(machine, ranks).step(MLP, 16)
            assert told == pytest.approx(beside * (40e-6 + 3.5e-6 * 16) + MLP.size / memory)


def test_a_rate_that_is_a_guess_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeasuredCompute, "step", lambda *_: 1e-3)
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 1)
    with pytest.warns(UserWarning, match="a step of 64 rows took hardly longer"):
        estimate.describe(MLP.model, nn.CrossEntropyLoss(), (20,), 64)


def test_an_error_of_a_trial_is_raised() -> None:
    def fail(steps: int) -> float:
        raise ArithmeticError("no step")

    for trials in ([fail, float], [float, fail]):
        with pytest.raises(ArithmeticError, match="no step"):
            together(trials, 1)


def test_a_slow_step_is_measured_once() -> None:
    made: list[int] = []

    def slow(steps: int) -> float:
        made.append(steps)
        return 1.0

    assert timed([slow], pdnn.comm.SELF) == 1.0 and sum(made) <= 2


def test_ranks_know_the_same_beforehand() -> None:
    results = pdnn.run(on_a_rank, ranks=2, backend="threads")
    assert results[0] == results[1]
    assert min(results[0][0]) > 0


def test_estimates_are_imported_when_they_are_asked_for(run_python: Callable[..., Completed]) -> None:
    code = "import sys, pdnn; assert 'pdnn.estimate' not in sys.modules; pdnn.estimate.Link(0, 1)"
    run_python(["-c", code])
    assert sys.modules["pdnn.estimate"] is estimate


def test_an_all_reduce_sends_the_same_bytes_on_any_nodes() -> None:
    for nodes, cores in ((4, 1), (2, 2), (1, 4)):
        machine = replace(MACHINE, nodes=nodes, cores=cores)
        assert machine.all_reduce(4, 1e6).bytes == pytest.approx(2 * 3 / 4 * 1e6)


@pytest.mark.parametrize("cut", [(9,), (5,), (3, 1), (2, 2)])
def test_a_cut_that_fit_refuses_is_not_estimated(cut: tuple[int, ...]) -> None:
    model = models.mlp([20, 16, 8, 3])  # five layers
    pipeline = Pipeline(len(cut) + 1, cut=cut)
    with pytest.raises(
        ValueError, match=r"a cut before layers .* of 5; it rises, from at least 1 to at most 4"
    ):
        estimate.step(model, (20,), pipeline, 8, len(cut) + 1, MACHINE)


def test_no_rows_and_no_ranks_are_refused() -> None:
    for rows, ranks in ((-3, 1), (0, 1), (8, 0)):
        with pytest.raises(ValueError, match=r"estimate: (batch_size|ranks) = "):
            estimate.step(MLP.model, (20,), "serial", rows, ranks, MACHINE)
    for rows, ranks in ((0, 2), (8, 0)):
        with pytest.raises(ValueError, match=r"estimate: (batch_size|ranks) = "):
            estimate.scaling(MLP, rows, ["ddp"], [ranks], MACHINE)


def test_numbers_of_a_machine_are_finite(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bandwidth = inf"):
        Link(0, math.inf)
    save(MACHINE, path := tmp_path / "machine.toml")
    path.write_text(re.sub("flops = .*", f"flops = 1{400 * '0'}", path.read_text()))
    with pytest.raises(ValueError, match=r"core\.flops"):
        load(path)
    assert costs.fit([(1, 0, 1e-3)] * 2).latency == pytest.approx(1e-3)
