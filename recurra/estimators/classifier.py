"""One label a sequence."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..errors import InputError
from . import inputs, saved_options
from .base import SequenceEstimator


class SequenceClassifier(ClassifierMixin, SequenceEstimator):
    """A label for every sequence, by any cell.

    cell: a registered name or a class; `cell_options` are its own. hidden_size, num_layers, bidirectional, dropout: of
    rc.Recurrent. pool: how a sequence becomes one vector: the "max", the "mean" or the "last" of the outputs. scale:
    bring every input to mean 0 and variance 1. validation: the share of sequences that judges the training, which stops
    after `patience` epochs without an improvement and keeps the best weights; "auto" is a tenth of 1000 sequences or
    more, else none. schedule: lr falls along half a "cosine" over the `epochs`, or is "constant".

    Fitted: `classes_`, `network_`, `history_`, `input_scaling_`.
    """

    task = "classification"
    loss = "cross_entropy"

    def _learn_targets(self, y: Any) -> tuple[np.ndarray, int]:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("y", f"1 class, {self.classes_.tolist()[0]!r}", "at least two classes")
        return numbers, len(self.classes_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes): the probability of every class, in the order of `classes_`."""
        scores = self._answers(X)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """(n,): the most probable label."""
        likely = self._answers(X).argmax(axis=1)
        return self.classes_[likely]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; y is not needed where X brings it along."""
        X, y = inputs.with_targets(X, y, self.task)
        return float(super().score(X, y, sample_weight))

    def _fitted(self) -> dict[str, Any]:
        return {"classes_": saved_options.labels_to_json(self.classes_)}

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        super()._restore(fitted, folder)
        self.classes_ = saved_options.labels_from_json(fitted.get("classes_"), self.n_outputs_, folder)
