"""Drawing: empty figures, of a library that need not be installed."""

from __future__ import annotations

import os
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pdnn.files.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(where: str, **options: Any) -> Figure:
    """A matplotlib figure with these options, made without pyplot: nothing stays open. Notebooks show it.

    Parameters
    ----------
    where : str
        Who draws, for the message of an error.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError(f"{where}: matplotlib is missing; pip install matplotlib") from error
    figure = Figure(**options)
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]  # for IPython without pyplot
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str] | IO[bytes], **options: Any) -> None:
    """Writes it as the end of the file's name says, or as PNG, whole or not at all; or to an open file.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If matplotlib has no such format.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        figure.savefig(path, **options)
        return
    file = Path(os.fsdecode(path))
    if not file.suffix:
        file = file.with_name(f"{file.name}.png")
    with replacing(file) as opened:
        figure.savefig(opened, format=file.suffix[1:], **options)


def _png(figure: Figure) -> bytes:
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
