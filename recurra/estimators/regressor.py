"""`rc.SequenceRegressor`: one or more numbers per sequence."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted

from ..errors import InputError
from . import input_conversion
from .base import SequenceEstimator
from .explanation import Explanation, occlusion
from .scaling import Scaling


class SequenceRegressor(RegressorMixin, SequenceEstimator):
    """A scikit-learn regressor of sequences.

    As it comes, it reads out random recurrent networks with ridge regressions, as `SequenceClassifier` does. With a
    `cell`, it trains a network: the cell over the sequence, pooling, a linear readout. With a `cell` and an `effort`,
    it does both and weighs them by the prediction of left-out sequences.

    `fit`, `predict` and `score` take an array (n, T) or (n, T, D), a list of arrays (T, D) of different lengths, a long
    table or a `SequenceSet`. NaN in a sequence is a missing value. Targets are standardised for training; predictions
    are in their units. Fitted attributes: `members_` (the weight of each kind of feature and of the network) and
    `target_scaling_`; of a trained network `network_`, `history_` and `input_scaling_`.

    **Arguments**

    - `cell`: the cell of a trained network: a registered name such as "lstm", or a cell class; `cell_options` are its
      own arguments. None reads out random networks, unless another option of a trained network is set.
    - `hidden_size`, `num_layers`, `bidirectional`, `dropout`: of `rc.Recurrent`.
    - `pool`: how the outputs (T, H) become one vector: their "max", their "mean" or the "last" of each direction.
    - `effort`: how many random features: "quick" (seconds), "balanced" (up to a minute) or "best" (minutes).
      "auto" is balanced, or quick for large sets; with a `cell` it is the network alone.
    - `scale`: standardise every input feature and target to mean 0 and variance 1.
    - `epochs`, `batch_size`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`.
    - `schedule`: the learning rate follows a "cosine" to zero over the epochs, or is "constant".
    - `validation`: the share of sequences held out. Training stops after `patience` epochs without an improvement on
      them and keeps the best weights. "auto" holds out a tenth of 1000 or more sequences, and none of fewer.
    - `random_state`: the seed of weights, order and dropout.
    - `verbose`: show the progress, with the time left.

    **Example**

        >>> import numpy as np, recurra as rc
        >>> X = np.random.default_rng(0).normal(size=(32, 10))
        >>> model = rc.SequenceRegressor(random_state=0).fit(X, X.mean(axis=1))
        >>> model.score(X, X.mean(axis=1)) > 0.9
        True
        >>> model = rc.SequenceRegressor("rnn", hidden_size=8, epochs=5, random_state=0).fit(X, X.mean(axis=1))
        >>> model.predict(X[:3]).shape
        (3,)
    """

    task = "regression"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore  (its stubs are older)
        tags.target_tags.multi_output = True
        return tags

    def _encode_targets(self, y: Any) -> np.ndarray:
        rows = self._rows(y)
        self._columns_, self.n_outputs_ = np.ndim(y) > 1, rows.shape[1]
        self.target_scaling_ = Scaling.of([rows]) if self.scale else Scaling.none(rows.shape[1])
        return self.target_scaling_.apply(rows)

    def _encode_known(self, y: Any, classes: Any) -> np.ndarray:
        if classes is not None:
            raise InputError("classes", type(classes).__name__, "none: a regressor has no classes")
        rows = self._rows(y)
        if rows.shape[1] != self.n_outputs_:
            raise InputError("y", f"shape {rows.shape}", f"{self.n_outputs_} columns, as at first")
        return self.target_scaling_.apply(rows)

    def _rows(self, y: Any) -> np.ndarray:
        try:
            y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        except (TypeError, ValueError) as error:
            raise InputError("y", str(error), "a finite number, or a row of them, for each sequence") from error
        return y if y.ndim > 1 else y[:, None]

    def _target_rows(self, targets: np.ndarray) -> np.ndarray:
        return targets

    def _target_scores(self, targets: np.ndarray) -> np.ndarray:
        return targets

    def _network_scores(self, outputs: np.ndarray) -> np.ndarray:
        return outputs

    def _loss(self) -> str:
        return "mse"

    def predict(self, X: Any) -> np.ndarray:
        """(n,) or (n, q), in the shape of the targets."""
        outputs = self._outputs(X)  # checks that the estimator is fitted
        found = self.target_scaling_.invert(outputs)
        return found if self._columns_ else found[:, 0]

    def explain(self, x: Any, windows: int = 24) -> Explanation:
        """Which part of a sequence decides the predicted number, by hiding one part after the other.

        **Arguments**

        - `x`: one sequence, (T,) or (T, D).
        - `windows`: how many parts, overlapping by half, are hidden.

        **Returns** an `Explanation`: `importance` (T,) is how much the prediction changes when a step is hidden, summed
        over several targets. It draws itself with `figure()`, and in notebooks.
        """
        check_is_fitted(self, "n_iter_")
        series = self._convert_for_predict([x])[0]
        before = self.target_scaling_.invert(self._outputs_of_series([series]))[0]

        def changes(hidden: list[np.ndarray]) -> np.ndarray:
            after = self.target_scaling_.invert(self._outputs_of_series(hidden))
            return np.abs(after - before).sum(axis=1)

        words = ", ".join(f"{value:.4g}" for value in before)
        importance = occlusion(series, windows, changes)
        return Explanation(series, importance, words, float(before[0]), "prediction", self._names())

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
