"""Sheets of the course filled in with their solutions, and mistakes planted in them."""

from __future__ import annotations

import ast
from pathlib import Path

from pdnn.course import Sheet

SOLUTIONS = Path(__file__).parent / "solutions"


def solution(sheet: Sheet) -> str:
    """The functions and classes that solve a sheet."""
    return (SOLUTIONS / f"{sheet.stem}.py").read_text()


def fill(source: str, solved: str) -> str:
    """The sheet with the functions and classes of the solution in place of its blanks of the same names.

    What else the solution defines goes before the first of them.
    """
    lines = source.splitlines()
    solved_lines = solved.splitlines()
    new = {node.name: node for node in ast.parse(solved).body if hasattr(node, "name")}
    blanks = [node for node in ast.parse(source).body if getattr(node, "name", None) in new]

    def code(name: str) -> list[str]:
        return solved_lines[new[name].lineno - 1 : new[name].end_lineno]

    for node in reversed(blanks):
        lines[node.lineno - 1 : node.end_lineno] = code(node.name)
    for name in set(new) - {node.name for node in blanks}:
        first = blanks[0].lineno - 1
        lines[first:first] = [*code(name), "", ""]
    return "\n".join(lines) + "\n"


def plant(solved: str, before: str, after: str) -> str:
    """A solution with a mistake: a text that occurs once in it is replaced."""
    assert solved.count(before) == 1, f"{before!r} occurs {solved.count(before)} times"
    return solved.replace(before, after)
