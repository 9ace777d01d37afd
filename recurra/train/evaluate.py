"""The mean of loss and metrics over a source of batches."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from recurra.data.batching import BatchSource
from recurra.data.sequences import SequenceSet
from recurra.train.errors import NonFiniteError
from recurra.train.health import culprit, finite
from recurra.train.objective import Loss, Objective, objective, with_next
from recurra.train.precision import Precision, choose_device
from recurra.train.processes import Processes
from recurra.train.randomness import undisturbed
from recurra.train.sources import source_of


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
    with Processes(chosen) as processes:
        source = processes.share(source, "data")
        return means(model, source, objective(loss, metrics), Precision(precision, chosen, model), processes)


@torch.no_grad()
def means(
    model: nn.Module,
    source: BatchSource,
    goal: Objective,
    precision: Precision,
    processes: Processes,
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
                batch, before = batch.to(precision.device), state if batch.carried else None
                with precision.autocast():
                    sums, state = goal(model, batch, before)
                if not finite(sums["loss"]):
                    layer = culprit(model, goal, batch, before)[0] or "the loss function"
                    raise NonFiniteError(step, "loss in evaluation", layer, batch.ids.tolist())
                for name, value in sums.items():
                    totals[name] = totals.get(name, 0.0) + float(value)
                state = state if goes_on else None
    finally:
        model.train(training)
    values = processes.sum([*totals.values(), count])
    return {name: value / max(values[-1], 1) for name, value in zip(totals, values, strict=False)}
