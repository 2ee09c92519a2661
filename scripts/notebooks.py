"""The outputs stored in the notebooks: made by a full run, sealed by a hash, held against fresh runs.

    python scripts/notebooks.py store [NAME ...]           # run in full and store the outputs; minutes each
    python scripts/notebooks.py check [--full] [NAME ...]  # run, in fast mode unless told, and compare

A NAME is the beginning of a file's name, such as 02. The metadata of a cell say how its numbers are compared:

    "pdnn": {"kind": "exact"}                        counts, bytes, shapes: the same
    "pdnn": {"kind": "tolerance"}                    losses, accuracies: near each other (see `agree`)
    "pdnn": {"kind": "tolerance", "tolerance": 0.1}  with this tolerance instead of 0.02
    "pdnn": {"kind": "time"}                         what depends on time or on the machine: not compared
    "pdnn": {"kind": ..., "fast": "differs"}         fast mode shows something else: compared in full runs

In every kind, numbers with a unit of time (12 ms, 118 updates/s) and speed-ups (x1.65) are not compared. A
cell that stores any other number must have a kind. A cell without numbers is held to its words.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from pdnn.sweep.machine import machine, versions

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
KINDS = ("exact", "tolerance", "time")
TOLERANCE = 0.02
TIMES = re.compile(
    r"[\d,.]*\d\s?(?:[\w/]+/s|[nµm]?s|min|seconds?|minutes?)(?![\w/])"  # 12 ms, 118 updates/s
    r"|(?<!\w)[x×]\s?\d+\.\d+"  # x1.65
)
NUMBER = re.compile(r"(?<![\w.])([-+−]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?(?:\s?%)?)")


@dataclass
class Kind:
    """How the numbers of a cell are compared."""

    kind: str = ""
    tolerance: float = TOLERANCE
    fast: str = "same"

    @classmethod
    def of(cls, cell: NotebookNode) -> Kind:
        """What the metadata of a cell say.

        Raises
        ------
        ValueError
            If they say what nobody reads.
        """
        found = dict(cell.metadata.get("pdnn", {}))
        try:
            kind = cls(**found)
        except TypeError:
            kind = cls("unknown")
        if kind.kind not in ("", *KINDS) or kind.fast not in ("same", "differs"):
            expected = f"kind ({', '.join(KINDS)}), and if needed a tolerance and fast (same, differs)"
            raise ValueError(f'{cell.get("id")}: metadata "pdnn" are {found}, expected {expected}')
        return kind


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def is_account(output: NotebookNode) -> bool:
    """Whether an output is the account of a stored run, which the cell did not print."""
    return "pdnn" in output.get("metadata", {})


def text_of(cell: NotebookNode) -> str:
    """What a cell printed and shows as text; for a picture the word [picture]."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        if is_account(output) or output.get("name") == "stderr":
            continue
        parts.append("[picture]\n" if "image/png" in data else output.get("text", data.get("text/plain", "")))
    return "".join(parts)


def words_and_numbers(text: str) -> tuple[list[str], list[str]]:
    """The words between numbers, with their spaces made one, and the numbers; times are words."""
    pieces = NUMBER.split(TIMES.sub("[time]", text))
    return [" ".join(words.split()) for words in pieces[::2]], pieces[1::2]


def agree(stored: str, fresh: str, tolerance: float) -> bool:
    """Whether two numbers of the kind "tolerance" agree.

    Integers have to be the same. Numbers with a decimal point, and percentages, may be apart by the
    tolerance, relative to their size if that is above 1. Numbers with an exponent are rounding errors: they
    may be apart by two decades, and all below 1e-6 agree.
    """
    if stored == fresh:
        return True
    one, other = (float(text.replace(",", "").replace("−", "-").rstrip("% ")) for text in (stored, fresh))
    both = stored + fresh
    if "e" in both:
        small, large = sorted((abs(one), abs(other)))
        return large < 1e-6 or large <= 100 * small
    if "%" in both:
        one, other = one / 100, other / 100
    elif "." not in both:
        return False
    return abs(one - other) <= tolerance * max(1.0, abs(one))


def differences(stored: NotebookNode, fresh: NotebookNode, fast: bool) -> Iterator[str]:
    """What a fresh run shows otherwise than the stored outputs, by the kinds of the stored cells."""
    for old, new in zip(code_cells(stored), code_cells(fresh), strict=True):
        kind = Kind.of(old)
        if kind.kind == "time" or (fast and kind.fast == "differs"):
            continue
        words, numbers = words_and_numbers(text_of(old))
        fresh_words, fresh_numbers = words_and_numbers(text_of(new))
        if words != fresh_words:
            pairs = [(a, b) for a, b in zip(words, fresh_words, strict=False) if a != b]
            was, now = pairs[0] if pairs else (f"{len(numbers)} numbers", f"{len(fresh_numbers)}")
            yield f"{old.id}: stored {was!r}, now {now!r}"
            continue
        for place, (was, now) in enumerate(zip(numbers, fresh_numbers, strict=True)):
            if was != now and (kind.kind != "tolerance" or not agree(was, now, kind.tolerance)):
                yield f"{old.id}: stored {was} after {words[place]!r}, now {now} ({kind.kind})"


def without_kind(notebook: NotebookNode) -> list[str]:
    """The cells that show numbers and do not say how they are compared."""
    cells = code_cells(notebook)
    return [cell.id for cell in cells if not Kind.of(cell).kind and words_and_numbers(text_of(cell))[1]]


def outputs_hash(notebook: NotebookNode) -> str:
    """SHA-256 of all outputs, with the cells that they belong to."""
    outputs = [(cell.id, cell.outputs) for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()


def account(seconds: float, load: float, fast: bool) -> NotebookNode:
    """An output that says when, where and in how many minutes the notebook was run."""
    where = machine()
    text = (
        f"Stored outputs: {time.strftime('%Y-%m-%d', time.gmtime())}, pdnn {versions()['pdnn']}, "
        f"{where['cores']} cores of {where['processor']} ({where['instruction set']}), "
        f"load {load:.2f} before, {seconds / 60:.1f} minutes{', fast mode' if fast else ''}"
    )
    return nbformat.v4.new_output("display_data", {"text/plain": text}, metadata={"pdnn": "account"})


def run(path: Path, fast: bool, cell_timeout: float | None = None) -> NotebookNode:
    """A notebook with the outputs of a fresh run, in its own folder.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=cell_timeout,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    environment = {name: value for name, value in os.environ.items() if name != "PDNN_FAST"}
    client.execute(env=environment | ({"PDNN_FAST": "1"} if fast else {}))
    return notebook


def store(path: Path, fast: bool) -> None:
    """Runs a notebook and writes it with its new outputs, their account and their hash."""
    load, began = os.getloadavg()[0], time.perf_counter()
    notebook = run(path, fast)
    seconds = time.perf_counter() - began
    code_cells(notebook)[0].outputs.append(account(seconds, load, fast))
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
        "pdnn": {"mode": "fast" if fast else "full", "outputs": outputs_hash(notebook)},
    }
    nbformat.write(notebook, path)
    print(f"{path.stem}: stored, {seconds / 60:.1f} minutes", flush=True)


def faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with stored outputs, without a run."""
    seal = notebook.metadata.get("pdnn", {})
    found = [f"{cell}: shows numbers and has no kind" for cell in without_kind(notebook)]
    if seal.get("mode") != "full":
        found.append("the outputs are not of a full run")
    if seal.get("outputs") != outputs_hash(notebook):
        found.append("the outputs are not those that were stored")
    return found


def check(path: Path, fast: bool) -> bool:
    """Runs a notebook, prints where it differs from its stored outputs, and whether it does not."""
    stored, began = nbformat.read(path, as_version=4), time.perf_counter()
    found = [*faults(stored), *differences(stored, run(path, fast), fast)]
    minutes = (time.perf_counter() - began) / 60
    print(
        f"{path.stem}: {f'{len(found)} faults' if found else 'as stored'}, {minutes:.1f} minutes", flush=True
    )
    print("".join(f"  {line}\n" for line in found), end="", flush=True)
    return not found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("store", "check"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names of files (all)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--full", action="store_true", help="check against full runs")
    mode.add_argument("--fast", action="store_true", help="store a fast run, while a notebook is written")
    chosen = parser.parse_intermixed_args()
    paths = [
        path for path in sorted(FOLDER.glob("*.ipynb")) if path.name.startswith(tuple(chosen.names or [""]))
    ]
    if unknown := [name for name in chosen.names if not any(path.name.startswith(name) for path in paths)]:
        parser.error(f"no notebook begins with {unknown[0]!r} in {FOLDER}")
    if chosen.what == "store":
        for path in paths:
            store(path, chosen.fast)
    elif not all([check(path, not chosen.full) for path in paths]):  # noqa: C419, each is checked
        sys.exit(1)


if __name__ == "__main__":
    main()
