"""Base class of learning algorithms: `learner.step(x, target, mask) -> loss`, exact resume, targets and masks.

Targets are per step, `(T, B, q)` numbers or `(T, B)` classes, or per sequence, `(B, q)` numbers or `(B,)` classes. A
target per sequence applies to the last step that the mask keeps. `mask` (T, B) is true where a step counts.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from recurra.cell import Cell
from recurra.data.sequences import IGNORE
from recurra.errors import InputError, OptionError, ShapeError, UnknownNameError
from recurra.layer_inputs import first_parameter
from recurra.layers import Recurrent
from recurra.models.brnn import BaldiBRNN
from recurra.models.hierarchical import HierarchicalRNN
from recurra.models.narx import NARX
from recurra.readout import Readout
from recurra.train.objective import LOSSES, Loss, loss_for, refuse_batch_first
from recurra.train.objective import _parameters as arguments_of

CARRIED_BY_LEARNER = "initial='zeros' or 'learned', with carry=True of the learner"

Optimizer = str | Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Predictor(nn.Module):
    """A recurrent layer and a head that reads its output at every step: the model all learners accept.

    **Arguments**

    - `layer`: an `rc.Recurrent` (any layer class), `rc.HierarchicalRNN` or `rc.NARX`, with `batch_first=False`.
    - `head`: a module applied to the outputs (T, B, H), a number of outputs for a linear `rc.Readout`, or None for the
      layer's own output.

    **Returns** from a call with x (T, B, D): `(output, state)`, output (T, B, q). Accepts `state` and `lengths`.

    **Example**

    >>> model = rc.train.Predictor(rc.LSTM(3, 8), 2)
    >>> output, state = model(torch.randn(5, 4, 3))
    >>> output.shape
    torch.Size([5, 4, 2])
    """

    layer: Any

    def __init__(self, layer: Recurrent | HierarchicalRNN | NARX, head: nn.Module | int | None = None):
        super().__init__()
        known = isinstance(layer, (Recurrent, NARX, HierarchicalRNN))
        if not known or layer.batch_first:
            got = "batch_first=True" if known else type(layer).__name__
            raise InputError("layer", got, "an rc.Recurrent that reads (T, B, D)")
        self.layer = layer
        if head is not None and not isinstance(head, (nn.Module, int)):
            raise InputError("head", repr(head), "a module, a number of outputs, or None")
        self.head = (
            Readout(layer.output_size, head) if isinstance(head, int) else nn.Identity() if head is None else head
        )
        weight = first_parameter(layer)
        self.to(device=weight.device, dtype=weight.dtype)

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """(T, B, D) → outputs (T, B, q) and the state of the layer."""
        h, state = self.layer(x, state=state, lengths=lengths)
        return self.head(h), state


class Learner(ABC):
    """Abstract base of learning algorithms: one algorithm that trains one model in place.

    Subclasses define `step`, `extra_state` and `load_extra_state`. `state_dict` holds all an exact resume needs.

    **Example**

        >>> learner = rc.train.BPTT(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", rate=0.01)
        >>> isinstance(learner, rc.train.Learner), learner.step(torch.randn(5, 3, 2), torch.randn(5, 3, 1)) > 0
        (True, True)
    """

    def __init__(self, model: nn.Module, loss: str | Loss = "auto"):
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        refuse_batch_first(model)
        _check_arguments(model)
        if not any(p.requires_grad for p in model.parameters()):
            raise InputError("model", f"{type(model).__name__} without trainable parameters", "some with requires_grad")
        self.model, self.loss = model, loss_for(resolve_loss(loss), model)
        self.steps = 0  # calls of `step` so far

    @abstractmethod
    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        """Learn from one batch.

        **Arguments**: `x` (T, B, D); `target` per step, (T, B, q) numbers or (T, B) classes, or per sequence, (B, q) or
        (B,); `mask` (T, B), true where a step counts.

        **Returns** the mean loss over the steps that count, before the update.
        """

    @abstractmethod
    def extra_state(self) -> dict[str, Any]:
        """What a resumed run needs besides weights and step counter."""

    @abstractmethod
    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `extra_state` returned."""

    def state_dict(self) -> dict[str, Any]:
        """Weights, step counter and algorithm state, for an exact resume."""
        return {"model": self.model.state_dict(), "steps": self.steps, "extra": self.extra_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.steps = int(state["steps"])
        self.load_extra_state(copy.deepcopy(state["extra"]))  # torch's optimizers would go on with these very tensors


def _check_arguments(model: nn.Module) -> None:
    """Refuse a model that needs more than the sequences x."""
    required = [
        name
        for name, p in arguments_of(model).items()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if len(required) > 1:
        got = f"{type(model).__name__}, which reads {', '.join(required)}"
        raise InputError("model", got, "a model of x alone: (T, B, D) → output or (output, state)")


@dataclass(frozen=True)
class StepTargets:
    """A target for every step, and a mask of the steps that count."""

    target: Tensor  # (T, B, …)
    counts: Tensor  # (T, B) bool
    lengths: Tensor | None = None  # (B,), if the mask is a prefix of every sequence
    all_count: bool = False  # known without a look at `counts`

    @cached_property
    def total(self) -> int:
        return self.counts.numel() if self.all_count else int(self.counts.sum())

    def loss_sum(self, loss: Loss, output: Tensor, start: int = 0) -> Tensor:
        """Sum of the loss over the steps that count, for outputs (n, B, q) of the steps from `start` on."""
        counts = self.counts[start : start + len(output)]
        if not bool(counts.any()):
            return output.sum() * 0.0
        return loss(output[counts], self.target[start : start + len(output)][counts]).mean() * int(counts.sum())


def step_targets(x: Tensor, target: Tensor, mask: Tensor | None) -> StepTargets:
    """Check a batch, and expand its targets to every step."""
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise ShapeError("x", _shape(x), "sequences (T, B, D)")
    if not isinstance(target, Tensor):
        raise InputError("target", type(target).__name__, "a tensor")
    steps, batch = x.shape[:2]
    counts = torch.ones(steps, batch, dtype=torch.bool, device=x.device) if mask is None else _mask(mask, x)
    numbers, lengths = target.is_floating_point(), None if mask is None else _lengths(counts)
    if tuple(target.shape[:2]) == (steps, batch) and target.dim() == 2 + numbers:
        counts = counts if numbers else counts & (target != IGNORE)
        return StepTargets(target, counts, lengths, mask is None and numbers)
    if target.dim() != 1 + numbers or target.shape[0] != batch:
        each = "numbers (T, B, q) or (B, q)" if numbers else "classes (T, B) or (B,)"
        raise ShapeError("target", _shape(target), f"{each} with T = {steps}, B = {batch}")
    last = steps - 1 - counts.flip(0).int().argmax(0)  # (B,)
    ends = torch.zeros_like(counts)
    ends[last, torch.arange(batch, device=x.device)] = True
    return StepTargets(target.expand(steps, *target.shape), ends & counts, lengths)


def _mask(mask: Tensor, x: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or tuple(mask.shape) != tuple(x.shape[:2]):
        raise ShapeError("mask", _shape(mask), f"{tuple(x.shape[:2])}, true where a step counts")
    return mask.bool()


def _lengths(counts: Tensor) -> Tensor | None:
    """Sequence lengths, if the mask is a prefix of every sequence, else None."""
    ends = counts.int().diff(dim=0)
    return counts.sum(0) if bool((ends <= 0).all()) and bool(counts[0].all()) else None


def _shape(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def resolve_loss(loss: str | Loss) -> Loss:
    """A loss from its name or unchanged: a function of outputs (N, q) and targets (N, …)."""
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise UnknownNameError("loss", loss, LOSSES)
    return LOSSES[loss]


def resolve_optimizer(optimizer: Optimizer, parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """An optimizer from its name or from a function of the parameters."""
    from recurra.train.nesterov import Nesterov

    parameters = [p for p in parameters if p.requires_grad]
    if callable(optimizer):
        return optimizer(parameters)
    known: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "rmsprop": torch.optim.RMSprop,
        "nesterov": Nesterov,
    }
    if optimizer not in known:
        raise UnknownNameError("optimizer", optimizer, known)
    return known[optimizer](parameters, lr=rate)


def run_from(model: nn.Module, x: Tensor, state: Any, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
    """Output and final state of a model that starts from `state` (None: its own start)."""
    accepted = arguments_of(model)
    named = {"state": state, "hx": state, "lengths": lengths}
    given = {name: value for name, value in named.items() if name in accepted and value is not None}
    result = model(x, **given)
    return (result[0], result[1]) if isinstance(result, tuple) else (result, None)


def check_restart(model: nn.Module, after: Any) -> None:
    """Refuse a model whose runs cannot continue from the state `after` of the run before."""
    if after is None:
        raise OptionError("model", "a model that returns no state", "(output, state), for windows or carry")
    accepted = list(arguments_of(model))
    if not {"state", "hx"} & set(accepted):
        got = f"{type(model).__name__}, whose forward({', '.join(accepted)}) returns a state and takes none"
        raise OptionError("model", got, "an argument `state` or `hx`, for windows or carry")


def refuse_carried_start(model: nn.Module, instead: str) -> None:
    """Refuse layers with `initial="carried"`: their state moves whenever they are called."""
    for part in model.modules():
        if isinstance(part, Recurrent) and part.initial == "carried":
            raise OptionError("model", f"{type(part).__name__} with initial='carried'", instead)


def refuse_learned_start(model: nn.Module, why: str) -> None:
    """Refuse layers whose first state is a parameter that the algorithm would leave as it is."""
    for part in model.modules():
        learned = {name for name, p in part.named_parameters() if p.requires_grad}  # a start may be a buffer
        if isinstance(part, Cell) and any(start in learned for start in part.starts.values() if isinstance(start, str)):
            raise OptionError("model", f"{type(part).__name__} with a learned start", why)


def refuse_future(model: nn.Module, why: str) -> None:
    """Refuse a model whose layers read sequences backwards: the steps before a window depend on those after it."""
    for part in model.modules():
        both = isinstance(part, Recurrent) and part.directions == 2
        if both or (isinstance(part, nn.RNNBase) and part.bidirectional) or isinstance(part, BaldiBRNN):
            raise OptionError(
                "model", f"{type(part).__name__}, which reads both directions", f"one direction, for {why}"
            )


def positive(argument: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise InputError(argument, value, "a positive number")
    return value
