"""Linear layers that the ranks of a group hold together, each a part of the weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdnn.core import CoreLayer, Width
from pdnn.nn.init import Initializer
from pdnn.nn.layers import Linear
from pdnn.store import Parameter

if TYPE_CHECKING:
    from pdnn.comm import Communicator


class PartOfLinear(Linear):
    """What both kinds share: the whole layer's arguments, and the group."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        comm: Communicator,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, weight_init=weight_init, bias_init=bias_init)
        self.comm = comm

    def _share(self, count: int) -> int:
        """This rank's number of `count` columns or rows; the first ranks have one more."""
        return count // self.comm.size + (self.comm.rank < count % self.comm.size)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        layer: CoreLayer = getattr(core, type(self).__name__)(super().build(core), self.comm.core)
        return layer

    def config(self) -> dict[str, Any]:
        """The whole layer's widths and bias, and which part of it this is."""
        return {**super().config(), "rank": self.comm.rank, "ranks": self.comm.size}


class ColumnParallelLinear(PartOfLinear):
    """Some columns of y = x W + b: a rank of the group holds those columns of W and b, and makes those of y.

    All ranks of the group give the same x; nothing is sent. In the backward pass dx is a sum over the group,
    taken if something below wants it. Put a `RowParallelLinear` of the same group behind it, with nothing but
    activations between, and every rank gets the same y from the pair. (`Dropout` between them would drop
    the same columns of every rank's part; the strategy ``"tp:N"`` gives each its own.) Shoeybi et al.,
    Megatron-LM, arXiv:1909.08053, 2019.

    Initial values are the part's of what `Linear` would draw in this place from the same seed. All ranks make
    the same passes over the same rows, predictions included: train with ``comm=pdnn.comm.SELF``, or data
    parallel in a group of ranks that hold the same part. The norm of a gradient is the part's.

    Parameters
    ----------
    in_features, out_features : int
        Of the whole layer. The columns need not divide: the first out_features % size ranks hold one more,
        and ranks beyond hold none.
    bias : bool
        Whether there is a b.
    comm : Communicator
        The ranks that hold the layer together, used by no other thread meanwhile.
    weight_init, bias_init : Initializer, optional
        Of the whole layer, as in `Linear`.

    Attributes
    ----------
    weight : Parameter, shape (in_features, this rank's columns)
    bias : Parameter, shape (this rank's columns,), or None

    Raises
    ------
    ValueError
        If a width is below 1.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        comm: Communicator,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        super().__init__(
            in_features, out_features, bias, comm=comm, weight_init=weight_init, bias_init=bias_init
        )
        own = self._share(out_features)
        self.weight = Parameter("weight", (in_features, own))
        self.bias = Parameter("bias", (own,)) if bias else None


class RowParallelLinear(PartOfLinear):
    """y = x W + b from some columns of x: a rank of the group holds the rows of W that meet them.

    y is a sum over the group, to which b is added once, and the same on all ranks, and so is b. Nothing is
    sent in the backward pass. What comes before is a `ColumnParallelLinear`, see there.

    Parameters
    ----------
    in_features, out_features : int
        Of the whole layer. This rank takes its share of in_features: the first in_features % size ranks one
        more, and ranks beyond none.
    bias : bool
        Whether there is a b.
    comm : Communicator
        The ranks that hold the layer together.
    weight_init, bias_init : Initializer, optional
        Of the whole layer, as in `Linear`.

    Attributes
    ----------
    weight : Parameter, shape (this rank's rows, out_features)
    bias : Parameter, shape (out_features,), or None

    Raises
    ------
    ValueError
        If a width is below 1.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        comm: Communicator,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        super().__init__(
            in_features, out_features, bias, comm=comm, weight_init=weight_init, bias_init=bias_init
        )
        self.weight = Parameter("weight", (self._share(in_features), out_features))
