"""Schedules of pipelines as data: what they promise, and their pictures."""

import json
import sys
from pathlib import Path

import pytest

from pdnn.strategies import schedules
from pdnn.strategies.schedules import Instruction, schedule


@pytest.mark.parametrize("name", schedules.SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("micro_batches", [1, 2, 5, 8])
def test_every_rank_passes_every_micro_batch_forward_and_backward(
    name: str, stages: int, micro_batches: int
) -> None:
    made = schedule(name, stages, micro_batches)
    assert len(made.programs) == stages
    for program in made.programs:
        for what in ("forward", "backward"):
            passes = [(i.micro, i.chunk) for i in program if i.what == what]
            assert sorted(passes) == [(m, c) for m in range(micro_batches) for c in range(made.chunks)]
    assert made.simulate(message=0.1).seconds > 0


def test_what_is_held_and_how_long_ranks_idle() -> None:
    assert schedule("gpipe", 4, 8).in_flight == [8, 8, 8, 8]
    assert schedule("1f1b", 4, 8).in_flight == [4, 3, 2, 1]
    assert schedule("1f1b", 4, 2).in_flight == [2, 2, 2, 1]
    assert schedule("interleaved", 4, 8).in_flight == [11, 9, 7, 5]
    for name in ("gpipe", "1f1b"):
        assert schedule(name, 4, 8).bubble == pytest.approx(3 / 11)
    assert schedule("interleaved", 4, 8).bubble == pytest.approx(3 / 19)
    assert schedule("interleaved", 4, 8, chunks=3).bubble == pytest.approx(3 / 27)
    for chunks in (2, 3):  # a rank's passes take as long in two parts as in three
        lane = schedule("interleaved", 2, 4, chunks=chunks).simulate().lanes[0]
        passes = [event for event in lane if event.what in ("forward", "backward")]
        assert sum(event.end - event.begin for event in passes) == pytest.approx(4 * (1 + 2))


def test_the_times_of_a_step_of_two_stages() -> None:
    timeline = schedule("gpipe", 2, 2).simulate(forward=[1, 2], backward=[3, 4], message=0.5)
    first, second = timeline.lanes
    assert [(e.what, e.micro, e.begin, e.end) for e in second] == [
        ("recv_x", 0, 0, 1.5),
        ("forward", 0, 1.5, 3.5),
        ("recv_x", 1, 3.5, 3.5),
        ("forward", 1, 3.5, 5.5),
        ("backward", 0, 5.5, 9.5),
        ("send_dx", 0, 9.5, 9.5),
        ("backward", 1, 9.5, 13.5),
        ("send_dx", 1, 13.5, 13.5),
    ]
    assert first[-1][:2] == ("backward", 1)
    assert timeline.seconds == 17
    assert timeline.bubble == pytest.approx(1 - (2 * (1 + 3) + 2 * (2 + 4)) / 34)


def test_a_program_that_does_not_work_out_is_refused() -> None:
    made = schedule("1f1b", 2, 2)
    made.programs[0].remove(Instruction("send_y", 1))
    with pytest.raises(ValueError, match="rank 0 goes through a micro-batch in another order at recv_dy"):
        made.simulate()
    made = schedule("1f1b", 2, 2)
    made.programs[1].clear()
    with pytest.raises(ValueError, match="rank 0 waits forever at recv_dy of micro-batch 0"):
        made.simulate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("2f2b", 2, 2), 'expected "gpipe", "1f1b" or "interleaved"'),
        (("gpipe", 0, 2), "0 ranks"),
        (("gpipe", 2, 0), "0 micro-batches"),
        (("gpipe", 2, 2, 2), '"interleaved" has several'),
        (("interleaved", 2, 2, 1), '"1f1b" has one'),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule(*arguments)
    with pytest.raises(ValueError, match="times of 3 and 2 stages, forward and backward; expected 2"):
        schedule("gpipe", 2, 2).simulate(forward=[1, 1, 1])


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # another test may have drawn by it
    made = schedule("interleaved", 3, 6)
    figure = made.plot(tmp_path / "schedule.png")
    assert (tmp_path / "schedule.png").stat().st_size > 1000
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]
    bars = sum(len(collection.get_paths()) for collection in axes.collections)
    assert bars == 3 * 2 * 2 * 6  # ranks, chunks, ways, micro-batches
    assert "matplotlib.pyplot" not in sys.modules
    assert axes.get_xlabel() == "time (1: forward pass of a micro-batch)"
    (axes,) = schedule("gpipe", 2, 1).plot().axes  # shorter than ten of its units
    assert axes.xaxis.get_major_formatter().format_ticks([1, 2]) == ["1", "2"]
    for seconds, unit in ((2e-5, "µs"), (2e-3, "ms"), (2, "s")):
        (axes,) = made.simulate(seconds, 2 * seconds).plot().axes
        assert axes.get_xlabel() == f"time ({unit})"


def test_a_trace_for_the_browser(tmp_path: Path) -> None:
    timeline = schedule("1f1b", 2, 3).simulate(forward=0.001, backward=0.002)
    text = timeline.chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == text
    events = json.loads(text)["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"rank 0", "rank 1"}
    backward = [e for e in events if e["ph"] == "X" and e["cat"] == "backward"]
    assert len(backward) == 6
    assert all(e["dur"] == pytest.approx(2000) for e in backward)
    assert [e["pid"] for e in backward] == [0] * 3 + [1] * 3
