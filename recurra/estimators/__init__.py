"""Estimators with the scikit-learn interface: fit, predict, score, save, load."""

from ..optional import optional_imports

with optional_imports("estimators", what="recurra.estimators"):
    import sklearn  # noqa: F401 — the package to name where it is missing; it brings scipy

    from .backtest import Backtest
    from .classifier import SequenceClassifier
    from .forecaster import Forecaster
    from .language import LanguageModelEstimator
    from .load_estimator import load
    from .online import OnlineClassifier, OnlineForecaster
    from .prequential import Prequential, prequential
    from .regressor import SequenceRegressor
    from .sklearn_checks import inapplicable_checks
    from .steps import StepClassifier, StepRegressor
    from .tagger import SequenceTagger
    from .translation import SequenceToSequence

__all__ = [
    "Backtest",
    "Forecaster",
    "LanguageModelEstimator",
    "OnlineClassifier",
    "OnlineForecaster",
    "Prequential",
    "SequenceClassifier",
    "SequenceRegressor",
    "SequenceTagger",
    "SequenceToSequence",
    "StepClassifier",
    "StepRegressor",
    "inapplicable_checks",
    "load",
    "prequential",
]
