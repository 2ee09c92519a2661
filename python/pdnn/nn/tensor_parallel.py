"""Linear layers that a group of ranks shares; each rank has a part of the weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdnn.comm.communicator import check_communicator
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
        check_communicator(type(self).__name__, comm)
        self.comm = comm
        self._take_part()

    def _take_part(self) -> None:
        """Makes the parameters those of this rank's part."""
        raise NotImplementedError

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
    """y = x W + b by columns: each rank of the group has some columns of W and b, and computes those of y.

    All ranks of the group must pass the same x; forward needs no message. In the backward pass dx is summed
    over the group if a layer below needs it. Put a `RowParallelLinear` of the same group after it, with
    only activations between, and every rank gets the same y from the pair. (`Dropout` between them would
    drop the same columns of every rank's part; the strategy ``"tp:N"`` gives each its own.) Shoeybi et al.,
    "Megatron-LM", arXiv:1909.08053, 2019.

    Initial values are those that `Linear` would draw for this part, in this place, from the same seed. All
    ranks must make the same passes over the same rows, also for predictions: train with
    ``comm=pdnn.comm.SELF``, or data parallel in a group of ranks with the same part. The norm of a gradient
    is that of the part.

    Parameters
    ----------
    in_features, out_features : int
        Of the whole layer. The first out_features % size ranks have one column more; with more ranks than
        columns, some have none.
    bias : bool
        Whether there is a b.
    comm : Communicator
        The ranks that share the layer. No other thread may use it meanwhile.
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

    def _take_part(self) -> None:
        own = self._share(self.out_features)
        self.weight = Parameter("weight", (self.in_features, own))
        self.bias = None if self.bias is None else Parameter("bias", (own,))


class RowParallelLinear(PartOfLinear):
    """y = x W + b from some columns of x: each rank of the group has the corresponding rows of W.

    y is a sum over the group, plus b; y and b are the same on all ranks. The backward pass needs no
    message. Put it after a `ColumnParallelLinear`; see there.

    Parameters
    ----------
    in_features, out_features : int
        Of the whole layer. This rank has its share of in_features: the first in_features % size ranks one
        more; with more ranks than in_features, some have none.
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

    def _take_part(self) -> None:
        self.weight = Parameter("weight", (self._share(self.in_features), self.out_features))
