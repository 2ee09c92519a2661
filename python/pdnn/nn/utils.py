"""Clipping of gradients in loops by hand; a Trainer takes ``clip_norm=`` or ``clip_value=`` instead."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, sqrt

import numpy as np

from pdnn.checks import kind_of, number, positive, several
from pdnn.core import core_for, name_of
from pdnn.store import Parameter


def clip_grad_norm_(parameters: Parameter | Iterable[Parameter], max_norm: float) -> float:
    """Scales the gradient of all these parameters together: g ← g · min(1, max_norm / (‖g‖₂ + 1e-6)).

    Parameters
    ----------
    parameters : Parameter or iterable of them
    max_norm : float
        Above 0; infinity leaves them as they are, to know the norm.

    Returns
    -------
    float
        ‖g‖₂ before. If it is not a number, neither are the gradients afterwards, unless max_norm is
        infinite.

    Raises
    ------
    TypeError, ValueError
        If max_norm is no number above 0, or a DistributedOptimizer has not summed the gradients yet.
    """
    number("clip_grad_norm_", "max_norm", max_norm, "a number above 0", lambda found: found > 0)
    grads = [parameter.grad for parameter in _list("clip_grad_norm_", parameters)]
    norm = sqrt(sum(core_for(name_of(grad.dtype)).square_sum(grad) for grad in grads))
    if norm == inf and (largest := max(float(np.abs(grad).max(initial=0)) for grad in grads)) < inf:
        norm = largest * sqrt(sum(float(np.square(grad / largest).sum()) for grad in grads))
    factor = max_norm / (norm + 1e-6)
    if max_norm < inf and not factor >= 1:  # true of NaN
        for grad in grads:
            grad *= factor
    return norm


def clip_grad_value_(parameters: Parameter | Iterable[Parameter], clip_value: float) -> None:
    """Bounds every element of the gradients to [-clip_value, clip_value].

    Raises
    ------
    TypeError, ValueError
        If clip_value is no number above 0, or a DistributedOptimizer has not summed the gradients yet.
    """
    positive("clip_grad_value_", "clip_value", clip_value)
    for parameter in _list("clip_grad_value_", parameters):
        np.clip(parameter.grad, -clip_value, clip_value, out=parameter.grad)


def _list(where: str, parameters: Parameter | Iterable[Parameter]) -> list[Parameter]:
    expected = "Parameters, as model.parameters() has them"
    given = [parameters] if isinstance(parameters, Parameter) else parameters
    found = several(where, "parameters", given, expected)
    for each in found:
        if not isinstance(each, Parameter):
            raise TypeError(f"{where}: got {kind_of(each)}, expected {expected}")
        for hook in each.post_hooks.values():
            if (check := getattr(getattr(hook, "__self__", None), "_check_gradients", None)) is not None:
                check(where)
    return found
