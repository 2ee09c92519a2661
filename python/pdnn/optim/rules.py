"""The rules by which optimizers turn gradients into steps, each as torch writes it."""

from __future__ import annotations

from typing import Any

from pdnn.optim.optimizer import Optimizer, Params


class SGD(Optimizer):
    """Stochastic gradient descent: d = g + λw; v = μv + d; w ← w - η v (with Nesterov: w - η (d + μv)).

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        All parameters alike, or groups ``{"params": …, "lr": …, "weight_decay": …}``. Parameters in no group
        stay as they are.
    lr : float
        η, of the groups that give none.
    momentum : float
        μ, in [0, 1).
    weight_decay : float
        λ, added to the gradient (L2), of the groups that give none.
    nesterov : bool
        Nesterov's momentum, as torch writes it.

    Raises
    ------
    ValueError
        If a number is negative or not finite, a parameter appears twice, or Nesterov comes without momentum.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        if not 0 <= momentum < 1:
            raise ValueError(f"SGD: momentum = {momentum}; expected a number in [0, 1)")
        if nesterov and momentum == 0:
            raise ValueError("SGD: nesterov needs a momentum above 0")
        self.momentum = momentum
        self.nesterov = nesterov

    def make(self, core: Any, count: int) -> Any:
        """The core's SGD."""
        return core.SGD(count, self.momentum, self.nesterov)

    def memory_names(self) -> list[str]:
        """The velocity, if there is momentum."""
        return ["velocity"] if self.momentum else []

    def config(self) -> dict[str, Any]:
        """Momentum and Nesterov."""
        return {"type": "SGD", "momentum": self.momentum, "nesterov": self.nesterov}
