"""Multilayer perceptrons as scikit-learn estimators, with scikit-learn's parameters and attributes, and more.

Needs scikit-learn (``pip install 'pdnn[sklearn]'``).
"""

from __future__ import annotations

from pdnn.sklearn.classifier import MLPClassifier
from pdnn.sklearn.regressor import MLPRegressor

__all__ = ["MLPClassifier", "MLPRegressor"]
