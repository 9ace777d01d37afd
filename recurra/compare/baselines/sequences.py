"""Baselines for whole sequences: majority class or mean, linear models of features, an echo state network.

Each has `fit`, `predict` and `n_parameters_` (fitted parameters); classifiers also `predict_proba` and `classes_`.
"""

from typing import Any, Self

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from recurra.estimators.input_conversion import arrays
from recurra.estimators.scaling import Scaling
from recurra.reservoir import EchoStateNetwork

RIDGE_PENALTIES = np.logspace(-3, 5, 17)
UNITS = 100  # of the echo state network


class MajorityClassifier:
    """Predicts the most frequent class."""

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, counts = np.unique(np.asarray(y), return_counts=True)
        self.frequencies_, self.n_parameters_ = counts / counts.sum(), len(counts)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.frequencies_, (len(X), 1))

    def predict(self, X: Any) -> np.ndarray:
        return np.repeat(self.classes_[self.frequencies_.argmax()], len(X))


class LinearClassifier:
    """Logistic regression on features of a sequence; `penalty` is the inverse strength of its penalty."""

    def __init__(self, features: Any, penalty: float = 1.0):
        self.features, self.penalty = features, penalty

    def fit(self, X: Any, y: Any) -> Self:
        series = arrays(X)
        logistic = LogisticRegression(C=self.penalty, max_iter=1000)
        rows = self.features.fit(series)(series)
        self.model_ = make_pipeline(StandardScaler(), logistic).fit(rows, np.asarray(y))
        self.classes_, self.n_parameters_ = logistic.classes_, logistic.coef_.size + logistic.intercept_.size
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.model_.predict_proba(self.features(arrays(X)))

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict(self.features(arrays(X))))


class RidgeOnFeatures:
    """Ridge regression of one column per class on features; the penalty is chosen by leave-one-out."""

    def __init__(self, features: Any):
        self.features = features

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        self.model_ = LinearRegressor(self.features).fit(X, np.eye(len(self.classes_))[numbers])
        self.n_parameters_ = self.model_.n_parameters_
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return _as_probabilities(self.model_.predict(X))

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self.model_.predict(X).argmax(axis=1)]


def _as_probabilities(scores: np.ndarray) -> np.ndarray:
    """Normalised least-squares scores, clipped since they may lie outside [0, 1]."""
    scores = scores.clip(1e-6, None)
    return scores / scores.sum(axis=1, keepdims=True)


class EchoStateClassifier:
    """An echo state network of leaky units with a ridge readout at three times of the sequence."""

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        series = arrays(X)
        self.scaling_ = Scaling.of(series)
        scale = 1 / np.sqrt(series[0].shape[1])
        # The bias matters: without it the reservoir computes only odd functions of its input, since tanh is odd.
        self.network_ = EchoStateNetwork(
            UNITS, leak=0.3, bias=0.5, input_scaling=scale, ridge=RIDGE_PENALTIES.tolist(), random_state=self.seed
        ).fit([self.scaling_.apply(x) for x in series], self._targets(y))
        self.classes_ = self.network_.classes_
        self.n_parameters_ = sum(int(np.size(member.readout)) for member in self.network_.members_)
        return self

    def _targets(self, y: Any) -> Any:
        return np.asarray(y)

    def _scores(self, X: Any) -> np.ndarray:
        return self.network_.decision_function([self.scaling_.apply(x) for x in arrays(X)])

    def predict_proba(self, X: Any) -> np.ndarray:
        return _as_probabilities(self._scores(X))

    def predict(self, X: Any) -> np.ndarray:
        likely = self._scores(X).argmax(axis=1)
        return np.asarray(self.classes_)[likely]


class MeanRegressor:
    """Predicts the mean of the targets."""

    def fit(self, X: Any, y: Any) -> Self:
        self.mean_ = np.asarray(y, dtype=np.float64).mean(axis=0)
        self.n_parameters_ = int(np.size(self.mean_))
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.broadcast_to(self.mean_, (len(X), *np.shape(self.mean_)))


class LinearRegressor:
    """Ridge regression on features of a sequence; the penalty is chosen by leave-one-out."""

    def __init__(self, features: Any):
        self.features = features

    def fit(self, X: Any, y: Any) -> Self:
        series, ridge = arrays(X), RidgeCV(RIDGE_PENALTIES)
        rows = self.features.fit(series)(series)
        self.model_ = make_pipeline(StandardScaler(), ridge).fit(rows, np.asarray(y, dtype=np.float64))
        self.n_parameters_ = int(np.size(ridge.coef_) + np.size(ridge.intercept_))
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict(self.features(arrays(X))))


class EchoStateRegressor:
    """`EchoStateClassifier` with numeric targets, one network per target column."""

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        targets = np.asarray(y, dtype=np.float64)
        self.flat_, columns = targets.ndim == 1, targets.reshape(len(targets), -1)
        self.target_scaling_ = Scaling.of([columns])
        scaled = self.target_scaling_.apply(columns)
        self.networks_ = [EchoStateClassifier(self.seed).fit(X, scaled[:, k]) for k in range(scaled.shape[1])]
        self.n_parameters_ = sum(network.n_parameters_ for network in self.networks_)
        return self

    def predict(self, X: Any) -> np.ndarray:
        found = np.column_stack([network._scores(X)[:, 0] for network in self.networks_])
        found = self.target_scaling_.invert(found)
        return found[:, 0] if self.flat_ else found
