"""Estimators in scikit-learn's manner: fit, predict, score, save, load."""

from recurra.estimators.backtest import Backtest
from recurra.estimators.classifier import SequenceClassifier
from recurra.estimators.forecaster import Forecaster
from recurra.estimators.regressor import SequenceRegressor

__all__ = ["Backtest", "Forecaster", "SequenceClassifier", "SequenceRegressor"]
