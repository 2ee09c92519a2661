"""Wrapper: an optimizer around another one, whose groups, rule and state it has."""

from __future__ import annotations

from typing import Any

from pdnn.core import CoreOptimizer
from pdnn.nn.sequential import Sequential
from pdnn.optim import Optimizer
from pdnn.store import Store


class Wrapper(Optimizer):
    """What an optimizer hands on to `optimizer`, which is inside."""

    optimizer: Optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The inner optimizer's."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def core(self) -> CoreOptimizer:
        """The inner optimizer's."""
        return self.optimizer.core

    def attach(self, model: Sequential | Store) -> None:
        """As the inner optimizer's."""
        self.optimizer.attach(model)

    def sync_groups(self) -> None:
        """As the inner optimizer's."""
        self.optimizer.sync_groups()

    def rule(self) -> Any:
        """As the inner optimizer's."""
        return self.optimizer.rule()

    def state_names(self) -> list[str]:
        """As the inner optimizer's."""
        return self.optimizer.state_names()

    def config(self) -> dict[str, Any]:
        """As the inner optimizer's."""
        return self.optimizer.config()
