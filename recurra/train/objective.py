"""Losses over batches: padding is excluded, and every real item has the same weight.

An item is a step where targets are per step, else a sequence. Objectives return sums, not means, so that micro-batches,
accumulated batches and processes add up to the exact mean over all their items.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurra.data.sequences import IGNORE, Batch
from recurra.errors import InputError, ShapeError, UnknownNameError
from recurra.readout import Readout
from recurra.train.axes import time_comes_first
from recurra.train.tensor_trees import map_tensors

#: `loss(output, target) -> mean over the first dimension`, as torch's losses, or one value per item
Loss = Callable[[Tensor, Tensor], Tensor]


@runtime_checkable
class Objective(Protocol):
    """Protocol for losses that need more than outputs and targets, such as a CRF or a regulariser.

    **Example**

        >>> class WithPenalty(rc.train.MeanLoss):
        ...     def __call__(self, model, batch, state):
        ...         sums, state = super().__call__(model, batch, state)
        ...         penalty = 0.01 * self.count(batch) * model.head.V.square().sum()
        ...         return sums | {"loss": sums["loss"] + penalty}, state
        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [x[:, :1] for x in inputs], "transduction")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 1)
        >>> loss = WithPenalty(torch.nn.functional.mse_loss)
        >>> rc.train.fit(model, data, loss=loss, epochs=2, progress=False).steps
        2
    """

    def count(self, batch: Batch) -> int:
        """The number of items in the batch, before the model runs."""
        ...

    def __call__(self, model: nn.Module, batch: Batch, state: Any) -> tuple[dict[str, Tensor], Any]:
        """Sums over the items, "loss" among them, and the state after the batch (None where the model has none)."""
        ...


def auto(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy where targets are classes, squared error where they are numbers."""
    return squared_error(output, target) if target.is_floating_point() else cross_entropy(output, target)


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Of logits (N, classes) and classes (N,)."""
    with _classes_of(output, target):
        return F.cross_entropy(output, target)


@contextlib.contextmanager
def _classes_of(output: Tensor, target: Tensor) -> Iterator[None]:
    """Raise an `InputError` if a target is no class of the output; torch would stop a process that uses a GPU."""
    try:
        if target.is_cuda and not target.is_floating_point() and target.numel():
            low, high = (int(value) for value in torch.aminmax(target))
            if low < 0 or high >= output.shape[1]:
                raise IndexError
        yield
    except IndexError as error:
        got = f"classes from {int(target.min())} to {int(target.max())}"
        classes = output.shape[-1]
        raise InputError("targets", got, f"0 to {classes - 1}: the model has {classes} outputs") from error


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    _same_shape(output, target)
    return F.mse_loss(output, target)


def absolute_error(output: Tensor, target: Tensor) -> Tensor:
    _same_shape(output, target)
    return F.l1_loss(output, target)


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Of logits, summed over the columns and averaged over the items: the negative log-likelihood of a chord."""
    _same_shape(output, target)
    return F.binary_cross_entropy_with_logits(output, target, reduction="none").flatten(1).sum(1)


def nll_of_probabilities(output: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """-log p of the target class. Probabilities below the smallest normal number count as that number."""
    with _classes_of(output, target):
        return F.nll_loss(output.clamp_min(torch.finfo(output.dtype).tiny).log(), target, reduction=reduction)


def auto_of_probabilities(output: Tensor, target: Tensor) -> Tensor:
    return squared_error(output, target) if target.is_floating_point() else nll_of_probabilities(output, target)


def binary_nll_of_probabilities(output: Tensor, target: Tensor) -> Tensor:
    _same_shape(output, target)
    return F.binary_cross_entropy(output, target, reduction="none").flatten(1).sum(1)


def _same_shape(output: Tensor, target: Tensor) -> None:
    if output.shape != target.shape:  # torch would broadcast, with a warning at best
        raise ShapeError(
            "model output", f"{tuple(output.shape[1:])} an item", f"{tuple(target.shape[1:])}, as the targets"
        )


LOSSES: dict[str, Loss] = {
    "auto": auto,
    "cross_entropy": cross_entropy,
    "mse": squared_error,
    "mae": absolute_error,
    "binary_cross_entropy": binary_cross_entropy,
}


#: losses of logits, and the same losses of probabilities, by the function that makes these
OF_PROBABILITIES: dict[str, dict[Loss, Loss]] = {
    "logits": {},
    "softmax": {
        auto: auto_of_probabilities,
        cross_entropy: nll_of_probabilities,
        F.cross_entropy: nll_of_probabilities,
        binary_cross_entropy: binary_nll_of_probabilities,
    },
    "sigmoid": {binary_cross_entropy: binary_nll_of_probabilities},
}


def output_kind(model: nn.Module) -> str:
    """What a model returns, as its head or its last part says: "softmax" or "sigmoid" probabilities, else "logits"."""
    plain = getattr(model, "_orig_mod", model)
    plain = plain.module if isinstance(plain, nn.parallel.DistributedDataParallel) else plain
    head = getattr(plain, "head", None)
    last = head if isinstance(head, nn.Module) else plain
    while isinstance(last, nn.Sequential) and len(last):
        last = last[-1]
    if isinstance(last, nn.Softmax) or (isinstance(last, Readout) and last.softmax):
        return "softmax"
    return "sigmoid" if isinstance(last, nn.Sigmoid) else "logits"


def loss_for(loss: Loss, model: nn.Module) -> Loss:
    """The form of a loss that fits what the model returns: logits, or probabilities."""
    kind = output_kind(model)
    if kind != "logits" and isinstance(loss, (nn.CrossEntropyLoss, nn.BCEWithLogitsLoss)):
        raise InputError(
            "loss",
            f"{type(loss).__name__}, a loss of logits, for a model that returns probabilities",
            f"'cross_entropy' or 'binary_cross_entropy', or a model without its {kind}",
        )
    return OF_PROBABILITIES[kind].get(loss, loss)


class MeanLoss:
    """Objective from a loss `(output, target) -> mean`. `metrics` have the same form and run in evaluation only.

    The named losses take logits, and probabilities from a model that returns these (`rc.Readout(…, softmax=True)`).

    **Example**

        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [x[:, :1] for x in inputs], "transduction")
        >>> loss = rc.train.MeanLoss(torch.nn.functional.l1_loss, {"mse": torch.nn.functional.mse_loss})
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 1)
        >>> result = rc.train.fit(model, data, valid=data, loss=loss, epochs=1, progress=False)
        >>> sorted(result.history[0])
        ['epoch', 'loss', 'rate', 'step', 'valid_loss', 'valid_mse']
    """

    def __init__(self, loss: Loss, metrics: Mapping[str, Loss] | None = None):
        if metrics is not None and not (isinstance(metrics, Mapping) and all(map(callable, metrics.values()))):
            raise InputError("metrics", repr(metrics), "functions of (output, target) by name")
        self.loss, self.metrics = loss, dict(metrics or {})

    def count(self, batch: Batch) -> int:
        """The number of items in a batch that are not padding."""
        return int(real_items(batch).sum())

    def __call__(self, model: nn.Module, batch: Batch, state: Any) -> tuple[dict[str, Tensor], Any]:
        output, state = run_model(model, batch, state)
        output, target = items(output, batch)
        loss = loss_for(self.loss, model)
        measured = {"loss": loss} if model.training else {"loss": loss, **self.metrics}
        # Without items: an empty sum that is still part of the graph; a mean would be 0 / 0.
        sums = {
            name: f(output, target).mean() * len(target) if len(target) else output.sum()
            for name, f in measured.items()
        }
        return sums, state


def objective(loss: str | Loss | Objective, metrics: Mapping[str, Loss] | None = None) -> Objective:
    """The `Objective` for what `fit` accepts as `loss`."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise UnknownNameError("loss", loss, LOSSES)
        return MeanLoss(LOSSES[loss], metrics)
    if isinstance(loss, Objective):
        if metrics:
            raise InputError("metrics", sorted(metrics), "no metrics: the given objective returns its own sums")
        return loss
    if not callable(loss):
        raise InputError("loss", type(loss).__name__, "a name, a function of (output, target), or an Objective")
    return MeanLoss(loss, metrics)


def per_step(batch: Batch) -> bool:
    """Whether there is a target at every step: (T, B, q) numbers or (T, B) classes, against (B, q) numbers or (B,)."""
    return batch.targets.ndim == 3 or (batch.targets.ndim == 2 and not batch.targets.is_floating_point())


def real_items(batch: Batch) -> Tensor:
    """Mask of real items: (T * B,) where targets are per step, else (B,)."""
    real = batch.mask if per_step(batch) else torch.ones_like(batch.lengths, dtype=torch.bool)
    if not batch.targets.is_floating_point():
        real = real & (batch.targets == IGNORE).logical_not()
    return real.flatten()


def items(output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Outputs and targets of real items: (N, …) each."""
    leading = batch.targets.shape[:2] if per_step(batch) else batch.targets.shape[:1]
    if output.shape[: len(leading)] != leading:
        raise ShapeError("model output", tuple(output.shape), f"({', '.join(map(str, leading))}, …), as the targets")
    last = len(leading) - 1
    output, target, real = output.flatten(0, last), batch.targets.flatten(0, last), real_items(batch)
    if output.dtype in (torch.bfloat16, torch.float16):
        output = output.float()
    return (output, target) if bool(real.all()) else (output[real], target[real])


def run_model(model: nn.Module, batch: Batch, state: Any) -> tuple[Tensor, Any]:
    """Output and state of the model over a batch. States are reset where `batch.resets` is true."""
    accepted = _parameters(model)
    if batch.resets is None or "resets" in accepted:
        return _call(model, batch, state, accepted)
    outputs = []
    for start, stop in _stretches(batch.resets):
        state = None if state is None else _fresh_where(state, batch.resets[start])
        output, state = _call(model, _steps(batch, start, stop), state, accepted)
        outputs.append(output)
    return torch.cat(outputs), state


def refuse_batch_first(model: nn.Module) -> None:
    """Batches are (T, B, D): a model that reads (B, T, D) would take time for the batch."""
    if getattr(getattr(model, "_orig_mod", model), "batch_first", False) is True:
        raise InputError("model", f"{type(model).__name__} with batch_first=True", "a model that reads (T, B, D)")


def _call(model: nn.Module, batch: Batch, state: Any, accepted: Mapping[str, Any]) -> tuple[Tensor, Any]:
    named = {"state": state, "hx": state, "lengths": batch.lengths, "resets": batch.resets}
    given = {name: value for name, value in named.items() if name in accepted and value is not None}
    if state is not None and not given.keys() & {"state", "hx"}:
        raise InputError(
            "model", f"forward({', '.join(accepted)})", "an argument `state` for the state of the previous batch"
        )
    with time_comes_first(model, batch.inputs):
        result = model(batch.inputs, **given)
    return (result[0], result[1]) if isinstance(result, tuple) and len(result) > 1 else (result, None)


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Parameters of `forward`. torch.nn.LSTM and similar modules call the state `hx`."""
    plain = getattr(model, "_orig_mod", model)  # a compiled module hides the signature of its original
    return inspect.signature(plain.forward).parameters


def _stretches(resets: Tensor) -> list[tuple[int, int]]:
    """Split the steps before every reset of any sequence: [(0, t1), (t1, t2), …, (tn, T)]."""
    cuts = [t for t in resets.any(dim=1).nonzero().flatten().tolist() if t > 0]
    return list(zip([0, *cuts], [*cuts, len(resets)], strict=True))


def _steps(batch: Batch, start: int, stop: int) -> Batch:
    lengths = (batch.lengths - start).clamp(0, stop - start)
    return Batch(batch.inputs[start:stop], batch.targets[start:stop], lengths, batch.ids)


def _fresh_where(state: Any, lanes: Tensor) -> Any:
    """The state with zeros for the sequences that are reset."""

    def clear(tensor: Tensor) -> Tensor:
        dim = lane_dimension(tensor, len(lanes))
        shape = [len(lanes) if d == dim else 1 for d in range(tensor.ndim)]
        return tensor.masked_fill(lanes.view(shape), 0)

    return map_tensors(clear, state)


def lane_dimension(tensor: Tensor, lanes: int) -> int:
    """The batch dimension of a state: the second of (layers, B, H), the first of (B, H)."""
    candidates = [1, 0] if tensor.ndim > 2 else [0, 1]
    for dim in candidates:
        if dim < tensor.ndim and tensor.shape[dim] == lanes:
            return dim
    raise ShapeError("state", tuple(tensor.shape), f"one of the first two dimensions to be the {lanes} sequences")


def with_next(batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Every batch, and whether the next one continues from its state."""
    iterator = iter(batches)
    for batch in iterator:
        for following in iterator:
            yield batch, following.carried
            batch = following
        yield batch, False
