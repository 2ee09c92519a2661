"""Every notebook runs from top to bottom in its fast mode, and what it shows to a reader still holds."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

import notebooks
from data_root import BESIDE
from pdnn.exercises import published

NOTEBOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))
ABSENT = ("hypothesis", "safetensors", "scipy", "sklearn", "torch")
"""What `pip install '.[notebooks]'` does not install."""

AS_INSTALLED = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"pip install '.[notebooks]' installs no {{name}}", name=name)

sys.meta_path.insert(0, Missing())
"""
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@every_notebook
def test_outputs_are_kept(path: Path) -> None:
    cells = read(path).cells
    code = [cell for cell in cells if cell.cell_type == "code" and cell.source.strip()]
    assert cells[0].cell_type == "markdown", "prose first"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), (
        "run it from top to bottom"
    )
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs), "it has pictures"


@every_notebook
def test_outputs_are_those_that_were_stored(path: Path) -> None:
    assert not notebooks.faults(read(path)), f"python scripts/notebooks.py store {path.name[:2]}"


@every_notebook
def test_its_first_cell_says_where_it_was_run(path: Path) -> None:
    accounts = [list(map(notebooks.is_account, cell.outputs)) for cell in notebooks.code_cells(read(path))]
    assert sum(accounts[0]) == 1 and not any(map(any, accounts[1:]))


@every_notebook
def test_data_are_asked_for_by_name(path: Path) -> None:
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    assert not [source for source in code if "PDNN_DATA" in source or "shared/data" in source]


@every_notebook
def test_published_figures_are_read_where_they_stand(path: Path) -> None:
    """No cell writes down a figure of four digits or more that `pdnn.exercises.published` has."""
    figures = [value.value for value in vars(published).values() if isinstance(value, published.Figure)]
    flat = [
        number for value in figures for number in (value.values() if isinstance(value, dict) else [value])
    ]
    long = {number for number in flat if isinstance(number, float) and len(str(number).strip("0.")) >= 4}
    assert 0.287629 in long and 2.165225 in long
    for cell in notebooks.code_cells(read(path)):
        written = {float(number) for number in re.findall(r"\d*\.\d+", cell.source)}
        assert not written & long, cell.id


@every_notebook
def test_it_runs_and_shows_what_is_stored(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real data where they are, and otherwise with what is in pdnn.

    The packages that docs/install.md does not ask for are out of its reach, and of the reach of its ranks.
    """
    data = os.environ.get("PDNN_DATA") or str(BESIDE)
    (tmp_path / "sitecustomize.py").write_text(AS_INSTALLED)
    monkeypatch.setenv("PDNN_DATA", data)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    fresh = notebooks.run(path, fast=True, cell_timeout=100)  # some 15 s on two idle cores
    if Path(data).is_dir():  # otherwise other digits stand in
        assert not list(notebooks.differences(read(path), fresh, fast=True))
