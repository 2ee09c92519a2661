"""Parts: what a step consists of, put together piece by piece, with the words that explain it."""

from __future__ import annotations

from typing import NamedTuple

from pdnn.comm.costs import Cost, text


class Parts(NamedTuple):
    """Seconds and bytes of a step; see `Estimate`."""

    compute: float
    communication: float
    waiting: float
    bytes: float
    why: str

    def and_cost(self, cost: Cost, why: str) -> Parts:
        """With messages that nothing is done beside."""
        return self._replace(
            communication=self.communication + cost.seconds,
            bytes=self.bytes + cost.bytes,
            why=f"{self.why}; {why}, {text(cost.seconds)}",
        )

    def and_compute(self, seconds: float) -> Parts:
        """With more arithmetic."""
        return self._replace(compute=self.compute + seconds)
