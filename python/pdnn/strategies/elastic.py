"""Elastic averaging: ranks train models of their own that move towards a common center, and it to them."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field

from pdnn import _core
from pdnn.checks import integer
from pdnn.strategies.base import CostModel, Engine, Strategy, refuse_leaves
from pdnn.strategies.engines import Serial
from pdnn.strategies.step_cost import StepCost


@dataclass(frozen=True)
class ElasticAveraging(Strategy):
    """Every rank trains a model of its own; now and then all models and a center move towards each other.

    Synchronous EASGD: Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", NeurIPS 2015,
    section 3. Every so many steps, for the models x_i of p ranks and their center c, at once::

        x_i <- x_i - moving_rate / p * (x_i - c)
        c   <- c   + moving_rate / p * sum of (x_i - c)

    for parameters and running statistics alike. So c <- (1 - moving_rate) c + moving_rate mean(x_i), and
    unlike the models of `ModelAveraging` the ranks' stay apart. The optimizer's state (momentum) stays each
    rank's own.

    An update is one rank's, from `batch_size` rows: a step deals ranks × `batch_size` rows of the epoch, in
    shares that differ by at most one; a rank may get none of the last ones and then makes no update.
    Training begins with rank 0's model on all ranks and as the center. Validation, callbacks and checkpoints
    see the center, and `fit` ends with it on every rank; steps after the last move are not in it, and a
    training of fewer than `every` steps ends with the parameters that it began with. One rank alone trains
    as "serial" does.

    Parameters
    ----------
    every : int
        Steps from one move to the next, counted over all of training; the paper's period τ.
    moving_rate : float
        How far the center moves towards the mean of the models, more than 0 and at most 1; the paper's β.
    engine : Serial, Team or Pool
        How a rank makes its gradient.
    """

    every: int
    moving_rate: float = 0.9
    engine: Engine = field(default_factory=Serial)

    pattern = r"elastic-average:(\d+)(?::(\d*\.?\d+(?:e-\d+)?))?"
    examples = ("elastic-average:10", "elastic-average:10:0.5+team:2")
    models_apart = True
    same_updates = False

    def __post_init__(self) -> None:
        integer(self, "every", self.every, 1)
        if not 0 < self.moving_rate <= 1:
            raise ValueError(
                f"ElasticAveraging: moving_rate = {self.moving_rate}; expected more than 0 and at most 1"
            )
        refuse_leaves(self, "each rank trains a model of its own")

    @classmethod
    def spelled(cls, match: re.Match[str]) -> ElasticAveraging:
        """After "elastic-average" the steps, then the moving rate."""
        return cls(int(match[1]), float(match[2] or cls.moving_rate))

    def rows_per_step(self, batch_size: int, ranks: int) -> int:
        """An update of each rank."""
        return batch_size * ranks

    def warn_of_steps(self, first: int, end: int) -> None:
        """Without a move the center, with which `fit` ends, stays as it is."""
        if first < end and first // self.every == end // self.every:
            warnings.warn(
                f'fit: strategy "{self}" moves the center after every {self.every} steps; this fit makes '
                f"steps {first + 1} to {end} without a move, and ends with the model that it begins with",
                stacklevel=2,
            )

    def config(self) -> _core.ElasticAveragingConfig:
        """The core's."""
        return _core.ElasticAveragingConfig(self.engine.engine_config(), self.every, self.moving_rate)

    def estimate(self, steps: CostModel) -> StepCost:
        """An update of a rank's own, and now and then a sum as long as the model."""
        return steps.averaging(self.engine, self.every, None, by_master=False)

    def memory(self, steps: CostModel) -> int:
        """The center, and what is sent, beside the model."""
        return steps.memory(self.engine, steps.rows, 2 * (steps.params + steps.buffers) + 1)

    def __str__(self) -> str:
        rate = "" if self.moving_rate == type(self).moving_rate else f":{float(self.moving_rate)}"
        return f"elastic-average:{self.every}{rate}{self.engine.suffix}"
