"""Scripts in cells (``# %%``, as editors and jupytext know them), and the notebooks that are made of them."""

from __future__ import annotations

import ast
import json
import re
import tokenize
import warnings
from pathlib import Path
from typing import Any

_OF_IPYTHON = re.compile(
    r"^([ \t]*)(?![ \t])(?=%%?\w|!(?!=)|\?|[\w.]+\?\??[ \t]*$|[\w, ]+= *(?:!|%\w))(?:.*\\\n)*.*", re.MULTILINE
)
"""Lines that are no Python, with those that they go on in: magics, commands of the shell, questions. An
operator that begins a line of Python, ``% n`` or ``!= n``, is none of them; nor is ``%n`` in a cell that is
Python as a whole."""
_PYTHON_BELOW = ("capture", "prun", "time", "timeit")
"""The magics of a cell below which it is Python."""


def cells(text: str) -> list[tuple[str, str]]:
    """The cells of a script.

    Parameters
    ----------
    text : str
        A cell begins with a line ``# %%``; with ``# %% [markdown]`` its lines are comments.

    Returns
    -------
    list of (str, str)
        ``"code"`` or ``"markdown"``, and the source without ``#`` before the lines of a text.
    """
    parts = re.split(r"^# %%( \[markdown\])?[ \t]*\n", text, flags=re.MULTILINE)
    found = [("code", parts[0].strip("\n"))]
    for marker, source in zip(parts[1::2], parts[2::2], strict=True):
        if marker:
            lines = [re.sub(r"^# ?", "", line) for line in source.strip("\n").splitlines()]
            found.append(("markdown", "\n".join(lines).strip("\n")))
        else:
            found.append(("code", source.strip("\n")))
    return [(kind, source) for kind, source in found if source]


def to_notebook(text: str) -> dict[str, Any]:
    """The notebook (nbformat 4.5) of a script in cells."""
    return {
        "cells": [_cell(number, kind, source) for number, (kind, source) in enumerate(cells(text))],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(number: int, kind: str, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": f"cell-{number:02}",
        "metadata": {},
        "source": source.splitlines(keepends=True),
    }
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def code_cells(path: Path) -> list[tuple[str, str]]:
    """The code of a student's file.

    Returns
    -------
    list of (str, str)
        Of a script ``("", source)``; of a notebook for each cell of code ``"cell N"``, N counting all
        cells from 1, and its source, in which lines that only IPython knows do nothing; a cell in another
        language is empty.

    Raises
    ------
    ValueError
        If it is neither a script nor a notebook.
    """
    try:
        if path.suffix == ".py":
            with tokenize.open(path) as script:  # in UTF-8, or as its first lines say
                return [("", script.read())]
        if path.suffix == ".ipynb":
            text = path.read_text(encoding="utf-8-sig")
            return [
                (f"cell {number}", _python("".join(cell["source"]).replace("\r\n", "\n")))
                for number, cell in enumerate(json.loads(text)["cells"], 1)
                if cell["cell_type"] == "code"
            ]
    except (LookupError, TypeError, ValueError, SyntaxError, RecursionError) as error:
        raise ValueError(
            f"{path}: is damaged ({type(error).__name__}: {error}); save it again, in UTF-8"
        ) from error
    raise ValueError(f"{path}: is neither a script (.py) nor a notebook (.ipynb)")


def _python(source: str) -> str:
    """What is Python in a cell of a notebook."""
    magic = re.match(r"\s*%%(\S+)", source)
    if magic and magic[1] not in _PYTHON_BELOW:
        return ""
    if indent := re.match(r"(?:[ \t]*\n)*([ \t]+)\S", source):  # taken off all lines
        source = re.sub(f"^{indent[1]}", "", source, flags=re.MULTILINE)
    if _is_python(source):
        return source
    return _OF_IPYTHON.sub(lambda line: f"{line[1]}pass" + "\n" * line[0].count("\n"), source)


def _is_python(source: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of strings with wrong escapes: told when they are run
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # a null byte; nested too deep
            return False
    return True
