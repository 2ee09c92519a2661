"""The sheets of the course: which there are, what `new` writes, and which sheet a student's file is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pdnn.course.notebook import code_cells, to_notebook
from pdnn.files.atomic import replacing

_FOLDER = Path(__file__).parent / "sheets"


@dataclass(frozen=True)
class Sheet:
    """A sheet.

    Attributes
    ----------
    number : int
        Its place in the course, from 1.
    name : str
        What the command line takes, such as ``"backprop"``.
    title : str
        Its heading.
    minutes : int
        How long a student works on it, about.
    """

    number: int
    name: str
    title: str
    minutes: int

    @property
    def stem(self) -> str:
        """The name of its files, without the ending."""
        return f"{self.number}_{self.name}"

    @property
    def names(self) -> tuple[str, str, str]:
        """How it may be called."""
        return self.name, str(self.number), self.stem

    @property
    def source(self) -> str:
        """The text of the script: cells that begin with ``# %%``. The notebook is made of it."""
        return (_FOLDER / f"{self.stem}.py").read_text(encoding="utf-8")


SHEETS = (
    Sheet(1, "backprop", "Backpropagation", 60),
    Sheet(2, "pool", "A thread pool", 75),
    Sheet(3, "scatter", "Scatter and gather", 75),
    Sheet(4, "averaging", "Averaging and Hogwild", 75),
    Sheet(5, "ddp", "Data parallel by hand, with hooks", 75),
    Sheet(6, "pipeline", "A pipeline, and fewer bytes", 90),
    Sheet(7, "ring", "A ring, and a schedule of your own", 75),
)
"""All sheets, in the order of the course."""


def find(name: str) -> Sheet:
    """The sheet of a name, a number or both.

    Raises
    ------
    ValueError
        If there is none.
    """
    for sheet in SHEETS:
        if name in sheet.names:
            return sheet
    names = ", ".join(f"{sheet.number} {sheet.name}" for sheet in SHEETS)
    raise ValueError(f"there is no sheet {name!r}; the sheets are {names}")


def new(sheet: Sheet, folder: Path) -> list[Path]:
    """Writes the blank sheet into a folder, as a script and as a notebook.

    Parameters
    ----------
    sheet : Sheet
    folder : Path
        Made if it is not there.

    Returns
    -------
    list of Path
        The script and the notebook.

    Raises
    ------
    FileExistsError
        If one of them is there already; then nothing is written.
    """
    script, notebook = folder / f"{sheet.stem}.py", folder / f"{sheet.stem}.ipynb"
    for path in (script, notebook):
        if path.exists():
            raise FileExistsError(f"{path} is there already, and stays as it is; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    texts = sheet.source, json.dumps(to_notebook(sheet.source), indent=1) + "\n"
    for path, text in zip((script, notebook), texts, strict=True):
        with replacing(path) as file:
            file.write(text.encode())
    return [script, notebook]


def sheet_of(path: Path) -> Sheet:
    """The sheet that a student's file is: by the file's name, or by the marker ``SHEET`` in its code.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is neither a script nor a notebook, or no sheet of this course.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; pdnn course new NAME writes a sheet")
    code = "\n".join(code for _, code in code_cells(path))
    for sheet in SHEETS:
        marker = rf"""^\s*SHEET\s*=\s*["']{sheet.name}["']"""
        if sheet.stem in path.stem or re.search(marker, code, re.MULTILINE):
            return sheet
    raise ValueError(
        f'{path}: neither its name nor a line SHEET = "NAME" says which sheet it is; '
        f"name it like {SHEETS[0].stem}{path.suffix}"
    )


def solved(name: str, folder: Path) -> Path:
    """A student's file, or of the sheet of this name or number the one in a folder that was saved last.

    Raises
    ------
    ValueError
        If it is a sheet's, and there is none in the folder.
    """
    named = [sheet for sheet in SHEETS if name in sheet.names]
    if Path(name).exists() or not named:
        return Path(name)
    there = [path for path in files_in(folder) if path.stem == named[0].stem]
    if not there:
        stem = named[0].stem
        raise ValueError(f"there is no {stem}.py or {stem}.ipynb here; pdnn course new {name} writes them")
    return there[0]


def files_in(folder: Path) -> list[Path]:
    """A student's files in a folder: of each sheet the script or the notebook, whichever was saved last."""
    found = []
    for sheet in SHEETS:
        both = [folder / f"{sheet.stem}{suffix}" for suffix in (".py", ".ipynb")]
        there = [path for path in both if path.is_file()]
        if there:
            found.append(max(there, key=lambda path: path.stat().st_mtime_ns))
    return found
