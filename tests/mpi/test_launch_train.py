"""``pdnn train --ranks``: the same numbers as alone, printed and written once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Completed

pytestmark = pytest.mark.mpi
pytest.importorskip("mpi4py")


def test_two_ranks_train_as_one_does(run_python: Callable[..., Completed], tmp_path: Path) -> None:
    common = [
        "--epochs",
        "1",
        "--dtype",
        "float64",
        "--batch-size",
        "511",
        "--model",
        "mlp:784-16-10:sigmoid",
    ]
    outputs = {}
    for ranks in (1, 2):
        words = ["--ranks", str(ranks), "--json", str(tmp_path / f"{ranks}.json")]
        outputs[ranks] = run_python(["-m", "pdnn", "train", *common, *words], timeout=90).stdout.splitlines()
    assert [len(lines) for lines in outputs.values()] == [5, 6]
    assert all(lines[0].startswith("auto: ") for lines in outputs.values())
    assert outputs[1][-1] == outputs[2][-1]
    told = (
        r"a step of a rank: [\d,]+ bytes sent, .*\d+% computing, .*\d+% waiting for the slowest, \d+% other"
    )
    assert re.fullmatch(told, outputs[2][-3])
    alone, together = (json.loads((tmp_path / f"{ranks}.json").read_text()) for ranks in (1, 2))
    assert [len(content["ranks"][0]) for content in (alone, together)] == [1, 2]
    alone, together = alone["history"], together["history"]
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert together[name] == pytest.approx(alone[name], rel=1e-11)


def test_what_a_codec_has_sent_is_told(run_python: Callable[..., Completed]) -> None:
    words = ["--ranks", "2", "--strategy", "ddp:int8", "--epochs", "1", "--validation", "none"]
    *_, told, _, test = run_python(["-m", "pdnn", "train", *words], timeout=90).stdout.splitlines()
    assert re.fullmatch(
        r"by the codec: 206,714 bytes a sum instead of 814,120 \(3\.94 times fewer\), "
        r"\d+ µs to encode and \d+ µs to decode, 0\.\d\d% lost",
        told,
    )
    assert test.startswith("test: loss")
