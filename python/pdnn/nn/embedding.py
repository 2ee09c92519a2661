"""Embedding: a row of weights for each index."""

from __future__ import annotations

from typing import Any

from pdnn.checks import integer
from pdnn.core import CoreLayer, Width
from pdnn.nn.init import Initializer, initializer, normal
from pdnn.nn.module import Module
from pdnn.store import TableParameter


class Embedding(Module):
    """y[:, p, :] = weight[x[:, p], :].

    Indices are numbers of the model's dtype, as all samples: a Dataset of any integers (whose scale is 1) has
    them, and a model with an Embedding takes arrays of integers as they are. Each pass checks them. The
    gradient is dense, and for an index the sum over all its places, in the order of the rows.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Of x, shape (n, indices), whole numbers in [0, num_embeddings), and y, shape (n, indices,
        embedding_dim). `Flatten` after it makes features of y, `Transpose` lines for a `Conv1d`. One index
        a row is x of shape (n, 1).
    padding_idx : int, optional
        An index whose row is 0 at first and gets no gradient; below 0 it counts from the end.
    weight_init : Initializer, optional
        See `pdnn.nn.init`; PyTorch's default, normal with standard deviation 1, unless given. Its inputs
        are num_embeddings, as those of a Linear on one-hot rows; for PyTorch they are embedding_dim.

    Attributes
    ----------
    weight : TableParameter, shape (num_embeddings, embedding_dim)
        PyTorch's has the same shape.

    Raises
    ------
    TypeError
        If num_embeddings, embedding_dim or padding_idx is no integer, or weight_init no Initializer.
    ValueError
        If a number is below 1, there is no such padding_idx, or there are more rows than the dtype has whole
        numbers (2^24 for float32). In a pass, if x has another number (NaN, too): with its row, its place and
        its value.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        weight_init: Initializer | None = None,
    ) -> None:
        num_embeddings = integer(self, "num_embeddings", num_embeddings, 1)
        embedding_dim = integer(self, "embedding_dim", embedding_dim, 1)
        if padding_idx is not None:
            padding_idx = integer(self, "padding_idx", padding_idx)
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(
                f"Embedding: padding_idx {padding_idx}; expected one of its {num_embeddings} rows"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight_init = initializer(self, "weight_init", weight_init, normal())
        self.weight = TableParameter("weight", (num_embeddings, embedding_dim))

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        init = self.weight_init.resolve(self.num_embeddings, self.embedding_dim)
        return core.Embedding(self.num_embeddings, self.embedding_dim, self.padding_idx, init)

    def config(self) -> dict[str, Any]:
        """Both widths and the padding; the initializer is for new models only."""
        sizes = {"num_embeddings": self.num_embeddings, "embedding_dim": self.embedding_dim}
        return sizes if self.padding_idx is None else {**sizes, "padding_idx": self.padding_idx}
