"""`rc.StepClassifier` and `rc.StepRegressor`: a label or a number for every step of a sequence."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..argument_checks import is_real, true_or_false
from ..data.batching import Batches
from ..data.readers.indicators import one_hot_runs
from ..data.sequences import SequenceSet, Task
from ..errors import InputError, ModelFileError, ShapeError, UnknownNameError
from ..inspect.sample import Sample
from ..storage import FolderContents, read_folder, write_folder
from ..train import randomness
from ..train.fit import fit as train
from ..train.precision import choose_device
from . import input_conversion, saved_options
from .embedded_columns import EmbeddedOneHot
from .inspection import split_pair
from .network import SequenceNetwork
from .onnx_file import ScaledNetwork, write
from .scaling import Scaling
from .step_tables import with_step_targets
from .trained_network import PREDICT_BATCH, SCHEDULES, VALIDATION_MINIMUM
from .training_options import check_training_options, draw_seed, to_int

SIZES = ("input_size_", "n_outputs_", "n_features_in_")

_ARGUMENTS = """
    **Arguments**

    - `cell`: a registered name such as "lstm", or a cell class; `cell_options` are its own arguments.
    - `bidirectional`: read every sequence from both ends; set it to False for labels of a stream.
    - `one_hot`: columns of X that are the one-hot code of a category, as (first column, columns) each: they are
      embedded. Those of a table with text are found.
    - the others: as in `rc.SequenceClassifier`.
"""


class StepNetwork(SequenceNetwork):
    """Sequences (T, B, D) and lengths (B,) → outputs of every step (T, B, outputs).

    `runs` of one-hot columns are embedded.
    """

    def __init__(
        self,
        cell: Any,
        inputs: int,
        outputs: int,
        dropout: float,
        layers: dict[str, Any],
        runs: Sequence[tuple[int, int]],
    ):
        embedded = EmbeddedOneHot(inputs, runs)
        super().__init__(cell, embedded.width, outputs, "last", dropout, layers)
        self.embedded = embedded

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y, _ = self.recurrent(self.embedded(x), lengths=lengths)  # (T, B, H)
        return self.readout(self.dropout(y))


class StepEstimator(BaseEstimator, ABC):
    """What the two estimators share: targets and answers are lists with one array per sequence."""

    network_: StepNetwork
    one_hot_: list[tuple[int, int]]  # (first column, columns) of the codes that are embedded
    input_scaling_: Scaling
    history_: list[dict[str, Any]]
    input_size_: int
    n_outputs_: int

    task: ClassVar[Task]
    loss: ClassVar[str]

    def __init__(
        self,
        cell: Any = "lstm",
        hidden_size: Any = 64,
        num_layers: int = 1,
        *,
        bidirectional: bool = True,
        dropout: float = 0.0,
        cell_options: dict[str, Any] | None = None,
        scale: bool = True,
        one_hot: Sequence[tuple[int, int]] = (),
        epochs: int = 60,
        batch_size: int = 8,
        lr: float = 1e-2,
        optimizer: str = "adam",
        schedule: str = "cosine",
        clip: float | None = 1.0,
        validation: float | str = "auto",
        patience: int = 10,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.hidden_size, self.num_layers = cell, hidden_size, num_layers
        self.bidirectional, self.dropout, self.cell_options = bidirectional, dropout, cell_options
        self.scale, self.epochs, self.batch_size, self.lr, self.optimizer = scale, epochs, batch_size, lr, optimizer
        self.schedule, self.clip, self.validation, self.patience = schedule, clip, validation, patience
        self.device, self.random_state, self.verbose, self.one_hot = device, random_state, verbose, one_hot

    @abstractmethod
    def _encode_targets(self, y: list[np.ndarray]) -> int:
        """Learn classes or scaling from the targets; the output size of the network."""

    @abstractmethod
    def _scaled_targets(self, y: list[np.ndarray]) -> list[np.ndarray]:
        """Targets as the loss takes them."""

    @abstractmethod
    def _fitted_config(self) -> dict[str, Any]:
        """The fitted attributes of the subclass as plain JSON."""

    # ------------------------------------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on sequences and the targets of their steps.

        **Arguments**

        - `X`: a list of arrays (T, D), an array (n, T) or (n, T, D), a long table, or a `SequenceSet`.
        - `y`: a list of targets (T,) for each sequence; with a table, the name of their column, or one for every row.

        **Returns** the estimator.
        """
        self._check_options()
        series, targets = self._convert_for_fit(X, y)
        self.n_outputs_ = self._encode_targets(targets)
        self.input_size_ = series[0].shape[1]
        self.input_scaling_ = self._scaling_of(series)
        seed = draw_seed(self.random_state)
        with randomness.preserve_rng():
            torch.manual_seed(seed)
            self.network_ = self._build()
            self._train(self._to_sequence_set(series, self._scaled_targets(targets)), seed)
        return self

    def _check_options(self) -> None:
        if self.schedule not in SCHEDULES:
            raise UnknownNameError("schedule", repr(self.schedule), SCHEDULES)
        validation: Any = self.validation
        if validation != "auto" and not (is_real(validation) and 0.0 <= validation < 1.0):
            raise InputError("validation", repr(validation), 'a fraction from 0 to below 1, or "auto"')
        true_or_false("scale", self.scale)
        check_training_options(self)

    def _build(self) -> StepNetwork:
        layers = {"hidden_size": to_int(self.hidden_size), "num_layers": to_int(self.num_layers)}
        layers |= {"bidirectional": self.bidirectional, **(self.cell_options or {})}
        return StepNetwork(self.cell, self.input_size_, self.n_outputs_, self.dropout, layers, self.one_hot_)

    def _scaling_of(self, series: list[np.ndarray]) -> Scaling:
        """The scaling of numbers; one-hot columns stay as they are."""
        if not self.scale:
            return Scaling.none(self.input_size_)
        found = Scaling.of(series)
        codes = [column for first, count in self.one_hot_ for column in range(first, first + count)]
        found.mean[codes], found.scale[codes] = 0.0, 1.0
        return found

    def _to_sequence_set(self, series: list[np.ndarray], targets: list[np.ndarray]) -> SequenceSet:
        scaled = [torch.tensor(self.input_scaling_.apply(x), dtype=torch.float32) for x in series]
        return SequenceSet.from_arrays(scaled, targets, self.task)

    def _train(self, data: SequenceSet, seed: int) -> None:
        share = (
            (0.1 if len(data) >= VALIDATION_MINIMUM else 0.0) if self.validation == "auto" else float(self.validation)
        )
        order, size = np.random.default_rng(seed).permutation(len(data)), to_int(self.batch_size)
        held = order[: int(share * len(data))]
        learned = data if not len(held) else data.select(np.sort(order[len(held) :]).tolist())
        result = train(
            self.network_,
            Batches(learned, size, seed=seed),
            Batches(data.select(held.tolist()), size, shuffle=False) if len(held) else None,
            loss=self.loss,
            optimizer=self.optimizer,
            lr=self.lr,
            schedule=SCHEDULES[self.schedule],
            epochs=to_int(self.epochs),
            clip=self.clip,
            patience=to_int(self.patience) if len(held) else None,
            device=self.device,
            progress=self.verbose,
        )
        self.history_, self.n_iter_ = result.history, len(result.history)
        self.network_.eval().cpu()

    def _convert_for_fit(self, X: Any, y: Any) -> tuple[list[np.ndarray], Any]:
        """X as a list of arrays (T, D), and a list of targets, one per step."""
        self.columns_, self.table_reading_ = (), {}
        self.one_hot_ = [(int(first), int(count)) for first, count in self.one_hot]
        X, targets = with_step_targets(X, y, self.task)
        if isinstance(X, SequenceSet):
            self.columns_, self.table_reading_ = X.features, input_conversion.table_reading(X)
            self.one_hot_ = list(one_hot_runs(X.features, X.categories)) or self.one_hot_
        series = input_conversion.arrays(X)
        if len(targets) != len(series):
            raise ShapeError("y", f"targets of {len(targets)} sequences", f"of {len(series)}, as X")
        for k, (x, row) in enumerate(zip(series, targets, strict=True)):
            if np.ndim(row) == 0:
                raise ShapeError(f"y[{k}]", repr(row), f"one target for each of {len(x)} steps")
            if len(x) != len(row):
                raise ShapeError(f"y[{k}]", f"{len(row)} targets", f"one for each of {len(x)} steps")
        self.n_features_in_ = series[0].shape[1]
        if any(first < 0 or count < 1 or first + count > self.n_features_in_ for first, count in self.one_hot_):
            expected = f"(first column, columns) within the {self.n_features_in_} columns of X"
            raise InputError("one_hot", self.one_hot_, expected)
        return series, targets

    def _convert_for_predict(self, X: Any) -> list[np.ndarray]:
        if input_conversion.column_names(X):
            X = input_conversion.series_of_table(input_conversion.arrow(X), self.table_reading_)
        series = input_conversion.arrays(X)
        if series[0].shape[1] != self.input_size_:
            raise ShapeError("X", f"{series[0].shape[1]} features per step", f"{self.input_size_}, as in fit")
        return series

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[Any, Any]:
        """The network and a few scaled sequences, with the targets of their steps where the data has them."""
        X, y = split_pair(data)
        series = self._convert_for_predict(X)[:sequences]
        if y is not None:
            return self.network_, self._to_sequence_set(
                series, self._scaled_targets([np.asarray(row) for row in y[:sequences]])
            )
        scaled = [torch.tensor(self.input_scaling_.apply(x), dtype=torch.float32) for x in series]
        return self.network_, Sample(pad_sequence(scaled), torch.tensor([len(x) for x in scaled]))

    def _step_outputs(self, X: Any) -> list[np.ndarray]:
        """(T, outputs) of every sequence, in float64."""
        check_is_fitted(self, "network_")
        series = self._convert_for_predict(X)
        device = choose_device(self.network_, self.device)
        network = deepcopy(self.network_).eval()
        network = network.double() if device.type == "cpu" else network.to(device)
        found = [np.empty(0)] * len(series)
        order = np.argsort([len(x) for x in series], kind="stable")
        with torch.no_grad():
            for first in range(0, len(order), PREDICT_BATCH):
                ids = order[first : first + PREDICT_BATCH].tolist()
                x = pad_sequence([torch.tensor(self.input_scaling_.apply(series[k])) for k in ids])
                lengths = torch.tensor([len(series[k]) for k in ids])
                dtype = next(network.parameters()).dtype
                outputs = network(x.to(device, dtype), lengths.to(device)).double().cpu().numpy()  # (T, B, outputs)
                for column, k in enumerate(ids):
                    found[k] = outputs[: len(series[k]), column]
        return found

    # ------------------------------------------------------------------------------------------ save and load

    def export(self, path: str | Path) -> Path:
        """Write an ONNX file: unscaled `x` (T, B, D) and `lengths` (B,) → probabilities or numbers (T, B, q).

        The metadata have the classes. The file is compared with the model in onnxruntime before it is put in place.
        """
        check_is_fitted(self, "network_")
        centre = torch.tensor(self.input_scaling_.mean, dtype=torch.float32)
        module = ScaledNetwork(deepcopy(self.network_).eval(), self.input_scaling_, self._scalings().get("targets"))
        example = centre + torch.zeros(5, 3, self.input_size_), torch.tensor([5, 2, 4])
        return write(module.eval(), path, example, {"kind": type(self).__name__, **self._fitted_config()})

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into a folder; `load` reads them."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "network_")
        options = saved_options.options_to_json(self.get_params(deep=False))
        fitted = {name: getattr(self, name) for name in SIZES} | {"columns_": list(self.columns_)}
        fitted |= {"one_hot_": self.one_hot_, "table_reading_": self.table_reading_, "history_": self.history_}
        fitted |= self._fitted_config()
        return FolderContents(type(self).__name__, {"options": options, "fitted": fitted}, self._tensors())

    def _scalings(self) -> dict[str, Scaling]:
        return {"inputs": self.input_scaling_}

    def _tensors(self) -> dict[str, Tensor]:
        weights = {f"network.{name}": tensor for name, tensor in self.network_.state_dict().items()}
        for name, scaling in self._scalings().items():
            weights[f"{name}.mean"], weights[f"{name}.scale"] = map(torch.tensor, (scaling.mean, scaling.scale))
        return weights

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote. A user-defined cell must be registered before."""
        stored = read_folder(folder, cls.__name__)
        self = cls(**saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder))
        self._restore(stored.section("fitted"), folder)
        with stored.building():
            self.network_ = self._build()
        tensors = stored.tensors(like=self._tensors())
        prefix = "network."
        self.network_.load_state_dict({k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)})
        self.network_.eval()
        for name in self._scalings():
            scaling = Scaling(tensors[f"{name}.mean"].numpy(), tensors[f"{name}.scale"].numpy())
            setattr(self, f"{name.removesuffix('s')}_scaling_", scaling)
        return self

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        for name in SIZES:
            if not isinstance(fitted.get(name), int) or not 0 < fitted[name] < 1 << 24:
                raise ModelFileError(f"{Path(folder) / 'config.json'}, {name}", fitted.get(name), "a whole number")
            setattr(self, name, fitted[name])
        self.one_hot_ = [(first, count) for first, count in fitted.get("one_hot_", ())]
        self.history_, self.columns_ = fitted.get("history_", []), tuple(fitted.get("columns_", ()))
        self.table_reading_, self.n_iter_ = fitted.get("table_reading_", {}), len(self.history_)
        self.input_scaling_ = Scaling.none(self.input_size_)


class StepClassifier(StepEstimator):
    """A label for every step of a sequence: activities, sleep stages, heart beats, faults.

    `fit` takes a list of sequences (T, D) or an array (n, T, D), and as `y` a list of T labels each; or a long table
    and the name of its column of labels. Fitted attributes: `classes_`, `network_`, `history_`.
    {arguments}
    **Example**

        >>> import numpy as np, recurra as rc
        >>> X = [np.sin(np.arange(40) / (2 + k % 3))[:, None] for k in range(12)]
        >>> y = [np.where(x[:, 0] > 0, "up", "down") for x in X]
        >>> model = rc.StepClassifier("gru", hidden_size=8, epochs=10, random_state=0).fit(X, y)
        >>> model.predict(X[:1])[0].shape, model.score(X, y) > 0.9
        ((40,), True)
    """

    __doc__ = (__doc__ or "").format(arguments=_ARGUMENTS)
    task = "tagging"
    loss = "cross_entropy"

    def _encode_targets(self, y: list[np.ndarray]) -> int:
        self.classes_ = np.unique(np.concatenate(y))
        if len(self.classes_) < 2:
            raise InputError("y", f"1 class, {self.classes_.tolist()[0]!r}", "at least two classes")
        return len(self.classes_)

    def _scaled_targets(self, y: list[np.ndarray]) -> list[np.ndarray]:
        return [np.searchsorted(self.classes_, row).clip(0, len(self.classes_) - 1) for row in y]

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """(T, classes) of every sequence: the probability of every class, in the order of `classes_`."""
        shares = [np.exp(scores - scores.max(axis=1, keepdims=True)) for scores in self._step_outputs(X)]
        return [share / share.sum(axis=1, keepdims=True) for share in shares]

    def predict(self, X: Any) -> list[np.ndarray]:
        """(T,) of every sequence: the most probable label of every step."""
        return [self.classes_[scores.argmax(axis=1)] for scores in self._step_outputs(X)]

    def score(self, X: Any, y: Any = None) -> float:
        """The share of steps with the right label."""
        targets = with_step_targets(X, y, self.task)[1]
        return float(np.mean(np.concatenate(self.predict(X)) == np.concatenate(targets)))

    def _fitted_config(self) -> dict[str, Any]:
        return {"classes_": saved_options.labels_to_json(self.classes_)}

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        super()._restore(fitted, folder)
        self.classes_ = saved_options.labels_from_json(fitted.get("classes_"), self.n_outputs_, folder)


class StepRegressor(StepEstimator):
    """A number, or several, for every step of a sequence: a load from a current, a flow from a pressure.

    `fit` takes a list of sequences (T, D) or an array (n, T, D), and as `y` a list of arrays (T,) or (T, q); or a long
    table and the name of its column of numbers. Fitted attributes: `network_`, `target_scaling_`, `history_`.
    {arguments}
    **Example**

        >>> import numpy as np, recurra as rc
        >>> X = [np.sin(np.arange(40) / (2 + k % 3))[:, None] for k in range(12)]
        >>> y = [np.cumsum(x[:, 0]) for x in X]
        >>> model = rc.StepRegressor("gru", hidden_size=8, epochs=30, random_state=0).fit(X, y)
        >>> model.predict(X[:1])[0].shape, model.score(X, y) > 0.8
        ((40,), True)
    """

    __doc__ = (__doc__ or "").format(arguments=_ARGUMENTS)
    task = "transduction"
    loss = "mse"

    def _encode_targets(self, y: list[np.ndarray]) -> int:
        rows = [np.asarray(row, dtype=np.float64).reshape(len(row), -1) for row in y]
        self.flat_ = all(np.ndim(row) == 1 for row in y)
        self.target_scaling_ = Scaling.of(rows)
        return rows[0].shape[1]

    def _scaled_targets(self, y: list[np.ndarray]) -> list[np.ndarray]:
        return [self.target_scaling_.apply(row.astype(np.float64).reshape(len(row), -1)) for row in y]

    def predict(self, X: Any) -> list[np.ndarray]:
        """(T,) or (T, q) of every sequence, in the units of the targets."""
        found = [self.target_scaling_.invert(outputs) for outputs in self._step_outputs(X)]
        return [row[:, 0] for row in found] if self.flat_ else found

    def score(self, X: Any, y: Any = None) -> float:
        """R², over all steps of all sequences."""
        from sklearn.metrics import r2_score

        targets = with_step_targets(X, y, self.task)[1]
        return float(r2_score(np.concatenate(targets), np.concatenate(self.predict(X))))

    def _scalings(self) -> dict[str, Scaling]:
        return {"inputs": self.input_scaling_, "targets": self.target_scaling_}

    def _fitted_config(self) -> dict[str, Any]:
        return {"flat_": self.flat_}

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        super()._restore(fitted, folder)
        self.flat_, self.target_scaling_ = bool(fitted.get("flat_", True)), Scaling.none(self.n_outputs_)
