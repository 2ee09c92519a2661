"""Every notebook runs from top to bottom in its fast mode, and shows real outputs where it is only read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from data_root import BESIDE

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code" and cell.source.strip()]
    assert cells[0].cell_type == "markdown", "prose first"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), (
        "run it from top to bottom"
    )
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs), "it has pictures"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_data_are_asked_for_by_name(path: Path) -> None:
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert not [source for source in code if "PDNN_DATA" in source or "shared/data" in source]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real data where they are, and otherwise with what is in pdnn."""
    monkeypatch.setenv("PDNN_FAST", "1")
    monkeypatch.setenv("PDNN_DATA", os.environ.get("PDNN_DATA") or str(BESIDE))
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(path.parent)}})
    began = time.perf_counter()
    client.execute()
    seconds = time.perf_counter() - began
    print(f"{path.stem}: {seconds:.1f} s")
    assert seconds <= 30, "fast mode means 15 s on two idle cores"
