"""The exercise's network between processes: results are those of one process, bytes those of formulas."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Completed

pytestmark = pytest.mark.mpi


def test_bytes_are_those_of_the_formulas_and_codecs_learn_alike(
    mpiexec: Callable[..., Completed], root: Path, tmp_path: Path
) -> None:
    script = root / "examples" / "model_pipeline_quantized.py"
    said = mpiexec(2, [script, "--epochs", "1", "--steps", "3", "--out", tmp_path], timeout=100).stdout
    counts = re.findall(r": ([\d,]+) bytes counted, ([\d,]+) by the formula", said)
    assert len(counts) == 4
    assert counts[0][0] == f"{25 * 8 * (203_530 + 105 * 784 + 105 * 10):,}"
    assert counts[1][0] == f"{25 * 8 * 203_530:,}"
    assert counts[2][0] == counts[3][0] == f"{8 * 105 * 10:,}"
    for counted, formula in counts:
        assert counted == formula
    differences = [float(off) for off in re.findall(r"off by (\S+)", said)]
    assert len(differences) == 4
    assert max(differences) <= 1e-12
    bubbles = re.findall(r"bubble (\S+), of equal stages (\S+),", said)
    assert len(bubbles) == 8
    assert all(0 < float(bubble) < 1 for bubble, _ in bubbles)
    rows = re.findall(r"^(none|fp16|bf16|int8|1bit|topk\S+) +([\d,]+) +([\d,]+) +(\S+)", said, re.MULTILINE)
    assert [name for name, *_ in rows] == ["none", "fp16", "bf16", "int8", "1bit", "topk:0.1"]
    accuracy = {name: float(found) for name, _, _, found in rows}
    for name, counted, formula, _ in rows:
        assert counted == formula
        if name in ("fp16", "bf16", "int8"):
            assert accuracy[name] == pytest.approx(accuracy["none"], abs=0.005)
    assert rows[0][1] == f"{10_500 * 256 * 8:,}"
    for picture in ("step.png", "codecs.png"):
        assert (tmp_path / picture).stat().st_size > 1000
