"""Layers that normalize: each channel over the batch, or each sample over its features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pdnn.checks import flag, integer, number, positive
from pdnn.core import CoreLayer, Width
from pdnn.nn.module import Module
from pdnn.store import Buffer, Parameter


class _BatchNorm(Module):
    _images: ClassVar[bool]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, *, sync: bool = False
    ) -> None:
        super().__init__()
        num_features = integer(self, "num_features", num_features, 1)
        self.num_features = num_features
        self.eps = positive(self, "eps", eps)
        self.momentum = number(self, "momentum", momentum, "a number in [0, 1]", lambda at: 0 <= at <= 1)
        self.sync = flag(self, "sync", sync)
        self.weight = Parameter("weight", (num_features,))
        self.bias = Parameter("bias", (num_features,))
        self.running_mean = Buffer("running_mean", (num_features,))
        self.running_var = Buffer("running_var", (num_features,))

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.BatchNorm(self.num_features, self._images, self.eps, self.momentum, self.sync)

    def config(self) -> dict[str, Any]:
        """All arguments."""
        return {
            "num_features": self.num_features,
            "eps": self.eps,
            "momentum": self.momentum,
            "sync": self.sync,
        }


class BatchNorm1d(_BatchNorm):
    """y = (x - mean) / √(var + eps) · weight + bias for each feature over the batch.

    In training, mean and variance are the batch's, and running statistics follow them; in evaluation they are
    the running ones. Ioffe and Szegedy, ICML 2015.

    A batch of one row has no variance: there y = bias, and the running statistics stay (torch refuses it;
    here the last batch of an epoch, a rank's share or a pool's piece may be that small).

    Parameters
    ----------
    num_features : int
        Width of x, shape (n, num_features); or channels of lines, shape (n, num_features, length), which are
        normalized over rows and places.
    eps : float
        Added to the variance.
    momentum : float
        How far running statistics move towards a batch's, in [0, 1]; the variance towards the unbiased one.
    sync : bool
        Under ranks, and under a ``pool``, whether mean and variance are those of the whole batch; otherwise
        each rank takes those of its own rows, and each piece of a pool of its own. The running statistics
        then become their mean over the ranks after each epoch.

    Attributes
    ----------
    weight, bias : Parameter, shape (num_features,)
        1 and 0 at first.
    running_mean, running_var : Buffer, shape (num_features,)
        0 and 1 at first.

    Raises
    ------
    TypeError
        If num_features is no integer, eps or momentum no number, or sync no bool.
    ValueError
        If num_features is below 1, eps not above 0, or momentum outside [0, 1].
    """

    _images = False


class BatchNorm2d(_BatchNorm):
    """`BatchNorm1d` of images: x has shape (n, num_features, height, width), its channels are normalized.

    Mean and variance go over rows and pixels.
    """

    _images = True


class LayerNorm(Module):
    """y = (x - mean) / √(var + eps) · weight + bias over the features of each sample (arXiv 1607.06450).

    Parameters
    ----------
    normalized_shape : int or tuple of one int
        Width of x, shape (n, features).
    eps : float
        Added to the variance.

    Attributes
    ----------
    weight, bias : Parameter, shape (features,)
        1 and 0 at first.

    Raises
    ------
    TypeError
        If a width is no integer, or eps no number.
    ValueError
        If there is more than one axis, its width is below 1, or eps is not above 0.
    """

    def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5) -> None:
        super().__init__()
        sizes = normalized_shape if isinstance(normalized_shape, Iterable) else (normalized_shape,)
        shape = tuple(integer(self, "normalized_shape", size, 1) for size in sizes)
        if len(shape) != 1:
            raise ValueError(
                f"LayerNorm: normalized_shape {shape}; expected the features of a sample, one number from 1; "
                "put nn.Flatten() before it to normalize over more axes"
            )
        self.normalized_shape = shape
        self.eps = positive(self, "eps", eps)
        self.weight = Parameter("weight", shape)
        self.bias = Parameter("bias", shape)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.LayerNorm(self.normalized_shape[0], self.eps)

    def config(self) -> dict[str, Any]:
        """Width and eps."""
        return {"normalized_shape": self.normalized_shape[0], "eps": self.eps}
