"""Sums over ranks, compressed by a codec."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pdnn import _core as core
from pdnn.checks import unmasked
from pdnn.codec.codecs import Array, Codec, as_shape, dtype_name, parse
from pdnn.codec.feedback import ErrorFeedback
from pdnn.comm.communicator import check_communicator
from pdnn.comm.settings import compare
from pdnn.core import core_for
from pdnn.moved import former

if TYPE_CHECKING:
    from pdnn.comm import Communicator

Form = Literal["best", "gather", "shares"]


@dataclass(frozen=True)
class CompressionStats:
    """Bytes, times and errors of one rank, over all sums so far.

    Attributes
    ----------
    sums : int
        How many sums.
    bytes : int
        Sent by this rank.
    bytes_uncompressed : int
        The least that an all-reduce of the arrays themselves sends, 2 (p − 1)/p of each.
    encode_seconds, decode_seconds : float
        That this rank took.
    lost, given : float
        Σ (x − decoded)² and Σ x² of what this rank encoded and measured; 0 if it did not measure.
    """

    sums: int = 0
    bytes: int = 0
    bytes_uncompressed: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    lost: float = 0.0
    given: float = 0.0

    @classmethod
    def of(cls, core: Any) -> CompressionStats:
        """What the core has counted."""
        return cls(**{field.name: getattr(core, field.name) for field in fields(cls)})

    @property
    def error(self) -> float:
        """‖x − decoded‖ / ‖x‖ of measured encodings; nan if errors are neither fed back nor measured."""
        return math.sqrt(self.lost / self.given) if self.given > 0 else math.nan

    def to_dict(self) -> dict[str, float]:
        """As `History.compression` has them: ``sums`` and ``error`` only where there are any."""
        told = {name: value for name, value in asdict(self).items() if name not in ("sums", "lost", "given")}
        told |= {"sums": self.sums} if self.sums else {}
        return told if math.isnan(self.error) else told | {"error": self.error}

    def __add__(self, other: CompressionStats) -> CompressionStats:
        """Those of both."""
        return CompressionStats(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        """One line: bytes of a sum, compressed and uncompressed, its times and its error."""
        each = max(self.sums, 1)
        words = (
            f"{self.sums:,} sum{'s'[: self.sums != 1]}, {self.bytes / each:,.0f} bytes sent in each "
            f"instead of {self.bytes_uncompressed / each:,.0f}"
        )
        if self.bytes:
            words += f" ({self.bytes_uncompressed / self.bytes:.3g} times fewer)"
        words += f", {self.encode_seconds:.3g} s to encode and {self.decode_seconds:.3g} s to decode"
        return words if math.isnan(self.error) else f"{words}, {self.error:.2%} lost"


class CompressedAllReduce:
    """A compressed all-reduce; all ranks get the same bits. Construction and calls are collective.

    Each rank encodes its array. Between two ranks, every rank gets every code, decodes them and adds them
    up in the order of ranks (``form="gather"``). Between more, rank i adds up the i-th share of the array
    and sends the code of the sum to all (``form="shares"``); this encodes twice but sends 2/p of the bytes.
    `PowerSGD` adds up its factors as they are made. A group of one leaves the array unchanged.

    Use one object for each array that is summed repeatedly, such as a gradient: it keeps the residual.

    Parameters
    ----------
    comm : Communicator
    codec : str or Codec or ErrorFeedback
        A string as in `SPECS`; or an ErrorFeedback, whose codec is used with error feedback.
    shape : int or tuple of int, or sequence of tuples
        The array's shape; or the shapes of arrays stored one after another in a flat array, such as
        ``[p.shape for p in model.parameters()]`` for a flat gradient. `PowerSGD` needs them to find its
        matrices.
    dtype : float32 or float64
    op : {"sum", "mean"}
    error_feedback : bool, optional
        Whether the error is added to the next array; by default if the codec loses much.
    form : {"best", "gather", "shares"}
    measure : bool or int
        Whether errors are measured also without feedback, which takes more time; a number n: in one of n
        encodings.

    Attributes
    ----------
    bytes_sent : int
        Bytes that this rank sends in a sum; known beforehand.

    Raises
    ------
    TypeError
        If `comm` is no Communicator.
    ValueError
        On all ranks, if the arguments of one differ from those of rank 0; or if they are none.
    """

    def __init__(
        self,
        comm: Communicator,
        codec: str | Codec | ErrorFeedback,
        shape: int | tuple[int, ...] | Sequence[tuple[int, ...]],
        dtype: npt.DTypeLike = "float32",
        *,
        op: Literal["sum", "mean"] = "sum",
        error_feedback: bool | None = None,
        form: Form = "best",
        measure: bool | int = False,
    ) -> None:
        check_communicator("all-reduce with a codec", comm)
        if isinstance(codec, ErrorFeedback):
            codec, error_feedback = codec.codec, True
        dtype = dtype_name("all-reduce with a codec", dtype)
        self.codec, self.comm, self.op, self.dtype = parse(codec), comm, op, dtype
        integers = int, np.integer
        if isinstance(shape, integers) or all(isinstance(extent, integers) for extent in shape):
            shapes = [as_shape(shape)]  # type: ignore[arg-type]
            self.shape = shapes[0]
        else:
            shapes = [as_shape(part) for part in shape]
            self.shape = (sum(math.prod(part) for part in shapes),)
        self.error_feedback = (
            core.wants_feedback(self.codec.spec) if error_feedback is None else error_feedback
        )
        own = {
            "codec": str(self.codec),
            "shape": list(self.shape) if len(shapes) == 1 else [list(part) for part in shapes],
            "dtype": dtype,
            "op": op,
            "error_feedback": self.error_feedback,
            "form": form,
        }
        compare(comm, "all-reduce with a codec", own, "every rank must pass the same")
        if op not in ("sum", "mean"):
            raise ValueError(f'all-reduce with a codec: op is "{op}"; expected "sum" or "mean"')
        compression = core.Compression(self.codec.spec, self.error_feedback, int(measure), form)
        self._sum = core_for(dtype).BucketedAllReduce(
            comm.core, [(0, math.prod(self.shape))], compression, shapes
        )
        self.bytes_sent: int = self._sum.bytes_sent if comm.size > 1 else 0

    def __call__(self, array: Array) -> Array:
        """The sum or mean over the ranks, in place; returns the array.

        Parameters
        ----------
        array : ndarray
            C-ordered, of the shape and dtype that were given, without masked entries.

        Raises
        ------
        TypeError, ValueError
            If it is not.
        """
        self.start(array)
        return self.finish()

    def start(self, array: Array) -> None:
        """Encodes the array and starts to send it, without waiting. Do not use the array until `finish`.

        Sums of several arrays may be under way at once: started in one order on all ranks, and finished in
        the same order.

        Raises
        ------
        TypeError, ValueError
            As a call does, or if a sum is under way already, or one of this object has failed.
        """
        _in_place(array)
        unmasked("all-reduce with a codec", "array", array)
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(
                f"all-reduce with a codec: got a {array.shape} array of {array.dtype}, it was made for "
                f"{self.shape} of {self.dtype}"
            )
        self._sum.start(array)
        self._sum.ready(0, array.size)

    def test(self) -> bool:
        """Moves the sum along; whether `finish` will find what was sent first."""
        return bool(self._sum.test())

    def finish(self) -> Array:
        """Waits; returns the array that was started, now the sum or mean over the ranks.

        Raises
        ------
        ValueError
            If nothing was started.
        """
        array: Array = self._sum.array
        self._sum.finish()
        if self.op == "mean" and self.comm.size > 1:
            array /= self.comm.size
        return array

    @property
    def stats(self) -> CompressionStats:
        """Bytes, times and errors so far."""
        return CompressionStats.of(self._sum.stats)

    books = former("books", "stats")


def _in_place(array: object) -> None:
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"all-reduce with a codec: got a {type(array).__name__}, expected an ndarray for the sum"
        )


def compressed_all_reduce(
    comm: Communicator,
    array: Array,
    codec: str | Codec,
    *,
    op: Literal["sum", "mean"] = "sum",
    form: Form = "best",
) -> Array:
    """`CompressedAllReduce` of one array, once, in place, without error feedback."""
    _in_place(array)
    once = CompressedAllReduce(
        comm, codec, array.shape, array.dtype.name, op=op, error_feedback=False, form=form
    )
    return once(array)
