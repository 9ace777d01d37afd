"""The base class of `SequenceClassifier` and `SequenceRegressor`: input, training, prediction, saving."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore  (its stubs are older)
from torch import Tensor, nn

from ..argument_checks import is_real, positive_int, positive_number, true_or_false
from ..cell import Cell
from ..data.batching import Batches, collate
from ..data.sequences import SequenceSet, Task
from ..errors import InputError, ModelFileError, ShapeError, UnknownNameError
from ..storage import FolderContents, read_folder, write_folder
from ..train import randomness
from ..train.distributed import Processes
from ..train.fit import fit as train
from ..train.precision import choose_device
from ..train.schedule import Schedule, constant, cosine
from . import input_conversion, saved_options
from .inspection import scaled_sequences
from .network import POOLS, SequenceNetwork
from .onnx_file import ScaledNetwork, write
from .scaling import Scaling

VALIDATION_MINIMUM = 1000  # sequences; with fewer, validation="auto" holds out none
PREDICT_BATCH = 256  # sequences predicted at a time
SCHEDULES: dict[str, Schedule] = {"cosine": cosine(), "constant": constant()}
SIZE_ATTRIBUTES = ("n_features_in_", "input_size_", "n_outputs_")


class SequenceEstimator(BaseEstimator, ABC):
    """An estimator with one prediction per sequence. Subclasses define the targets."""

    task: ClassVar[Task]
    loss: ClassVar[str]

    def __init__(
        self,
        cell: type[Cell] | str = "lstm",
        hidden_size: int | Sequence[int] = 64,
        num_layers: int | None = None,
        bidirectional: bool = False,
        dropout: float = 0.0,
        pool: str = "max",
        *,
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
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.hidden_size, self.num_layers = cell, hidden_size, num_layers
        self.bidirectional, self.dropout, self.pool, self.cell_options = bidirectional, dropout, pool, cell_options
        self.scale, self.epochs, self.batch_size, self.lr, self.optimizer = scale, epochs, batch_size, lr, optimizer
        self.schedule, self.clip, self.validation, self.patience = schedule, clip, validation, patience
        self.device, self.random_state, self.verbose = device, random_state, verbose

    # ------------------------------------------------------------------------------------------ for the subclasses

    @abstractmethod
    def _encode_targets(self, y: Any) -> tuple[np.ndarray, int]:
        """The training targets, one row per sequence, and the output size of the network."""

    @abstractmethod
    def _fitted_config(self) -> dict[str, Any]:
        """The fitted attributes of the subclass as plain JSON."""

    # ------------------------------------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on sequences and their targets.

        **Arguments**

        - `X`: an array (n, T) or (n, T, D), a list of arrays (T, D) of different lengths, a table (Arrow, any
          dataframe, a dict of columns) or a `SequenceSet`. A table with an id column has one row per step, otherwise
          one row per sequence; its columns get their roles as in `recurra fit`.
        - `y`: one target per sequence, or per row of a table with one row per step. A `SequenceSet` has its targets;
          with a table, `y` may name their column.

        **Returns** the estimator.
        """
        self._check_options()
        series, y = self._convert_for_fit(X, y)
        targets, self.n_outputs_ = self._encode_targets(y)
        if len(targets) != len(series):
            raise ShapeError("y", f"{len(targets)} targets", f"one for each of {len(series)} sequences")
        self.input_size_ = series[0].shape[1]
        self.input_scaling_ = Scaling.of(series) if self.scale else Scaling.none(self.input_size_)
        seed = draw_seed(self.random_state)
        with randomness.preserve_rng():
            torch.manual_seed(seed)
            self.network_ = self._build()
            self._train(self._to_sequence_set(series, targets), seed)
        return self

    def _check_options(self) -> None:
        if self.pool not in POOLS:
            raise UnknownNameError("pool", repr(self.pool), POOLS)
        if self.schedule not in SCHEDULES:
            raise UnknownNameError("schedule", repr(self.schedule), SCHEDULES)
        validation: Any = self.validation
        if validation != "auto" and not (is_real(validation) and 0.0 <= validation < 1.0):
            raise InputError("validation", repr(validation), 'a fraction from 0 to below 1, or "auto"')
        true_or_false("scale", self.scale)
        check_training_options(self)

    def _convert_for_fit(self, X: Any, y: Any) -> tuple[list[np.ndarray], Any]:
        """X as a list of arrays (T, D), and the targets."""
        X, y = input_conversion.split_targets(X, y, self.task)
        self.columns_ = X.features if isinstance(X, SequenceSet) else ()
        self.table_reading_ = input_conversion.table_reading(X) if isinstance(X, SequenceSet) else {}
        if not isinstance(X, SequenceSet) and not input_conversion.is_ragged(X):
            with named_argument("X, y"):
                numeric = self.task == "regression"
                X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=numeric)
            return input_conversion.arrays(X), y
        if y is None:
            raise InputError("y", "nothing", f"one target per sequence: {type(self).__name__} requires y to be passed")
        series = input_conversion.arrays(X)
        self.n_features_in_ = series[0].shape[1]
        return series, y

    def _build(self) -> SequenceNetwork:
        layers = {
            "hidden_size": to_int(self.hidden_size),
            "num_layers": to_int(self.num_layers),
            "bidirectional": self.bidirectional,
            **(self.cell_options or {}),
        }
        return SequenceNetwork(self.cell, self.input_size_, self.n_outputs_, self.pool, self.dropout, layers)

    def _to_sequence_set(self, series: list[np.ndarray], targets: np.ndarray | None = None) -> SequenceSet:
        """Scaled sequences in the dtype of the network."""
        weight = next(self.network_.parameters())
        scaled = [torch.tensor(self.input_scaling_.apply(x), dtype=weight.dtype) for x in series]
        rows = np.zeros((len(series), 1)) if targets is None else targets
        return SequenceSet.from_arrays(scaled, rows, "regression" if targets is None else self.task)

    def _train(self, data: SequenceSet, seed: int) -> None:
        batch_size = to_int(self.batch_size)
        share = (
            (0.1 if len(data) >= VALIDATION_MINIMUM else 0.0) if self.validation == "auto" else float(self.validation)
        )
        order = np.random.default_rng(seed).permutation(len(data))
        held = order[: int(share * len(data))]
        learned = data if not len(held) else data.select(np.sort(order[len(held) :]).tolist())
        result = train(
            self.network_,
            Batches(learned, batch_size, seed=seed),
            Batches(data.select(held.tolist()), batch_size, shuffle=False) if len(held) else None,
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

    # ------------------------------------------------------------------------------------------ predict

    def _network_outputs(self, X: Any) -> np.ndarray:
        """(n, outputs) in float64: the outputs of the network."""
        check_is_fitted(self, "network_")
        data = self._to_sequence_set(self._convert_for_predict(X))
        device = choose_device(self.network_, self.device)
        network = self._prediction_copy(device)
        order, found = data.lengths.argsort(), np.empty((len(data), self.n_outputs_))
        with torch.no_grad():
            for ids in order.split(PREDICT_BATCH):
                batch = collate(data, ids)
                x = batch.inputs.to(device, next(network.parameters()).dtype)
                found[ids.numpy()] = network(x, batch.lengths.to(device)).double().cpu().numpy()
        return found

    def _prediction_copy(self, device: torch.device) -> nn.Module:
        """A copy for prediction: float64 on a CPU, so that a prediction does not depend on the rest of the batch."""
        network = deepcopy(self.network_).eval()
        return network.double() if device.type == "cpu" else network.to(device)

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
                    X = validate_data(self, X, dtype=np.float64, reset=False)
        series = input_conversion.arrays(X)
        if series[0].shape[1] != self.input_size_:
            raise ShapeError("X", f"{series[0].shape[1]} features per step", f"{self.input_size_}, as in fit")
        return series

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[nn.Module, SequenceSet]:
        """The network and a few scaled sequences, for `rc.inspect` and `rc.report`."""
        check_is_fitted(self, "network_")
        return self.network_, scaled_sequences(self, data, sequences)

    # ------------------------------------------------------------------------------------------ save and load

    def export(self, path: str | Path) -> Path:
        """Write an ONNX file: unscaled `x` (T, B, D) and `lengths` (B,) → probabilities or numbers (B, q).

        The metadata have the classes. The file is compared with the model in onnxruntime before it is put in place.
        """
        check_is_fitted(self, "network_")
        scaling, targets = self._scalings()["inputs"], self._scalings().get("targets")
        centre = torch.tensor(scaling.mean, dtype=torch.float32)
        module = ScaledNetwork(deepcopy(self.network_).eval(), scaling, targets).eval()
        example = centre + torch.zeros(5, 3, self.input_size_), torch.tensor([5, 2, 4])
        return write(module, path, example, {"kind": type(self).__name__, **self._fitted_config()})

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into a folder; `load` reads them."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "network_")
        fitted = {name: getattr(self, name) for name in SIZE_ATTRIBUTES} | {
            "columns_": list(self.columns_),
            "table_reading_": self.table_reading_,
        }
        options = saved_options.options_to_json(self.get_params(deep=False))
        config = {"options": options, "fitted": {**fitted, "history_": self.history_, **self._fitted_config()}}
        return FolderContents(type(self).__name__, config, self._tensors())

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
            attribute = f"{name.removesuffix('s')}_scaling_"
            setattr(self, attribute, Scaling(tensors[f"{name}.mean"].numpy(), tensors[f"{name}.scale"].numpy()))
        return self

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        for name in SIZE_ATTRIBUTES:
            if not isinstance(fitted.get(name), int) or not 0 < fitted[name] < 1 << 24:
                raise ModelFileError(f"{Path(folder) / 'config.json'}, {name}", fitted.get(name), "a whole number")
            setattr(self, name, fitted[name])
        self.history_, self.columns_ = fitted.get("history_", []), tuple(fitted.get("columns_", ()))
        self.table_reading_ = fitted.get("table_reading_") or {}
        self.n_iter_ = len(self.history_)
        self.input_scaling_ = Scaling.none(self.input_size_)


@contextmanager
def named_argument(argument: str) -> Iterator[None]:
    """An error of scikit-learn's validation as an `InputError` with its text."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(argument, error, "numbers (n, T) or (n, T, D), a list of sequences, or a table") from error


def check_training_options(estimator: Any, extras: str = "cell_options") -> None:
    """Check the options that every estimator hands to its network (`extras`) and to `fit`, whether a fit reads them or
    not."""
    for name in ("epochs", "batch_size", "patience"):
        positive_int(name, to_int(getattr(estimator, name)))
    if estimator.lr is not None:  # None where the optimizer is an object or a function, which has its own
        positive_number("lr", estimator.lr)
    if estimator.clip is not None:
        positive_number("clip", estimator.clip)
    if not isinstance(getattr(estimator, extras), Mapping | None):
        raise InputError(extras, repr(getattr(estimator, extras)), "further arguments by name, or None")


def draw_seed(random_state: Any) -> int:
    """A seed drawn from what scikit-learn takes as `random_state`; all processes of a job get that of the first."""
    try:
        seed = int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InputError(
            "random_state", repr(random_state), "a seed from 0 to 2³² - 1, a RandomState or None"
        ) from error
    return Processes().of_first(seed)


def to_int(value: Any) -> Any:
    """NumPy integers, as search grids have them, as Python integers; other values unchanged."""
    if isinstance(value, list | tuple):
        return [to_int(item) for item in value]
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
