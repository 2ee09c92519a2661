"""`join`: steps of ranks that have different numbers of batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pdnn.checks import kind_of
from pdnn.ddp.optimizer import DistributedOptimizer


@contextmanager
def join(optimizer: DistributedOptimizer) -> Iterator[None]:
    """Allows different numbers of batches: put ``with ddp.join(opt):`` around the loop, on every rank.

    A rank that leaves the block continues to take part in the others' steps, with gradients of zero and no
    rows, until all have left it. So every update is that of the rows that there were, all ranks end with
    the same parameters, and layers with ``sync=True`` get no missing calls. Do not call other collectives
    inside the block. Passes left over before a step (``backward_passes_per_step``) count in the next step
    of any rank, or in a last one. A rank that has left uses the others' learning rates and weight decays; if
    a schedule advances inside the block, set all ranks' schedules to the same time afterwards
    (`LRScheduler.step_to`). Gradients that are changed after `synchronize`, as by clipping, are refused once
    a rank has left, which would not change them.

    Parameters
    ----------
    optimizer : DistributedOptimizer

    Raises
    ------
    TypeError
        If it is no DistributedOptimizer.
    ValueError
        If layers add up over ranks, and this rank has had no batch.
    """
    if not isinstance(optimizer, DistributedOptimizer):
        raise TypeError(f"join: got {kind_of(optimizer)}, expected a DistributedOptimizer")
    yield
    while optimizer.step_without_batch():
        pass
