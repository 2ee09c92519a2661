"""The results of a check: as text, as JSON, and as Gradescope's results.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdnn.course.sheet import Sheet


@dataclass(frozen=True)
class Result:
    """One thing that was checked.

    Attributes
    ----------
    title : str
        What was checked.
    passed : bool
    words : str
        What is right, or what is wrong.
    """

    title: str
    passed: bool
    words: str


@dataclass(frozen=True)
class Report:
    """All that was checked of one file.

    Attributes
    ----------
    sheet : Sheet
    path : Path
        The student's file.
    results : sequence of Result
    seconds : float
        How long the check took.
    """

    sheet: Sheet
    path: Path
    results: Sequence[Result]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether everything is right."""
        return all(result.passed for result in self.results)

    def text(self) -> str:
        """A line for each result, and a last one that counts."""
        lines = [f"Sheet {self.sheet.number}: {self.sheet.title} ({self.path})"]
        for result in self.results:
            lines.append(f"  {'right' if result.passed else 'WRONG'}  {result.title}")
            lines.append(f"         {result.words}")
        right = sum(result.passed for result in self.results)
        return "\n".join([*lines, f"{right} of {len(self.results)} right, {self.seconds:.1f} s"])

    def json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "sheet": self.sheet.name,
            "file": str(self.path),
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "results": [asdict(result) for result in self.results],
        }


def gradescope(reports: Sequence[Report], refused: Sequence[str] = ()) -> dict[str, Any]:
    """Gradescope's results.json: a point for each result, and in words which files could not be checked.

    The fields are those of https://gradescope-autograders.readthedocs.io/en/latest/specs/.
    """
    return {
        "output": "\n".join(refused),
        **({} if reports else {"score": 0}),  # it asks for a score where there are no tests
        "execution_time": round(sum(report.seconds for report in reports), 3),
        "visibility": "visible",
        "tests": [
            {
                "name": result.title,
                "number": f"{report.sheet.number}.{number}",
                "score": int(result.passed),
                "max_score": 1,
                "status": "passed" if result.passed else "failed",
                "output": result.words,
            }
            for report in reports
            for number, result in enumerate(report.results, 1)
        ],
    }
