"""Link: what a message costs, and the line that fits measured messages best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite


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
        if not (isfinite(self.latency) and self.latency >= 0):
            raise ValueError(f"Link: latency = {self.latency}; expected seconds, 0 or more")
        if not self.bandwidth > 0:
            raise ValueError(f"Link: bandwidth = {self.bandwidth}; expected bytes a second, more than 0")

    def seconds(self, size: float, messages: float = 1) -> float:
        """So many messages after one another that have `size` bytes together."""
        return messages * self.latency + size / self.bandwidth

    def __str__(self) -> str:
        return f"{text(self.latency)} + bytes / ({self.bandwidth / 1e9:.3g} GB/s)"


def fit(points: Sequence[tuple[float, float, float]]) -> Link:
    """The link that explains measured times best, each by its share of the time.

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
    latency, inverse = 0.0, sum(b) / bb if bb else 0.0
    if determinant > 0:
        latency = (sum(a) * bb - sum(b) * ab) / determinant
        inverse = (sum(b) * aa - sum(a) * ab) / determinant
        if latency < 0:
            latency, inverse = 0.0, sum(b) / bb
        elif inverse <= 0:
            latency, inverse = sum(a) / aa, 0.0
    return Link(latency, 1 / inverse if inverse > 0 else float("1e15"))


def text(seconds: float) -> str:
    """Seconds in the unit that suits them: "12.3 µs"."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
