"""Times and bytes of messages and collective calls: formulas for p ranks, n bytes, L and B of a link.

Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19,
2005; the ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
69, 2009. The time of additions is left out: they overlap with the arrival of the next bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

from pdnn.checks import number


@dataclass(frozen=True)
class Link:
    """A message of n bytes takes latency + n / bandwidth.

    Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994.

    Parameters
    ----------
    latency : float
        Seconds, 0 or more.
    bandwidth : float
        Bytes a second.
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        number(self, "latency", self.latency, "finite seconds, 0 or more", lambda found: 0 <= found < inf)
        number(
            self,
            "bandwidth",
            self.bandwidth,
            "finite bytes a second, more than 0",
            lambda found: 0 < found < inf,
        )

    def seconds(self, size: float, messages: float = 1) -> float:
        """So many messages after one another that have `size` bytes together."""
        return messages * self.latency + size / self.bandwidth

    def __str__(self) -> str:
        return f"{text(self.latency)} + bytes / ({self.bandwidth / 1e9:.3g} GB/s)"


def fit(points: Sequence[tuple[float, float, float]]) -> Link:
    """The link that fits measured times best, by relative errors.

    Least squares of (latency · messages + bytes / bandwidth) / seconds - 1, with neither below zero.

    Parameters
    ----------
    points : sequence of (messages, bytes, seconds)

    Raises
    ------
    ValueError
        If there are fewer than two points, or a time is not positive.
    """
    if len(points) < 2 or not all(seconds > 0 for _, _, seconds in points):
        raise ValueError(f"fit: points {list(points)}; expected two or more, of positive seconds")
    a = [messages / seconds for messages, _, seconds in points]
    b = [size / seconds for _, size, seconds in points]
    aa, ab, bb = (sum(x * y for x, y in zip(u, v, strict=True)) for u, v in ((a, a), (a, b), (b, b)))
    determinant = aa * bb - ab * ab
    latency, inverse = (0.0, sum(b) / bb) if bb else (sum(a) / aa if aa else 0.0, 0.0)
    if determinant > 0:
        latency = (sum(a) * bb - sum(b) * ab) / determinant
        inverse = (sum(b) * aa - sum(a) * ab) / determinant
        if latency < 0:
            latency, inverse = 0.0, sum(b) / bb
        elif inverse <= 0:
            latency, inverse = sum(a) / aa, 0.0
    return Link(latency, 1 / inverse if inverse > 0 else float("1e15"))


def text(seconds: float) -> str:
    """Seconds with a suitable unit: "12.3 µs"."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if float(f"{abs(seconds) * 1e6:.3g}") >= 1e6 * size:
            digits = ".0f" if abs(seconds) >= 999.5 * size else ".3g"
            return f"{seconds / size:{digits}} {unit}"
    return f"{seconds * 1e6:.3g} µs"


@dataclass(frozen=True, order=True)
class Cost:
    """Seconds until all ranks are done, and bytes that the rank that sends most sends."""

    seconds: float
    bytes: float

    def __add__(self, other: Cost) -> Cost:
        """One after the other."""
        return Cost(self.seconds + other.seconds, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        """So many times."""
        return Cost(self.seconds * times, self.bytes * times)


NOTHING = Cost(0.0, 0.0)


def rounds(ranks: int) -> int:
    """⌈log₂ p⌉."""
    return ceil(log2(ranks)) if ranks > 1 else 0


def recursive_doubling(link: Link, ranks: int, size: float) -> Cost:
    """All-reduce, partners at distance 1, 2, 4, … exchange all: ⌈log₂ p⌉ (L + n/B)."""
    sent = rounds(ranks) * size
    return Cost(link.seconds(sent, rounds(ranks)), sent)


def rabenseifner(link: Link, ranks: int, size: float) -> Cost:
    """All-reduce by halving and doubling: 2 ⌈log₂ p⌉ L + 2 (p−1)/p n/B."""
    sent = 2 * (ranks - 1) / ranks * size
    return Cost(link.seconds(sent, 2 * rounds(ranks)), sent)


def ring(link: Link, ranks: int, size: float) -> Cost:
    """All-reduce around a ring: 2 (p−1) L + 2 (p−1)/p n/B."""
    sent = 2 * (ranks - 1) / ranks * size
    return Cost(link.seconds(sent, 2 * (ranks - 1)), sent)


def all_reduce(link: Link, ranks: int, size: float) -> Cost:
    """The faster of `recursive_doubling` and `rabenseifner`; by these formulas the ring is not faster."""
    return min(recursive_doubling(link, ranks, size), rabenseifner(link, ranks, size))


def binomial_broadcast(link: Link, ranks: int, size: float) -> Cost:
    """Broadcast along a binomial tree: ⌈log₂ p⌉ (L + n/B); the root sends all of it."""
    sent = rounds(ranks) * size
    return Cost(link.seconds(sent, rounds(ranks)), sent)


def long_broadcast(link: Link, ranks: int, size: float) -> Cost:
    """Broadcast as scatter and all-gather: (⌈log₂ p⌉ + p − 1) L + 2 (p−1)/p n/B."""
    sent = 2 * (ranks - 1) / ranks * size
    return Cost(link.seconds(sent, rounds(ranks) + ranks - 1), sent)


def broadcast(link: Link, ranks: int, size: float) -> Cost:
    """The faster of the two."""
    return min(binomial_broadcast(link, ranks, size), long_broadcast(link, ranks, size))


def scatter(link: Link, ranks: int, size: float) -> Cost:
    """Scatter, or gather, of n bytes in all along a binomial tree: ⌈log₂ p⌉ L + (p−1)/p n/B."""
    sent = (ranks - 1) / ranks * size
    return Cost(link.seconds(sent, rounds(ranks)), sent)


def gathered_codes(link: Link, ranks: int, code: float) -> Cost:
    """Sum of codes of b bytes that all ranks get from all: ⌈log₂ p⌉ L + (p−1) b/B."""
    sent = (ranks - 1) * code
    return Cost(link.seconds(sent, rounds(ranks)), sent)


def shared_codes(link: Link, ranks: int, code: float) -> Cost:
    """Sum of codes of b bytes in shares, each summed by one rank: (p−1 + ⌈log₂ p⌉) L + 2 (p−1)/p b/B."""
    sent = 2 * (ranks - 1) / ranks * code
    return Cost(link.seconds(sent, ranks - 1 + rounds(ranks)), sent)


def summed_nodes(link: Link, ranks: int, size: float, nodes: int) -> Cost:
    """Sum of arrays of n bytes, m of each rank, in shares: (m + 1) (p−1) L + (m + 1) (p−1)/p n/B."""
    sent = (nodes + 1) * (ranks - 1) / ranks * size
    return Cost(link.seconds(sent, (nodes + 1) * (ranks - 1)), sent)
