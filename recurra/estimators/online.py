"""Estimators that learn from a stream, one step at a time: `predict_one`, then `learn_one`, as River spells them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from ..argument_checks import positive_int, positive_number
from ..errors import InputError, UnknownNameError
from ..inspect.sample import Sample
from ..layers import layer
from ..storage import write_folder
from ..tensor_files import decode, encode
from ..train import RTRL, UORO, EProp, OnlineLearner, Predictor, SnAp
from . import online_storage

MOST_INSPECTED = 1000  # steps of a stream
ALGORITHMS: dict[str, type[OnlineLearner]] = {"rtrl": RTRL, "snap1": SnAp, "uoro": UORO, "eprop": EProp}


class RunningScaling:
    """Mean and variance of every column of a stream, by Welford's recursion."""

    def __init__(self, width: int):
        self.count, self.mean, self.squares = 0, np.zeros(width), np.zeros(width)

    def learn(self, row: np.ndarray) -> None:
        self.count += 1
        off = row - self.mean
        self.mean = self.mean + off / self.count
        self.squares = self.squares + off * (row - self.mean)

    @property
    def scale(self) -> np.ndarray:
        deviation = np.sqrt(self.squares / max(self.count - 1, 1))
        return np.where(deviation > 1e-12, deviation, 1.0)

    def apply(self, row: np.ndarray) -> np.ndarray:
        return (row - self.mean) / self.scale

    def invert(self, row: np.ndarray) -> np.ndarray:
        return row * self.scale + self.mean


class OnlineEstimator(BaseEstimator, ABC):
    """Base of the online estimators: features by name, running standardisation, a learner that never looks back."""

    learner_: OnlineLearner
    last_: np.ndarray  # what the network reads of the last target
    classes_: list[Any]  # of a classifier: the labels known so far

    def __init__(
        self,
        cell: str = "gru",
        hidden_size: int = 32,
        algorithm: str = "rtrl",
        lr: float = 3e-3,
        *,
        cell_options: dict[str, Any] | None = None,
        clip: float | None = 1.0,
        random_state: int = 0,
    ):
        self.cell, self.hidden_size, self.algorithm, self.lr = cell, hidden_size, algorithm, lr
        self.cell_options, self.clip, self.random_state = cell_options, clip, random_state

    def _start(self, features: Iterable[str], outputs: int, loss: str) -> None:
        """Build the network for the features of the first step."""
        if self.algorithm not in ALGORITHMS:
            raise UnknownNameError("algorithm", self.algorithm, ALGORITHMS)
        self.feature_names_in_ = tuple(sorted(features))
        self.steps_ = 0
        width = len(self.feature_names_in_) + self._fed_back(outputs)
        self.scaling_ = RunningScaling(len(self.feature_names_in_))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            hidden = positive_int("hidden_size", self.hidden_size)
            network = Predictor(layer(self.cell, max(width, 1), hidden, **(self.cell_options or {})), outputs)
        rate = positive_number("lr", self.lr)
        make = ALGORITHMS[self.algorithm]
        self.learner_ = make(network, loss, "adam", rate, update="step", carry=True, clip=self.clip)

    def _fed_back(self, outputs: int) -> int:
        """Columns of the last target that the network reads beside the features."""
        return outputs

    def _features(self, x: Any) -> np.ndarray:
        if not isinstance(x, Mapping):
            raise InputError("x", type(x).__name__, "a dict of numbers by name, {} for none")
        names = self.feature_names_in_
        if set(x) != set(names):
            raise InputError("x", sorted(map(str, x)), f"the features of the first step, {list(names)}")
        try:
            row = np.array([x[name] for name in names], dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("x", dict(x), "finite numbers") from None
        if not np.isfinite(row).all():
            raise InputError("x", dict(x), "finite numbers")
        return row

    def _input(self, row: np.ndarray, last: np.ndarray) -> Tensor:
        """(1, 1, D)."""
        values = np.concatenate([self.scaling_.apply(row), last])
        values = values if len(values) else np.zeros(1)
        return torch.as_tensor(values, dtype=torch.float32).view(1, 1, -1)

    def learn_many(self, stream: Iterable[tuple[Mapping[str, Real], Any]]) -> Self:
        """Learn from pairs (x, y) in order."""
        for x, y in stream:
            self.learn_one(x, y)
        return self

    @abstractmethod
    def learn_one(self, x: Mapping[str, Real], y: Any) -> Self:
        """Learn that the step with features x had the target y."""

    @abstractmethod
    def start(self, features: Iterable[str]) -> None:
        """Build the network for features of these names, before the first step."""

    @abstractmethod
    def _as_last(self, y: Any) -> np.ndarray:
        """A target as the network reads it at the next step."""

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[Any, Sample]:
        """The network and the start of a stream of pairs (x, y) as it reads them, for `rc.inspect` and `rc.report`."""
        if not hasattr(self, "learner_"):
            raise InputError("model", f"a {type(self).__name__} that has learned nothing yet", "one after learn_one")
        pairs = list(islice(data, MOST_INSPECTED)) if isinstance(data, Iterable) else []
        if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            raise InputError("data", type(data).__name__, "pairs (features by name, target), as learn_many takes")
        known = self._as_last(pairs[0][1])
        lasts = [np.zeros_like(known), known, *(self._as_last(y) for _, y in pairs[1:-1])]
        rows = [self._input(self._features(x or {}), last)[0] for (x, _), last in zip(pairs, lasts, strict=False)]
        return self.learner_.model, Sample(torch.stack(rows), torch.tensor([len(rows)]))

    def scalings(self) -> tuple[RunningScaling, ...]:
        """The running means, of the features first."""
        return (self.scaling_,)

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into a folder; a loaded model goes on with the stream exactly."""
        write_folder(folder, online_storage.contents_of(self))

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickle: the learner by its state, because compiled code can be neither."""
        state = deepcopy({name: value for name, value in super().__getstate__().items() if name != "learner_"})
        if hasattr(self, "learner_"):
            tensors: dict[str, Tensor] = {}
            structure = encode(self.learner_.state_dict(), tensors)
            state["learner_"] = structure, {name: tensor.numpy() for name, tensor in tensors.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fitted = {name: value for name, value in state.items() if name != "learner_"}
        super().__setstate__(fitted)
        if "learner_" in state:
            self.start(self.feature_names_in_)
            super().__setstate__(fitted)  # `start` has set it to the first step
            structure, arrays = state["learner_"]
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            self.learner_.load_state_dict(decode(structure, tensors))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote. A user-defined cell must be registered before."""
        return online_storage.load(cls, folder)


class OnlineForecaster(OnlineEstimator):
    """Predicts the next number of a stream, and learns from it when it arrives; nothing is stored or read twice.

    The network reads the features of a step and the target of the step before. Weights change at every step, by exact
    real-time recurrent learning or an approximation. Features and target are standardised by their running mean.

    **Arguments**

    - `cell`, `hidden_size`, `cell_options`: the recurrent network; any registered cell.
    - `algorithm`: "rtrl", "snap1", "uoro" or "eprop".
    - `lr`, `clip`: learning rate of Adam, largest norm of a gradient.
    - `random_state`: seed of the weights.

    **Returns**: `predict_one(x)` a float, `learn_one(x, y)` itself, `forecast(h)` h floats.

    **Example**

        >>> import math
        >>> model = rc.OnlineForecaster(hidden_size=8, lr=0.01)
        >>> errors = []
        >>> for t in range(400):
        ...     y = math.sin(t / 3)
        ...     errors.append(abs(model.predict_one({}) - y))
        ...     _ = model.learn_one({}, y)
        >>> sum(errors[-50:]) < 0.5 * sum(errors[:50])
        True
    """

    def predict_one(self, x: Mapping[str, Real] | None = None) -> float:
        """The target of the step with features x, before it is known; 0.0 before the first step."""
        if not hasattr(self, "learner_"):
            return 0.0
        predicted = self.learner_.predict(self._input(self._features(x or {}), self.last_))[0, 0]
        return float(self.target_scaling_.invert(predicted.double().numpy())[0])

    def forecast(self, horizon: int) -> list[float]:
        """The next numbers of a stream without features: each prediction is the last target of the next one."""
        if not hasattr(self, "learner_"):
            raise InputError("horizon", horizon, "a forecast after the first learn_one")
        if self.feature_names_in_:
            raise InputError("horizon", horizon, "predict_one(x): later features are not known")
        last, rows, found = self.last_, [], np.zeros((0, 1))
        for _ in range(positive_int("horizon", horizon)):
            rows.append(self._input(np.zeros(0), last)[0])
            found = self.learner_.predict(torch.stack(rows))[:, 0].double().numpy()  # (steps so far, 1)
            last = found[-1]
        return [float(self.target_scaling_.invert(value)[0]) for value in found]

    def _as_last(self, y: Any) -> np.ndarray:
        return self.target_scaling_.apply(np.array([float(y)]))

    def start(self, features: Iterable[str]) -> None:
        self._start(features, 1, "mse")
        self.target_scaling_, self.last_ = RunningScaling(1), np.zeros(1)

    def scalings(self) -> tuple[RunningScaling, ...]:
        return self.scaling_, self.target_scaling_

    def learn_one(self, x: Mapping[str, Real] | None, y: Any) -> Self:
        """Learn that the step with features x had the target y."""
        if isinstance(y, bool) or not isinstance(y, Real) or not np.isfinite(float(y)):
            raise InputError("y", repr(y), "a finite number")
        if not hasattr(self, "learner_"):
            self.start(x or {})
        row, target = self._features(x or {}), np.array([float(y)])
        self.scaling_.learn(row)
        self.target_scaling_.learn(target)
        scaled = self.target_scaling_.apply(target)
        wanted = torch.as_tensor(scaled, dtype=torch.float32).view(1, 1, 1)
        self.learner_.step(self._input(row, self.last_), wanted)
        self.last_, self.steps_ = scaled, self.steps_ + 1
        return self


class OnlineClassifier(OnlineEstimator):
    """Predicts the class of every step of a stream, and learns from it when it arrives.

    The network reads the features of a step and, one-hot, the class of the step before. A network has as many outputs
    as classes: name them in advance, or say how many may come, and they are known as the stream shows them.

    **Arguments**

    - `classes`: all labels that may come, or the largest number of them.
    - `cell`, `hidden_size`, `algorithm`, `lr`, `cell_options`, `clip`, `random_state`: as for `OnlineForecaster`.

    **Returns**: `predict_one(x)` a label (None before the first that is known), `predict_proba_one(x)` label →
    probability, `learn_one(x, y)` itself. `classes_` are the labels known so far.

    **Example**

        >>> model = rc.OnlineClassifier(classes=("a", "b"), hidden_size=8, lr=0.01)
        >>> right = []
        >>> for t in range(200):
        ...     label = "ab"[t // 2 % 2]
        ...     right.append(model.predict_one({}) == label)
        ...     _ = model.learn_one({}, label)
        >>> sum(right[-40:]) > 36
        True
    """

    def __init__(
        self,
        classes: Iterable[Any] | int = (),
        cell: str = "gru",
        hidden_size: int = 32,
        algorithm: str = "rtrl",
        lr: float = 3e-3,
        *,
        cell_options: dict[str, Any] | None = None,
        clip: float | None = 1.0,
        random_state: int = 0,
    ):
        super().__init__(
            cell, hidden_size, algorithm, lr, cell_options=cell_options, clip=clip, random_state=random_state
        )
        self.classes = classes

    def predict_proba_one(self, x: Mapping[str, Real] | None = None) -> dict[Any, float]:
        """Label → probability, for the step with features x; all alike before the first step."""
        labels = self._labels()
        if not hasattr(self, "learner_"):
            return dict.fromkeys(labels, 1 / max(len(labels), 1))
        scores = self.learner_.predict(self._input(self._features(x or {}), self.last_))[0, 0, : len(labels)]
        return dict(zip(labels, scores.double().softmax(0).tolist(), strict=True))

    def predict_one(self, x: Mapping[str, Real] | None = None) -> Any:
        """The most likely label of the step with features x; None while no label is known."""
        chances = self.predict_proba_one(x)
        return max(chances, key=lambda label: chances[label], default=None)

    def _labels(self) -> list[Any]:
        """The labels known so far."""
        if isinstance(self.classes, int):
            self._outputs()
            return getattr(self, "classes_", [])
        labels = list(self.classes) if isinstance(self.classes, Iterable) else []
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise InputError("classes", self.classes, "at least two labels, each once, or the largest number of them")
        return labels

    def _outputs(self) -> int:
        if not isinstance(self.classes, int):
            return len(self._labels())
        if isinstance(self.classes, bool) or self.classes < 2:
            raise InputError("classes", self.classes, "at least two labels, each once, or the largest number of them")
        return self.classes

    def _as_last(self, y: Any) -> np.ndarray:
        last = np.zeros(self._outputs())
        if y in self.classes_:
            last[self.classes_.index(y)] = 1.0
        return last

    def start(self, features: Iterable[str]) -> None:
        self.classes_ = self._labels()
        self._start(features, self._outputs(), "cross_entropy")
        self.last_ = np.zeros(self._outputs())

    def _number_of(self, label: Any) -> int:
        """The output of a label, which takes the next free one when it comes for the first time."""
        known = self._labels()
        if label in known:
            return known.index(label)
        if not isinstance(self.classes, int):
            raise InputError("y", repr(label), f"one of the classes {known}")
        if isinstance(label, float) and label != label:
            raise InputError("y", repr(label), "a label that equals itself")
        if len(known) == self.classes:
            raise InputError(
                "y", repr(label), f"one of the first {self.classes} classes, {known}; classes= allows more"
            )
        self.classes_ = [*known, label]
        return len(known)

    def learn_one(self, x: Mapping[str, Real] | None, y: Any) -> Self:
        """Learn that the step with features x had the label y."""
        if not isinstance(self.classes, int):
            self._number_of(y)  # an unknown label is refused before a network is built
        if not hasattr(self, "learner_"):
            self.start(x or {})
        row = self._features(x or {})
        number = self._number_of(y)
        self.scaling_.learn(row)
        self.learner_.step(self._input(row, self.last_), torch.tensor([[number]]))
        self.last_, self.steps_ = np.eye(self._outputs())[number], self.steps_ + 1
        return self
