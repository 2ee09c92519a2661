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
    """The sheet with the functions and classes of the solution in place of its blanks of the same names."""
    lines = source.splitlines()
    solved_lines = solved.splitlines()
    new = {node.name: node for node in ast.parse(solved).body if hasattr(node, "name")}
    blanks = [node for node in ast.parse(source).body if getattr(node, "name", None) in new]
    assert {node.name for node in blanks} == set(new)
    for node in reversed(blanks):
        by = new[node.name]
        lines[node.lineno - 1 : node.end_lineno] = solved_lines[by.lineno - 1 : by.end_lineno]
    return "\n".join(lines) + "\n"


def plant(solved: str, before: str, after: str) -> str:
    """A solution with a mistake: a text that occurs once in it is replaced."""
    assert solved.count(before) == 1, f"{before!r} occurs {solved.count(before)} times"
    return solved.replace(before, after)
