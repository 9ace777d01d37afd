"""Numbers for a sequence."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array

from . import inputs
from .base import SequenceEstimator
from .scaling import Scaling


class SequenceRegressor(RegressorMixin, SequenceEstimator):
    """One number, or several, for every sequence, by any cell. The options are those of `rc.SequenceClassifier`.

    Targets are learned at mean 0 and variance 1 and answered as they came. Fitted: `network_`, `history_`,
    `input_scaling_`, `target_scaling_`.
    """

    task = "regression"
    loss = "mse"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore  (its stubs are older)
        tags.target_tags.multi_output = True
        return tags

    def _learn_targets(self, y: Any) -> tuple[np.ndarray, int]:
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        self._columns_ = y.ndim > 1
        rows = y if y.ndim > 1 else y[:, None]
        self.target_scaling_ = Scaling.of([rows]) if self.scale else Scaling.none(rows.shape[1])
        return self.target_scaling_.apply(rows), rows.shape[1]

    def predict(self, X: Any) -> np.ndarray:
        """(n,) or (n, q), as the targets were."""
        answers = self._answers(X)
        found = self.target_scaling_.invert(answers)
        return found if self._columns_ else found[:, 0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R², the share of the variance that is explained; y is not needed where X brings it along."""
        X, y = inputs.with_targets(X, y, self.task)
        return float(super().score(X, y, sample_weight))

    def _scalings(self) -> dict[str, Scaling]:
        return {**super()._scalings(), "targets": self.target_scaling_}

    def _fitted(self) -> dict[str, Any]:
        return {"columns": self._columns_}

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        super()._restore(fitted, folder)
        self._columns_ = bool(fitted.get("columns"))
        self.target_scaling_ = Scaling.none(self.n_outputs_)
