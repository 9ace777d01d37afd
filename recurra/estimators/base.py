"""The base class of `SequenceClassifier` and `SequenceRegressor`: input, fitting, prediction."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore  (its stubs are older)
from torch import nn

from ..data.batching import Batches
from ..data.sequences import SequenceSet
from ..errors import InputError, ShapeError
from ..inspect.page import Section
from ..train import randomness
from ..train.fit_arguments import build_optimizer
from ..train.progress import show_progress
from ..train.schedule import constant
from . import input_conversion
from .effort import choose_effort
from .feature_banks.ensemble import FeatureEnsemble, member_weights
from .feature_banks.overlaps import blocks_of_windows
from .feature_report import feature_sections
from .inspection import scaled_sequences
from .missing_values import fill_missing
from .sequence_storage import StoredEstimator
from .training_options import draw_seed, named_argument, to_int

LARGEST = 1e30  # value of a sequence: features are float32
FOLDS = 5  # networks trained to weigh a network against random features


class SequenceEstimator(StoredEstimator):
    """An estimator with one prediction per sequence. Subclasses define the targets."""

    def _class_weights(self, targets: np.ndarray) -> np.ndarray:
        """The weight of every sample that follows from its target."""
        return np.ones(len(targets))

    def _calibrate(self, scores: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> None:
        """Learn from scores of left-out samples how far scores can be trusted."""

    # ------------------------------------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on sequences and their targets.

        **Arguments**

        - `X`: an array (n, T) or (n, T, D), a list of arrays (T, D) of different lengths, a table (Arrow, any
          dataframe, a dict of columns) or a `SequenceSet`. NaN is a missing value: at the end of a sequence it is
          padding, elsewhere it is interpolated. A table with an id column has one row per step, otherwise one row per
          sequence; its columns get their roles as in `recurra fit`.
        - `y`: one target per sequence, or per row of a table with one row per step. A `SequenceSet` has its targets;
          with a table, `y` may name their column.
        - `sample_weight`: (n,), how much each sequence counts; by default all count the same.

        **Returns** the estimator.
        """
        self._check_options()
        series, targets, weights = self._read(X, y, sample_weight)
        seed = draw_seed(self.random_state)
        self._forget()
        self.effort_, effort = choose_effort(self.effort, series)
        trains = self._asks_for_network()
        with randomness.preserve_rng():
            if self.effort != "auto" or not trains:
                found = FeatureEnsemble.draw(series, effort.size, effort.draws, seed)
                held = blocks_of_windows(series) if self.task == "regression" else None
                self.ensemble_ = found.fit(series, self._target_scores(targets), weights, self._progress, held)
            if trains:
                self._fit_networks(series, targets, weights, seed)
        if self.ensemble_ is not None:
            self._calibrate(self._left_out_scores(), targets, weights)
            self.ensemble_.forget_left_out()
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train the network for one more epoch on these sequences; the state of the optimizer goes on.

        The first call builds the network of `cell` (None: an LSTM) and scales its inputs by what it sees; after `fit`
        or `load`, a trained network goes on with a new optimizer. Random features have no part in it: they are fitted
        at once.

        **Arguments**

        - `X`, `y`, `sample_weight`: as for `fit`.
        - `classes`: all labels that will come, in the first call of a classifier.

        **Returns** the estimator.
        """
        self._check_options()
        is_first = not hasattr(self, "network_") or self.ensemble_ is not None
        series, targets, weights = self._read(X, y, sample_weight, is_first, classes)
        with randomness.preserve_rng():
            if is_first:
                self._forget()
                self.effort_, self.input_scaling_ = self.effort, self._scaling_of(series)
                torch.manual_seed(draw_seed(self.random_state))
                self.network_, self.history_ = self._build(), []
            if not hasattr(self, "_optimizer"):
                self._optimizer = build_optimizer(self.optimizer, self.network_, self.lr)
            data = Batches(self._to_sequence_set(series, targets, weights), to_int(self.batch_size), seed=self.n_iter_)
            self.history_ = [*self.history_, *self._run(self.network_, data, None, constant(), 1, self._optimizer)]
        self.n_iter_ = len(self.history_)
        return self

    def _read(
        self, X: Any, y: Any, sample_weight: Any, is_first: bool = True, classes: Any = None
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Sequences, encoded targets and weights; those without weight are left out."""
        series, y = self._convert_for_fit(X, y, is_first)
        targets = self._encode_targets(y) if is_first and classes is None else self._encode_known(y, classes)
        if len(targets) != len(series):
            raise ShapeError("y", f"{len(targets)} targets", f"one for each of {len(series)} sequences")
        if is_first:
            self.input_size_ = series[0].shape[1]
        weights = _checked_weights(sample_weight, len(series)) * self._class_weights(targets)
        used = np.flatnonzero(weights > 0)
        if not len(used):
            raise InputError("sample_weight", "zero for all", "a weight above zero for at least one sequence")
        return [series[k] for k in used], targets[used], weights[used] / weights[used].mean()

    def _encode_known(self, y: Any, classes: Any) -> np.ndarray:
        """Targets of a further part of the data."""
        return self._encode_targets(y)

    def _convert_for_fit(self, X: Any, y: Any, is_first: bool = True) -> tuple[list[np.ndarray], Any]:
        """X as a list of arrays (T, D), and the targets."""
        X, y = input_conversion.split_targets(X, y, self.task)
        if not is_first:
            return self._convert_for_predict(X), y
        self.columns_ = X.features if isinstance(X, SequenceSet) else ()
        self.table_reading_ = input_conversion.table_reading(X) if isinstance(X, SequenceSet) else {}
        if not isinstance(X, SequenceSet) and not input_conversion.is_ragged(X):
            checks = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
            with named_argument("X, y"):
                X, y = validate_data(self, X, y, multi_output=True, y_numeric=self.task == "regression", **checks)
            return _filled(X), y
        if y is None:
            raise InputError("y", "nothing", f"one target per sequence: {type(self).__name__} requires y to be passed")
        series = _filled(X)
        self.n_features_in_ = series[0].shape[1]
        return series, y

    def _progress(self, members: Sequence[Any]) -> Iterable[Any]:
        return show_progress(members, "random features", len(members)) if self.verbose else members

    # ------------------------------------------------------------------------------------------ features and network

    def _fit_networks(self, series: list[np.ndarray], targets: np.ndarray, weights: np.ndarray, seed: int) -> None:
        """A network on all sequences; beside random features, its weight by networks that left some out."""
        if self.ensemble_ is not None:
            outside = np.zeros((len(series), self.n_outputs_))
            for learned, held in self._folds(targets, seed):
                self._fit_network([series[k] for k in learned], targets[learned], weights[learned], seed)
                outside[held] = self._network_scores(self._network_outputs([series[k] for k in held]))
            left_out = [*self.ensemble_.left_out(), outside]
            found = member_weights(left_out, self._target_scores(targets), weights)
            self.ensemble_.weights, self.network_weight_ = found[:-1], float(found[-1])
            self._outside = outside
        self._fit_network(series, targets, weights, seed)

    def _folds(self, targets: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
        count = min(FOLDS, len(targets))
        if count < 2:
            raise InputError("X", "1 sequence", "at least two, to compare a network with random features")
        is_labelled = targets.ndim == 1 and np.unique(targets, return_counts=True)[1].min() >= count
        kind = StratifiedKFold if is_labelled else KFold
        return list(kind(count, shuffle=True, random_state=seed).split(targets, targets))  # pyrefly: ignore

    def _left_out_scores(self) -> np.ndarray:
        """(n, outputs): what all members together predict of samples that were left out."""
        assert self.ensemble_ is not None
        found = self.ensemble_.left_out_scores()
        outside = self.__dict__.pop("_outside", None)
        return found if outside is None else found + self.network_weight_ * outside

    # ------------------------------------------------------------------------------------------ predict

    @property
    def members_(self) -> dict[str, float]:
        """The weight of each kind of random feature, and of the trained network."""
        check_is_fitted(self, "n_iter_")
        found = {} if self.ensemble_ is None else self.ensemble_.named_weights()
        return found | ({"network": self.network_weight_} if hasattr(self, "network_") else {})

    def _outputs(self, X: Any) -> np.ndarray:
        """(n, outputs) in float64: logits, or standardised numbers."""
        check_is_fitted(self, "n_iter_")
        series = self._convert_for_predict(X)
        return self._outputs_of_series(series)

    def _outputs_of_series(self, series: list[np.ndarray]) -> np.ndarray:
        if self.ensemble_ is None:
            return self._network_outputs(series)
        scores = self.ensemble_.scores(series)
        if hasattr(self, "network_") and self.network_weight_ > 0:
            scores = scores + self.network_weight_ * self._network_scores(self._network_outputs(series))
        return self.sharpness_ * scores

    def _convert_for_predict(self, X: Any) -> list[np.ndarray]:
        X = input_conversion.to_long_table(input_conversion.to_values(X))
        if input_conversion.column_names(X) and (self.table_reading_ or input_conversion.is_table(X)):
            reading = self.table_reading_ or {"features": self.columns_}
            X = input_conversion.series_of_table(input_conversion.arrow(X), reading)
        if not isinstance(X, SequenceSet) and not input_conversion.is_ragged(X):
            if self.n_features_in_ == self.input_size_ == 1:  # one feature per step: a row is a series of any length
                X = np.atleast_2d(np.asarray(X, dtype=np.float64))
            else:
                with named_argument("X"):
                    X = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite="allow-nan")
        series = _filled(X)
        if series[0].shape[1] != self.input_size_:
            raise ShapeError("X", f"{series[0].shape[1]} features per step", f"{self.input_size_}, as in fit")
        return series

    def _names(self) -> tuple[str, ...]:
        """The names of the features, if the data had them."""
        return tuple(self.columns_) if len(self.columns_) == self.input_size_ else ()

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[nn.Module, SequenceSet]:
        """The network and a few scaled sequences, for `rc.inspect` and `rc.report`."""
        check_is_fitted(self, "n_iter_")
        if not hasattr(self, "network_"):
            raise InputError(
                "model",
                f"a {type(self).__name__} that reads out random features",
                'a trained network, such as that of cell="lstm"; explain(x) shows what decides here',
            )
        return self.network_, scaled_sequences(self, data, sequences)

    def report_sections(self, data: Any) -> list[Section] | None:
        """What `rc.report` shows instead of a network; None if there is one."""
        check_is_fitted(self, "n_iter_")
        return None if hasattr(self, "network_") else feature_sections(self, data)


def _checked_weights(given: Any, count: int) -> np.ndarray:
    """(n,): finite weights, none below 0; without any, all are 1."""
    weights = np.ones(count) if given is None else np.asarray(given, dtype=np.float64)
    weights = np.full(count, float(weights)) if weights.ndim == 0 else weights
    if weights.shape != (count,):
        raise ShapeError("sample_weight", f"shape {weights.shape}", f"({count},), one weight for each sequence")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise InputError("sample_weight", f"{weights.min()} to {weights.max()}", "finite weights, none below 0")
    return weights


def _filled(X: Any) -> list[np.ndarray]:
    """Every series as (T, D) without missing values."""
    found = [fill_missing(x) for x in input_conversion.arrays(X, allow_missing=True)]
    for k, x in enumerate(found):
        if not (size := float(np.abs(x).max())) < LARGEST:
            raise InputError(f"X[{k}]", f"a value of {size:g}", f"values below {LARGEST:g}, which float32 holds")
    return found
