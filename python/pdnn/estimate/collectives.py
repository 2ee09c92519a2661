"""What collective calls take and send: closed forms for p ranks, n bytes, a latency L and a bandwidth B.

Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19,
2005; the ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
69, 2009.
What adding up takes is left out: it goes on while the next bytes arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from pdnn.estimate.link import Link


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
    """The faster of `recursive_doubling` and `rabenseifner`, which is never slower than the ring here."""
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
