"""What the estimators for whole sequences share: what comes in, the training, the answers, the folder."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
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

from ..cell import Cell
from ..data.batching import Batches, collate
from ..data.sequences import SequenceSet, Task
from ..errors import InputError, ModelFileError, ShapeError, UnknownNameError
from ..storage import FolderContents, read_folder, write_folder
from ..train import randomness
from ..train.fit import fit as train
from ..train.precision import choose_device
from ..train.schedule import Schedule, constant, cosine
from . import inputs, saved_options
from .network import POOLS, SequenceNetwork
from .onnx_file import Standalone, write
from .scaling import Scaling

ENOUGH = 1000  # sequences from which on a tenth of them can judge the training
TOGETHER = 256  # sequences answered at a time
SCHEDULES: dict[str, Schedule] = {"cosine": cosine(), "constant": constant()}
SIZES = ("n_features_in_", "input_size_", "n_outputs_")


class SequenceEstimator(BaseEstimator, ABC):
    """One answer a sequence. Subclasses say what a target is."""

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
    def _learn_targets(self, y: Any) -> tuple[np.ndarray, int]:
        """What the network is taught, one row a sequence, and how many numbers it puts out."""

    @abstractmethod
    def _fitted(self) -> dict[str, Any]:
        """Fitted attributes as plain JSON, beside the common ones."""

    # ------------------------------------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from sequences: (n, T), (n, T, D), a ragged list of (T, D), a long table (Arrow, any
        dataframe, a dict of columns), or a `SequenceSet`.

        The last two bring their targets along; with a table, y may be the name of the target's column.
        """
        self._check_options()
        series, y = self._incoming(X, y)
        targets, self.n_outputs_ = self._learn_targets(y)
        if len(targets) != len(series):
            raise ShapeError("y", f"{len(targets)} targets", f"one for each of {len(series)} sequences")
        self.input_size_ = series[0].shape[1]
        self.input_scaling_ = Scaling.of(series) if self.scale else Scaling.none(self.input_size_)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with randomness.undisturbed():
            torch.manual_seed(seed)
            self.network_ = self._build()
            self._train(self._set(series, targets), seed)
        return self

    def _check_options(self) -> None:
        if self.pool not in POOLS:
            raise UnknownNameError("pool", repr(self.pool), POOLS)
        if self.schedule not in SCHEDULES:
            raise UnknownNameError("schedule", repr(self.schedule), SCHEDULES)
        if self.validation != "auto" and not (
            isinstance(self.validation, int | float) and 0.0 <= self.validation < 1.0
        ):
            raise InputError("validation", repr(self.validation), 'a fraction from 0 to below 1, or "auto"')

    def _incoming(self, X: Any, y: Any) -> tuple[list[np.ndarray], Any]:
        """Series and targets, in whatever form they came."""
        X, y = inputs.with_targets(X, y, self.task)
        if inputs.is_table(X):
            X = inputs.from_bare_table(X)
        self.columns_ = X.features if isinstance(X, SequenceSet) else ()
        if not isinstance(X, SequenceSet) and not inputs.is_ragged(X):
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=self.task == "regression")
            return inputs.arrays(X), y
        if y is None:
            raise InputError("y", "nothing", f"one target a sequence: {type(self).__name__} requires y to be passed")
        series = inputs.arrays(X)
        self.n_features_in_ = series[0].shape[1]
        return series, y

    def _build(self) -> SequenceNetwork:
        layers = {
            "hidden_size": whole(self.hidden_size),
            "num_layers": whole(self.num_layers),
            "bidirectional": self.bidirectional,
            **(self.cell_options or {}),
        }
        return SequenceNetwork(self.cell, self.input_size_, self.n_outputs_, self.pool, self.dropout, layers)

    def _set(self, series: list[np.ndarray], targets: np.ndarray | None = None) -> SequenceSet:
        """Scaled sequences in the network's dtype."""
        weight = next(self.network_.parameters())
        scaled = [torch.tensor(self.input_scaling_.apply(x), dtype=weight.dtype) for x in series]
        wanted = np.zeros((len(series), 1)) if targets is None else targets
        return SequenceSet.from_arrays(scaled, wanted, "regression" if targets is None else self.task)

    def _train(self, data: SequenceSet, seed: int) -> None:
        batch_size = whole(self.batch_size)
        share = (0.1 if len(data) >= ENOUGH else 0.0) if self.validation == "auto" else float(self.validation)
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
            epochs=whole(self.epochs),
            clip=self.clip,
            patience=whole(self.patience) if len(held) else None,
            device=self.device,
            progress=self.verbose,
        )
        self.history_, self.n_iter_ = result.history, len(result.history)
        self.network_.eval().cpu()

    # ------------------------------------------------------------------------------------------ answering

    def _answers(self, X: Any) -> np.ndarray:
        """(n, outputs) of the network, in float64."""
        check_is_fitted(self, "network_")
        data = self._set(self._asked(X))
        device = choose_device(self.network_, self.device)
        network = self._working_copy(device)
        order, found = data.lengths.argsort(), np.empty((len(data), self.n_outputs_))
        with torch.no_grad():
            for ids in order.split(TOGETHER):
                batch = collate(data, ids)
                x = batch.inputs.to(device, next(network.parameters()).dtype)
                found[ids.numpy()] = network(x, batch.lengths.to(device)).double().cpu().numpy()
        return found

    def _working_copy(self, device: torch.device) -> nn.Module:
        """On a CPU in float64, so that an answer does not depend on what else is in the batch."""
        network = deepcopy(self.network_).eval()
        return network.double() if device.type == "cpu" else network.to(device)

    def _asked(self, X: Any) -> list[np.ndarray]:
        X = inputs.tabled(X)
        if inputs.is_table(X):
            X = inputs.from_bare_table(X, self.columns_)
        if not isinstance(X, SequenceSet) and not inputs.is_ragged(X):
            if self.n_features_in_ == self.input_size_ == 1:  # fitted to series of any length
                X = np.atleast_2d(np.asarray(X, dtype=np.float64))
            else:
                X = validate_data(self, X, dtype=np.float64, reset=False)
        series = inputs.arrays(X)
        if series[0].shape[1] != self.input_size_:
            raise ShapeError("X", f"{series[0].shape[1]} numbers a step", f"{self.input_size_}, as in fit")
        return series

    # ------------------------------------------------------------------------------------------ the folder

    def export(self, path: str | Path) -> Path:
        """Write one ONNX file: `x` (T, B, D) as the data is, `lengths` (B,) → probabilities, or numbers, (B, q).

        Its metadata hold the classes. It is checked in onnxruntime before it appears.
        """
        check_is_fitted(self, "network_")
        inputs, targets = self._scalings()["inputs"], self._scalings().get("targets")
        middle = torch.tensor(inputs.mean, dtype=torch.float32)
        module = Standalone(deepcopy(self.network_).eval(), inputs, targets).eval()
        example = middle + torch.zeros(5, 3, self.input_size_), torch.tensor([5, 2, 4])
        return write(module, path, example, {"kind": type(self).__name__, **self._fitted()})

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into a folder; `load` reads them."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "network_")
        fitted = {name: getattr(self, name) for name in SIZES} | {"columns_": list(self.columns_)}
        options = saved_options.options_to_json(self.get_params(deep=False))
        config = {"options": options, "fitted": {**fitted, "history_": self.history_, **self._fitted()}}
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
        """The estimator that `save` wrote. A cell of one's own must be registered by then."""
        stored = read_folder(folder, cls.__name__)
        self = cls(**saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder))
        self._restore(stored.section("fitted"), folder)
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
        for name in SIZES:
            if not isinstance(fitted.get(name), int) or not 0 < fitted[name] < 1 << 24:
                raise ModelFileError(f"{Path(folder) / 'config.json'}, {name}", fitted.get(name), "a whole number")
            setattr(self, name, fitted[name])
        self.history_, self.columns_ = fitted.get("history_", []), tuple(fitted.get("columns_", ()))
        self.n_iter_ = len(self.history_)
        self.input_scaling_ = Scaling.none(self.input_size_)


def whole(value: Any) -> Any:
    """Numbers from a search grid are NumPy's."""
    if isinstance(value, list | tuple):
        return [whole(one) for one in value]
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
