"""The course: blanks, solutions and planted mistakes under the check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bugs import BUGS
from filling import fill, plant, solution
from pdnn.course import SHEETS, Result, Sheet
from pdnn.course.examine import examine
from pdnn.course.submission import Submission

CASES = [(sheet, *bug) for sheet in SHEETS for bug in BUGS[sheet.name]]


def results(tmp_path: Path, sheet: Sheet, solved: str) -> list[Result]:
    path = tmp_path / f"{sheet.stem}.py"
    path.write_text(fill(sheet.source, solved))
    with np.errstate(all="ignore"):
        return list(examine(Submission(path), sheet))


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_a_solution_is_right(tmp_path: Path, sheet: Sheet) -> None:
    found = results(tmp_path, sheet, solution(sheet))
    assert [result for result in found if not result.passed] == []


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_a_blank_sheet_fails_with_the_names_of_its_blanks(tmp_path: Path, sheet: Sheet) -> None:
    found = results(tmp_path, sheet, "")
    assert not any(result.passed for result in found)
    assert all("is still a TODO, line" in result.words for result in found)


@pytest.mark.parametrize(("sheet", "before", "after", "words"), CASES)
def test_a_planted_mistake_is_named(
    tmp_path: Path, sheet: Sheet, before: str, after: str, words: str
) -> None:
    found = results(tmp_path, sheet, plant(solution(sheet), before, after))
    wrong = [result.words for result in found if not result.passed]
    assert wrong, "nothing was found"
    assert words in wrong[0], wrong
