"""Scripts of the developers: --help does no work, and a comparison of trainings misses none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import fingerprints
import processes


@pytest.mark.parametrize("script", ["golden_checkpoints", "make_ex4_weights", "one_width"])
def test_help_writes_nothing(
    root: Path, run_python: Callable[..., processes.Completed], tmp_path: Path, script: str
) -> None:
    helped = run_python([root / "scripts" / f"{script}.py", "--help"], cwd=tmp_path)
    assert helped.stdout.startswith("usage:") and not [*tmp_path.iterdir()]


def test_wheels_are_asked_of_interpreters_only(root: Path) -> None:
    refused = processes.run(["bash", str(root / "scripts" / "wheels.sh"), "--help"], check=False)
    assert refused.returncode == 1 and "--help is no Python, seen from" in refused.stdout


def test_a_training_that_the_table_lacks_counts_as_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table, name = tmp_path / "table.json", "serial"
    monkeypatch.setattr(fingerprints, "TRAININGS", {name: fingerprints.TRAININGS[name]})
    monkeypatch.setattr("sys.argv", ["fingerprints.py", "--save", str(table)])
    assert fingerprints.main() == 0
    monkeypatch.setattr("sys.argv", ["fingerprints.py", "--compare", str(table)])
    assert fingerprints.main() == 0
    table.write_text(json.dumps({"of another name": "0"}))
    assert fingerprints.main() == 1 and capsys.readouterr().out.endswith(f"{name}  CHANGED\n")
