"""Estimators in scikit-learn's manner: fit, predict, score, save, load."""

from recurra.estimators.classifier import SequenceClassifier
from recurra.estimators.regressor import SequenceRegressor

__all__ = ["SequenceClassifier", "SequenceRegressor"]
