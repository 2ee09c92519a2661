"""The picture of the README and of the site: a step's time beside every peer, and a step of a pipeline.

python docs/picture.py [--output docs/picture.svg]

The times are those of the tables in benchmarks/README.md, the pipeline's step is the one recorded in
benchmarks/pipeline-step.json by

    python benchmarks/pipeline.py --schedules 1f1b --micros 4 --trace benchmarks/pipeline-step.json

Draws SVG by hand: it is small, its text is text, and it follows light and dark themes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH, MARGIN, ROW = 900, 24, 22
LABELS = 188  # pixels to the left of bars
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .note { fill: #59636e } .number { fill: #fff; font-size: 11px }
.card { fill: #fff; stroke: #d1d9e0 } .peer { fill: #aab4c0 } .own, .forward { fill: #2f6fde }
.backward { fill: #1a7f4b } .lane { fill: #eef1f4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note { fill: #9198a1 } .number { fill: #fff }
  .card { fill: #0d1117; stroke: #3d444d } .peer { fill: #59636e } .lane { fill: #1c222a }
}
"""


def table(text: str, column: str, after: str = "") -> dict[str, float]:
    """The numbers of a column, by the first cell of their line, in a table of a page.

    Parameters
    ----------
    text : str
        The page, in Markdown.
    column, after : str
        The heading of the column, or, if `after` is given, of the first of that heading after this column.
    """
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    head = next((number for number, row in enumerate(rows) if column in row), None)
    if head is None:
        raise ValueError(f"benchmarks/README.md has no table with the column {column!r}")
    place = rows[head].index(column)
    if after:
        place = rows[head].index(after, place)
    found = {}
    for row in rows[head + 2 :]:
        if len(row) <= place:
            break
        if row[place] != "–":
            found[row[0]] = float(row[place].replace(",", ""))
    return found


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words, at the left, middle or end of which the place is."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def bars(x: float, y: float, width: float, title: str, times: dict[str, float]) -> list[str]:
    """A bar for each time, in microseconds."""
    drawn = [text(x, y, title, "title")]
    room = width - LABELS - 48
    for number, (name, time) in enumerate(times.items(), 1):
        top, length = y + number * ROW - 8, max(1.0, room * time / max(times.values()))
        kind = "own" if name.startswith("pdnn") else "peer"
        drawn += [
            text(x + LABELS - 8, top + 12, name, anchor="end"),
            f'<rect class="{kind}" x="{x + LABELS:g}" y="{top:g}" width="{length:.1f}" height="16" rx="2"/>',
            text(x + LABELS + length + 6, top + 12, f"{time:,g} µs", "note"),
        ]
    return drawn


def lanes(x: float, y: float, width: float, events: list[dict[str, object]]) -> list[str]:
    """The passes of each rank over time."""
    passes = [event for event in events if event.get("cat") in ("forward", "backward")]
    ranks = 1 + max(event["pid"] for event in passes)
    end = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    busy = sum(event["dur"] for event in passes)
    title = f"A step of pipeline:{ranks} with 4 micro-batches, as measured: {end / 1000:.0f} ms, idle "
    drawn = [text(x, y, f"{title}{1 - busy / (ranks * end):.0%}", "title")]
    for kind, at in [("forward", x + width - 170), ("backward", x + width - 84)]:
        drawn += [f'<rect class="{kind}" x="{at:g}" y="{y - 10:g}" width="12" height="12" rx="2"/>']
        drawn += [text(at + 18, y, kind)]
    for rank in range(ranks):
        top = y + 14 + 32 * rank
        drawn += [text(x, top + 18, f"rank {rank}")]
        drawn += [
            f'<rect class="lane" x="{x + 56:g}" y="{top:g}" width="{width - 56:g}" height="26" rx="3"/>'
        ]
    for event in passes:
        left, long = (x + 56 + (width - 56) * event["ts"] / end, (width - 56) * event["dur"] / end)
        top = y + 14 + 32 * event["pid"]
        kind, micro = event["cat"], event["args"]["micro-batch"]
        drawn += [
            f'<rect class="{kind}" x="{left:.1f}" y="{top:g}" width="{long - 1:.1f}" height="26" rx="3"/>',
            text(round(left + long / 2, 1), top + 17, str(micro), "number", "middle"),
        ]
    return drawn


def picture() -> str:
    """The whole, as SVG."""
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    medium = table(page, "784-256-10, batch 105, 1 core", "2 cores")
    del medium["floor in float32"], medium["pdnn, shuffled"]
    small = table(page, "4-32-16-4, batch 32")
    trace = json.loads((ROOT / "benchmarks" / "pipeline-step.json").read_text(encoding="utf-8"))
    half = (WIDTH - 3 * MARGIN) / 2
    below = 64 + ROW * max(len(medium), len(small)) + 36
    height = below + 92
    drawn = [
        text(MARGIN, 34, "Microseconds of a training step beside other libraries", "note"),
        *bars(MARGIN, 60, half, "784-256-10, batch 105, two cores", medium),
        *bars(2 * MARGIN + half, 60, half, "4-32-16-4, batch 32, one core", small),
        *lanes(MARGIN, below, WIDTH - 2 * MARGIN, trace["traceEvents"]),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
            "<title>Training steps beside other libraries, and a pipeline's step as measured</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def main(arguments: Sequence[str]) -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "picture.svg")
    parser.parse_args(arguments).output.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
