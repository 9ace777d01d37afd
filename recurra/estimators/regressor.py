"""`rc.SequenceRegressor`: one or more numbers per sequence."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array

from . import input_conversion
from .base import SequenceEstimator
from .scaling import Scaling


class SequenceRegressor(RegressorMixin, SequenceEstimator):
    """A scikit-learn regressor of sequences: any cell over the sequence, pooling, a linear readout.

    `fit`, `predict` and `score` take an array (n, T) or (n, T, D), a list of arrays (T, D) of different lengths, a long
    table or a `SequenceSet`. Targets are standardised for training; predictions are in their units. Fitted attributes:
    `network_`, `history_`, `input_scaling_`, `target_scaling_`.

    **Arguments**

    - `cell`: a registered name such as "lstm", or a cell class; `cell_options` are its own arguments.
    - `hidden_size`, `num_layers`, `bidirectional`, `dropout`: of `rc.Recurrent`.
    - `pool`: how the outputs (T, H) become one vector: their "max", their "mean" or the "last".
    - `scale`: standardise every input feature and target to mean 0 and variance 1.
    - `epochs`, `batch_size`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`.
    - `schedule`: the learning rate follows a "cosine" to zero over the epochs, or is "constant".
    - `validation`: the share of sequences held out. Training stops after `patience` epochs without an improvement on
      them and keeps the best weights. "auto" holds out a tenth of 1000 or more sequences, and none of fewer.
    - `random_state`: the seed of weights, order and dropout.
    - `verbose`: show the progress.

    **Example**

        >>> import numpy as np, recurra as rc
        >>> X = np.random.default_rng(0).normal(size=(32, 10))
        >>> model = rc.SequenceRegressor("rnn", hidden_size=8, epochs=5, random_state=0).fit(X, X.mean(axis=1))
        >>> model.predict(X[:3]).shape
        (3,)
    """

    task = "regression"
    loss = "mse"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore  (its stubs are older)
        tags.target_tags.multi_output = True
        return tags

    def _encode_targets(self, y: Any) -> tuple[np.ndarray, int]:
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        self._columns_ = y.ndim > 1
        rows = y if y.ndim > 1 else y[:, None]
        self.target_scaling_ = Scaling.of([rows]) if self.scale else Scaling.none(rows.shape[1])
        return self.target_scaling_.apply(rows), rows.shape[1]

    def predict(self, X: Any) -> np.ndarray:
        """(n,) or (n, q), in the shape of the targets."""
        outputs = self._network_outputs(X)  # checks that the estimator is fitted
        found = self.target_scaling_.invert(outputs)
        return found if self._columns_ else found[:, 0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R²: the share of the variance that is explained. `y` may be omitted where X has the targets."""
        X, y = input_conversion.split_targets(X, y, self.task)
        return float(super().score(X, y, sample_weight))

    def _scalings(self) -> dict[str, Scaling]:
        return {**super()._scalings(), "targets": self.target_scaling_}

    def _fitted_config(self) -> dict[str, Any]:
        return {"columns": self._columns_}

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        super()._restore(fitted, folder)
        self._columns_ = bool(fitted.get("columns"))
        self.target_scaling_ = Scaling.none(self.n_outputs_)
