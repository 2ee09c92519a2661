"""Whether a codec saves time on a network: by its bandwidth and latency, and by rates measured here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt

from pdnn import _core
from pdnn.checks import integer, number
from pdnn.codec.codecs import Codec, PowerSGD, dtype_name, parse
from pdnn.codec.feedback import ErrorFeedback
from pdnn.comm import costs
from pdnn.comm.costs import Link, text

CODECS = ("bf16", "int8", "1bit", "topk:0.01")
"""Those that are considered unless others are named, from the one that loses least."""

WORTH = 0.9
"""A codec must take at most so much of the time without one; of those that take about the same, the first."""

MOST_MEASURED = 1 << 22  # elements


@dataclass(frozen=True)
class Choice:
    """One way to sum an array over ranks, and its estimated time.

    Attributes
    ----------
    codec : Codec or None
        None: an all-reduce of the array itself.
    form : str
        ``"gather"`` or ``"shares"`` as in `CompressedAllReduce`, or ``"all_reduce"``.
    bytes : int
        Sent by a rank.
    transfer, computing : float
        Seconds on the network, and to encode and decode on this machine.
    """

    codec: Codec | None
    form: str
    bytes: int
    transfer: float
    computing: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.transfer + self.computing


@dataclass(frozen=True)
class Recommendation:
    """The result of `recommend_codec`.

    Attributes
    ----------
    codec : Codec or None
        None: no codec would save time.
    form : str
        For `CompressedAllReduce`, or ``"all_reduce"``.
    why : str
        A sentence with the times.
    choices : tuple of Choice
        All that were considered; without a codec first.
    """

    codec: Codec | None
    form: str
    why: str
    choices: tuple[Choice, ...]

    def __str__(self) -> str:
        return self.why


def recommend_codec(
    bandwidth: float,
    latency: float,
    elements: int,
    ranks: int,
    *,
    dtype: npt.DTypeLike = "float32",
    codecs: Sequence[str | Codec] = CODECS,
) -> Recommendation:
    """The codec with which ranks sum an array fastest, or none, and why.

    An all-reduce of n bytes among p ranks takes the smaller of ⌈log₂ p⌉ (L + n/B) and
    2 ⌈log₂ p⌉ L + 2 (p−1)/p n/B. Codes of b bytes take ⌈log₂ p⌉ L + (p−1) b/B when gathered, and are encoded
    once and decoded p times; in shares they take (p−1 + ⌈log₂ p⌉) L + 2 (p−1)/p b/B, and are encoded once
    and decoded (2p − 1)/p times. Encoding (with error feedback if it is the codec's default) and decoding
    are measured now, on one core of this machine.

    Parameters
    ----------
    bandwidth : float
        B, bytes a second that a rank can send.
    latency : float
        L, seconds that each message takes in addition.
    elements : int
        Of the array.
    ranks : int
        p.
    dtype : float32 or float64
    codecs : sequence of str or Codec
        Those to consider, from the one that loses least. Not PowerSGD, whose bytes depend on shapes.

    Raises
    ------
    ValueError
        If a number is below its bound, or a codec is none or PowerSGD.
    TypeError
        If a number is none.
    """
    owner = "recommend_codec"
    number(owner, "bandwidth", bandwidth, "bytes a second, more than 0", lambda found: found > 0)
    number(owner, "latency", latency, "seconds, 0 or more", lambda found: 0 <= found < math.inf)
    elements, ranks = integer(owner, "elements", elements, 1), integer(owner, "ranks", ranks, 1)
    if ranks == 1:
        alone = Choice(None, "all_reduce", 0, 0.0, 0.0)
        return Recommendation(None, "all_reduce", "no codec: one rank sends nothing", (alone,))
    link, dtype = Link(latency, bandwidth), dtype_name(owner, dtype)
    plain = _uncompressed(link, elements * np.dtype(dtype).itemsize, ranks)
    coded = [choice for codec in map(parse, codecs) for choice in _coded(codec, link, elements, ranks, dtype)]
    choices = (plain, *coded)
    fastest = min((choice.seconds for choice in coded), default=math.inf)
    best = next((choice for choice in coded if choice.seconds <= fastest / WORTH), plain)
    what = f"{elements:,} {dtype} on {ranks} ranks"
    if best is plain:
        return Recommendation(None, plain.form, "no codec: none was named", choices)
    told = (
        f'"{best.codec}" takes {text(best.seconds)}, {text(best.transfer)} of it on the network and '
        f"{text(best.computing)} to encode and decode"
    )
    without = f"an all-reduce of {what} takes {text(plain.seconds)}"
    if best.seconds <= WORTH * plain.seconds:
        return Recommendation(best.codec, best.form, f"{told}; {without}", choices)
    why = f"saves less than {1 - WORTH:.0%}" if best.seconds < plain.seconds else "does not pay"
    return Recommendation(None, plain.form, f"no codec: {without}; {told}, which {why}", choices)


def _uncompressed(link: Link, size: int, ranks: int) -> Choice:
    cost = costs.all_reduce(link, ranks, size)
    return Choice(None, "all_reduce", int(cost.bytes), cost.seconds, 0.0)


def _coded(codec: Codec, link: Link, elements: int, ranks: int, dtype: str) -> tuple[Choice, ...]:
    """The two forms, of which `CompressedAllReduce` takes the same for two ranks."""
    if isinstance(codec, PowerSGD):
        raise ValueError("recommend_codec: PowerSGD's bytes depend on the shapes of an array; leave it out")
    encode, decode = coding_seconds(codec, elements, dtype)
    code = codec.bytes(elements, dtype)
    gathered = costs.gathered_codes(link, ranks, code)
    shared = costs.shared_codes(link, ranks, code)
    in_shares = encode + (2 * ranks - 1) / ranks * decode
    return (
        Choice(codec, "gather", int(gathered.bytes), gathered.seconds, encode + ranks * decode),
        Choice(codec, "shares", int(shared.bytes), shared.seconds, in_shares),
    )


def coding_seconds(codec: Codec, elements: int, dtype: str) -> tuple[float, float]:
    """Seconds to encode and to decode so many elements: the fastest of five."""
    measured = min(elements, MOST_MEASURED)
    array = np.random.default_rng(0).standard_normal(measured).astype(dtype)
    coder = ErrorFeedback(codec) if _core.wants_feedback(codec.spec) else codec
    encode, decode = [], []
    for _ in range(5):
        began = perf_counter()
        data = coder.encode(array)
        between = perf_counter()
        coder.decode(data, array.shape, dtype)
        encode.append(between - began)
        decode.append(perf_counter() - between)
    more = elements / measured
    return min(encode) * more, min(decode) * more
