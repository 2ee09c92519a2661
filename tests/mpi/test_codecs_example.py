"""The example that trains by each codec: its table, and that feeding errors back matters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from processes import Completed

pytestmark = pytest.mark.mpi
pytest.importorskip("mpi4py")
Run = Callable[..., Completed]
WITHOUT = "-without-feedback"
SCRIPT = "gradient_codecs.py"


def table(run: Callable[..., Completed], script: Path, tmp_path: Path, *words: Any) -> dict[str, Any]:
    """What the example keeps of each training, by the codec."""
    kept = tmp_path / "rows.json"
    run([script, "--embedded", *map(str, words), "--json", kept], timeout=100)
    return {row["way"]: row for row in json.loads(kept.read_text())}


@pytest.mark.long
def test_errors_must_be_fed_back_and_then_little_is_lost(run_python: Run, root: Path, tmp_path: Path) -> None:
    """Five epochs of 10,500 digits: .75 without a codec; .83, .74, .76 fed back; .63, .51, .42 otherwise."""
    lossy = ("1bit", "topk:0.01", "powersgd:2")
    ways = ["none", "int8", *lossy, *(f"{way}{WITHOUT}" for way in lossy)]
    picture = tmp_path / "codecs.png"
    words = ("--network", "mlp", "--epochs", 5, "--plot", picture, "--sweep", *ways)
    rows = table(run_python, root / "examples" / SCRIPT, tmp_path, *words)
    accuracy = {way: row["accuracy"] for way, row in rows.items()}
    assert abs(accuracy["int8"] - accuracy["none"]) < 0.01
    for way in lossy:
        assert accuracy[way] > accuracy["none"] - 0.05
        assert accuracy[way] > accuracy[f"{way}{WITHOUT}"] + 0.08, accuracy
    assert rows["none"]["bytes"] == 203_530 * 4
    assert rows["int8"]["bytes"] == 203_530 + 3 * 4 * 256 + 4 * 28  # of three buckets of 65,536 and the rest
    assert rows["topk:0.01"]["bytes"] == 3 * 656 * 8 + 8 * 70
    assert picture.stat().st_size > 5000


def test_ranks_that_are_there_are_used(mpiexec: Run, root: Path, tmp_path: Path) -> None:
    words = ("--network", "lenet", "--epochs", 1, "--sweep", "fp16")
    rows = table(
        lambda command, **how: mpiexec(3, command, **how), root / "examples" / SCRIPT, tmp_path, *words
    )
    assert rows["fp16"]["uncompressed"] == pytest.approx(2 * rows["fp16"]["bytes"], rel=1e-4)
