"""Coding: sums and messages that travel by a codec, with what encoding and decoding take here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pdnn.comm import costs
from pdnn.comm.costs import Cost, Link

if TYPE_CHECKING:
    from pdnn.codec import Codec


class Coded(NamedTuple):
    """An array as a code: its bytes, and seconds to encode and to decode it, measured on this machine."""

    bytes: int
    encode: float
    decode: float


def coded(codec: str | Codec, elements: int, itemsize: int) -> Coded:
    """So many elements by a codec.

    Raises
    ------
    ValueError
        If it is PowerSGD, whose bytes and times depend on the shapes of matrices.
    """
    from pdnn.codec import parse
    from pdnn.codec.recommend import coding_seconds

    parsed, dtype = parse(codec), f"float{8 * itemsize}"
    if str(parsed).startswith("powersgd"):
        raise ValueError(f'estimate: codec "{parsed}" is not estimated; others are, and no codec is')
    encode, decode = coding_seconds(parsed, max(elements, 1), dtype)
    return Coded(parsed.bytes(elements, dtype), encode, decode)


def coded_sum(code: Coded, link: Link, ranks: int) -> tuple[Cost, float]:
    """A sum over ranks whose arrays travel so, and seconds of coding: gathered for two ranks, else in shares.

    Gathered, a rank encodes once and decodes p times; in shares (2p − 1)/p times, and encodes a share more.
    """
    if ranks == 2:
        return costs.gathered_codes(link, 2, code.bytes), code.encode + 2 * code.decode
    coding = (1 + 1 / ranks) * code.encode + (2 * ranks - 1) / ranks * code.decode
    return costs.shared_codes(link, ranks, code.bytes), coding
