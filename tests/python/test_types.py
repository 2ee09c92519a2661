"""The annotations, as a typed program of a user meets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Completed

PROGRAM = Path(__file__).with_name("typed_program.py")


def test_the_program_runs(run_python: Callable[..., Completed]) -> None:
    run_python([PROGRAM], timeout=60)


@pytest.mark.long
def test_mypy_has_nothing_to_say(root: Path, run_python: Callable[..., Completed]) -> None:
    pytest.importorskip("mypy")
    run_python(["-m", "mypy", PROGRAM], timeout=110, cwd=root)


@pytest.mark.long
def test_a_name_that_there_is_not_is_no_name_for_mypy(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    pytest.importorskip("mypy")
    names = ["callbacks.EarlyStoping", "estimate.Esti", "optim.LBFG", "strategies.Grd", "Trayner"]
    program = tmp_path / "misspelled.py"
    program.write_text("\n".join(["import pdnn", *(f"pdnn.{name}" for name in names)]))
    told = run_python(["-m", "mypy", program], timeout=110, cwd=root, check=False).stdout
    assert told.count("[attr-defined]") == len(names)
