"""A sweep as one HTML page that holds its pictures: it opens anywhere, without a network."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import mean

from pdnn.files.atomic import replacing
from pdnn.progress import rounded
from pdnn.report.pictures import pictures
from pdnn.report.summary import Line, Workload, summary
from pdnn.sweep.results import Results, Run

_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em;
  color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .25em .8em; border-bottom: 1px solid #ccc; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
table.figures td { white-space: nowrap; }
table.words th, table.words td { text-align: left; white-space: pre-wrap; }
figure { margin: 2em 0; } img { max-width: 100%; } figcaption { color: #555; }
"""

_HEAD = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width">\n'
    f"<title>pdnn sweep</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>A sweep by pdnn</h1>\n"
)
_EXPLANATION = (
    "<p>Seconds are of an epoch without its validation: of each repeat the median over its epochs, of these "
    "the median and, in brackets, the extremes. Speedup is the baseline's seconds over these, efficiency is "
    "speedup over workers (ranks times threads). Of the time that ranks spend in communication, what even "
    "the rank that waits least has to wait is exposed communication, the rest is waiting for the slowest; "
    "hidden is what took place beside other work. These are shares of the time. The bytes that a rank sends "
    "are counted by the formulas of pdnn's docs/algorithms.md. Repeats differ in their seeds.</p>\n"
)


def write(results: Results, folder: str | os.PathLike[str], baseline: str = "serial") -> list[Path]:
    """Writes a report: ``index.html`` and its pictures, each all or nothing.

    Parameters
    ----------
    results : Results
    folder : path
        Made if it is not there.
    baseline : str
        The strategy, on one rank, that speedup is over.

    Returns
    -------
    list of Path
        The files, the page first.

    Raises
    ------
    ValueError
        If no run has finished, or none of a baseline other than "serial"; if the folder is a file.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"report: {folder} is a file; name a folder for the page and its pictures")
    workloads = summary(results.runs.values(), baseline)
    lines = [line for work in workloads for line in work.lines]
    if baseline != "serial" and all(line.speedup is None for line in lines):
        known = sorted({line.strategy for line in lines if line.ranks == 1})
        raise ValueError(
            f'report: baseline "{baseline}" has no finished run on one rank; those are of {known or "none"}'
        )
    drawn = {}
    for name, (caption, figure) in pictures(workloads).items():
        png = io.BytesIO()
        figure.savefig(png, dpi=110, format="png", metadata={"Software": None})
        drawn[name] = (caption, png.getvalue())
    text = page(results, workloads, drawn, baseline)
    os.makedirs(folder, exist_ok=True)
    html = text.encode(errors="backslashreplace")  # names of files may be no UTF-8
    contents = {"index.html": html, **{name: png for name, (_, png) in drawn.items()}}
    for name, content in contents.items():
        with replacing(Path(folder, name)) as file:
            file.write(content)
    return [Path(folder, name) for name in contents]


def page(
    results: Results,
    workloads: Sequence[Workload],
    drawn: Mapping[str, tuple[str, bytes]],
    baseline: str = "serial",
) -> str:
    """The page: tables, and each picture (caption, PNG) inline."""
    runs = list(results.runs.values())
    failed = [run for run in runs if run.history is None]
    parts = [
        _HEAD,
        f"<p>{len(runs)} trainings, {len(failed)} of them failed.</p>\n",
    ]
    parts += [_of_workload(work, baseline) for work in workloads]
    parts.append(_EXPLANATION)
    for name, (caption, png) in drawn.items():
        image = base64.b64encode(png).decode()
        parts.append(
            f'<figure>\n<img alt="{escape(name)}" src="data:image/png;base64,{image}">\n'
            f"<figcaption>{escape(caption)}.</figcaption>\n</figure>\n"
        )
    parts.append("<h2>Settings</h2>\n" + _table(["what", "value"], results.settings.items(), "words"))
    parts.append("<h2>Versions</h2>\n" + _table(["package", "version"], _versions(runs), "words"))
    warned = [run for run in runs if run.history is not None and run.message]
    for title, some in [("Failed", failed), ("Warned of", warned)]:
        if some:
            rows = [(str(run.configuration), run.message) for run in some]
            parts.append(f"<h2>{title}</h2>\n" + _table(["training", "message"], rows, "words"))
    return "".join(parts) + "</body>\n</html>\n"


def _of_workload(work: Workload, baseline: str) -> str:
    head = ["strategy", "ranks", "workers", "repeats", "seconds an epoch", "speedup", "efficiency"]
    measures = (work.measure, *work.metrics)
    head += ["updates a second", *(name.replace("val_", "validation ") for name in measures)]
    rows = [
        [
            line.strategy,
            line.ranks,
            line.workers,
            len(line.histories),
            _seconds(line),
            "–" if line.speedup is None else f"{line.speedup:.2f}",
            "–" if line.efficiency is None else f"{line.efficiency:.0%}",
            f"{line.updates_per_second():.4g}",
            *(rounded(line.last(name)) for name in measures),
        ]
        for line in work.lines
    ]
    text = f"<h2>{escape(work.name)}</h2>\n" + _table(head, rows) + _ranks(work) + _estimates(work)
    if all(line.speedup is None for line in work.lines):
        text += (
            f"<p>No speedup is told: {escape(baseline)} on one rank, the baseline, has no finished run "
            "of this workload.</p>\n"
        )
    return text


def _seconds(line: Line) -> str:
    """Of an epoch, with the extremes of repeats."""
    reach = f" ({line.fastest:.4g} to {line.slowest:.4g})" if len(line.histories) > 1 else ""
    return f"{line.seconds:.4g}{reach}"


def _ranks(work: Workload) -> str:
    """What ranks send and wait, of the lines that have several."""
    rows = [
        [
            line.name,
            f"{line.mean_share('exposed communication'):.0%}",
            f"{line.mean_share('waiting for the slowest'):.0%}",
            f"{line.mean_share('hidden'):.0%}",
            f"{mean(line.per_step('bytes')):,.0f}",
            f"{mean(line.per_step('shared_bytes')):,.0f}",
        ]
        for line in work.lines
        if line.ranks > 1
    ]
    head = ["strategy", "exposed", "waiting", "hidden", "bytes sent a step", "read in shared memory"]
    return "<h3>Communication, the mean over the ranks</h3>\n" + _table(head, rows) if rows else ""


def _estimates(work: Workload) -> str:
    """Estimated beside measured, of the lines that were estimated."""
    rows = []
    for line in work.lines:
        if line.estimated is not None:
            name, expected, measured = line.estimated
            difference = f"{(expected - measured) / measured:+.0%}"
            rows.append([line.name, name, f"{expected:.4g}", f"{measured:.4g}", difference])
    head = ["strategy", "estimated as", "estimated seconds an epoch", "measured", "difference"]
    return "<h3>Estimated before the training, and measured</h3>\n" + _table(head, rows) if rows else ""


def _table(head: Iterable[str], rows: Iterable[Iterable[object]], kind: str = "figures") -> str:
    def row(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>\n"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<table class="{kind}">\n<thead>{row(head, "th")}</thead>\n<tbody>{body}</tbody>\n</table>\n'


def _versions(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Each package with all versions that ran."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for package, version in run.versions.items():
            found.setdefault(package, {})[version] = None
    return [(package, ", ".join(versions)) for package, versions in found.items()]
