"""Multilayer perceptrons as scikit-learn estimators, with scikit-learn's parameters and attributes, and more.

Needs scikit-learn (``pip install 'pdnn[sklearn]'``).
"""

from __future__ import annotations

try:
    from pdnn.sklearn.classifier import MLPClassifier
    from pdnn.sklearn.regressor import MLPRegressor
except ImportError as error:
    raise ImportError(
        f"pdnn.sklearn needs scikit-learn 1.6 or newer ({error}): pip install 'scikit-learn>=1.6'"
    ) from error

__all__ = ["MLPClassifier", "MLPRegressor"]
