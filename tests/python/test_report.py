"""``pdnn report``: figures from known numbers, pictures, and a page that holds all it needs."""

from __future__ import annotations

import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pdnn import cli, report, sweep
from pdnn import history as records
from pdnn.estimate import Estimate
from pdnn.history import History
from pdnn.report.pictures import _amount
from pdnn.report.summary import Line

VOID = {"img", "meta", "link", "br", "hr", "input"}


class Page(HTMLParser):
    """What a page consists of; its tags must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def run(
    strategy: str, ranks: int, workers: int, seconds: list[float], repeat: int = 0, **phases: float
) -> sweep.Run:
    """A finished training of as many epochs as there are seconds, of 10 updates each.

    Rank r waits r/2 seconds an epoch longer than rank 0.
    """
    history = History()
    for epoch, time in enumerate(seconds):
        accuracy = 0.5 + 0.1 * epoch + 0.01 * repeat
        values = {"loss": 1 / (1 + epoch), "val_accuracy": accuracy, "accuracy": accuracy, "seconds": time}
        values["val_top2"] = accuracy + 0.25
        names = ("messages", "agreement", "update", "scatter", "broadcast", "hidden")
        own = dict.fromkeys(names, 0.0) | {"gradient": time / 2} | phases
        counted = {"seconds": time, "steps": 10.0, "bytes": 4000.0 * (ranks - 1), "shared_bytes": 0.0}
        waiting = [{**counted, **own, "agreement": own["agreement"] + rank / 2} for rank in range(ranks)]
        history.add(values, own, {"count": 10, "per_second": 10 / time}, ranks=waiting)
    configuration = sweep.Configuration("mlp:4-3", strategy, ranks, 32, repeat)
    return sweep.Run(configuration, repeat, workers, "", 1.0, history, "", {}, {"pdnn": "1", "numpy": "2"})


def failed(message: str) -> sweep.Run:
    configuration = sweep.Configuration("mlp:4-3", "team:<9>", 1, 32, 0)
    return sweep.Run(configuration, 0, 9, "", 1.0, None, message, {}, {"pdnn": "1"})


RUNS = [
    run("serial", 1, 1, [8.0, 4.0, 4.0]),
    run("serial", 1, 1, [6.0, 6.0, 6.0], repeat=1),
    run("ddp", 2, 2, [2.5, 2.5, 9.0], agreement=0.5, hidden=1.0),
]


def results(runs: list[sweep.Run]) -> sweep.Results:
    return sweep.Results({"--epochs": "3"}, {each.configuration: each for each in runs})


def test_figures_are_medians_over_repeats_beside_the_baseline() -> None:
    (work,) = report.summary([*RUNS, failed("")])
    assert (work.name, work.measure) == ("mlp:4-3, batch 32", "val_accuracy")
    assert work.metrics == ("val_top2",)
    serial, ddp = work.lines
    assert (serial.name, ddp.name) == ("serial", "ddp on 2 ranks")
    assert (serial.seconds, serial.fastest, serial.slowest, serial.speedup) == (5.0, 4.0, 6.0, 1.0)
    assert (ddp.seconds, ddp.speedup, ddp.efficiency) == (2.5, 2.0, 1.0)
    assert ddp.updates_per_second() == pytest.approx(30 / 14)
    assert serial.last("val_accuracy") == pytest.approx(0.705)
    assert serial.last("loss") == pytest.approx(1 / 3)  # which falls
    early, late = ddp.shares()
    assert early["gradient"] == pytest.approx(0.5)
    assert early["exposed communication"] == late["exposed communication"] == pytest.approx(1.5 / 14)
    assert (early["waiting for the slowest"], late["waiting for the slowest"]) == (0, pytest.approx(1.5 / 14))
    assert ddp.mean_share("waiting for the slowest") == pytest.approx(0.75 / 14)
    assert early["hidden"] == pytest.approx(3 / 14)
    for shares in (early, late):
        assert sum(shares.values()) - shares["hidden"] == pytest.approx(1)
    assert ddp.per_step("bytes") == [400, 400] and serial.per_step("bytes") == [0]


def test_a_workload_is_judged_by_what_all_of_its_runs_have() -> None:
    without = run("team:2", 1, 2, [4.0, 2.0, 5.0])
    assert without.history is not None
    del without.history.history["val_accuracy"], without.history.history["val_top2"]
    (work,) = report.summary([*RUNS, without])
    assert (work.measure, work.metrics) == ("accuracy", ())
    assert work.lines[2].seconds == 4  # the median of its epochs


def test_times_of_an_epoch_are_made_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were once for each: a report of 256 ranks took 20 seconds."""
    (_, ddp) = report.summary(RUNS)[0].lines
    made: list[int] = []
    times = records._times
    monkeypatch.setattr(records, "_times", lambda ranks: made.append(len(ranks)) or times(ranks))
    assert len(ddp.shares()) == 2
    assert made == [2] * sum(len(history.ranks) for history in ddp.histories)


def test_estimates_stand_beside_what_was_measured() -> None:
    estimated = run("serial", 1, 1, [4.0, 2.0, 5.0])
    assert estimated.history is not None
    estimated.history.estimate = Estimate(
        "serial", 1, 32, compute=0.25, communication=0.0, waiting=0.0, bytes=0, memory=1, why="", steps=8.0
    )
    (work,) = report.summary([estimated, RUNS[2]])
    assert work.lines[0].estimated == ("serial", 2.0, 4.0) and work.lines[1].estimated is None
    text = report.page(results([estimated, RUNS[2]]), [work], {})
    cells = "<td>serial</td><td>serial</td><td>2</td><td>4</td><td>-50%</td>"
    assert "Estimated before the training, and measured" in text and cells in text
    assert "Estimated" not in report.page(results(RUNS), report.summary(RUNS), {})


def test_a_name_of_a_file_may_be_no_utf8(tmp_path: Path) -> None:
    settings = {"--data": os.fsdecode(b"\xff.csv")}
    report.write(sweep.Results(settings, {each.configuration: each for each in RUNS}), tmp_path)
    assert "\\udcff.csv" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_without_its_baseline_nothing_is_a_speedup(tmp_path: Path) -> None:
    (work,) = report.summary(RUNS[2:])
    assert work.lines[0].speedup is None and work.lines[0].efficiency is None
    assert "speedup.png" not in report.pictures([work])
    text = report.page(results(RUNS[2:]), [work], {})
    assert "No speedup is told: serial on one rank, the baseline, has no finished run" in text
    (work,) = report.summary(RUNS, baseline="ddp")
    assert all(line.speedup is None for line in work.lines)  # there is ddp on two ranks only
    with pytest.raises(ValueError, match=r"has no finished run on one rank; those are of \['serial'\]$"):
        report.write(results(RUNS), tmp_path / "none", "ddp")
    assert not (tmp_path / "none").exists()


def test_a_page_parses_and_needs_nothing_from_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "results.json", tmp_path / "made" / "report"
    results([*RUNS, failed("<script>alert('no & never')</script>")]).save(file)
    assert cli.main(["report", str(file), "--out", str(folder)]) == 0
    names = {"index.html", "speedup.png", "accuracy.png", "phases.png", "updates.png", "bytes.png"}
    assert {Path(line).name for line in capsys.readouterr().out.splitlines()} == names
    assert {path.name for path in folder.iterdir()} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))

    text = (folder / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "object", "embed"} & set(tags)
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 5
    assert all((image["src"] or "").startswith("data:image/png;base64,") and image["alt"] for image in images)
    loaded = [
        name
        for tag, attributes in page.tags
        for name in attributes
        if name in ("src", "href", "srcset", "data") and tag != "img"
    ]
    assert not loaded
    assert "http://" not in text and "https://" not in text
    assert "url(" not in text and "@import" not in text
    words = " ".join(page.words)
    assert "4 trainings, 1 of them failed." in words
    assert "<script>alert('no & never')</script>" in words  # as words, and no tag
    for cell in ("5 (4 to 6)", "2.5", "2.00", "100%", "11%", "21%", "400", "0.7050"):
        assert cell in page.words


def test_speedup_is_over_the_baseline_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "results.json", tmp_path / "report"
    results([*RUNS, run("team:2", 1, 2, [4.0, 4.0, 4.0])]).save(file)
    words = ["report", str(file), "--out", str(folder), "--baseline"]
    assert cli.main([*words, "team:2"]) == 0
    cells = Page((folder / "index.html").read_text(encoding="utf-8")).words
    assert {"0.80", "1.00", "1.60"} <= {*cells} and "2.00" not in cells  # of serial, team:2 and ddp
    assert cli.main([*words, "team:3"]) == 1
    assert 'baseline "team:3" has no finished run on one rank' in capsys.readouterr().err


def test_a_page_tells_all_versions_and_each_failure_once() -> None:
    other = replace(RUNS[1], versions={"numpy": "3"})
    text = report.page(results([RUNS[0], other, failed("it fell over")]), report.summary(RUNS), {})
    assert "<td>numpy</td><td>2, 3</td>" in text and "<td>pdnn</td><td>1</td>" in text
    assert text.count("it fell over") == 1 and "Warned of" not in text


def test_one_workload_may_be_without_the_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(report.write.__globals__, "pictures", lambda _: {})
    ran = run("ddp", 2, 2, [2.0])
    other = replace(ran, configuration=replace(ran.configuration, model="mlp:9-3"))
    report.write(results([*RUNS, run("team:2", 1, 2, [4.0]), other]), tmp_path, "team:2")
    assert "No speedup is told: team:2 on one rank" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_pictures_show_the_figures() -> None:
    pictures = report.pictures(report.summary(RUNS)).items()
    drawn: dict[str, Any] = {name: figure.axes for name, (_, figure) in pictures}
    axes = drawn["speedup.png"][0]
    assert [bar.get_width() for bar in axes.patches] == [1, 2]
    reach = [segment[:, 0].tolist() for segment in axes.collections[0].get_segments()]
    assert reach == [pytest.approx([5 / 6, 5 / 4]), pytest.approx([2, 2])]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first on top
    seconds, updates = drawn["accuracy.png"]
    assert [list(line.get_xdata()) for line in seconds.lines[::2]] == [[8, 12, 16], [2.5, 5, 14]]
    assert list(updates.lines[0].get_xdata()) == [10, 20, 30]
    assert [text.get_text() for text in updates.get_legend().get_texts()] == ["serial", "ddp on 2 ranks"]
    ends = dict.fromkeys((0, 1, 2), 0.0)
    for bar in drawn["phases.png"][0].patches:  # one behind the other
        row = round(bar.get_y() + bar.get_height() / 2)
        assert bar.get_x() == pytest.approx(ends[row])
        ends[row] += bar.get_width()
    assert list(ends.values()) == pytest.approx([1, 1 + 3 / 14, 1 + 3 / 14])


def test_of_many_ranks_eight_are_drawn() -> None:
    runs = [run("ddp", 9, 9, [2.0]), run("average:2", 9, 9, [2.0])]
    (axes,) = report.pictures(report.summary(runs))["bytes.png"][1].axes
    assert len(axes.patches) == 2 * 8 and {text.get_text() for text in axes.texts} == {"3.2 kB"}
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors == 8 * colors[:1] + 8 * colors[8:9] and colors[0] != colors[8]
    counts = (999, 999.6, 1000, 1.5e6, 2e9)
    assert [_amount(count) for count in counts] == ["999 B", "1 kB", "1 kB", "1.5 MB", "2 GB"]


def test_what_cannot_be_drawn_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.json"
    results([failed("it fell over")]).save(file)
    assert cli.main(["report", str(file), "--out", str(file)]) == 1
    assert "results.json is a file; name a folder" in capsys.readouterr().err
    assert cli.main(["report", str(file), "--out", str(tmp_path / "report")]) == 1
    assert "no run has finished" in capsys.readouterr().err
    for text in ("{}", "5", '["format"]'):
        file.write_text(text)
        assert cli.main(["report", str(file), "--out", str(tmp_path / "report")]) == 1
        assert "holds no results of pdnn sweep (it names no format)" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_efficiency_is_for_all_workers_of_all_ranks() -> None:
    assert Line("ddp+team:2", 2, 4, (), 1.0, 1.0, 1.0, 3.0).efficiency == 0.75
