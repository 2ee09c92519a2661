"""The points of a sweep's grid, and which of them make sense."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdnn.strategies import parse

CHOSEN_LATER = ("auto", "fastest")
"""Words for a strategy that is chosen where it runs, and fits any number of ranks."""


@dataclass(frozen=True)
class Configuration:
    """The options that differ between the trainings of a sweep; the words are those of ``pdnn train``.

    Attributes
    ----------
    model, strategy : str
        Such as ``"mlp:784-256-10:sigmoid"`` and ``"ddp+team:2"``.
    ranks : int
        Processes of the training; 1 is one process without MPI.
    batch_size : int or None
        Rows of one update; None: all.
    repeat : int
        From 0 on; repeat r trains with the seed of the sweep plus r.
    """

    model: str
    strategy: str
    ranks: int
    batch_size: int | None
    repeat: int

    def __str__(self) -> str:
        ranks = f"{self.ranks} rank{'s'[: self.ranks > 1]}"
        return f"{self.strategy}, {ranks}, {self.model}, {self.batch}, repeat {self.repeat}"

    @property
    def batch(self) -> str:
        """``"batch 128"`` or ``"full batch"``."""
        return "full batch" if self.batch_size is None else f"batch {self.batch_size}"

    def workers(self, cores: int, chosen: str | None) -> int:
        """Ranks times the threads of each; of "auto" and "fastest" those of the strategy that was chosen.

        If it is not known, what it may take of a machine of so many cores.
        """
        if self.strategy not in CHOSEN_LATER:
            chosen = self.strategy
        if chosen is None:
            return self.ranks * max(1, cores // self.ranks)
        return self.ranks * parse(chosen).engine.threads


def grid(
    models: Iterable[str],
    strategies: Iterable[str],
    ranks: Sequence[int],
    batch_sizes: Sequence[int | None],
    repeats: int,
) -> tuple[list[Configuration], list[str]]:
    """All combinations that fit, the repeats outermost: what disturbs the machine meets all of them.

    Returns
    -------
    configurations : list of Configuration
    left_out : list of str
        A sentence for each strategy and number of ranks that do not fit together.

    Raises
    ------
    ValueError
        If a strategy is none, or fits none of the numbers of ranks.
    """
    fitting: list[tuple[str, int]] = []
    left_out = []
    for strategy in dict.fromkeys(strategies):
        reasons = []
        for number in dict.fromkeys(ranks):
            if strategy not in CHOSEN_LATER:
                try:
                    parse(strategy).check_ranks(number)
                except ValueError as error:
                    reasons.append(str(error).removeprefix("Trainer: ").partition(", or pass comm=")[0])
                    continue
            fitting.append((strategy, number))
        if len(reasons) == len(dict.fromkeys(ranks)):
            raise ValueError(reasons[-1])
        left_out += reasons
    configurations = [
        Configuration(model, strategy, number, batch_size, repeat)
        for repeat in range(repeats)
        for model in dict.fromkeys(models)
        for batch_size in dict.fromkeys(batch_sizes)
        for strategy, number in fitting
    ]
    return configurations, left_out
