"""The training loop: epochs, steps, validation, checkpoints, stop requests.

A step takes `accumulate` batches, each possibly split into micro-batches, to one gradient, one clipping and one update.
A run is saved, stopped and resumed only between two steps, where its state is consistent.
"""

import logging
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from recurra.data.batching import BatchSource
from recurra.data.sequences import Batch
from recurra.errors import InputError
from recurra.train import checkpoint, randomness
from recurra.train.checkpoint import Checkpoints, Snapshot
from recurra.train.distributed import Processes
from recurra.train.evaluate import means
from recurra.train.finite_checks import all_finite, first_non_finite, non_finite_gradient
from recurra.train.fit_errors import (
    CheckpointError,
    CheckpointWarning,
    Interrupted,
    KeyboardInterrupted,
    MismatchError,
    NonFiniteError,
    RankError,
)
from recurra.train.interrupt import Interrupt
from recurra.train.micro_batches import MicroBatches, concat_states
from recurra.train.objective import Objective, with_next
from recurra.train.precision import Precision
from recurra.train.run import Callback, Event, FitResult, Progress, Run, restore_states, states_of
from recurra.train.run_settings import Settings, differences
from recurra.train.schedule import RateController
from recurra.train.tensor_trees import detach_tree

logger = logging.getLogger("recurra.train")
Group = list[tuple[Batch, bool]]  # batches, each with whether the next one carries its state on


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """The entries of the state dict that are not parameters."""
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: tensor for name, tensor in checkpoint.tensors_of(model).items() if name not in trained}


class _StopRequested(BaseException):
    """A signal asked the run to stop. Raised only between steps, where the state is consistent."""

    def __init__(self, signum: int):
        super().__init__(signum)
        self.signum = signum


@dataclass
class Loop:
    """One call of `fit`: its arguments, and the state that changes from step to step."""

    run: Run
    goal: Objective
    train: BatchSource
    valid: BatchSource | None
    rates: RateController
    precision: Precision
    processes: Processes
    interrupt: Interrupt
    checkpoints: Checkpoints | None
    callbacks: Sequence[Callback]
    accumulate: int = 1
    clip: float | None = None
    patience: int | None = None
    settings: Settings = field(default_factory=dict)  # compared with those of the run that is resumed
    micro: MicroBatches = field(default_factory=MicroBatches)
    carried: Any = None  # hidden state carried into the next batch
    best: dict[str, Tensor] | None = None  # the weights of the best validation so far
    newest: Path | None = None  # path of the last checkpoint written
    saved_at: float = 0.0  # time of that checkpoint

    def __post_init__(self):
        self.parameters = [p for group in self.run.optimizer.param_groups for p in group["params"]]

    def result(self) -> FitResult:
        """Run until finished, stopped or interrupted. Callbacks get "end" in every case."""
        run, training = self.run, self.run.model.training
        self.processes.broadcast_model(run.model)
        resumed = self._resume()
        if not resumed:
            self._save(first=True)
        self._notify("start")
        try:
            self._epochs()
        except _StopRequested as request:
            raise self._interrupted(request.signum) from None
        except RankError as error:
            error.add_note(f"The run was at step {run.progress.step}; " + self._resume_hint())
            raise
        finally:
            self._notify("end")
            run.model.train(training)
        if self.patience is not None and self.best is not None:
            run.model.load_state_dict(self.best)
        p = run.progress
        stopped = p.stopped or "finished"
        where = str(run.device), run.precision
        return FitResult(p.history, p.step, stopped, p.best_epoch, p.best_loss, *where, self.newest)

    def _notify(self, event: Event) -> None:
        for callback in self.callbacks:
            callback(event, self.run)

    # Epochs

    def _epochs(self) -> None:
        progress = self.run.progress
        while progress.epoch < self.run.epochs and progress.stopped is None:
            self.run.model.train()
            for group in self._groups():
                count = self._sync_stop(sum(self.goal.count(batch) for batch, _ in group if len(batch)))
                if self.run.stop:
                    break
                self._step(group, count)
            self._end_epoch(self._validate())
            if self._worth_saving():
                self._save()
        self._sync_stop()  # a signal may have arrived during the last save

    def _groups(self) -> Iterator[Group]:
        """The remaining batches of this epoch, grouped by `accumulate`."""
        progress = self.run.progress
        batches = with_next(self.train.epoch(progress.epoch, start=progress.index))
        while group := list(islice(batches, self.accumulate)):
            yield group

    def _sync_stop(self, count: int = 0) -> int:
        """Sum a count over all processes. If one of them was asked to stop, all raise or stop."""
        signum = self.interrupt.signum
        votes = [count, signum == signal.SIGTERM, signum == signal.SIGINT, self.run.stop]
        total, terminate, keyboard, stop = self.processes.sum([float(vote) for vote in votes])
        if terminate or keyboard:
            raise _StopRequested(signal.SIGTERM if terminate else signal.SIGINT)
        self.run.stop = bool(stop)
        return int(total)

    def _validate(self) -> dict[str, float]:
        if self.valid is None:
            return {}
        run = self.run
        micro = MicroBatches(self.micro.parts)
        return means(
            run.model, self.valid, self.goal, self.precision, self.processes, micro, self._sync_stop, run.progress.step
        )

    def _end_epoch(self, measured: dict[str, float]) -> None:
        run, p = self.run, self.run.progress
        values = {f"valid_{name}": value for name, value in measured.items()}
        record = {
            "epoch": p.epoch,
            "step": p.step,
            "loss": p.loss_sum / max(p.items, 1),
            "rate": run.rates[0],
            **values,
        }
        p.history.append(record)
        if measured:
            self.rates.after_validation(measured["loss"])
            if p.best_loss is None or p.best_epoch is None or measured["loss"] < p.best_loss:
                p.best_loss, p.best_epoch = measured["loss"], p.epoch
                self.best = {name: tensor.detach().cpu().clone() for name, tensor in run.model.state_dict().items()}
            if self.patience is not None and p.epoch - p.best_epoch >= self.patience:
                p.stopped = "early"
        self._notify("epoch")
        if run.stop and p.stopped is None:
            p.stopped = "callback"
        p.epoch, p.index, p.loss_sum, p.items, self.carried = p.epoch + 1, 0, 0.0, 0.0, None

    # One step

    def _step(self, group: Group, count: int) -> None:
        run, p = self.run, self.run.progress
        before = randomness.capture()
        size = max(1, *(len(batch) for batch, _ in group))
        loss_sum, carried = self.micro.run_in_memory(lambda: self._gradients(group, count), size)
        loss_sum = self.processes.sum_gradients(self.parameters, loss_sum)
        self.precision.unscale(run.optimizer)
        norm = get_total_norm([q.grad for q in self.parameters if q.grad is not None])
        if not all_finite(loss_sum) or not (all_finite(norm) or self.precision.scaled):
            randomness.restore(before)
            raise self._not_finite(group, loss_sum)
        if self.clip is not None:
            clip_grads_with_norm_(self.parameters, self.clip, norm)
        self.rates.before_step(p.step, run.total_steps)
        self.precision.step(run.optimizer)
        self.rates.after_step()
        self.carried = carried
        run.loss, run.norm = float(loss_sum) / max(count, 1), float(norm)
        p.step, p.index, p.parts = p.step + 1, p.index + len(group), self.micro.parts
        p.loss_sum, p.items = p.loss_sum + float(loss_sum), p.items + count
        self._notify("step")
        if self.checkpoints is not None and self.checkpoints.due(p.step):
            self._save()

    def _gradients(self, group: Group, count: int) -> tuple[Tensor, Any]:
        """Loss sum and carried state; leaves in `.grad` the gradient of the mean over all processes."""
        self.run.optimizer.zero_grad(set_to_none=True)
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.run.device)
        state = self.carried
        for batch, goes_on in group:
            if not len(batch):  # this process has no share of it
                continue
            parts = self.micro.split(batch, self._state_for(batch, state))
            after = []
            for part, part_state in parts:
                with self.precision.autocast():
                    sums, part_state = self.goal(self.run.model, part.to(self.run.device), part_state)
                self.precision.backward(sums["loss"] / max(count, 1))
                loss_sum += sums["loss"].detach()
                after.append(detach_tree(part_state) if goes_on else None)
            state = concat_states(after, [len(part) for part, _ in parts])
            if goes_on and state is None:
                raise InputError("model", "an output alone", "(output, state): the next batch continues from the state")
        return loss_sum, state

    def _state_for(self, batch: Batch, state: Any) -> Any:
        if batch.carried and state is None:
            raise InputError("train", "a first batch with carried=True", "a first batch that starts from a fresh state")
        return state if batch.carried else None

    def _not_finite(self, group: Group, loss_sum: Tensor) -> NonFiniteError:
        step, state = self.run.progress.step + 1, self.carried
        gradient = non_finite_gradient(self.run.model)
        for batch in (batch for batch, _ in group if len(batch)):
            layer, state = first_non_finite(
                self.run.model, self.goal, batch.to(self.run.device), self._state_for(batch, state)
            )
            if layer is not None:
                return NonFiniteError(step, "loss", layer, batch.ids.tolist())
        ids = [number for batch, _ in group for number in batch.ids.tolist()]
        if all_finite(loss_sum):
            return NonFiniteError(step, "gradient", gradient or "no layer", ids)
        return NonFiniteError(step, "loss", "another process" if self.processes.size > 1 else "the loss function", ids)

    # Saving and resuming

    def _snapshot(self) -> Snapshot:
        run = self.run
        shared = {
            "optimizer": run.optimizer.state_dict(),
            "kind": type(run.optimizer).__name__,
            "schedule": self.rates.state_dict(),
            "scaler": self.precision.state_dict(),
        }
        own = {"random": randomness.capture(), "carried": self.carried, "callbacks": states_of(self.callbacks)}
        if self.processes.size > 1:  # normalisation layers have other statistics in every process
            own |= {"buffers": buffers_of(run.model), "best buffers": self._best_buffers()}
        progress = run.progress.to_json() | {"settings": self.settings}
        return Snapshot(progress, checkpoint.tensors_of(run.model), self.best, shared, own)

    def _worth_saving(self) -> bool:
        """Whether to save at the end of an epoch; all processes follow the slowest clock."""
        if self.checkpoints is None or not self.checkpoints.apart:
            return True
        progress, passed = self.run.progress, time.monotonic() - self.saved_at
        last = progress.epoch >= self.run.epochs or progress.stopped is not None
        return last or self.processes.largest([passed])[0] >= self.checkpoints.apart

    def _save(self, first: bool = False) -> bool:
        """Write a checkpoint if there is a folder. Only the first save raises on failure; later ones warn."""
        if self.checkpoints is None:
            return False
        try:
            self.newest = checkpoint.save(self.checkpoints, self._snapshot(), self.processes)
            self.saved_at = time.monotonic()
            return True
        except CheckpointError as error:
            if first:
                raise
            self.run.message = f"{error}; the run is at step {self.run.progress.step}, " + self._resume_hint()
            warnings.warn(self.run.message, CheckpointWarning, stacklevel=2)
            self._notify("save failed")
            return False

    def _resume_hint(self) -> str:
        return f"{self.newest} is kept and the same call resumes there" if self.newest else "there is no checkpoint"

    def _resume(self) -> bool:
        found = None if self.checkpoints is None else checkpoint.load(self.checkpoints, self.run.model, self.processes)
        if found is None:
            return False
        self.newest, snapshot = found
        run, shared, own = self.run, snapshot.shared, snapshot.own
        try:
            if shared["kind"] != type(run.optimizer).__name__:
                raise MismatchError(self.newest, f"written with {shared['kind']}, not {type(run.optimizer).__name__}")
            changed = self._accepted_changes(snapshot.progress.get("settings", {}))
            run.progress = Progress.from_json(snapshot.progress, self.newest)
            run.model.load_state_dict(snapshot.weights)
            self.best, self.carried = snapshot.best, own["carried"]
            self._restore_buffers(own)
            self._restore_optimizer(shared, changed)
            restore_states(self.callbacks, own["callbacks"])
            randomness.restore(own["random"])
            self._start_over_where(changed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MismatchError(self.newest, f"does not fit this run ({error!r})") from error
        self.micro.parts = run.progress.parts
        return True

    def _accepted_changes(self, before: Settings) -> set[str]:
        """Names of the settings that differ from those of the saved run; not accepted, they are an error."""
        assert self.checkpoints is not None
        assert self.newest is not None
        changed = differences(before, self.settings)
        if changed and not self.checkpoints.accept_changes:
            listed = "; ".join(f"{name} was {difference}" for name, difference in changed.items())
            advice = "accept_changes=True (recurra fit --accept-changes) resumes with the new ones"
            raise MismatchError(self.newest, f"saved with other settings: {listed}. {advice}")
        return set(changed)

    def _restore_optimizer(self, shared: dict[str, Any], changed: set[str]) -> None:
        """States of optimizer, schedule and loss scaling; options that were changed stay as they are now."""
        optimizer = self.run.optimizer
        given = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        optimizer.load_state_dict(shared["optimizer"])
        if changed & {"lr", "optimizer", "schedule"}:
            for group, options in zip(optimizer.param_groups, given, strict=True):
                group.update(options)
        else:
            self.rates.load_state_dict(shared["schedule"])
        self.precision.load_state_dict(shared["scaler"])

    def _start_over_where(self, changed: set[str]) -> None:
        """Other batches: this epoch begins again. Another loss: the best weights so far are not comparable."""
        progress = self.run.progress
        if changed & {"train", "batch_size", "batches", "accumulate"}:
            progress.index, progress.loss_sum, progress.items, self.carried = 0, 0.0, 0.0, None
        if changed & {"loss", "valid"}:
            progress.best_loss, progress.best_epoch, self.best = None, None, None

    def _best_buffers(self) -> dict[str, Tensor] | None:
        names = buffers_of(self.run.model)
        return None if self.best is None else {name: self.best[name] for name in names}

    def _restore_buffers(self, own: dict[str, Any]) -> None:
        """The buffers of this process over those of rank 0, which the weights hold."""
        self.run.model.load_state_dict(own.get("buffers", {}), strict=False)
        if self.best is not None:
            self.best |= own.get("best buffers") or {}

    def _interrupted(self, signum: int) -> Interrupted:
        saved = self._save()
        kind = KeyboardInterrupted if signum == signal.SIGINT else Interrupted
        interrupted = kind(signum, self.run.progress.step, self.newest if saved else None)
        if self.processes.first:
            logger.warning("%s", interrupted)
        return interrupted
