"""The mean of loss and metrics over a source of batches."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from recurra.data.batching import BatchSource
from recurra.data.sequences import Batch, SequenceSet
from recurra.errors import InputError
from recurra.train.distributed import Processes
from recurra.train.finite_checks import first_non_finite
from recurra.train.fit_arguments import as_batch_source
from recurra.train.fit_errors import NonFiniteError
from recurra.train.micro_batches import MicroBatches, concat_states
from recurra.train.objective import Loss, Objective, objective, refuse_batch_first, with_next
from recurra.train.precision import Precision, choose_device
from recurra.train.randomness import preserve_rng


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
    """Mean loss and metrics over all items of `data`; an item is a step where targets are per step, else a sequence.

    **Arguments** are those of `fit`: `data` is a `SequenceSet` or a source of batches, `metrics` are functions of
    `(output, target)` by name.

    **Returns** `{"loss": …}` and one value per metric. The model keeps its mode, and no random numbers are consumed.
    Under `torchrun` all processes call it, each measures its share, and all get the same values.

    **Example**

    >>> inputs = [torch.randn(n, 2) for n in (3, 5, 4)]
    >>> data = rc.data.SequenceSet.from_arrays(inputs, [x.sum(1).long() * 0 for x in inputs], "tagging")
    >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
    >>> sorted(rc.train.evaluate(model, data, metrics={"accuracy": lambda y, d: (y.argmax(1) == d).float()}))
    ['accuracy', 'loss']
    """
    if not isinstance(model, nn.Module):
        raise InputError("model", repr(model), "a torch.nn.Module")
    refuse_batch_first(model)
    chosen = choose_device(model, device)
    source = as_batch_source(data, "data", batch_size, shuffle=False)
    model.to(chosen)
    processes, numbers = Processes(), Precision(precision, chosen, model)
    return means(model, processes.shard(source, "data"), objective(loss, metrics), numbers, processes, MicroBatches())


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
    """The evaluation loop. `check` runs before every batch and may raise to end it."""
    training, totals, count, state = model.training, {}, 0, None
    model.eval()
    try:
        with preserve_rng():
            for batch, goes_on in with_next(source.epoch(0)):
                check()
                if not len(batch):  # this process has no share of it
                    continue
                count += goal.count(batch)
                measure = partial(
                    _measure, model, batch, state if batch.carried else None, goes_on, goal, precision, micro
                )
                sums, after = micro.run_in_memory(measure, len(batch))
                if not math.isfinite(sums["loss"]):
                    raise _not_finite(model, goal, batch.to(precision.device), state if batch.carried else None, step)
                totals = {name: totals.get(name, 0.0) + value for name, value in sums.items()}
                state = after
    finally:
        model.train(training)
    return _means_of_all(totals, count, processes)


def _means_of_all(totals: dict[str, float], count: int, processes: Processes) -> dict[str, float]:
    """Means over the items of all processes; one without any item does not know the names of the metrics."""
    shares = processes.gather((totals, count))
    items = max(sum(count for _, count in shares), 1)
    names = {name: None for totals, _ in shares for name in totals}
    return {name: sum(totals.get(name, 0.0) for totals, _ in shares) / items for name in names}


def _measure(
    model: nn.Module,
    batch: Batch,
    state: Any,
    goes_on: bool,
    goal: Objective,
    precision: Precision,
    micro: MicroBatches,
) -> tuple[dict[str, float], Any]:
    """Sums over the items of one batch, in micro-batches, and its state if the next batch continues from it."""
    parts, totals, after = micro.split(batch, state), {}, []
    for part, part_state in parts:
        with precision.autocast():
            sums, part_state = goal(model, part.to(precision.device), part_state)
        totals = {name: totals.get(name, 0.0) + float(value) for name, value in sums.items()}
        after.append(part_state if goes_on else None)
    return totals, concat_states(after, [len(part) for part, _ in parts])


def _not_finite(model: nn.Module, goal: Objective, batch: Batch, state: Any, step: int) -> NonFiniteError:
    layer = first_non_finite(model, goal, batch, state)[0] or "the loss function"
    return NonFiniteError(step, "loss in evaluation", layer, batch.ids.tolist())
