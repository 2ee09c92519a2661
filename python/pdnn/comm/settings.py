"""Compares the settings of ranks: an error names the first rank that differs, and the setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdnn.comm.agree import Array
from pdnn.comm.communicator import Communicator


def compare(comm: Communicator, where: str, mine: Mapping[str, Any], advice: str) -> None:
    """Compares the ranks' settings, by name; collective.

    Parameters
    ----------
    comm : Communicator
    where : str
        The function that was called.
    mine : mapping of str to what JSON can hold
        The same names mean the same things on all ranks.
    advice : str
        What to do about a difference.

    Raises
    ------
    ValueError
        On every rank, if one differs: names the first rank that does, what differs, and both values.
    """
    sent = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    everyones = [_settings(where, rank, received) for rank, received in enumerate(comm.all_gather(sent))]
    first = everyones[0]
    for rank, theirs in enumerate(everyones):
        fewer, more = sorted((first, theirs), key=len)  # of another call, what only that one compares
        for name in fewer | more:
            value, expected = theirs.get(name), first.get(name)
            if value != expected:
                raise ValueError(f"{where}: rank {rank} has {name} {value}, rank 0 has {expected}; {advice}")


def _settings(where: str, rank: int, received: Array) -> dict[str, Any]:
    try:
        settings = json.loads(received.tobytes())
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise ValueError(
            f"{where}: rank {rank} gathers an array of its own; every rank must make the same calls"
        )
    return settings
