"""`rc.SequenceClassifier`: one label per sequence, or several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..cell import Cell
from ..errors import InputError, ModelFileError
from . import input_conversion, saved_options
from .base import SequenceEstimator
from .explanation import Explanation, occlusion

UNSEEN = 2  # targets of any class that calibration adds to those it sees
SHARPEST = 50.0  # of scores between -1 and 1: beyond, probabilities are 0 and 1


class SequenceClassifier(ClassifierMixin, SequenceEstimator):
    """A scikit-learn classifier of sequences.

    As it comes, it reads out random recurrent networks: delay lines, resonators and leaky networks at many time scales
    and in both directions, each unit followed by counters that run along the sequence, with ridge regressions whose
    penalty and weights are chosen by the prediction of left-out sequences. With a `cell`, it trains a network: the cell
    over the sequence, pooling, a linear readout. With a `cell` and an `effort`, it does both and weighs them.

    `fit`, `predict`, `predict_proba` and `score` take an array (n, T) or (n, T, D), a list of arrays (T, D) of
    different lengths, a long table or a `SequenceSet`. NaN is a missing value. Fitted attributes: `classes_`,
    `members_` (the weight of each kind of feature and of the network); of a trained network `network_`, `history_` and
    `input_scaling_`.

    **Arguments**

    - `cell`: the cell of a trained network: a registered name such as "lstm", or a cell class; `cell_options` are its
      own arguments. None reads out random networks, unless another option of a trained network is set.
    - `hidden_size`, `num_layers`, `bidirectional`, `dropout`: of `rc.Recurrent`.
    - `pool`: how the outputs (T, H) become one vector: their "max", their "mean" or the "last" of each direction.
    - `effort`: how many random features: "quick" (seconds), "balanced" (up to a minute) or "best" (minutes).
      "auto" is balanced, or quick for large sets; with a `cell` it is the network alone.
    - `scale`: standardise every input feature of the network to mean 0 and variance 1.
    - `epochs`, `batch_size`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`.
    - `schedule`: the learning rate follows a "cosine" to zero over the epochs, or is "constant".
    - `validation`: the share of sequences held out. Training stops after `patience` epochs without an improvement on
      them and keeps the best weights. "auto" holds out a tenth of 1000 or more sequences, and none of fewer.
    - `class_weight`: how much a class counts: a dict, or "balanced" for the inverse of its frequency.
    - `random_state`: the seed of weights, order and dropout.
    - `verbose`: show the progress, with the time left.

    Targets (n, q) of zeros and ones are labels that may hold together. Probabilities of random features are calibrated
    on left-out sequences; `sklearn.calibration.CalibratedClassifierCV` calibrates a trained network. A long training
    can be stopped and goes on where it was: `with rc.train.fit_context("runs/mine"): model.fit(X, y)`.

    **Example**

        >>> import numpy as np, recurra as rc
        >>> t = np.arange(20)
        >>> X = np.stack([np.sin(t / (2 if k % 2 else 5) + k) for k in range(16)])  # (16, 20)
        >>> y = ["fast" if k % 2 else "slow" for k in range(16)]
        >>> rc.SequenceClassifier(random_state=0).fit(X, y).predict(X[:2]).tolist()
        ['slow', 'fast']
        >>> model = rc.SequenceClassifier("gru", hidden_size=8, epochs=10, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape
        (16, 2)
    """

    task = "classification"

    def __init__(
        self,
        cell: type[Cell] | str | None = None,
        hidden_size: int | Sequence[int] = 64,
        num_layers: int | None = None,
        bidirectional: bool = False,
        dropout: float = 0.0,
        pool: str = "max",
        *,
        effort: str = "auto",
        cell_options: dict[str, Any] | None = None,
        scale: bool = True,
        epochs: int = 60,
        batch_size: int = 32,
        lr: float = 1e-2,
        schedule: str = "cosine",
        optimizer: str = "adam",
        clip: float | None = 1.0,
        validation: float | str = "auto",
        patience: int = 10,
        class_weight: dict[Any, float] | str | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        given = {name: value for name, value in locals().items() if name not in ("self", "class_weight", "__class__")}
        super().__init__(**given)
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # ------------------------------------------------------------------------------------------ targets

    def _encode_targets(self, y: Any) -> np.ndarray:
        if np.ndim(y) == 2 and np.shape(y)[1] > 1 and type_of_target(y) == "multilabel-indicator":
            rows = np.asarray(y.toarray() if hasattr(y, "toarray") else y, dtype=np.float64)
            self.multilabel_, self.classes_, self.n_outputs_ = True, np.arange(rows.shape[1]), rows.shape[1]
            return rows
        try:
            y = column_or_1d(y, warn=True)
        except ValueError as error:
            raise InputError("y", str(error), "one label for each sequence") from error
        missing = [k for k, value in enumerate(np.asarray(y).tolist()) if value is None or value != value]
        if missing:
            raise InputError(f"y[{missing[0]}]", repr(np.asarray(y).tolist()[missing[0]]), "a label")
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise InputError("y", str(error), "labels") from error
        return self._set_classes(np.unique(np.asarray(y)), y)

    def _set_classes(self, classes: np.ndarray, y: Any) -> np.ndarray:
        if len(classes) < 2:
            raise InputError("y", f"1 class, {classes.tolist()[0]!r}", "at least two classes")
        self.multilabel_, self.classes_, self.n_outputs_ = False, classes, len(classes)
        return self._class_numbers(y)

    def _encode_known(self, y: Any, classes: Any) -> np.ndarray:
        if classes is not None and not hasattr(self, "network_"):
            return self._set_classes(np.unique(np.asarray(classes)), y)
        if self.multilabel_:
            rows = np.asarray(y, dtype=np.float64)
            if rows.ndim != 2 or rows.shape[1] != self.n_outputs_:
                raise InputError("y", f"shape {rows.shape}", f"{self.n_outputs_} columns, as at first")
            return rows
        return self._class_numbers(y)

    def _class_numbers(self, y: Any) -> np.ndarray:
        y = np.asarray(column_or_1d(y, warn=True))
        numbers = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        if unknown := np.flatnonzero(self.classes_[numbers] != y).tolist():
            raise InputError(f"y[{unknown[0]}]", repr(y[unknown[0]]), f"one of the classes {self.classes_.tolist()}")
        return numbers

    def _class_weights(self, targets: np.ndarray) -> np.ndarray:
        if self.class_weight is None:
            return np.ones(len(targets))
        if isinstance(self.class_weight, str) and self.class_weight != "balanced":
            raise InputError("class_weight", repr(self.class_weight), 'a dict, "balanced" or None')
        if self.multilabel_ or self.class_weight == "balanced":
            found: Any = compute_sample_weight(self.class_weight, targets)  # pyrefly: ignore
        else:
            labels = self.classes_[targets]
            unknown = (
                set(self.class_weight) - set(self.classes_.tolist()) if isinstance(self.class_weight, dict) else ()
            )
            if unknown:
                raise InputError("class_weight", f"a weight of {unknown.pop()!r}", f"classes {self.classes_.tolist()}")
            found = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)[targets]  # pyrefly: ignore
        return found

    def _target_rows(self, targets: np.ndarray) -> np.ndarray:
        return targets if self.multilabel_ else np.eye(self.n_outputs_)[targets]

    def _target_scores(self, targets: np.ndarray) -> np.ndarray:
        return 2 * self._target_rows(targets) - 1

    def _network_scores(self, outputs: np.ndarray) -> np.ndarray:
        return 2 * self._probabilities(outputs) - 1

    def _loss(self) -> str:
        return "binary_cross_entropy" if self.multilabel_ else "cross_entropy"

    def _link(self) -> str:
        return "sigmoid" if self.multilabel_ else "softmax"

    def _calibrate(self, scores: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> None:
        """The factor of scores under which left-out targets are most probable.

        Targets count as if two more of them were of any class (Platt 1999): a few sequences that are all told apart
        do not prove that every later one will be.
        """
        rows = self._target_rows(targets)
        choices = 2 if self.multilabel_ else rows.shape[1]
        rows = (len(rows) * rows + UNSEEN / choices) / (len(rows) + UNSEEN)

        def surprise(log_factor: float) -> float:
            logits = np.exp(log_factor) * scores
            if self.multilabel_:
                found = rows * log_expit(logits) + (1 - rows) * log_expit(-logits)
            else:
                found = rows * log_softmax(logits, axis=1)
            return -float(weights @ found.sum(axis=1))

        found = minimize_scalar(surprise, bounds=(np.log(0.1), np.log(SHARPEST)), method="bounded")
        self.sharpness_ = float(np.exp(found.x))

    # ------------------------------------------------------------------------------------------ predict

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        if self.multilabel_:
            return 0.5 * (1 + np.tanh(logits / 2))
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes): the probability of every class, in the order of `classes_`; of every label, if several hold."""
        return self._probabilities(self._outputs(X))

    def predict(self, X: Any) -> np.ndarray:
        """(n,): the most probable label; or (n, q) zeros and ones."""
        found = self._outputs(X)
        return (found > 0).astype(np.int64) if self.multilabel_ else self.classes_[found.argmax(axis=1)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; y is not needed where X brings it along."""
        X, y = input_conversion.split_targets(X, y, self.task)
        return float(super().score(X, y, sample_weight))

    def explain(self, x: Any, windows: int = 24) -> Explanation:
        """Which part of a sequence decides its class, by hiding one part after the other.

        **Arguments**

        - `x`: one sequence, (T,) or (T, D).
        - `windows`: how many parts, overlapping by half, are hidden.

        **Returns** an `Explanation`: `importance` (T,) is how much the log-odds of the predicted class lose when a step
        is hidden: probabilities near 1 would hardly change. It draws itself with `figure()`, and in notebooks.

        **Example**

            >>> import numpy as np, recurra as rc
            >>> X = np.random.default_rng(0).normal(size=(40, 30))
            >>> X[::2, 10:15] += 4
            >>> model = rc.SequenceClassifier(effort="quick", random_state=0).fit(X, np.arange(40) % 2)
            >>> 8 <= int(model.explain(X[0]).importance.argmax()) <= 16
            True
        """
        check_is_fitted(self, "n_iter_")
        series = self._convert_for_predict([x])[0]
        outputs = self._outputs_of_series([series])
        top = int(outputs[0].argmax())

        def lost(hidden: list[np.ndarray]) -> np.ndarray:
            return self._log_odds(outputs, top) - self._log_odds(self._outputs_of_series(hidden), top)

        importance, probability = occlusion(series, windows, lost), self._probabilities(outputs)[0, top]
        return Explanation(series, importance, self.classes_[top], float(probability), "log-odds", self._names())

    def _log_odds(self, outputs: np.ndarray, label: int) -> np.ndarray:
        """(n,): the logarithm of the odds of one class against all others."""
        if self.multilabel_:
            return outputs[:, label]
        return outputs[:, label] - logsumexp(np.delete(outputs, label, axis=1), axis=1)

    # ------------------------------------------------------------------------------------------ save and load

    def _fitted_config(self) -> dict[str, Any]:
        return {"classes_": saved_options.labels_to_json(self.classes_), "multilabel_": self.multilabel_}

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        super()._restore(fitted, folder)
        self.classes_ = saved_options.labels_from_json(fitted.get("classes_"), self.n_outputs_, folder)
        self.multilabel_ = fitted.get("multilabel_", False)
        if not isinstance(self.multilabel_, bool):
            raise ModelFileError(f"{Path(folder) / 'config.json'}, multilabel_", self.multilabel_, "true or false")
