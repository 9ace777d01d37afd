"""`fit`, the public training function: checks arguments and starts the loop."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from recurra.argument_checks import path_of, positive_int, positive_number, true_or_false
from recurra.data.batching import BatchSource
from recurra.data.sequences import SequenceSet
from recurra.errors import InputError, OptionError
from recurra.train.checkpoint import Checkpoints
from recurra.train.distributed import Processes
from recurra.train.fit_arguments import OptimizerLike, as_batch_source, build_optimizer
from recurra.train.fit_context import current_context
from recurra.train.interrupt import Interrupt
from recurra.train.loop import Loop
from recurra.train.objective import Loss, Objective, objective, refuse_batch_first
from recurra.train.precision import Precision, choose_device
from recurra.train.run import Callback, FitResult, Progress, Run
from recurra.train.run_lock import run_lock
from recurra.train.run_log import JsonLines, progress_callback, stderr_is_terminal
from recurra.train.run_settings import Settings, check_same_settings, describe_run
from recurra.train.schedule import Schedule, rate_controller


def fit(
    model: nn.Module,
    train: BatchSource | SequenceSet,
    valid: BatchSource | SequenceSet | None = None,
    *,
    loss: str | Loss | Objective = "auto",
    metrics: Mapping[str, Loss] | None = None,
    optimizer: OptimizerLike = "adam",
    lr: float | None = None,
    schedule: Schedule | LRScheduler | None = None,
    epochs: int = 10,
    batch_size: int | None = None,
    accumulate: int = 1,
    clip: float | None = None,
    patience: int | None = None,
    device: str | torch.device = "auto",
    precision: str = "auto",
    checkpoints: Checkpoints | str | Path | None = None,
    log: str | Path | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
) -> FitResult:
    """Train a model in place, with checkpoints, validation, early stopping, mixed precision and several processes.

    The model is called as `model(inputs, lengths=…, state=…)`, with those names that its `forward` has, and returns an
    output or `(output, state)`. Outputs are (T, B, …) for targets per step, (B, …) for one target per sequence. With
    `Streams` the state is carried between batches, detached: truncated backpropagation through time.

    **Arguments**

    - `train`, `valid`: a `SequenceSet`, taken in batches of `batch_size` (default 32), or a source of batches such as
      `Batches` or `Streams`.
    - `loss`: a name ("auto", "cross_entropy", "mse", "mae", "binary_cross_entropy"), a function of (output, target)
      over the real items, (N, …) each, or an `Objective`. "auto" is cross-entropy for classes, else squared error.
    - `metrics`: functions of (output, target) by name, measured in validation.
    - `optimizer`, `lr`: a name with a learning rate (default "adam", 1e-3), a torch optimizer, or a function from
      parameters to one.
    - `schedule`: a learning-rate factor as a function of (step, total), e.g. `rc.train.cosine(warmup=100)`, or a torch
      scheduler.
    - `accumulate`: batches per update; the gradient is that of one large batch.
    - `clip`: the largest gradient norm.
    - `patience`: stop after this many epochs without a better validation loss, and restore the best weights.
    - `device`: "auto" keeps the model's device, or moves it from the CPU to a GPU if there is one.
    - `precision`: "float32", "bfloat16" or "float16" for products; "auto" is bfloat16 on GPUs that support it.
    - `checkpoints`: a folder or `Checkpoints(folder, every=steps)`. If the folder holds a run, this call resumes it. A
      folder in which another process trains is a `RunInUseError`.
    - `log`: a file with one JSON line per event; with checkpoints by default `log.jsonl` in their folder.
    - `progress`: show progress on standard error; by default if it is a terminal.
    - `callbacks`: called with an event name and the `Run`.

    **Returns** a `FitResult`: `history`, `steps`, `stopped`, `best_epoch`, `best_loss`, `checkpoint`.

    SIGTERM and Ctrl-C save a checkpoint and raise `Interrupted`, a `SystemExit` with code 143 or 130 (the latter is
    also a `KeyboardInterrupt`). Under `torchrun` the same call trains in all processes together: each takes its share
    of every batch, and without dropout the result is that of one process but for rounding. A batch that does not fit in
    memory is split into micro-batches with the same gradient.

    **Example**

    >>> inputs = [torch.randn(n, 2) for n in (5, 3, 6, 4)]
    >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
    >>> model = rc.train.Predictor(rc.LSTM(2, 8), 2)
    >>> result = rc.train.fit(model, data, valid=data, epochs=3, lr=0.01, progress=False)
    >>> [record["epoch"] for record in result.history]
    [0, 1, 2]
    """
    _check(model, valid, epochs=epochs, accumulate=accumulate, clip=clip, patience=patience, batch_size=batch_size)
    callbacks = _callbacks(callbacks)
    if progress is not None:
        true_or_false("progress", progress)
    if batch_size is not None and not any(isinstance(data, SequenceSet) for data in (train, valid)):
        raise OptionError("batch_size", batch_size, f"no batch_size: {type(train).__name__} has its own")
    context = current_context()
    checkpoints = context.next_checkpoints() if checkpoints is None else checkpoints
    if not isinstance(checkpoints, Checkpoints | None):
        checkpoints = Checkpoints(path_of("checkpoints", checkpoints))
    log = None if log is None else path_of("log", log)
    goal, chosen = objective(loss, metrics), choose_device(model, device)
    model.to(chosen)
    numeric, built = Precision(precision, chosen, model), build_optimizer(optimizer, model, lr)
    training = as_batch_source(train, "train", batch_size, shuffle=True)
    held_out = None if valid is None else as_batch_source(valid, "valid", batch_size, shuffle=False)
    with Interrupt() as interrupt:
        processes = Processes()
        training = processes.shard(training, "train")
        held_out = None if held_out is None else processes.shard(held_out, "valid")
        steps = -(-len(training) // accumulate)
        run = Run(model, built, Progress(), chosen, numeric.name, processes.rank, processes.size, epochs, steps)
        reporters = _reporters(checkpoints, log, progress) if processes.first else []
        listeners = [*reporters, *callbacks, *context.callbacks]
        plan = (
            goal,
            training,
            held_out,
            rate_controller(built, schedule),
            numeric,
            processes,
            interrupt,
            checkpoints,
            listeners,
        )
        with run_lock(None if checkpoints is None else checkpoints.folder, processes):
            settings: Settings = {}
            if checkpoints is not None or processes.size > 1:
                others = {"schedule": schedule, "accumulate": accumulate, "clip": clip}
                settings = describe_run(model, built, goal, training, held_out, **others)
                check_same_settings(settings, processes)
            return Loop(run, *plan, accumulate, clip, patience, settings).result()


def _check(model: object, valid: object, clip: float | None, **counts: int | None) -> None:
    if not isinstance(model, nn.Module):
        raise InputError("model", repr(model), "a torch.nn.Module")
    refuse_batch_first(model)
    for name, value in counts.items():
        if value is not None:
            positive_int(name, value)
    if clip is not None:
        positive_number("clip", clip)
    if counts["patience"] is not None and valid is None:
        raise InputError("patience", counts["patience"], "validation data (valid=…)")


def _callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    if not isinstance(callbacks, (list, tuple)) or not all(map(callable, callbacks)):
        raise InputError("callbacks", repr(callbacks), "a list of functions of (event, run)")
    return list(callbacks)


def _reporters(checkpoints: Checkpoints | None, log: str | Path | None, progress: bool | None) -> list[Callback]:
    path = Path(checkpoints.folder) / "log.jsonl" if log is None and checkpoints is not None else log
    lines: list[Callback] = [] if path is None else [JsonLines(path)]
    shown = stderr_is_terminal() if progress is None else progress
    return [*lines, progress_callback()] if shown else lines
