"""The mean of loss and metrics over a source of batches."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from recurra.data.batching import BatchSource
from recurra.data.sequences import Batch, SequenceSet
from recurra.train.distributed import Processes
from recurra.train.finite_checks import culprit
from recurra.train.fit_arguments import source_of
from recurra.train.fit_errors import NonFiniteError
from recurra.train.micro_batches import MicroBatches, joined
from recurra.train.objective import Loss, Objective, objective, with_next
from recurra.train.precision import Precision, choose_device
from recurra.train.randomness import undisturbed


def evaluate(
    model: nn.Module,
    data: BatchSource | SequenceSet,
    *,
    loss: str | Loss | Objective = "auto",
    metrics: Mapping[str, Loss] | None = None,
    batch_size: int | None = None,
    device: str | torch.device = "auto",
    precision: str = "auto",
) -> dict[str, float]:
    """Loss and metrics over all items of `data`: `{"loss": …, "accuracy": …}`."""
    chosen = choose_device(model, device)
    source = source_of(data, "data", batch_size, shuffle=False)
    model.to(chosen)
    processes, numbers = Processes(chosen), Precision(precision, chosen, model)
    return means(model, processes.share(source, "data"), objective(loss, metrics), numbers, processes, MicroBatches())


@torch.no_grad()
def means(
    model: nn.Module,
    source: BatchSource,
    goal: Objective,
    precision: Precision,
    processes: Processes,
    micro: MicroBatches,
    check: Callable[[], Any] = lambda: None,
    step: int = 0,
) -> dict[str, float]:
    """The loop of an evaluation; `check` runs before every batch and may end it by an exception."""
    training, totals, count, state = model.training, {}, 0, None
    model.eval()
    try:
        with undisturbed():
            for batch, goes_on in with_next(source.epoch(0)):
                check()
                count += goal.count(batch)
                measure = partial(
                    _measure, model, batch, state if batch.carried else None, goes_on, goal, precision, micro
                )
                sums, after = micro.fitting(measure, len(batch))
                if not math.isfinite(sums["loss"]):
                    raise _not_finite(model, goal, batch.to(precision.device), state if batch.carried else None, step)
                totals = {name: totals.get(name, 0.0) + value for name, value in sums.items()}
                state = after
    finally:
        model.train(training)
    values = processes.sum([*totals.values(), count])
    return {name: value / max(values[-1], 1) for name, value in zip(totals, values, strict=False)}


def _measure(
    model: nn.Module,
    batch: Batch,
    state: Any,
    goes_on: bool,
    goal: Objective,
    precision: Precision,
    micro: MicroBatches,
) -> tuple[dict[str, float], Any]:
    """Sums over the items of one batch, taken in parts, and its state where the next batch needs it."""
    parts, totals, after = micro.split(batch, state), {}, []
    for part, part_state in parts:
        with precision.autocast():
            sums, part_state = goal(model, part.to(precision.device), part_state)
        totals = {name: totals.get(name, 0.0) + float(value) for name, value in sums.items()}
        after.append(part_state if goes_on else None)
    return totals, joined(after, [len(part) for part, _ in parts])


def _not_finite(model: nn.Module, goal: Objective, batch: Batch, state: Any, step: int) -> NonFiniteError:
    layer = culprit(model, goal, batch, state)[0] or "the loss function"
    return NonFiniteError(step, "loss in evaluation", layer, batch.ids.tolist())
