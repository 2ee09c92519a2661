"""The rows of a table in a text file: by Python's csv module, and plain ones of numbers by the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from pdnn._core import plain_rows
from pdnn.data.checks import Array

BLOCK = 1024
"""Rows that are read together."""


class PlainRows(NamedTuple):
    """Some rows: their numbers, row by row, the texts of each of the other columns, and their lines."""

    values: Array
    texts: list[list[str]]
    lines: range


class Rows:
    """The lines that are not blank, nor the delimiter's for Excel, in columns, each with its number.

    Parameters
    ----------
    path : str
        Begins the messages.
    lines : iterable of str
        With their ends.
    delimiter : str

    Raises
    ------
    ValueError
        While it is iterated, if a quotation mark is not closed.
    """

    def __init__(self, path: str, lines: Iterable[str], delimiter: str) -> None:
        self._path, self._lines, self._delimiter = path, iter(lines), delimiter
        self._line = 1  # which is to be read next
        self._plain = delimiter != " "  # of which csv takes several for one
        self._rows = self._read()

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        return self

    def __next__(self) -> tuple[int, list[str]]:
        return next(self._rows)

    def _read(self) -> Iterator[tuple[int, list[str]]]:
        from csv import Error, reader  # here, because `import pdnn` is to be quick

        before, alone = self._line - 1, False
        rows = reader(self._lines, delimiter=self._delimiter, skipinitialspace=True, strict=True)
        try:
            for row in rows:
                line, self._line = self._line, before + rows.line_num + 1
                if row and (row[0] or len(row) > 1 or alone) and not (line == 1 and row == ["sep=", ""]):
                    yield line, row
                    alone = len(row) == 1  # then "" is a missing number
        except Error as error:
            where = f"{self._path}, line {self._line}"
            raise ValueError(
                f"{where}: no text in columns ({error}); is each quotation mark closed?"
            ) from error

    def plain(self, width: int, places: Sequence[int], texts: Sequence[int]) -> PlainRows | None:
        """The next rows, if each of them has so many columns, numbers at these places, and nothing is quoted.

        From the first that is otherwise on it is None, and to iterate gives all that are left.
        """
        if not self._plain or width < 2:
            return None
        block = list(islice(self._lines, BLOCK))
        found = plain_rows(block, self._delimiter, width, places, texts) if block else None
        if found is None:
            self._plain = False
            self._lines = chain(block, self._lines)
            self._rows = self._read()
            return None
        begin = self._line
        self._line += len(block)
        return PlainRows(*found, range(begin, self._line))
