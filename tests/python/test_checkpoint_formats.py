"""Checkpoints of every format are read, those that scripts/golden_checkpoints.py made with each version."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest

import golden_checkpoints
import pdnn
from golden_checkpoints import BATCH, END, LAYOUTS
from pdnn.checkpoint import FILE, Content
from pdnn.checkpoint.content import FORMAT
from pdnn.files import safetensors

FOLDER = Path(__file__).resolve().parents[1] / "checkpoints"


def goes_on(folder: Path, strategy: str) -> pdnn.Trainer:
    trainer = golden_checkpoints.trainer(strategy)
    trainer.fit(golden_checkpoints.data(), END, BATCH, checkpoint=folder, resume=True, verbose=False)
    return trainer


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_a_training_goes_on_from_every_format(number: int, name: str, tmp_path: Path) -> None:
    golden = FOLDER / str(number) / name
    strategy, ranks, step = LAYOUTS[name]
    for resumed in ("same", "serial"):
        (tmp_path / resumed).mkdir()
        shutil.copy(golden / FILE, tmp_path / resumed / FILE)
    end = safetensors.read(golden / "end.safetensors")[0]
    for trainer in pdnn.run(goes_on, tmp_path / "same", strategy, ranks=ranks, backend="threads"):
        assert trainer.history.epochs == trainer.epoch == END
        for key, values in trainer.model.state_dict().items():
            np.testing.assert_allclose(values, end[key], rtol=0, atol=1e-12)
    content = Content.read(golden / FILE)
    assert content.state.get("format", 1) == number
    if number > 1:
        assert content.state["pdnn"] and content.state["step"] == step
        assert content.state["position"]["row"] > 0
    said = pytest.warns(UserWarning, match="was written by") if name != "serial" else contextlib.nullcontext()
    with said:
        trainer = goes_on(tmp_path / "serial", "serial")
    assert trainer.history.epochs == END
    assert trainer.history.history["loss"][-1] < trainer.history.history["loss"][0]


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    content = Content.read(FOLDER / str(FORMAT) / "serial" / FILE)
    content.state |= {"format": FORMAT + 1, "pdnn": "9.1"}
    content.write(tmp_path / FILE)
    with pytest.raises(ValueError, match=rf"by pdnn 9.1 in format {FORMAT + 1}, .* up to {FORMAT};"):
        goes_on(tmp_path, "serial")


def test_this_version_writes_the_last_golden_format(tmp_path: Path) -> None:
    golden_checkpoints.write(tmp_path, *LAYOUTS["serial"][::2])
    new, golden = (Content.read(folder / FILE) for folder in (tmp_path, FOLDER / str(FORMAT) / "serial"))
    assert new.state.keys() == golden.state.keys() and new.state["format"] == FORMAT
    assert new.state["position"].keys() == golden.state["position"].keys()
    assert new.arrays.keys() == golden.arrays.keys()
    for name, values in golden.arrays.items():
        np.testing.assert_allclose(new.arrays[name], values, rtol=0, atol=1e-12)
