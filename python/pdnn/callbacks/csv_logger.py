"""CSVLogger: a line for each epoch."""

from __future__ import annotations

import io
import os

from pdnn.callbacks.base import Callback
from pdnn.checks import flag
from pdnn.files.atomic import named
from pdnn.trainer import Trainer


class CSVLogger(Callback):
    """Writes a line for each epoch to a CSV file, on rank 0: its number, from 1, and its values.

    Each line is in the file when its epoch is over. That of an epoch which ranks repeat after the death of
    another one is replaced; if rank 0 has died, it may be there twice.

    Parameters
    ----------
    path : path
        A relative one counts from the working directory of now.
    append : bool
        Whether lines are added to a file that is there; otherwise each fit begins a new one.
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path = os.path.abspath(path)  # of a number, which would be an open file's, an error
        self.append = flag(self, "append", append)
        self._last = -1, 0  # the last line's epoch, and where it begins

    def on_train_begin(self, trainer: Trainer) -> None:
        """Begins a new file, or a new line of one to append to."""
        self._last = -1, 0
        if trainer.comm.rank == 0:
            device = os.path.exists(self.path) and not (os.path.isfile(self.path) or os.path.isdir(self.path))
            if device and os.path.realpath(self.path) != os.devnull:
                raise ValueError(f"CSVLogger: {self.path} is no regular file, which alone can be read again")
            with open(self.path, "ab+" if self.append else "wb+") as file:
                if file.seek(0, os.SEEK_END) > 0:
                    file.seek(-1, os.SEEK_END)
                    file.write(b"" if file.read() == b"\n" else b"\n")

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float]) -> None:
        """Adds the epoch's line.

        Raises
        ------
        ValueError
            If the file has other columns.
        """
        if trainer.comm.rank != 0:
            return
        import csv

        with named(self.path), open(self.path, "a+", encoding="utf-8", newline="") as file:
            if self._last[0] == epoch:
                file.truncate(self._last[1])
            self._last = epoch, file.seek(0, os.SEEK_END)
            file.seek(0)
            names, columns = next(csv.reader(file), []), ["epoch", *logs]
            if names and names != columns:
                raise ValueError(f"CSVLogger: {self.path} has the columns {names}, this fit has {columns}")
            text = io.StringIO()
            lines = csv.writer(text, lineterminator="\n")
            lines.writerows([] if names else [columns])
            lines.writerow([epoch + 1, *logs.values()])
            file.write(text.getvalue())  # in one piece
