"""Drawing: empty figures, of a library that need not be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(where: str, **options: Any) -> Figure:
    """A matplotlib figure with these options, made without pyplot: nothing stays open.

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
    return Figure(**options)
