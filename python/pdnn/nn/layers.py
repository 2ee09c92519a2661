"""Descriptions of the layers, which the C++ core implements."""

from __future__ import annotations

from typing import Any

from pdnn.checks import finite, flag, integer, number, positive
from pdnn.core import CoreLayer, Width
from pdnn.nn.init import Initializer, fan_in_uniform, initializer
from pdnn.nn.module import Module
from pdnn.store import Parameter


class Linear(Module):
    """y = x W + b.

    Parameters
    ----------
    in_features, out_features : int
        Widths of x, shape (n, in_features), and y, shape (n, out_features).
    bias : bool
        Whether there is a b.
    weight_init, bias_init : Initializer, optional
        See `pdnn.nn.init`; PyTorch's default, uniform in ±1/√in_features, unless given.

    Attributes
    ----------
    weight : Parameter, shape (in_features, out_features)
    bias : Parameter, shape (out_features,), or None

    Raises
    ------
    TypeError
        If a width is no integer, bias no bool, or an initializer none.
    ValueError
        If it is below 1.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        self.in_features = integer(self, "in_features", in_features, 1)
        self.out_features = integer(self, "out_features", out_features, 1)
        self.weight_init = initializer(self, "weight_init", weight_init, fan_in_uniform())
        self.bias_init = initializer(self, "bias_init", bias_init, fan_in_uniform())
        self.weight = Parameter("weight", (self.in_features, self.out_features))
        self.bias = Parameter("bias", (self.out_features,)) if flag(self, "bias", bias) else None

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        weight_init, bias_init = (
            init.resolve(self.in_features, self.out_features) for init in (self.weight_init, self.bias_init)
        )
        return core.Linear(self.in_features, self.out_features, self.bias is not None, weight_init, bias_init)

    def config(self) -> dict[str, Any]:
        """Widths and bias; initializers are for new models only."""
        return {
            "in_features": self.in_features,
            "out_features": self.out_features,
            "bias": self.bias is not None,
        }


class Sigmoid(Module):
    """y = 1 / (1 + exp(-x)), element by element."""

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Activation("sigmoid")


class Tanh(Module):
    """y = tanh(x), element by element."""

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Activation("tanh")


class ReLU(Module):
    """y = max(x, 0), element by element."""

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Activation("relu")


class LeakyReLU(Module):
    """y = x where x > 0, else negative_slope · x, element by element.

    Raises
    ------
    TypeError, ValueError
        If the slope is no finite number.
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = finite(self, "negative_slope", negative_slope)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.LeakyReLU(self.negative_slope)

    def config(self) -> dict[str, Any]:
        """The slope."""
        return {"negative_slope": self.negative_slope}


class GELU(Module):
    """y = x Φ(x), element by element, with the normal distribution Φ (arXiv 1606.08415, the exact form)."""

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Curve("GELU")


class SiLU(Module):
    """y = x / (1 + exp(-x)), element by element (arXiv 1702.03118, section 2)."""

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Curve("SiLU")


class ELU(Module):
    """y = x where x > 0, else alpha · (exp(x) - 1), element by element (arXiv 1511.07289, eq. 15).

    Raises
    ------
    TypeError, ValueError
        If alpha is no finite number.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = finite(self, "alpha", alpha)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Curve("ELU", self.alpha)

    def config(self) -> dict[str, Any]:
        """The size of the lower bound."""
        return {"alpha": self.alpha}


class Softplus(Module):
    """y = log(1 + exp(beta · x)) / beta, or x where beta · x > threshold, element by element.

    Raises
    ------
    ValueError
        If beta is not positive, or a number is not finite.
    TypeError
        If beta or threshold is no number.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = positive(self, "beta", beta)
        self.threshold = finite(self, "threshold", threshold)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Curve("Softplus", self.beta, self.threshold)

    def config(self) -> dict[str, Any]:
        """Both numbers."""
        return {"beta": self.beta, "threshold": self.threshold}


class Softmax(Module):
    """y_j = exp(x_j) / Σ_k exp(x_k) over the features of a sample.

    To train a classifier, end the network in logits and use `CrossEntropyLoss` instead.
    """

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Softmax(False)


class LogSoftmax(Module):
    """y_j = x_j - log Σ_k exp(x_k) over the features of a sample; what `NLLLoss` takes."""

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Softmax(True)


class Flatten(Module):
    """A sample of any shape as features: (n, 1, 28, 28) becomes (n, 784), in C order."""

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Flatten()


class Transpose(Module):
    """A sample's two axes exchanged: (n, a, b) becomes (n, b, a).

    Between an Embedding, (n, indices, embedding_dim), and a Conv1d, which takes (n, channels, length),
    or before and after a layer on lines whose samples come as (n, length, channels). It costs no time
    after an Embedding, or as a network's first layer.
    """

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Transpose()


class Dropout(Module):
    """Zeroes elements with probability p while training and scales the others by 1 / (1 - p).

    In evaluation y = x. The mask depends on (seed, step, row of the global batch, column), not on the
    number of threads or ranks. Srivastava et al., JMLR 15 (2014).

    Raises
    ------
    ValueError
        If p is not in [0, 1).
    TypeError
        If it is no number.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = number(self, "p", p, "a probability in [0, 1)", lambda found: 0 <= found < 1)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Dropout(self.p)

    def config(self) -> dict[str, Any]:
        """The probability."""
        return {"p": self.p}
