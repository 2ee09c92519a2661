"""Initializers: the first values of a parameter, a function of (seed, layer, element) alone."""

from __future__ import annotations

from math import sqrt
from typing import Literal, NamedTuple, get_args

from pdnn.checks import finite

Distribution = Literal["uniform", "normal", "constant"]
Fan = Literal["none", "in", "out", "sum"]
DISTRIBUTIONS, FANS = get_args(Distribution), get_args(Fan)


class Initializer(NamedTuple):
    """A distribution and its width.

    Parameters
    ----------
    distribution : "uniform", "normal" or "constant"
        Uniform in [-a, a), normal with standard deviation a, or the constant a.
    value : float
        a, or what is divided by the square root of the fan to give a.
    fan : "none", "in", "out" or "sum"
        What the width depends on: nothing, the number of inputs of a unit, that of outputs, or both.
    """

    distribution: Distribution
    value: float
    fan: Fan = "none"

    def resolve(self, fan_in: int, fan_out: int) -> tuple[str, float]:
        """The distribution and its width a for a layer of these fans."""
        divisor = {"none": 1, "in": fan_in, "out": fan_out, "sum": fan_in + fan_out}[self.fan]
        return self.distribution, self.value / sqrt(divisor)


def initializer(owner: object, name: str, given: Initializer | None, default: Initializer) -> Initializer:
    """What a layer was given, or its default.

    Raises
    ------
    TypeError
        If it is no Initializer, or its value no number.
    ValueError
        If its value is not finite, or its distribution or fan none of those above.
    """
    if not (given is None or isinstance(given, Initializer)):
        raise TypeError(
            f"{type(owner).__name__}: {name} is {given!r}, expected what a function of pdnn.nn.init returns, "
            "such as nn.init.zeros()"
        )
    if given is None:
        return default
    finite(owner, f"the value of {name}", given.value)
    for part, known in (("distribution", DISTRIBUTIONS), ("fan", FANS)):
        if (found := getattr(given, part)) not in known:
            raise ValueError(f"{type(owner).__name__}: {name} has {part} {found!r}; expected one of {known}")
    return given


def constant(value: float) -> Initializer:
    """Every element the same value."""
    return Initializer("constant", value)


def zeros() -> Initializer:
    """Every element 0."""
    return constant(0.0)


def ones() -> Initializer:
    """Every element 1."""
    return constant(1.0)


def normal(std: float = 1.0) -> Initializer:
    """Normal with mean 0 and this standard deviation."""
    return Initializer("normal", std)


def uniform(a: float = 1.0) -> Initializer:
    """Uniform in [-a, a)."""
    return Initializer("uniform", a)


def fan_in_uniform() -> Initializer:
    """Uniform in ±1/√fan_in: PyTorch's default for the weights and biases of a linear layer."""
    return Initializer("uniform", 1.0, "in")


def kaiming_uniform(a: float = 0.0, mode: Literal["fan_in", "fan_out"] = "fan_in") -> Initializer:
    """Uniform in ±√(6/((1 + a²) fan)), for ReLU networks (He et al., ICCV 2015, eq. 10).

    Parameters
    ----------
    a : float
        Slope of a leaky ReLU below 0.
    mode : "fan_in" or "fan_out"
        Keeps the size of outputs or that of gradients.
    """
    a = finite("init", "a", a)
    return Initializer("uniform", sqrt(6.0 / (1 + a * a)), _fan(mode))


def kaiming_normal(a: float = 0.0, mode: Literal["fan_in", "fan_out"] = "fan_in") -> Initializer:
    """Normal with standard deviation √(2/((1 + a²) fan)); parameters as for `kaiming_uniform`."""
    a = finite("init", "a", a)
    return Initializer("normal", sqrt(2.0 / (1 + a * a)), _fan(mode))


def xavier_uniform(gain: float = 1.0) -> Initializer:
    """Uniform in ±gain √(6/(fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010, eq. 16)."""
    return Initializer("uniform", finite("init", "gain", gain) * sqrt(6.0), "sum")


def xavier_normal(gain: float = 1.0) -> Initializer:
    """Normal with standard deviation gain √(2/(fan_in + fan_out)) (the same, eq. 12)."""
    return Initializer("normal", finite("init", "gain", gain) * sqrt(2.0), "sum")


def _fan(mode: str) -> Literal["in", "out"]:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f'init: mode "{mode}"; expected "fan_in" or "fan_out"')
    return "in" if mode == "fan_in" else "out"
