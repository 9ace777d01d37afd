"""State of a run: saved progress, what callbacks see, and the result."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from recurra.tensor_files import decode, encode
from recurra.train.fit_errors import CheckpointError

Event = Literal["start", "step", "epoch", "save failed", "end"]


@dataclass
class Progress:
    """Position and history of a run, saved in checkpoints. The next batch is number `index` of `epoch`."""

    step: int = 0
    epoch: int = 0
    index: int = 0
    loss_sum: float = 0.0  # over the items of this epoch so far
    items: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_loss: float | None = None
    best_epoch: int | None = None
    parts: int = 1  # micro-batches per batch
    stopped: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: encode(value, {}) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any], path: Path) -> "Progress":
        try:
            known = {entry.name: decode(values[entry.name], {}) for entry in fields(cls)}
            progress = cls(**known)
            if min(progress.step, progress.epoch, progress.index, progress.parts - 1) < 0:
                raise ValueError("a negative position")
            return progress
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise CheckpointError(path, f"invalid progress ({error!r})") from error


@dataclass
class Run:
    """A run as callbacks see it. Setting `stop` ends the run after this step, in all processes.

    **Example**

        >>> seen = []
        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> def watch(event, run):
        ...     seen.append((event, run.progress.step, run.device.type))
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> _ = rc.train.fit(model, data, epochs=1, callbacks=[watch], device="cpu", progress=False)
        >>> seen[0], seen[-1]
        (('start', 0, 'cpu'), ('end', 1, 'cpu'))
    """

    model: nn.Module
    optimizer: Optimizer
    progress: Progress
    device: torch.device
    precision: str
    rank: int
    processes: int
    epochs: int
    steps_per_epoch: int
    loss: float = float("nan")  # of the last step
    norm: float = float("nan")  # of the last gradient, before clipping
    message: str = ""  # the reason, at "save failed"
    stop: bool = False

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def rates(self) -> list[float]:
        """The learning rate of every parameter group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]


class Callback(Protocol):
    """Called with an event and the run: "start", "step", "epoch" (after its validation), "save failed", "end".

    A callback that also has `state_dict` and `load_state_dict`, of plain values and tensors, is part of the checkpoint.

    **Example**

        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> def stop_early(event, run):
        ...     run.stop = event == "epoch" and run.progress.epoch >= 2
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> rc.train.fit(model, data, epochs=9, callbacks=[stop_early], progress=False).stopped
        'callback'
    """

    def __call__(self, event: Event, run: Run, /) -> None: ...


def states_of(callbacks: Sequence[Callback]) -> dict[str, Any]:
    return {key: callback.state_dict() for key, callback in _stateful(callbacks)}


def restore_states(callbacks: Sequence[Callback], states: dict[str, Any]) -> None:
    for key, callback in _stateful(callbacks):
        if key in states:
            callback.load_state_dict(states[key])


def _stateful(callbacks: Sequence[Callback]) -> list[tuple[str, Any]]:
    keys = [getattr(callback, "checkpoint_key", type(callback).__name__) for callback in callbacks]
    named = [(f"{number} {key}", callback) for number, (key, callback) in enumerate(zip(keys, callbacks, strict=True))]
    return [(key, callback) for key, callback in named if hasattr(callback, "load_state_dict")]


@dataclass(frozen=True)
class FitResult:
    """Result of `fit`. `history` has one record per epoch; `stopped` is "finished", "early" or "callback".

    **Example**

        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> result = rc.train.fit(rc.train.Predictor(rc.GRU(2, 4), 2), data, epochs=2, progress=False)
        >>> result.stopped, result.steps, sorted(result.history[-1])
        ('finished', 2, ['epoch', 'loss', 'rate', 'step'])
    """

    history: list[dict[str, Any]]
    steps: int
    stopped: str
    best_epoch: int | None
    best_loss: float | None
    device: str
    precision: str
    checkpoint: Path | None
