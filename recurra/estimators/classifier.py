"""`rc.SequenceClassifier`: one label per sequence."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..errors import InputError
from . import input_conversion, saved_options
from .base import SequenceEstimator


class SequenceClassifier(ClassifierMixin, SequenceEstimator):
    """A scikit-learn classifier of sequences: any cell over the sequence, pooling, a linear readout.

    `fit`, `predict`, `predict_proba` and `score` take an array (n, T) or (n, T, D), a list of arrays (T, D) of
    different lengths, a long table or a `SequenceSet`. Fitted attributes: `classes_`, `network_`, `history_`,
    `input_scaling_`.

    **Arguments**

    - `cell`: a registered name such as "lstm", or a cell class; `cell_options` are its own arguments.
    - `hidden_size`, `num_layers`, `bidirectional`, `dropout`: of `rc.Recurrent`.
    - `pool`: how the outputs (T, H) become one vector: their "max", their "mean" or the "last".
    - `scale`: standardise every input feature to mean 0 and variance 1.
    - `epochs`, `batch_size`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`.
    - `schedule`: the learning rate follows a "cosine" to zero over the epochs, or is "constant".
    - `validation`: the share of sequences held out. Training stops after `patience` epochs without an improvement on
      them and keeps the best weights. "auto" holds out a tenth of 1000 or more sequences, and none of fewer.
    - `random_state`: the seed of weights, order and dropout.
    - `verbose`: show the progress.

    **Example**

        >>> import numpy as np, recurra as rc
        >>> t = np.arange(20)
        >>> X = np.stack([np.sin(t / (2 if k % 2 else 5)) for k in range(16)])  # (16, 20)
        >>> y = ["fast" if k % 2 else "slow" for k in range(16)]
        >>> model = rc.SequenceClassifier("gru", hidden_size=8, epochs=10, random_state=0).fit(X, y)
        >>> model.predict(X[:2]).tolist()
        ['slow', 'fast']
    """

    task = "classification"
    loss = "cross_entropy"

    def _encode_targets(self, y: Any) -> tuple[np.ndarray, int]:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("y", f"1 class, {self.classes_.tolist()[0]!r}", "at least two classes")
        return numbers, len(self.classes_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes): the probability of every class, in the order of `classes_`."""
        scores = self._network_outputs(X)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """(n,): the most probable label."""
        likely = self._network_outputs(X).argmax(axis=1)
        return self.classes_[likely]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; y is not needed where X brings it along."""
        X, y = input_conversion.split_targets(X, y, self.task)
        return float(super().score(X, y, sample_weight))

    def _fitted_config(self) -> dict[str, Any]:
        return {"classes_": saved_options.labels_to_json(self.classes_)}

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        super()._restore(fitted, folder)
        self.classes_ = saved_options.labels_from_json(fitted.get("classes_"), self.n_outputs_, folder)
