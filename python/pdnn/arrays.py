"""Arrays: those of other libraries, and what lets these use the one inside an object without a copy."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def to_numpy(values: Any) -> Array:
    """A tensor, a list of such, a table of pandas, or what is an array anyway.

    NumPy has no bfloat16 and no gradients, and makes objects of a table whose columns are of several types.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(values, pandas.DataFrame):
        return _of_table(values)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, (list, tuple)):
        if any(issubclass(kind, torch.Tensor) for kind in set(map(type, values))):
            values = [to_numpy(each) for each in values]
    elif torch is not None and isinstance(values, torch.Tensor):
        values = values.detach()
        values = values.float() if values.dtype == torch.bfloat16 else values
    array = np.asarray(values)
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":  # of JAX
        return array.astype(np.float32)
    return array


def _of_table(table: Any) -> Array:
    """Numbers and booleans in the type that holds all of them; objects where one is missing, or another."""
    kinds = [getattr(kind, "numpy_dtype", kind) for kind in table.dtypes]
    plain = kinds and all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds)
    extended = [place for place, kind in enumerate(table.dtypes) if not isinstance(kind, np.dtype)]
    if not plain or any(table.iloc[:, place].isna().any() for place in extended):
        return np.asarray(table)
    return np.asarray(table.to_numpy(np.result_type(*kinds)))


class ArrayInterface:
    """Lets NumPy and other libraries use `data` without a copy.

    ``np.asarray(a)``, ``np.from_dlpack(a)``, ``torch.from_dlpack(a)`` and, since Python 3.12,
    ``memoryview(a)`` share its memory. ``np.array(a)``, and `np.asarray` with another dtype, copy.
    """

    __slots__ = ()
    data: Array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        values = self.data
        if dtype is None or np.dtype(dtype) == values.dtype:
            return values.copy() if copy else values
        if copy is False:
            raise ValueError(
                f"{type(self).__name__}: its values are {values.dtype}; as {np.dtype(dtype)} they must be "
                "copied, and copy=False forbids that"
            )
        return values.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__()

    def __buffer__(self, flags: int) -> memoryview:  # Python calls it since 3.12
        return self.data.data
