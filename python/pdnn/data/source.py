"""Source: a data set as the core reads it, for a model and its loss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pdnn.checks import kind_of
from pdnn.core import array_dtype
from pdnn.data.blocks import blocks_of
from pdnn.data.checks import Array, Indices, digest
from pdnn.data.containers import to_samples
from pdnn.data.dataset import Dataset, Subset, parts_of
from pdnn.data.sparse import core_source, dense_rows, is_sparse
from pdnn.nn.targets import prepare_rows, target_width

if TYPE_CHECKING:
    from pdnn.nn.loss import Loss
    from pdnn.nn.sequential import Sequential

Data: TypeAlias = Dataset | Subset | tuple[npt.ArrayLike, npt.ArrayLike]
Scale: TypeAlias = tuple[float, float]
Method = TypeVar("Method", bound=Callable[..., Any])

AS_THEY_ARE: Scale = (1.0, 0.0)
"""The scale and the shift of integers that mean themselves."""


def epochs_may_come_second(method: Method) -> Method:
    """Lets ``fit(data, 3)`` mean ``fit(data, None, 3)``: a number is no labels."""

    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        if len(args) > 2 and isinstance(args[2], (int, np.integer)):  # after self and data
            args = (*args[:2], None, *args[2:])
        return method(*args, **options)

    return call  # type: ignore[return-value]


@dataclass
class Source:
    """A data set as the core reads it.

    Attributes
    ----------
    core : object of the core
        Gathers batches by row number.
    rows : ndarray of int64
        Those that belong.
    width : int
        Values of a target; 0 for classes.
    sample : tuple of int
    dataset : Dataset
        Whose rows they are.
    arrays : (raw samples, targets, scale, shift, weights or None)
    converted : str
        What was converted of what was given, in words.
    """

    core: Any
    rows: Indices
    width: int
    sample: tuple[int, ...]
    dataset: Dataset
    arrays: tuple[Array, Array, float, float, Array | None]
    converted: str

    @property
    def scale(self) -> Scale | None:
        """What integers are multiplied by and what is added then; None of floats."""
        return self.arrays[2:4] if self.dataset.integers else None

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.arrays[4] is not None

    def shuffled(self, shuffle: bool) -> bool | str:
        """Whether rows are taken in another order, and if they stay together in blocks, in which."""
        return shuffle and (self.dataset.blocks or True)

    def digest(self) -> str:
        """Of some rows, evenly spread, with their targets, weights and scale."""
        samples, targets, scale, shift, weights = self.arrays
        rows = digest(self.rows, samples, targets, weights)
        return f"{crc32(np.array([scale, shift]).tobytes(), rows):08x}"

    def advice(self) -> str:
        """What to do about a loss that is not finite."""
        return self.row_not_finite() or "Look for such values in the data, lower the learning rate or clip"

    def row_not_finite(self) -> str:
        """Names a row in memory that has such a number; empty if none is found."""
        in_memory = type(self) is Source and type(self.dataset) is Dataset
        for name, array in zip("xy", self.arrays[:2], strict=True):
            if not in_memory or array.dtype.kind != "f":
                continue
            if is_sparse(array) and np.isfinite(array.data).all():
                continue
            few = max(1, 2**22 // max(prod(array.shape[1:]), 1))
            for begin in range(0, len(self.rows), few):
                rows = self.rows[begin : begin + few]
                values = dense_rows(array, rows)
                if len(found := np.argwhere(~np.isfinite(values))):
                    first, *place = found[0].tolist()
                    column = f"column {place[0]}" if len(place) == 1 else f"place {tuple(place)}"
                    value = values[first][tuple(place)]
                    return f"Row {rows[first]} of {name} has {value} in {column}: fill it, or leave it out"
        return ""

    def __len__(self) -> int:
        return len(self.rows)


def data_of(where: str, data: Data | npt.ArrayLike, y: npt.ArrayLike | None = None) -> Dataset | Subset:
    """The data set that was passed as itself, as ``(x, y)``, or as x and y; messages begin with `where`.

    Raises
    ------
    TypeError, ValueError
        If it is none of these, or no data set can be made of x and y.
    """
    if y is not None:
        return Dataset(data, y)  # type: ignore[arg-type]
    if isinstance(data, tuple) and len(data) == 2:
        return Dataset(*data)
    if not isinstance(data, (Dataset, Subset)):
        loader = isinstance(getattr(data, "dataset", None), (Dataset, Subset))
        raise TypeError(
            f"{where}: got {kind_of(data)}{f' of {len(data)}' if isinstance(data, tuple) else ''}, expected "
            "a Dataset, which takes weight= too, a Subset, (x, y), or x and y"
            f"{'; pass its .dataset' if loader else ''}{blocks_of(data)}"
        )
    return data


def classes_of(data: Dataset | Subset) -> Array | None:
    """The names of its classes, where its labels came as names."""
    return parts_of(data)[0].classes


def source_of(
    where: str, data: Dataset | Subset, model: Sequential, loss: Loss, classes: Array | None
) -> Source:
    """A source of batches for training or evaluating a model.

    Parameters
    ----------
    where : str
        Begins the messages.
    data : Dataset or Subset
    model : nn.Sequential
    loss : Loss
    classes : ndarray of str, or None
        The names of the model's classes, where it knows them.

    Raises
    ------
    TypeError, ValueError
        If the samples do not fit the model or the labels its outputs; if a name is none of `classes`.
    """
    whole, rows = parts_of(data)
    outputs, dtype = prod(model.output_shape(whole.sample_shape)), array_dtype(model.dtype)

    def prepared(own: Any) -> tuple[Array, Array | None]:
        y, weight = whole.y[own], None if whole.weight is None else whole.weight[own]
        y = y if whole.classes is None else _numbers(where, whole.classes, y, loss, outputs, classes)
        return prepare_rows(where, y, weight, loss, outputs, dtype)

    targets, weights = (
        _spread(prepared, rows, len(whole), whole.y.dtype.kind == "f")
        if isinstance(data, Subset)
        else prepared(slice(None))
    )
    arrays = whole.x, targets, whole.scale, whole.shift, weights
    core = core_source(model.dtype, *arrays)
    return Source(core, rows, target_width(targets), whole.sample_shape, whole, arrays, whole.converted)


def refuse_raw(where: str, source: Source, trained: Scale | None) -> None:
    """Raises ValueError if integers mean themselves, and those that were trained on were scaled."""
    if source.scale == AS_THEY_ARE and trained not in (None, AS_THEY_ARE):
        raise ValueError(
            f"{where}: x has integers as they are, but those that were trained on have "
            f"scale={trained[0]:.6g} and shift={trained[1]:.6g}; pass Dataset(x, y, scale=…, shift=…) with "
            "the same"
        )


def samples_of(where: str, x: Any, dtype: str, plain: bool) -> tuple[Any, Indices]:
    """A source of samples without labels, and the numbers of its rows.

    Parameters
    ----------
    where : str
        Begins the messages.
    x : Dataset, Subset, or samples as a Dataset takes them
    dtype : "float32", "float64" or "bfloat16"
    plain : bool
        Whether integers are known to mean themselves, and not something that a Dataset would scale.

    Raises
    ------
    TypeError, ValueError
        If x is no such thing; if it has integers and is not `plain`.
    """
    if isinstance(x, (Dataset, Subset)):
        whole, rows = parts_of(x)
        raw, scale, shift = whole.x, whole.scale, whole.shift
    else:
        raw, scale, shift = to_samples(where, x, plain).array, 1.0, 0.0
        rows = np.arange(raw.shape[0])
    return core_source(dtype, raw, scale=scale, shift=shift), rows


def _spread(
    prepared: Callable[[Any], tuple[Array, Array | None]], rows: Indices, count: int, whole: bool
) -> tuple[Array, Array | None]:
    """Targets and weights of so many rows of which only these have to be prepared; others may be 0.

    `whole`: all are tried first, whatever their number.
    """
    if whole or 4 * len(rows) > count:  # all, which may need no copy, unless one of the others is wrong
        with suppress(TypeError, ValueError):
            return prepared(slice(None))

    def spread(own: Array) -> Array:
        every = np.zeros((count, *own.shape[1:]), own.dtype)
        every[rows] = own
        return every

    targets, weights = prepared(rows)
    return spread(targets), None if weights is None else spread(weights)


def _numbers(
    where: str, names: Array, codes: Array, loss: Loss, outputs: int, classes: Array | None
) -> Array:
    """The class numbers of labels that came as names, by their codes, as the model counts its classes."""
    if not loss.takes_classes:
        raise TypeError(f"{where}: labels are names of classes, {type(loss).__name__} compares numbers")
    if classes is None:
        raise ValueError(
            f"{where}: labels are names, and no fit has told the model's classes; pass class numbers"
        )
    order = np.argsort(classes)
    places = order[np.minimum(np.searchsorted(classes, names, sorter=order), len(classes) - 1)]
    used = np.bincount(codes, minlength=len(names)) > 0
    unknown = names[used & (classes[places] != names)]
    if len(unknown):
        known = ", ".join(map(repr, classes[:8].tolist())) + ", …" * (len(classes) > 8)
        raise ValueError(f"{where}: label {str(unknown[0])!r} is none of the classes trained on: {known}")
    if len(classes) > max(outputs, 2):
        raise ValueError(f"{where}: labels have {len(classes)} names, the model {outputs} outputs")
    return places[codes]
