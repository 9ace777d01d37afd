"""Estimators in scikit-learn's manner: fit, predict, score, save, load."""

from recurra.estimators.backtest import Backtest
from recurra.estimators.classifier import SequenceClassifier
from recurra.estimators.forecaster import Forecaster
from recurra.estimators.inapplicable import inapplicable_checks
from recurra.estimators.language import LanguageModelEstimator
from recurra.estimators.regressor import SequenceRegressor
from recurra.estimators.tagger import SequenceTagger

__all__ = [
    "Backtest",
    "Forecaster",
    "LanguageModelEstimator",
    "SequenceClassifier",
    "SequenceRegressor",
    "SequenceTagger",
    "inapplicable_checks",
]
