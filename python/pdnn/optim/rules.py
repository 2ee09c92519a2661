"""The rules by which optimizers turn gradients into steps, each as torch writes it."""

from __future__ import annotations

from typing import Any

from pdnn import _core
from pdnn.checks import flag, number
from pdnn.optim.groups import Params
from pdnn.optim.optimizer import Optimizer

__all__ = ["SGD", "Adam", "AdamW", "Lion", "RMSprop"]


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
        λ, added to the gradient (L2), of the groups that give none. It and `nesterov` are given by name:
        torch has a dampening between `momentum` and them.
    nesterov : bool
        Nesterov's momentum, as torch writes it.

    Raises
    ------
    ValueError
        If a number is negative or not finite, a parameter appears twice, or Nesterov comes without momentum.
    """

    fixed = ("momentum", "nesterov")

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.0,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.momentum = _share(self, "momentum", momentum)
        self.nesterov = flag(self, "nesterov", nesterov)
        if self.nesterov and self.momentum == 0:
            raise ValueError("SGD: nesterov needs a momentum above 0")

    def rule(self) -> _core.SGD:
        """The core's SGD."""
        return _core.SGD(momentum=self.momentum, nesterov=self.nesterov)

    def state_names(self) -> list[str]:
        """The velocity, if there is momentum."""
        return ["velocity"] if self.momentum else []

    def config(self) -> dict[str, Any]:
        """Momentum and Nesterov."""
        return {"type": "SGD", "momentum": self.momentum, "nesterov": self.nesterov}


class Adam(Optimizer):
    """Steps divided by the root of a running mean of squared gradients.

    d = g + λw; m ← β₁m + (1 - β₁) d; v ← β₂v + (1 - β₂) d²; w ← w - η m̂ / (√v̂ + ε), where m̂ = m / (1 - β₁ᵗ)
    and v̂ = v / (1 - β₂ᵗ) at step t. Kingma and Ba, ICLR 2015, algorithm 1.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        All parameters alike, or groups ``{"params": …, "lr": …, "weight_decay": …}``. Parameters in no group
        stay as they are.
    lr : float
        η, of the groups that give none.
    betas : (float, float)
        β₁ and β₂, in [0, 1).
    eps : float
        ε.
    weight_decay : float
        λ, added to the gradient (L2), of the groups that give none.

    Raises
    ------
    ValueError
        If a number is out of range, or a parameter appears twice.
    """

    fixed = ("betas", "eps")
    decoupled = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.eps = self.checked_number("eps", eps)
        self.betas = _betas(self, betas)

    def rule(self) -> _core.Adam:
        """The core's Adam."""
        beta1, beta2 = self.betas
        return _core.Adam(beta1=beta1, beta2=beta2, eps=self.eps, decoupled=self.decoupled)

    def state_names(self) -> list[str]:
        """Running means of the gradients and of their squares, under torch's names."""
        return ["exp_avg", "exp_avg_sq"]

    def config(self) -> dict[str, Any]:
        """Betas and eps."""
        return {"type": type(self).__name__, "betas": list(self.betas), "eps": self.eps}


class AdamW(Adam):
    """Adam with decoupled weight decay: w ← (1 - ηλ) w before the step, and no λ in the gradient.

    Loshchilov and Hutter, ICLR 2019, algorithm 2. Parameters as for `Adam`, but weight_decay is 0.01 unless
    given.
    """

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


class Lion(Optimizer):
    """Steps of one size: the sign of a running mean, with decoupled weight decay.

    w ← (1 - ηλ) w - η sign(β₁m + (1 - β₁) g); m ← β₂m + (1 - β₂) g. Chen et al., arXiv:2302.06675,
    algorithm 2. The paper advises a learning rate 3 to 10 times smaller than AdamW's, and a λ as much larger.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        All parameters alike, or groups ``{"params": …, "lr": …, "weight_decay": …}``. Parameters in no group
        stay as they are.
    lr : float
        η, of the groups that give none.
    betas : (float, float)
        β₁ and β₂, in [0, 1).
    weight_decay : float
        λ, of the groups that give none.

    Raises
    ------
    ValueError
        If a number is out of range, or a parameter appears twice.
    """

    fixed = ("betas",)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.betas = _betas(self, betas)

    def rule(self) -> _core.Lion:
        """The core's Lion."""
        beta1, beta2 = self.betas
        return _core.Lion(beta1=beta1, beta2=beta2)

    def state_names(self) -> list[str]:
        """The running mean of the gradients."""
        return ["exp_avg"]

    def config(self) -> dict[str, Any]:
        """Betas."""
        return {"type": "Lion", "betas": list(self.betas)}


class RMSprop(Optimizer):
    """Gradients divided by the root of a running mean of their squares.

    d = g + λw; v ← αv + (1 - α) d²; b ← μb + d / (√v + ε); w ← w - η b. If centered, √(v - m²) with the
    running mean m of d in the place of √v. Tieleman and Hinton, Coursera lecture 6.5 (2012); Graves,
    arXiv:1308.0850, eq. 38 – 41.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        All parameters alike, or groups ``{"params": …, "lr": …, "weight_decay": …}``. Parameters in no group
        stay as they are.
    lr : float
        η, of the groups that give none.
    alpha : float
        α, in [0, 1).
    eps : float
        ε.
    weight_decay : float
        λ, added to the gradient (L2), of the groups that give none.
    momentum : float
        μ, in [0, 1).
    centered : bool

    Raises
    ------
    ValueError
        If a number is out of range, or a parameter appears twice.
    """

    fixed = ("alpha", "eps", "momentum", "centered")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.alpha = _share(self, "alpha", alpha)
        self.eps = self.checked_number("eps", eps)
        self.momentum = _share(self, "momentum", momentum)
        self.centered = flag(self, "centered", centered)

    def rule(self) -> _core.RMSprop:
        """The core's RMSprop."""
        return _core.RMSprop(alpha=self.alpha, eps=self.eps, momentum=self.momentum, centered=self.centered)

    def state_names(self) -> list[str]:
        """The running mean of squares, and what momentum and centering add, under torch's names."""
        return [
            "square_avg",
            *(["momentum_buffer"] if self.momentum else []),
            *(["grad_avg"] if self.centered else []),
        ]

    def config(self) -> dict[str, Any]:
        """Alpha, eps, momentum and whether it is centered."""
        numbers = {"alpha": self.alpha, "eps": self.eps, "momentum": self.momentum, "centered": self.centered}
        return {"type": "RMSprop", **numbers}


def _share(owner: Optimizer, name: str, value: float) -> float:
    """The value; raises ValueError unless it lies in [0, 1), TypeError if it is no number."""
    return number(owner, name, value, "a number in [0, 1)", lambda found: 0 <= found < 1)


def _betas(owner: Optimizer, betas: tuple[float, float]) -> tuple[float, float]:
    """The shares of two running means; raises as `_share`, and TypeError if they are not two."""
    try:
        first, second = betas
    except (TypeError, ValueError):
        name = type(owner).__name__
        raise TypeError(f"{name}: betas is {betas!r}, expected two numbers in [0, 1)") from None
    return _share(owner, "beta1", first), _share(owner, "beta2", second)
