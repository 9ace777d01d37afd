"""Baselines for a label or a number at every step: a constant, and a linear model of a window around the step."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV

from recurra.estimators.input_conversion import arrays
from recurra.estimators.scaling import Scaling

REACH = 8  # steps before and after
MAX_ROWS = 20000  # steps to train on
RIDGE_PENALTIES = np.logspace(-3, 5, 9)


def windows(x: np.ndarray) -> np.ndarray:
    """(T, (2 REACH + 1) D): the steps around every step; the ends are repeated."""
    padded = np.pad(x, ((REACH, REACH), (0, 0)), mode="edge")
    return np.concatenate([padded[k : k + len(x)] for k in range(2 * REACH + 1)], axis=1)


class MajorityLabel:
    """The most frequent label, at every step."""

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, counts = np.unique(np.concatenate(y), return_counts=True)
        self.label_, self.n_parameters_ = self.classes_[counts.argmax()], 1
        return self

    def predict(self, X: Any) -> list[np.ndarray]:
        return [np.repeat(self.label_, len(x)) for x in X]


class MeanNumber:
    """The mean of all targets, at every step."""

    def fit(self, X: Any, y: Any) -> Self:
        self.mean_, self.n_parameters_ = float(np.concatenate(y).mean()), 1
        return self

    def predict(self, X: Any) -> list[np.ndarray]:
        return [np.full(len(x), self.mean_) for x in X]


class WindowModel(ABC):
    """A linear model of the window around every step; subclasses say which."""

    def fit(self, X: Any, y: Any) -> Self:
        series = arrays(X)
        self.scaling_ = Scaling.of(series)
        rows, targets = np.concatenate([windows(self.scaling_.apply(x)) for x in series]), np.concatenate(y)
        chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MAX_ROWS)).round().astype(int))
        self.model_: Any = self._model().fit(rows[chosen], targets[chosen])
        self.n_parameters_ = int(np.size(self.model_.coef_) + np.size(self.model_.intercept_))
        return self

    @abstractmethod
    def _model(self) -> Any:
        """An unfitted linear model of scikit-learn."""

    def predict(self, X: Any) -> list[np.ndarray]:
        return [np.asarray(self.model_.predict(windows(self.scaling_.apply(x)))) for x in arrays(X)]


class WindowClassifier(WindowModel):
    """Logistic regression of the window."""

    def _model(self) -> Any:
        return LogisticRegression(C=0.1, max_iter=500)


class WindowRegressor(WindowModel):
    """Ridge regression of the window; the penalty is chosen by leave-one-out."""

    def _model(self) -> Any:
        return RidgeCV(RIDGE_PENALTIES)
