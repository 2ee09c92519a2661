"""Stored outputs of notebooks: edited by hand or drifted beyond their kind, they are found."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

import notebooks


def notebook(*cells: tuple[str, dict[str, Any]]) -> NotebookNode:
    """Of cells that printed a text and have these metadata, stored by a full run."""
    made = nbformat.v4.new_notebook()
    for number, (text, kind) in enumerate(cells):
        cell = nbformat.v4.new_code_cell("…", id=f"cell-{number}", metadata={"pdnn": kind} if kind else {})
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
        made.cells.append(cell)
    made.metadata["pdnn"] = {"mode": "full", "outputs": notebooks.outputs_hash(made)}
    return made


def drift(kind: dict[str, Any], stored: str, fresh: str, fast: bool = False) -> list[str]:
    return list(notebooks.differences(notebook((stored, kind)), notebook((fresh, {})), fast))


EXACT, NEAR, TIME = ({"kind": kind} for kind in notebooks.KINDS)


@pytest.mark.parametrize(
    ("kind", "stored", "fresh"),
    [
        (EXACT, "203,530 parameters\n", "203,530  parameters"),
        (EXACT, "4 ranks: 12.1 ms (x1.65), 1,118 updates/s", "4 ranks: 9 ms (x0.70), 97.5 updates/s"),
        (NEAR, "epoch 10: loss 0.7701, accuracy 88.5%", "epoch 10: loss 0.7802, accuracy 87.0%"),
        (NEAR, "loss 24.0", "loss 24.4"),
        ({**NEAR, "tolerance": 0.3}, "loss 1.91", "loss 1.45"),
        (NEAR, "off by 6e-11", "off by 8e-10"),
        (NEAR, "off by 0e+00", "off by 3e-16"),
        (TIME, "7 stale steps", "9 stale steps and a word"),
        ({}, "12.1 ms", "9.3 ms"),
    ],
)
def test_the_same_within_its_kind(kind: dict[str, Any], stored: str, fresh: str) -> None:
    assert drift(kind, stored, fresh) == []


@pytest.mark.parametrize(
    ("kind", "stored", "fresh"),
    [
        (EXACT, "203,530 parameters", "203,531 parameters"),
        (EXACT, "loss 0.7701", "loss 0.7702"),
        (EXACT, "rank 1 of 2", "rank 1 of 2, late"),
        (EXACT, "[1, 2]", "[1, 2, 3]"),
        (EXACT, "12 rows/step", "13 rows/step"),
        (EXACT, "2 seeds", "3 seeds"),
        (NEAR, "epoch 10: loss 0.7701", "epoch 11: loss 0.7701"),
        (NEAR, "loss 0.7701", "loss 0.7911"),
        (NEAR, "accuracy 88.5%", "accuracy 86.0%"),
        (NEAR, "loss 24.0", "loss 24.6"),
        (NEAR, "off by 6e-11", "off by 6e-03"),
        (NEAR, "loss -0.5", "loss 0.5"),
        ({}, "right", "wrong"),
    ],
)
def test_drift_beyond_its_kind(kind: dict[str, Any], stored: str, fresh: str) -> None:
    (found,) = drift(kind, stored, fresh)
    assert found.startswith("cell-0: stored")


def test_a_picture_is_compared_by_being_there() -> None:
    stored = notebook(("", {}))
    picture = nbformat.v4.new_output("display_data", {"image/png": "aGVsbG8=", "text/plain": "<Figure>"})
    stored.cells[0].outputs.append(picture)
    assert list(notebooks.differences(stored, notebook(("", {})), False))


def test_fast_mode_may_differ_where_the_cell_says_so() -> None:
    kind = {**EXACT, "fast": "differs"}
    assert drift(kind, "101 epochs", "6 epochs", fast=True) == []
    assert drift(kind, "101 epochs", "6 epochs")
    assert drift(EXACT, "101 epochs", "6 epochs", fast=True)


def test_stored_outputs_have_no_faults() -> None:
    assert notebooks.faults(notebook(("12 rows", EXACT), ("loss 0.5 in 3 s", NEAR), ("4 ms", {}))) == []


def test_a_number_edited_by_hand_is_found() -> None:
    stored = notebook(("accuracy 0.9311", NEAR), ("12 ms", {}))
    stored.cells[0].outputs[0].text = "accuracy 0.9312"
    assert notebooks.faults(stored) == ["the outputs are not those that were stored"]


def test_an_edited_time_is_found_too() -> None:
    stored = notebook(("12 ms", TIME))
    stored.cells[0].outputs[0].text = "11 ms"
    assert notebooks.faults(stored) == ["the outputs are not those that were stored"]


def test_fast_runs_are_not_for_reading() -> None:
    stored = notebook(("12 ms", TIME))
    stored.metadata["pdnn"]["mode"] = "fast"
    assert notebooks.faults(stored) == ["the outputs are not of a full run"]


def test_a_number_needs_a_kind() -> None:
    assert notebooks.faults(notebook(("7 rows", {}))) == ["cell-0: shows numbers and has no kind"]


@pytest.mark.parametrize("kind", [{"kind": "exakt"}, {"knid": "exact"}, {"kind": "exact", "fast": True}])
def test_a_misspelled_kind_is_an_error(kind: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cell-0: metadata .* expected kind \(exact, tolerance, time\)"):
        notebooks.faults(notebook(("7 rows", kind)))


def test_the_account_names_machine_load_version_and_minutes() -> None:
    output = notebooks.account(seconds=90, load=0.25, fast=False)
    assert notebooks.is_account(output)
    text = output["data"]["text/plain"]
    assert "pdnn " in text and " cores of " in text and "load 0.25 before" in text and "1.5 minutes" in text


def test_store_runs_and_seals(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is really run, in full and in fast mode, and what is stored passes its own check."""
    path = tmp_path / "made.ipynb"
    made = nbformat.v4.new_notebook()
    source = "import os; print(os.environ.get('PDNN_FAST'), 6 * 7, 'rows')"
    made.cells = [nbformat.v4.new_code_cell(source, metadata={"pdnn": EXACT})]
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    monkeypatch.setenv("PDNN_FAST", "1")
    notebooks.store(path, fast=False)
    stored = nbformat.read(path, as_version=4)
    assert notebooks.text_of(stored.cells[0]) == "None 42 rows\n"
    assert notebooks.faults(stored) == []
    path.write_text(path.read_text().replace("42 rows", "43 rows"))
    assert not notebooks.check(path, fast=True)
