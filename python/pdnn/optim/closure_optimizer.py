"""ClosureOptimizer: what optimizers have in common whose steps evaluate their batch themselves."""

from __future__ import annotations

from typing import Any

from pdnn.optim.optimizer import Optimizer
from pdnn.store import Array


class ClosureOptimizer(Optimizer):
    """Base of the optimizers that move parameters from Python, by closures; the core moves nothing."""

    needs_closure = True

    _state: dict[str, Array]  # after `attach`

    def rate(self) -> float:
        """The learning rate of all groups.

        Raises
        ------
        TypeError, ValueError
            If they have several, or one that is no number from 0.
        """
        for group in self.param_groups:
            self.checked_number("lr", group["lr"])
        rates = {float(group["lr"]) for group in self.param_groups}
        if len(rates) > 1:
            raise ValueError(
                f"{type(self).__name__}: groups have learning rates {sorted(rates)}; a step has one length, "
                "so give all the same"
            )
        return rates.pop()

    def core_numbers(self, group: dict[str, Any]) -> tuple[float, float]:
        """The core moves nothing."""
        return 0.0, 0.0

    def _make_state(self, parameters: Array) -> None:
        self._state = self._new_state(parameters)

    def _without_memory(self) -> dict[str, Any]:
        return super()._without_memory() | {"_state": {}}

    def _new_state(self, parameters: Array) -> dict[str, Array]:
        """What steps leave for later ones, as it is before the first; parameters: the model's, (count,)."""
        return {}

    def state_names(self) -> list[str]:
        """What a step leaves for later ones."""
        return list(self.state_arrays())

    def state_arrays(self) -> dict[str, Array]:
        """What a step leaves for later ones: arrays that share its memory."""
        self.core  # noqa: B018  makes it
        return self._state
