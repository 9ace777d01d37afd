"""The trained network of the sequence estimators: its options, its training, its outputs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from ..argument_checks import is_real, true_or_false
from ..cell import Cell
from ..data.batching import Batches, collate
from ..data.sequences import SequenceSet, Task
from ..errors import InputError, UnknownNameError
from ..train.fit import fit as train
from ..train.precision import choose_device
from ..train.schedule import Schedule, constant, cosine
from .network import POOLS, SequenceNetwork
from .scaling import Scaling
from .sequence_losses import WEIGHTED
from .training_options import check_training_options, to_int

VALIDATION_MINIMUM = 1000  # sequences; with fewer, validation="auto" holds out none
PREDICT_BATCH = 256  # sequences predicted at a time
DEFAULT_CELL = "lstm"  # of a network whose cell is not named
SCHEDULES: dict[str, Schedule] = {"cosine": cosine(), "constant": constant()}
#: options of a trained network and their defaults; setting one asks for a network
NETWORK_OPTIONS: dict[str, Any] = {
    "hidden_size": 64,
    "num_layers": None,
    "bidirectional": False,
    "dropout": 0.0,
    "pool": "max",
    "cell_options": None,
    "scale": True,
    "epochs": 60,
    "batch_size": 32,
    "lr": 1e-2,
    "schedule": "cosine",
    "optimizer": "adam",
    "clip": 1.0,
    "validation": "auto",
    "patience": 10,
}


class NetworkEstimator(BaseEstimator, ABC):
    """The options of a sequence estimator, and the network that it trains if they ask for one."""

    network_: SequenceNetwork
    input_scaling_: Scaling
    history_: list[dict[str, Any]]
    n_iter_: int
    input_size_: int
    n_outputs_: int

    task: ClassVar[Task]

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
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.hidden_size, self.num_layers, self.effort = cell, hidden_size, num_layers, effort
        self.bidirectional, self.dropout, self.pool, self.cell_options = bidirectional, dropout, pool, cell_options
        self.scale, self.epochs, self.batch_size, self.lr, self.optimizer = scale, epochs, batch_size, lr, optimizer
        self.schedule, self.clip, self.validation, self.patience = schedule, clip, validation, patience
        self.device, self.random_state, self.verbose = device, random_state, verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore  (its stubs are older)
        tags.input_tags.allow_nan = True
        return tags

    # ------------------------------------------------------------------------------------------ for the subclasses

    @abstractmethod
    def _encode_targets(self, y: Any) -> np.ndarray:
        """The training targets, one row per sequence: class numbers, or rows of numbers. Sets `n_outputs_`."""

    @abstractmethod
    def _target_rows(self, targets: np.ndarray) -> np.ndarray:
        """Encoded targets as rows (n, outputs) that a network with weighted samples learns."""

    @abstractmethod
    def _target_scores(self, targets: np.ndarray) -> np.ndarray:
        """Encoded targets as rows (n, outputs) that a ridge regression learns."""

    @abstractmethod
    def _network_scores(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs of the network on the scale of `_target_scores`."""

    @abstractmethod
    def _loss(self) -> str:
        """The name of the network's loss."""

    # ------------------------------------------------------------------------------------------ options

    def _asks_for_network(self) -> bool:
        options = self.get_params(deep=False)
        return self.cell is not None or any(
            not _is_default(options[name], value) for name, value in NETWORK_OPTIONS.items()
        )

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

    # ------------------------------------------------------------------------------------------ training

    def _fit_network(self, series: list[np.ndarray], targets: np.ndarray, weights: np.ndarray, seed: int) -> None:
        torch.manual_seed(seed)
        self.input_scaling_ = self._scaling_of(series)
        self.network_ = self._build()
        self._train(self._to_sequence_set(series, targets, weights), seed)

    def _scaling_of(self, series: list[np.ndarray]) -> Scaling:
        return Scaling.of(series) if self.scale else Scaling.none(self.input_size_)

    def _build(self) -> SequenceNetwork:
        layers = {
            "hidden_size": to_int(self.hidden_size),
            "num_layers": to_int(self.num_layers),
            "bidirectional": self.bidirectional,
            **(self.cell_options or {}),
        }
        cell = DEFAULT_CELL if self.cell is None else self.cell
        return SequenceNetwork(cell, self.input_size_, self.n_outputs_, self.pool, self.dropout, layers)

    def _to_sequence_set(
        self, series: list[np.ndarray], targets: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> SequenceSet:
        """Scaled sequences in the dtype of the network; weighted targets are rows with the weight at their end."""
        weight = next(self.network_.parameters())
        scaled = [torch.tensor(self.input_scaling_.apply(x), dtype=weight.dtype) for x in series]
        if targets is None:
            return SequenceSet.from_arrays(scaled, np.zeros((len(series), 1)), "regression")
        if weights is not None and not np.all(weights == 1.0):
            targets = np.column_stack([self._target_rows(targets), weights])
        return SequenceSet.from_arrays(scaled, targets, "classification" if targets.ndim == 1 else "regression")

    def _train(self, data: SequenceSet, seed: int) -> None:
        batch_size = to_int(self.batch_size)
        share = (
            (0.1 if len(data) >= VALIDATION_MINIMUM else 0.0) if self.validation == "auto" else float(self.validation)
        )
        order = np.random.default_rng(seed).permutation(len(data))
        held = order[: int(share * len(data))]
        learned = data if not len(held) else data.select(np.sort(order[len(held) :]).tolist())
        valid = Batches(data.select(held.tolist()), batch_size, shuffle=False) if len(held) else None
        batches, schedule = Batches(learned, batch_size, seed=seed), SCHEDULES[self.schedule]
        self.history_ = self._run(self.network_, batches, valid, schedule, to_int(self.epochs), self.optimizer)
        self.n_iter_ = len(self.history_)

    def _run(
        self, network: nn.Module, data: Batches, valid: Batches | None, schedule: Schedule, epochs: int, optimizer: Any
    ) -> list[dict[str, Any]]:
        """Train the network; the history of its epochs."""
        is_weighted = data.sequences.targets[0].numel() == self.n_outputs_ + 1
        result = train(
            network,
            data,
            valid,
            loss=WEIGHTED[self._loss()] if is_weighted else self._loss(),
            optimizer=optimizer,
            lr=self.lr if isinstance(optimizer, str) else None,
            schedule=schedule,
            epochs=epochs,
            clip=self.clip,
            patience=None if valid is None else to_int(self.patience),
            device=self.device,
            progress=self.verbose,
        )
        network.eval().cpu()
        return result.history

    # ------------------------------------------------------------------------------------------ outputs

    def _network_outputs(self, series: list[np.ndarray]) -> np.ndarray:
        """(n, outputs) in float64: the outputs of the network."""
        data = self._to_sequence_set(series)
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


def _is_default(value: Any, default: Any) -> bool:
    return type(value) in (type(default), int, float) and value == default
