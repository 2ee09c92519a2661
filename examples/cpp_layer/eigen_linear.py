"""EigenLinear: a layer for pdnn whose arithmetic is in eigen_linear.cpp."""

from __future__ import annotations

import _eigen_linear

from pdnn import nn


class EigenLinear(nn.CustomLayer):
    """y = x W + b.

    Parameters
    ----------
    in_features, out_features : int
        Widths of x, shape (n, in_features), and y, shape (n, out_features).
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features=in_features, out_features=out_features)

    def make(self, dtype: str) -> object:
        """The layer in C++."""
        return _eigen_linear.make(dtype, self.in_features, self.out_features)
