"""Baselines for whole sequences: the most frequent class or the mean, a linear model of summaries, a reservoir.

Each has `fit`, `predict` (and for labels `predict_proba`, `classes_`) and says how many numbers it learned, `learned_`.
"""

from typing import Any, Self

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from recurra.estimators.inputs import arrays
from recurra.estimators.scaling import Scaling
from recurra.reservoir import EchoStateNetwork

PENALTIES = np.logspace(-3, 5, 17)
UNITS = 100  # of a reservoir


def summaries(X: Any) -> np.ndarray:
    """(n, 6 D + 1): mean, spread, least, largest, first and last value of every column, and the length."""
    rows = [
        np.concatenate([x.mean(axis=0), x.std(axis=0), x.min(axis=0), x.max(axis=0), x[0], x[-1], [len(x)]])
        for x in arrays(X)
    ]
    return np.stack(rows)


class Majority:
    """The class that came most often."""

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, counts = np.unique(np.asarray(y), return_counts=True)
        self.shares_, self.learned_ = counts / counts.sum(), len(counts)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.shares_, (len(X), 1))

    def predict(self, X: Any) -> np.ndarray:
        return np.repeat(self.classes_[self.shares_.argmax()], len(X))


class LinearClassifier:
    """Logistic regression on summaries of the sequence."""

    def fit(self, X: Any, y: Any) -> Self:
        logistic = LogisticRegression(max_iter=1000)
        self.model_ = make_pipeline(StandardScaler(), logistic).fit(summaries(X), np.asarray(y))
        self.classes_, self.learned_ = logistic.classes_, logistic.coef_.size + logistic.intercept_.size
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.model_.predict_proba(summaries(X))

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict(summaries(X)))


class Echo:
    """A fixed random recurrent network of leaky units, and a ridge readout at three times of the sequence."""

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        series = arrays(X)
        self.scaling_ = Scaling.of(series)
        scale = 1 / np.sqrt(series[0].shape[1])
        # Without a bias tanh is odd, and so is all that the reservoir can say about its input.
        self.network_ = EchoStateNetwork(
            UNITS, leak=0.3, bias=0.5, input_scaling=scale, ridge=PENALTIES.tolist(), random_state=self.seed
        ).fit([self.scaling_.apply(x) for x in series], self._targets(y))
        self.classes_ = self.network_.classes_
        self.learned_ = sum(int(np.size(member.readout)) for member in self.network_.members_)
        return self

    def _targets(self, y: Any) -> Any:
        return np.asarray(y)

    def _votes(self, X: Any) -> np.ndarray:
        return self.network_.decision_function([self.scaling_.apply(x) for x in arrays(X)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Shares of the votes: they are least squares of ones and zeros, and may lie a little outside."""
        votes = self._votes(X).clip(1e-6, None)
        return votes / votes.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        likely = self._votes(X).argmax(axis=1)
        return np.asarray(self.classes_)[likely]


class Mean:
    """The mean of the targets."""

    def fit(self, X: Any, y: Any) -> Self:
        self.mean_ = np.asarray(y, dtype=np.float64).mean(axis=0)
        self.learned_ = int(np.size(self.mean_))
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.broadcast_to(self.mean_, (len(X), *np.shape(self.mean_)))


class LinearRegressor:
    """Ridge regression on summaries of the sequence, its penalty by leave-one-out."""

    def fit(self, X: Any, y: Any) -> Self:
        ridge = RidgeCV(PENALTIES)
        self.model_ = make_pipeline(StandardScaler(), ridge).fit(summaries(X), np.asarray(y, dtype=np.float64))
        self.learned_ = int(np.size(ridge.coef_) + np.size(ridge.intercept_))
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict(summaries(X)))


class EchoRegressor:
    """`Echo` with numbers for targets, one network a column."""

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        targets = np.asarray(y, dtype=np.float64)
        self.flat_, columns = targets.ndim == 1, targets.reshape(len(targets), -1)
        self.target_scaling_ = Scaling.of([columns])
        scaled = self.target_scaling_.apply(columns)
        self.parts_ = [Echo(self.seed).fit(X, scaled[:, k]) for k in range(scaled.shape[1])]
        self.learned_ = sum(part.learned_ for part in self.parts_)
        return self

    def predict(self, X: Any) -> np.ndarray:
        found = np.column_stack([part._votes(X)[:, 0] for part in self.parts_])
        found = self.target_scaling_.invert(found)
        return found[:, 0] if self.flat_ else found
