"""What `pdnn train` says of a training: its steps' time, on ranks also their bytes; what a codec saved."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

from pdnn.files.atomic import named

if TYPE_CHECKING:
    import pdnn
    from pdnn.comm import Communicator
    from pdnn.history import History


def of_ranks(history: History) -> str:
    """What a step of a rank sent and where its time went: the mean over ranks and the last fit's epochs."""
    ranks = [rank for epoch in history.ranks[history.begun :] for rank in epoch]
    times = [rank for epoch in history.times[history.begun :] for rank in epoch]
    steps = max(1.0, sum(rank["steps"] for rank in ranks))
    seconds = sum(sum(rank.values()) for rank in times) or 1.0
    sent, read = (sum(rank[name] for rank in ranks) / steps for name in ("bytes", "shared_bytes"))
    words = {
        "compute": "computing",
        "communication": "exposed communication",
        "waiting": "waiting for the slowest",
        "other": "other",
    }
    shares = [f"{sum(rank[name] for rank in times) / seconds:.0%} {told}" for name, told in words.items()]
    return (
        f"a step of a rank: {sent:,.0f} bytes sent, "
        + (f"{read:,.0f} read in shared memory, " if read else "")
        + ", ".join(shares)
    )


def of_codec(history: History) -> str:
    """Bytes and times of this rank's sums by a codec, over the last fit's epochs."""
    kept = [epoch for epoch in history.compression[history.begun :] if epoch.get("sums")]
    total = {name: sum(epoch.get(name, 0.0) for epoch in kept) for name in kept[0]}
    words = (
        f"by the codec: {total['bytes'] / total['sums']:,.0f} bytes a sum instead of "
        f"{total['bytes_uncompressed'] / total['sums']:,.0f} "
        f"({total['bytes_uncompressed'] / max(total['bytes'], 1):.3g} times fewer), "
        f"{1e6 * total['encode_seconds'] / total['sums']:.0f} µs to encode and "
        f"{1e6 * total['decode_seconds'] / total['sums']:.0f} µs to decode"
    )
    errors = [epoch["error"] for epoch in kept if "error" in epoch]
    return f"{words}, {errors[-1]:.2%} lost" if errors else words


def of_arithmetic(trainer: pdnn.Trainer) -> str:
    """The instructions that a fingerprint is of, and with leaves how many, and whose bits are others."""
    from pdnn import _core

    isa, leaves = _core.active_isa(), trainer.strategy.leaves
    if not leaves:
        return isa
    unlike = {"v2": "v3, v4 and neon"}
    if trainer.model.dtype == "bfloat16":
        unlike |= {"v4-bf16": "v3", "v4-amx": "v3 and v4-bf16", "neon-bf16": "v3 and v4-bf16"}
    differs = f", which differs from {unlike[isa]}" if isa in unlike else ""
    return f"{leaves} leaves, {isa}{differs}"


def tell(history: History, trainer: pdnn.Trainer, world: Communicator, others: float) -> None:
    """Prints what was estimated and measured, while other programs used that share of the cores' time.

    Epochs of a checkpoint are of another run, perhaps by another strategy.
    """
    begun = history.begun
    if history.estimate is not None and history.epochs > begun:
        seconds = median(history.history["seconds"][begun:])
        print(history.estimate.beside(seconds / history.estimate.steps, others))
    if world.size > 1 and any(history.ranks[begun:]):
        print(of_ranks(history))
        if any(epoch.get("sums") for epoch in history.compression[begun:]):
            print(of_codec(history))
    print(f"fingerprint: {history.fingerprint} ({of_arithmetic(trainer)})")


def keep(write: Callable[..., object], path: str, *more: object) -> None:
    """Calls ``write(path, *more)``; tells its failure itself, which that of another result could hide."""
    try:
        with named(path):
            write(path, *more)
    except BrokenPipeError:  # the reader, such as head(1), has seen enough
        raise
    except OSError as error:
        print(f"pdnn train: {error}", file=sys.stderr)
        raise SystemExit(1) from error
