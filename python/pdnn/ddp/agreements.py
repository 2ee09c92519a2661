"""What ranks compare when and while they step together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isclose
from typing import Any

from pdnn.optim.groups import GROUP_KEYS
from pdnn.store import Parameter

_WORDS = {"lr": "learning rates", "weight_decay": "weight decays"}


def check_named(parameters: Iterable[Parameter], pairs: Sequence[Any]) -> None:
    """Raises TypeError if these are no pairs of a name and a parameter, ValueError if one is missing."""
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise TypeError(
            "DistributedOptimizer: named_parameters holds no pairs (name, parameter); pass "
            "model.named_parameters()"
        )
    unnamed = set(parameters) - {parameter for _, parameter in pairs}
    if unnamed:
        raise ValueError(
            f"DistributedOptimizer: named_parameters lacks {sorted(each.name for each in unnamed)}; "
            "pass all of model.named_parameters()"
        )


def numbers_to_compare(groups: Sequence[dict[str, Any]], takes_part: float) -> Iterator[float]:
    """The groups' numbers and their squares, to be summed over the ranks; 0 if this one takes no part."""
    numbers = [takes_part * group[key] for group in groups for key in GROUP_KEYS]
    yield from numbers
    yield from (number**2 for number in numbers)


def compare_numbers(groups: Sequence[dict[str, Any]], means: Sequence[float], take_over: bool) -> None:
    """Raises ValueError if the ranks' numbers differ, by the means of `numbers_to_compare` over the ranks."""
    numbers = [(group, key) for group in groups for key in GROUP_KEYS]
    squares = means[len(numbers) :]
    for (group, key), mean, square in zip(numbers, means, squares, strict=False):
        if square - mean**2 > 1e-12 * square:
            raise ValueError(
                f"step: the ranks' {_WORDS[key]} differ, this one's is {group[key]:g} and their mean "
                f"{mean:g}; set the same on every rank, and take schedules to the same time "
                "(LRScheduler.step_to)"
            )
        if take_over and not isclose(group[key], mean, rel_tol=1e-12):
            group[key] = mean
