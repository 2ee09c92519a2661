"""What options take: numbers in range, files that can be written; else exit code 2 and a sentence."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeAlias


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def positive_float(text: str) -> float:
    """A finite number above 0."""
    number = _finite(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def non_negative_float(text: str) -> float:
    """A finite number of at least 0."""
    number = _finite(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def share(text: str, expected: str) -> float:
    """A number between 0 and 1; `expected` ends the sentence about others."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is {expected}")
    return number


def output(text: str) -> str:
    """A file that can be written; what cannot is said before the work, not after it."""
    folder, name = os.path.split(os.path.realpath(text) if os.path.islink(text) else text)
    if not os.path.isdir(folder or "."):
        raise argparse.ArgumentTypeError(f"{text}: there is no such folder")
    if not name or os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; expected a file")
    if os.path.exists(text) and not os.path.isfile(text):
        return text  # a device or a pipe
    from tempfile import TemporaryFile

    try:
        with suppress(FileNotFoundError):
            os.stat(text)  # a name may be too long
        TemporaryFile(dir=folder or ".").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: nothing can be written there ({error.strerror})") from None
    return text


def model_file(text: str) -> str:
    """A file for a model, which is written as safetensors."""
    if text.lower().endswith((".onnx", ".c")):
        raise argparse.ArgumentTypeError(
            f"{text!r} names another format; expected .safetensors, of which pdnn export makes .onnx and .c"
        )
    return output(text)


Files: TypeAlias = "Mapping[str, str | os.PathLike[str] | None]"
"""By what they are on the command line."""


def distinct(arguments: argparse.Namespace, written: Files, read: Files | None = None) -> None:
    """Refuses to write one file for two things, or in the place of what is read: that would be lost."""
    names = {os.path.realpath(file): name for name, file in (read or {}).items() if file is not None}
    for name, file in written.items():
        if file is not None:
            before = names.setdefault(os.path.realpath(file), name)
            if before != name:
                arguments.error(f"{before} and {name} are the same file, {file}")


def can_draw(parser: argparse.ArgumentParser) -> None:
    """Ends a program that draws, before its work, where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        parser.exit(2, f"{parser.prog}: matplotlib is missing; pip install matplotlib\n")
    except OSError as error:  # it finds no folder for its cache
        parser.exit(2, f"{parser.prog}: matplotlib cannot be loaded: {error}\n")


def picture(text: str) -> str:
    """A file for a picture, with an ending that names a format."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ModuleNotFoundError:
        raise argparse.ArgumentTypeError("matplotlib is missing; pip install matplotlib") from None
    except OSError as error:  # it finds no folder for its cache
        raise argparse.ArgumentTypeError(f"matplotlib cannot be loaded: {error}") from None
    known, ending = FigureCanvasBase.get_supported_filetypes(), os.path.splitext(text)[1]
    if ending[1:] and ending[1:].lower() not in known:
        raise argparse.ArgumentTypeError(
            f"{text!r} ends in none of {', '.join(f'.{each}' for each in known)}"
        )
    if text and not ending[1:] and not os.path.isdir(text):
        text = f"{text.rstrip('.')}.png"  # as matplotlib names it
    return output(text)


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number
