"""Estimate: time, messages and memory of a step, and the comparison with measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdnn.comm.costs import text


@dataclass(frozen=True)
class Estimate:
    """A step, or under Hogwild and averages the time from one batch to the next.

    Attributes
    ----------
    strategy : str
    ranks, batch_size : int
    compute, communication, waiting : float
        Seconds: arithmetic of the busiest rank; messages that do not overlap with it; waiting: threads at
        barriers, pieces in a queue, stages that fill and drain.
    bytes : float
        Sent by the rank that sends most; 0 in shared memory.
    memory : int
        Bytes of memory of a rank, without its data set.
    why : str
        The parts of the seconds, in words.
    steps : float
        Of an epoch, the last one as a part of a step; 0 where no epoch is known.
    """

    strategy: str
    ranks: int
    batch_size: int
    compute: float
    communication: float
    waiting: float
    bytes: float
    memory: int
    why: str
    steps: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compute + self.communication + self.waiting

    @property
    def epoch(self) -> float:
        """Seconds of an epoch's steps."""
        return self.seconds * self.steps

    def difference(self, measured: float) -> float:
        """(estimated - measured) / measured, both seconds a step: above 0, the estimate was too high."""
        return (self.seconds - measured) / measured

    def beside(self, measured: float, others: float = 0.0) -> str:
        """Estimated, measured (seconds a step) and the difference, in a line.

        Where `others`, the share of the cores' time that other programs used meanwhile, is not 0, the line
        says so instead of the difference.
        """
        figures = f"{self.strategy}: estimated {text(self.seconds)} a step, measured {text(measured)}"
        if not others:
            return f"{figures}, difference {self.difference(measured):+.0%}"
        return f"{figures}; both are disturbed: other programs used {others:.0%} of the cores' time meanwhile"

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {**vars(self), "seconds": self.seconds}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Estimate:
        """What `to_dict` gave."""
        return cls(**{name: value for name, value in content.items() if name != "seconds"})

    def __str__(self) -> str:
        ranks = f"{self.ranks} rank{'s'[: self.ranks > 1]}"
        return (
            f"{self.strategy} on {ranks}, batch {self.batch_size}: {text(self.seconds)} a step = "
            f"compute {text(self.compute)} + communication {text(self.communication)} + "
            f"waiting {text(self.waiting)}; a rank sends {self.bytes:,.0f} bytes and keeps "
            f"{self.memory / 2**20:,.1f} MiB\n  {self.why}"
        )
