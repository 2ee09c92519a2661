"""Progress: a bar on a terminal (with tqdm), elsewhere a line an epoch."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from math import inf
from typing import Any


def bar_wanted() -> bool:
    """Whether a bar of progress can be drawn: on a terminal, in a process that is no rank, with tqdm."""
    launched = any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))
    terminal = getattr(sys.stderr, "isatty", bool)()  # no stream at all where standard error is closed
    return terminal and not launched and find_spec("tqdm") is not None


def say(text: str) -> None:
    """Prints a line at once, with ? for what standard output can't encode: no training may end for that."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


def rounded(value: float) -> str:
    """A loss or another measured value with four decimals, unless they would say nothing of it."""
    return f"{value:.3e}" if 0 < abs(value) < 5e-4 or 1e6 <= abs(value) < inf else f"{value:.4f}"


class Progress:
    """Shows epochs as they pass, on the first rank only.

    Parameters
    ----------
    shown : bool
        False: says nothing.
    epochs, steps : int
        Epochs to come, and steps of each.
    """

    def __init__(self, shown: bool, first_epoch: int, epochs: int, steps: int) -> None:
        self.shown = shown
        self.first_epoch = first_epoch
        self.epochs = epochs
        self.steps = steps
        self.bar_wanted = shown and bar_wanted()
        self._bar: Any = None

    def start_epoch(self, epoch: int) -> None:
        """An epoch begins."""
        if self.bar_wanted:
            from tqdm import tqdm

            self._bar = tqdm(
                total=self.steps, desc=self._name(epoch), unit="step", leave=False, dynamic_ncols=True
            )

    def at_step(self, step: int, loss: float) -> None:
        """So many steps of the epoch are done."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {rounded(loss)}", refresh=False)
            self._bar.update(step - self._bar.n)

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        """An epoch is over."""
        self.close()
        if self.shown:
            values = "  ".join(
                f"{name} {rounded(value)}" for name, value in logs.items() if name != "seconds"
            )
            say(f"{self._name(epoch)}  {values}  {logs['seconds']:.2f} s")

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _name(self, epoch: int) -> str:
        return f"epoch {epoch + 1}/{self.first_epoch + self.epochs}"
