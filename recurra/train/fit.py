"""`fit`: from what a user gives to a loop that runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from recurra.data.batching import BatchSource
from recurra.data.sequences import SequenceSet
from recurra.errors import InputError, OptionError
from recurra.train.checkpoint import Checkpoints
from recurra.train.distributed import Processes
from recurra.train.fit_arguments import OptimizerLike, optimizer_of, source_of
from recurra.train.fit_context import surroundings
from recurra.train.interrupt import Interrupt
from recurra.train.loop import Loop
from recurra.train.objective import Loss, Objective, objective
from recurra.train.precision import Precision, choose_device
from recurra.train.run import Callback, FitResult, Progress, Run
from recurra.train.run_log import JsonLines, progress_callback, stderr_is_terminal
from recurra.train.schedule import Schedule, pace


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
    """Train `model`, in place.

    The model is called as `model(inputs, lengths=…, state=…)`, with those of the names its `forward` has, and returns
    an output or `(output, state)`. Outputs are time-first where targets are, `(T, B, …)`, and `(B, …)` where a sequence
    has one target. With `Streams` the state is carried on, detached: truncated backpropagation through time.

    train, valid   a `SequenceSet`, taken in batches of `batch_size` (32), or `Batches`, `Streams`, or alike.
    loss           a name ("auto", "cross_entropy", "mse", "mae", "binary_cross_entropy"), a function of (output,
                   target) over the real items, (N, …) each, as torch's losses are, or an `Objective`.
    metrics        functions of the same kind by name, measured in validation.
    optimizer, lr  a name with a rate, an optimizer of torch, or a function from parameters to one.
    schedule       a factor of the rate as a function of (step, total), see `schedule`, or a scheduler of torch.
    accumulate     batches to one step; the gradient is that of one big batch.
    clip           the largest norm of the gradient.
    patience       stop after so many epochs without a better validation loss, and restore the best weights.
    precision      "float32", "bfloat16" or "float16" for products; "auto" is bfloat16 on GPUs that have it.
    checkpoints    a folder, or `Checkpoints(folder, every=steps)`. If the folder holds a run, this call continues it.
    log            a file for one JSON line an event; with checkpoints, by default `log.jsonl` in their folder.
    progress       a bar on the terminal; by default where there is one.

    SIGTERM and Ctrl-C save a checkpoint and raise `Interrupted`, a `SystemExit` with code 143 or 130 (the latter is a
    `KeyboardInterrupt` as well). Under `torchrun` the same call trains in all its processes together.
    """
    _check(valid, epochs=epochs, accumulate=accumulate, clip=clip, patience=patience)
    if batch_size is not None and not any(isinstance(data, SequenceSet) for data in (train, valid)):
        raise OptionError("batch_size", batch_size, f"none beside {type(train).__name__}, which has its own")
    around = surroundings()
    checkpoints = around.place() if checkpoints is None else checkpoints
    if not isinstance(checkpoints, Checkpoints | None):
        checkpoints = Checkpoints(checkpoints)
    goal, chosen = objective(loss, metrics), choose_device(model, device)
    model.to(chosen)
    numbers, built = Precision(precision, chosen, model), optimizer_of(optimizer, model, lr)
    training = source_of(train, "train", batch_size, shuffle=True)
    held_out = None if valid is None else source_of(valid, "valid", batch_size, shuffle=False)
    with Interrupt() as interrupt:
        processes = Processes(chosen)
        training = processes.share(training, "train")
        held_out = None if held_out is None else processes.share(held_out, "valid")
        steps = -(-len(training) // accumulate)
        run = Run(model, built, Progress(), chosen, numbers.name, processes.rank, processes.size, epochs, steps)
        speakers = _speakers(checkpoints, log, progress) if processes.first else []
        heard = [*speakers, *callbacks, *around.callbacks]
        plan = goal, training, held_out, pace(built, schedule), numbers, processes, interrupt, checkpoints, heard
        return Loop(run, *plan, accumulate, clip, patience).result()


def _check(valid: object, epochs: int, accumulate: int, clip: float | None, patience: int | None) -> None:
    for name, value in (("epochs", epochs), ("accumulate", accumulate), ("patience", patience)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(name, value, "a positive whole number")
    if clip is not None and not clip > 0:
        raise InputError("clip", clip, "a positive norm")
    if patience is not None and valid is None:
        raise InputError("patience", patience, "validation data to be patient about")


def _speakers(checkpoints: Checkpoints | None, log: str | Path | None, progress: bool | None) -> list[Callback]:
    path = Path(checkpoints.folder) / "log.jsonl" if log is None and checkpoints is not None else log
    lines: list[Callback] = [] if path is None else [JsonLines(path)]
    shown = stderr_is_terminal() if progress is None else progress
    return [*lines, progress_callback()] if shown else lines
