"""Standardized tables on a command line: inputs, and numbers to predict, of mean 0 and variance 1."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from pdnn import nn
from pdnn.cli.tables import FOR_NUMBERS, Table, for_numbers

if TYPE_CHECKING:
    import pdnn
    from pdnn.data import Dataset, Subset
    from pdnn.data.checks import Array

FARTHEST = {"float32": 1e5, "float64": 1e13, "bfloat16": 25}
"""Deviations between the mean of an input and 0, up to which a model of a dtype can standardize it: numbers
are then rounded by up to 0.006, 0.001 and 0.1 of a deviation."""

MOST = {"float32": 1e30, "float64": 1e300, "bfloat16": 1e30}
"""The largest mean or deviation of an input, and one over the smallest deviation, that weights can hold."""

FAR = 100.0
"""Mean or deviation of targets from which a network that begins near 0 may need to be told of them."""


class Standardization:
    """Inputs of mean 0 and variance 1 over the rows of a data set; one that is constant there becomes 0.

    Parameters
    ----------
    data : Dataset or Subset
        Of floats, shape (n, features).

    Raises
    ------
    ValueError
        If its samples are something else, or there are none.
    """

    def __init__(self, data: Dataset | Subset) -> None:
        from pdnn.data.dataset import parts_of

        whole, rows = parts_of(data)
        if whole.x.ndim != 2 or whole.x.dtype.kind != "f":
            raise ValueError(f"--standardize is for tables of numbers, these are {whole!r}")
        if not len(rows):
            raise ValueError("--standardize: the training data have no rows")
        # rounding may give a constant a deviation above 0; divided by infinity, it counts nothing
        self.moments = Moments.of(whole.x[rows], constant=np.inf)
        self.columns = whole.columns or [str(column) for column in range(whole.x.shape[1])]

    def check(self, dtype: str) -> None:
        """Raises ValueError if a model of this dtype cannot tell the numbers of a column apart `within`."""
        mean, deviation = self.moments
        constant = np.isinf(deviation)
        outside = self.moments.beyond(MOST[dtype]) & ~constant  # that counts nothing
        if dtype != "float64":
            outside |= np.abs(mean) > 3e38  # infinite there, and 0 times infinity is NaN
        if outside.any():
            column = int(outside.argmax())
            raise ValueError(
                f'--standardize: column "{self.columns[column]}" has mean {mean[column]:.3g} and '
                f"deviation {deviation[column]:.3g}, beyond the range of a saved model of {dtype} "
                "numbers; multiply the column of the table"
            )
        far = np.abs(mean) / deviation
        if (far > FARTHEST[dtype]).any():
            column = int(far.argmax())
            way_out = "" if dtype == "float64" else "take --dtype float64, or "
            raise ValueError(
                f'--standardize: column "{self.columns[column]}" has mean {mean[column]:.9g} and '
                f"deviation {deviation[column]:.3g}, too close together for a saved model of {dtype} "
                f"numbers; {way_out}subtract a number near the mean from the column of the table"
            )

    def apply(self, *parts: Dataset | Subset | None) -> None:
        """Changes the samples of these data sets."""
        mean, deviation = self.moments
        for whole in _wholes(parts):
            whole.x = ((whole.x - mean) / deviation).astype(whole.x.dtype)

    def within(self, model: nn.Sequential) -> nn.Sequential:
        """A copy of a model that takes samples as they were: its first layer shifts and scales them.

        With z = (x - mean) / deviation, z w + b = x (w / deviation) + (b - (mean / deviation) w).
        """
        model = deepcopy(model)
        mean, deviation = self.moments
        weight, bias, *_ = model.parameters()  # of a Linear: nothing else takes samples of one dimension
        scaled = weight.data / deviation[:, np.newaxis]
        bias.data = bias.data - mean @ scaled
        weight.data = scaled
        return model


class Moments(NamedTuple):
    """Mean and deviation of each column."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, values: Array, constant: float) -> Moments:
        """Those over the rows; the deviation is `constant` where values are."""
        values = values.astype(np.float64)
        varies = values.max(axis=0) > values.min(axis=0)
        power = np.frexp(np.abs(values).max(axis=0))[1]  # squares may overflow, or become 0
        scaled = np.ldexp(values, -power)
        mean, deviation = (np.ldexp(each, power) for each in (scaled.mean(axis=0), scaled.std(axis=0)))
        return cls(mean, np.where(varies, deviation, constant))

    def beyond(self, most: float) -> Array:
        """Which means and deviations are larger than `most`, or deviations smaller than 1 / most."""
        return (np.maximum(np.abs(self.mean), self.deviation) > most) | (self.deviation < 1 / most)

    def digest(self) -> str:
        """The same for the same numbers."""
        return f"{crc32(np.stack(self).tobytes()):08x}"

    @property
    def far(self) -> bool:
        """Whether a network that begins near 0 has far to go."""
        return bool((np.maximum(abs(self.mean), self.deviation) > FAR).any())

    def __str__(self) -> str:
        mean, deviation = (", ".join(f"{each:.4g}" for each in np.ravel(values)) for values in self)
        return f"mean {mean}, deviation {deviation}"


def target_moments(data: Dataset | Subset) -> Moments:
    """Those of the targets of a data set, shape () or (targets,); a constant one is shifted only."""
    from pdnn.data.dataset import parts_of

    whole, rows = parts_of(data)
    return Moments.of(whole.y[rows], constant=1.0)


class TargetStandardization:
    """Targets of mean 0 and variance 1 over the rows of a data set; one that is constant there becomes 0.

    Parameters
    ----------
    data : Dataset or Subset
    loss : Loss
    model : nn.Sequential

    Attributes
    ----------
    moments : Moments
        Before.

    Raises
    ------
    ValueError
        If there are none, the loss or the end of the model is for other targets, or they are beyond the
        range of the saved model.
    """

    def __init__(self, data: Dataset | Subset, loss: nn.Loss, model: nn.Sequential) -> None:
        if not for_numbers(loss):
            raise ValueError(f"--standardize-target is for --loss {', '.join(FOR_NUMBERS)}, not {loss!r}")
        if not (isinstance(model[-1], nn.Linear) and len([*model[-1].parameters()]) == 2):
            raise ValueError(f"--standardize-target needs a model that ends in a Linear with bias: {model!r}")
        if not len(data):
            raise ValueError("--standardize-target: the training data have no rows")
        self.moments = target_moments(data)
        if self.moments.beyond(MOST[model.dtype]).any():
            raise ValueError(
                f"--standardize-target: the targets have {self.moments}, beyond the range of a saved model "
                f"of {model.dtype} numbers; multiply them"
            )
        self._were: list[tuple[Dataset, Array]] = []

    def apply(self, *parts: Dataset | Subset | None) -> None:
        """Changes the targets of these data sets."""
        for whole in _wholes(parts):
            self._were.append((whole, whole.y))
            whole.y = (whole.y - self.moments.mean) / self.moments.deviation

    def undo(self, model: nn.Sequential) -> None:
        """Gives the data sets their targets back, and lets the last layer of the model predict such."""
        for whole, targets in self._were:
            whole.y = targets
        mean, deviation = self.moments
        *_, weight, bias = model.parameters()
        weight.data = weight.data * deviation
        bias.data = bias.data * deviation + mean


def _wholes(parts: Iterable[Dataset | Subset | None]) -> Iterable[Dataset]:
    """The data sets that these are parts of, each once."""
    from pdnn.data.dataset import parts_of

    wholes = (parts_of(part)[0] for part in parts if part is not None)
    return {id(whole): whole for whole in wholes}.values()


def standardize_target(
    arguments: argparse.Namespace,
    trainer: pdnn.Trainer,
    train: Dataset | Subset,
    *others: Dataset | Subset | None,
) -> TargetStandardization | None:
    """Standardizes the targets if that is asked for; tells what they are, or that they should be."""
    told = trainer.comm.rank == 0 and not arguments.quiet
    if not arguments.standardize_target:
        numbers = isinstance(arguments.data, Table) and for_numbers(trainer.loss)
        if told and numbers and len(train) and (moments := target_moments(train)).far:
            print(f"target: {moments}; --standardize-target trains on numbers near 0")
        return None
    targets = TargetStandardization(train, trainer.loss, trainer.model)
    trainer.notes["targets of the means and deviations"] = targets.moments.digest()
    targets.apply(train, *others)
    if told:
        print(f"target: {targets.moments}; epochs are told of targets of mean 0 and deviation 1")
    return targets
