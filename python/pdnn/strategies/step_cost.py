"""What a step costs, put together piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pdnn.comm.costs import Cost


class StepCost(NamedTuple):
    """Seconds and bytes of a step, as `pdnn.estimate.Estimate` has them, with words that explain them."""

    compute: float
    communication: float
    waiting: float
    bytes: float
    why: str

    def and_cost(self, cost: Cost, why: str) -> StepCost:
        """With messages that nothing is done beside."""
        from pdnn.comm.costs import text

        return self._replace(
            communication=self.communication + cost.seconds,
            bytes=self.bytes + cost.bytes,
            why=f"{self.why}; {why}, {text(cost.seconds)}",
        )

    def and_compute(self, seconds: float) -> StepCost:
        """With more arithmetic."""
        return self._replace(compute=self.compute + seconds)
