"""Tables in CSV files: numbers to learn from, and one or more columns to predict."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import index
from typing import SupportsIndex, TypeAlias, overload

import numpy as np

from pdnn._core import numbers
from pdnn.data import Dataset
from pdnn.data.checks import Array
from pdnn.data.split import check_draw, drawn
from pdnn.datasets.csv_rows import BLOCK, Rows
from pdnn.datasets.csv_words import (
    MISSING,
    are_names,
    few,
    first_difference,
    is_alone,
    is_number,
    no_number,
    quoted,
    unnamed,
)
from pdnn.datasets.parts import both

Columns: TypeAlias = "str | int | Sequence[str | int]"

NUMBER = re.compile("-?[0-9]{1,9}")
"""A word that may be the number of a column."""

DELIMITERS = ("\t", ";", "|", ",", " ")
"""Tried in this order: the first that divides the first lines into as many columns each, at least 2."""


@overload
def csv(
    path: str | os.PathLike[str],
    train: None = None,
    *,
    target: Columns = -1,
    weight: str | int | None = None,
    test: float | str | os.PathLike[str] = 0.25,
    seed: int = 0,
    header: bool | None = None,
) -> tuple[Dataset, Dataset]: ...
@overload
def csv(
    path: str | os.PathLike[str],
    train: bool,
    *,
    target: Columns = -1,
    weight: str | int | None = None,
    test: float | str | os.PathLike[str] = 0.25,
    seed: int = 0,
    header: bool | None = None,
) -> Dataset: ...


def csv(
    path: str | os.PathLike[str],
    train: bool | None = None,
    *,
    target: Columns = -1,
    weight: str | int | None = None,
    test: float | str | os.PathLike[str] = 0.25,
    seed: int = 0,
    header: bool | None = None,
) -> Dataset | tuple[Dataset, Dataset]:
    """A table of numbers in a text file, one sample a line.

    Columns are divided by commas, semicolons, tabs, bars or spaces; which, the first lines tell.

    Parameters
    ----------
    path : path
        Text in UTF-8. The first line may have the names of the columns.
    train : bool, optional
        Only that part.
    target : str or int, or several
        The columns to predict, by name or number (from 0; -1 is the last); "2" is a number where no column
        has that name. One column of whole numbers, without decimal points, gives class numbers or counts, of
        other numbers targets, of words the names of classes (one may be "none"); several columns are numbers.
        All other columns are the samples. ``()``: there is nothing to predict, and y is 0.
    weight : str or int, optional
        The column that says what each row counts in losses, numbers from 0; it is no part of the samples.
    test : float or path
        The share of the rows, drawn at random, that is the test set (the rows of `train_test_split`; with 0
        or 1 all are in the order of the file), or another file with the same columns.
    seed : int from 0 to 2**32 - 1
        Of that draw.
    header : bool, optional
        Whether the first line has names; unless given it has if none of its fields is a number. Where those
        that are numbers are 0, 1, 2, …, or years in order beside a word, it must be given, as where the
        first line alone has a class of its own.

    Returns
    -------
    Dataset, or (train, test)
        x: float64, shape (n, columns). y: int64, float64 or class numbers of names, shape (n,), or float64,
        shape (n, targets).

    Raises
    ------
    TypeError
        If header is no bool, test no share or file, the seed no integer, or a column is neither a name nor a
        number.
    ValueError
        If the share or the seed is out of range. With the file's name and the line, if a number is missing or
        a word, a line has another number of columns, or a quotation mark is not closed; if there is no such
        column, or one of the samples has no name where others have.
    """
    if not isinstance(header, bool | np.bool_ | None):
        raise TypeError(f"{path}: header is {header!r}, expected True, False or None")
    if not isinstance(test, str | os.PathLike):
        check_draw(str(path), test, seed, "a share in [0, 1], or another file")
        table = _read(path, target, weight, header)
        order, held_out = drawn(len(table.x), test, seed)
        if held_out in (0, len(order)):
            order = np.arange(len(order))
        x, y, weights = table.x[order], _targets([table])[order], table.weights[order]
    else:
        other, table = (_read(file, target, weight, header) for file in (test, path))
        if other.names != table.names:
            raise ValueError(
                f"{test}: has the columns {few(other.names)}, {path} has {few(table.names)}, and number "
                f"{first_difference(other.names, table.names)} is the first that differs"
            )
        held_out = len(other.x)
        x, y = np.concatenate([other.x, table.x]), _targets([other, table])
        weights = np.concatenate([other.weights, table.weights])
    # One data set of both parts, so that class numbers are the same.
    whole = Dataset(x, y, weight=None if weight is None else weights)
    whole.columns = table.columns if table.header else None
    return both(str(path), train, lambda is_train: whole[held_out:] if is_train else whole[:held_out])


@dataclass(frozen=True)
class _Table:
    """What a file has: samples, their columns' names, weights, the texts of each target, the rows' lines.

    Where its first line is no `header`, names are numbers.
    """

    path: str
    header: bool
    names: list[str]
    columns: list[str]
    targets: list[int]
    x: Array
    weights: Array
    texts: list[list[str]]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)


def _read(
    path: str | os.PathLike[str], target: Columns, weight: str | int | None, header: bool | None
) -> _Table:
    from csv import Error  # here, because `import pdnn` is to be quick

    with open(os.fspath(path), encoding="utf-8-sig", newline="") as file:  # a number would be an open file's
        try:
            alone = isinstance(target, Sequence) and not target
            if not file.seekable():
                raise ValueError(f"{path}: is a pipe, which can be read only once; write its table to a file")
            delimiter = _delimiter(path, list(islice(file, 20)), alone)
            file.seek(0)
            lines: Iterable[str] = (f"{line.strip()}\n" for line in file) if delimiter == " " else file
            return _table(str(path), Rows(str(path), lines, delimiter), target, weight, header)
        except Error as error:
            raise ValueError(f"{path}: no text in columns ({error})") from error
        except UnicodeDecodeError as error:
            told = 'save it so, in Excel as "CSV UTF-8"'
            if error.object[:2] == b"\x1f\x8b":
                told = "it is compressed by gzip: unpack it"
            elif error.object[:4] == b"PK\x03\x04":
                told = "it is a zip archive, which must be unpacked, or a workbook, to be saved as CSV UTF-8"
            raise ValueError(f"{path}: no text in columns in UTF-8 ({error}); {told}") from error


def _table(path: str, rows: Rows, target: Columns, weight: str | int | None, header: bool | None) -> _Table:
    first_line, first = next(rows, (1, list[str]()))
    guessed = header is None
    if header is None:
        header = not _has_numbers(path, first)
    names = [name.strip() for name in first] if header else [str(place) for place in range(len(first))]
    targets = _places(path, names, "target", target, header)
    last = [] if weight is None else _places(path, names, "weight", [weight], header)
    if set(last) & set(targets):
        raise ValueError(
            f"{path}: column {quoted(names[last[0]])} is both target and weight; name the target"
        )
    samples = [place for place in range(len(names)) if place not in (*targets, *last)]
    if not samples:
        line, words = next(rows, (first_line, first))
        if len(words) != len(names):  # the first line is none of the table's
            raise _first_refused(path, [(line, words)], names, [])
        raise ValueError(f"{path}: all of the columns {few(names)} are targets or weights; no sample is left")
    if nameless := [place for place in samples if not names[place]]:
        raise unnamed(path, nameless[0])
    places = [*samples, *last]
    values, lines, texts = list[Array](), array("q"), [list[str]() for _ in targets]

    def add(block: list[tuple[int, list[str]]]) -> None:
        try:
            if {len(words) for _, words in block} != {len(names)}:
                raise ValueError
            values.append(numbers([words[place] for _, words in block for place in places]))
        except ValueError:
            raise _first_refused(path, block, names, places) from None
        for column, place in zip(texts, targets, strict=True):
            column.extend([words[place].strip() for _, words in block])
        lines.extend([line for line, _ in block])

    if not header:
        add([(first_line, first)])
    while plain := rows.plain(len(names), places, targets):
        values.append(plain.values)
        for column, words in zip(texts, plain.texts, strict=True):
            column.extend([word.strip() for word in words])
        lines.extend(plain.lines)
    while block := list(islice(rows, BLOCK)):
        add(block)
    if not lines:
        raise ValueError(f"{path}: has no rows of numbers")
    for place, column in zip(targets, texts, strict=True):
        if not names[place] and not any(column):
            raise unnamed(path, place)
    if guessed and not header and len(texts) == 1 and is_alone(texts[0]):
        raise ValueError(
            f"{path}, line 1: is {quoted(texts[0][0])} the name of a class, which no other line has, or of "
            "the column, beside names that are numbers? Say header=True or False (--header yes or no)"
        )
    x = np.concatenate(values).reshape(len(lines), len(places))
    if not (finite := np.isfinite(x)).all():
        row, column = np.argwhere(~finite)[0]
        raise no_number(path, lines[row], names[places[column]], str(x[row, column]))
    weights = x[:, -1] if last else np.ones(len(x))
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise ValueError(
            f"{path}, line {lines[row]}: column {quoted(names[last[0]])} is {weights[row]:g}, expected a "
            "weight, a number from 0"
        )
    columns = [names[place] for place in samples]
    return _Table(path, header, names, columns, targets, x[:, : len(samples)], weights, texts, lines)


def _first_refused(
    path: str, rows: list[tuple[int, list[str]]], names: list[str], places: list[int]
) -> ValueError:
    """What is to be said of the first of these rows that can't be read."""
    for line, words in rows:
        if len(words) != len(names):
            return ValueError(f"{path}, line {line}: has {len(words)} columns, the first line {len(names)}")
        for place in places:
            if not is_number(words[place]):
                return no_number(path, line, names[place], words[place])
    raise AssertionError("one of them was refused")


def _has_numbers(path: str, first: list[str]) -> bool:
    """Whether some fields of the first line are numbers; raises ValueError if they may be names, too."""
    found = [word.strip() for word in first if is_number(word)]
    years = 1 < len(found) < len(first) and re.fullmatch("(19|20)[0-9]{2}", found[0])
    begin = int(found[0]) if years else 0
    if found and found == list(map(str, range(begin, begin + len(found)))):
        raise ValueError(
            f"{path}, line 1: are {', '.join(found[:3])}{' …' if len(found) > 3 else ''} the names of "
            f"columns, {'years' if years else 'as pandas writes where they have none'}, or numbers? Say "
            "header=True or False (--header yes or no)"
        )
    return bool(found)


def _delimiter(path: str | os.PathLike[str], lines: list[str], alone: bool) -> str:
    """What divides the columns; if one `alone` makes sense, there may be nothing to divide."""
    if told := re.match(r"sep=([\t;|,])\s*$", "".join(lines[:1])):  # for Excel
        return told[1]
    for delimiter in DELIMITERS:
        some = [line.rstrip("\r\n").strip(" ") for line in lines if line.strip()]
        widths = _widths(some, delimiter)
        if len(widths) == 1 and widths != {1}:
            return delimiter
    lines_with = {delimiter: sum(delimiter in line for line in lines) for delimiter in DELIMITERS[:-1]}
    delimiter = max(lines_with, key=lines_with.__getitem__)
    if lines_with[delimiter]:
        return delimiter  # the line that has other columns will be told
    if lines and alone:
        return ","
    if 2 * sum(" " in line.strip() for line in lines) > len(lines):
        return " "
    raise ValueError(f"{path}: has no columns divided by commas, semicolons, tabs, bars or spaces")


def _widths(lines: list[str], delimiter: str) -> set[int]:
    """The columns of these lines, of which the last may go on; none where quotation marks contradict."""
    from csv import Error, reader

    widths = set[int]()
    try:
        for row in reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True):
            if row:
                widths.add(len(row))
    except Error as error:
        return widths if "unexpected end" in str(error) else set()
    return widths


def _places(path: str, names: list[str], what: str, columns: Columns, header: bool) -> list[int]:
    """The numbers of the target columns, or of the weight's."""
    wanted = columns if isinstance(columns, Iterable) and not isinstance(columns, str) else [columns]
    found = []
    for column in wanted:
        if not isinstance(column, str | SupportsIndex) or isinstance(column, bool):
            none = "; () for none" if what == "target" else ""
            raise TypeError(f"{path}: {what} is {column!r}, expected the name or number of a column{none}")
        if isinstance(column, str) and not (header and column in names) and NUMBER.fullmatch(column):
            column = int(column)
        if isinstance(column, str):
            if not header or names.count(column) != 1:
                told = f"the columns {few(names)}" if header else f"{len(names)} columns without names"
                raise ValueError(f"{path}: no one column is named {few(column)}; it has {told}")
            found.append(names.index(column))
        elif -len(names) <= index(column) < len(names):
            found.append(index(column) % len(names))
        else:
            raise ValueError(f"{path}: there is no column {column}; it has {len(names)}, numbered from 0")
    if len(set(found)) < len(found):
        raise ValueError(f"{path}: {what} {columns!r} names a column twice")
    return found


def _targets(tables: list[_Table]) -> Array:
    """What the target columns have: integers, floats or names."""
    if not tables[0].targets:
        return np.zeros(sum(map(len, tables)), np.int64)
    single = len(tables[0].targets) == 1
    words = [word for table in tables for word in table.texts[0]]
    if single and are_names(words):
        return np.concatenate([_names(table) for table in tables])
    y = np.concatenate([_numbers(table) for table in tables])
    if single and all(word.lstrip("+-").isdecimal() for word in words) and np.abs(y).max() < 2**53:
        y = y.astype(np.int64)
    return y[:, 0] if single else y


def _names(table: _Table) -> Array:
    """The targets as names, objects of shape (n,)."""
    (words,) = table.texts
    for word in Counter(words):
        if is_number(word) or (word.lower() in MISSING and word.lower() != "none"):
            raise _refused(table, words.index(word), 0)
    return np.array(words, np.object_)


def _numbers(table: _Table) -> Array:
    """The targets as numbers, shape (n, targets)."""
    y = np.stack([_floats(words) for words in table.texts], axis=1)
    if not (finite := np.isfinite(y)).all():
        raise _refused(table, *np.argwhere(~finite)[0])
    return y


def _floats(words: list[str]) -> Array:
    """These as numbers, NaN where one is none."""
    try:
        return numbers(words)
    except ValueError:
        return np.array([float(word) if is_number(word) else np.nan for word in words])


def _refused(table: _Table, row: int, place: int) -> ValueError:
    return no_number(table.path, table.lines[row], table.names[table.targets[place]], table.texts[place][row])
