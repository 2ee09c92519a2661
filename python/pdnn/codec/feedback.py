"""Error feedback: the error of a codec is added to the next array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from pdnn.codec.codecs import Array, Codec, Shape, in_c_order, parse
from pdnn.core import core_for


class ErrorFeedback:
    """A codec with error feedback: it encodes g + e and stores the residual e ← g + e − decoded.

    At any time, the sum of the decoded arrays is the sum of the arrays minus e, to rounding (Karimireddy et
    al. 2019). All arrays must have the shape and dtype of the first.

    Parameters
    ----------
    codec : str or Codec
    """

    def __init__(self, codec: str | Codec) -> None:
        self.codec = parse(codec)
        self._core: object = None
        self._like: tuple[tuple[int, ...], str] | None = None

    def __repr__(self) -> str:
        return f'ErrorFeedback("{self.codec}")'

    def encode(self, array: Array) -> NDArray[np.uint8]:
        """The bytes of the array plus the residual; as `Codec.encode`.

        Raises
        ------
        ValueError
            If its shape or dtype is not that of the first array, or it has masked entries.
        """
        array = in_c_order(array)
        like = (array.shape, array.dtype.name)
        out = np.empty(self.codec.bytes(*like), np.uint8)
        if self._like is None:
            core = core_for(like[1])
            self._core = core.ErrorFeedback(self.codec.spec, array.size, [like[0]])
            self._like = like
        if like != self._like:
            raise ValueError(
                f"ErrorFeedback: got a {like[0]} array of {like[1]}, it remembers the error of "
                f"{self._like[0]} arrays of {self._like[1]}; keep one for each array"
            )
        self._core.encode(array, out)  # type: ignore[attr-defined]
        return out

    def decode(self, data: NDArray[np.uint8], shape: Shape, dtype: npt.DTypeLike = "float32") -> Array:
        """As `Codec.decode`."""
        return self.codec.decode(data, shape, dtype)

    @property
    def residual(self) -> Array:
        """A copy of the residual e, shaped like the arrays."""
        if self._like is None:
            raise ValueError("ErrorFeedback: nothing has been encoded yet")
        residual: Array = self._core.residual.reshape(self._like[0]).copy()  # type: ignore[attr-defined]
        return residual
