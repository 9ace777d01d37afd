"""Base of the online learners: one signature, `learner.step(x, target)`, over a tracker that carries what one needs.

A `Tracker` runs a network step by step. `output(x)` gives the outputs of one step in a small graph, to which a learner
adds the loss; `gradient(loss)` then gives the gradient that the algorithm assigns to that loss, and advances the state.
It keeps nothing of earlier steps but tensors of fixed size.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from recurra.argument_checks import whole_number
from recurra.errors import InputError, OptionError, ShapeError
from recurra.train.learner import (
    CARRIED_BY_LEARNER,
    Learner,
    Optimizer,
    StepTargets,
    positive,
    refuse_carried_start,
    resolve_optimizer,
    step_targets,
)
from recurra.train.objective import Loss
from recurra.train.online.compiled_update import update_compiled
from recurra.train.online.explain import explain_learner
from recurra.train.step_function import StepFunction, is_same_form


class Tracker(ABC):
    """The state of `batch` sequences, and what an algorithm carries beside it."""

    why = ""  # why the step is not compiled; empty if it is

    def __init__(self, step_fn: StepFunction, batch: int):
        self.step_fn, self.batch = step_fn, batch

    @abstractmethod
    def reset(self) -> None:
        """Start new sequences."""

    @abstractmethod
    def output(self, x: Tensor) -> Tensor:
        """The outputs (B, q) of the step that reads x (B, D), in a graph that ends at this step."""

    @abstractmethod
    def gradient(self, loss: Tensor | None) -> list[Tensor] | None:
        """The gradient of a loss of these outputs, in the order of `step_fn.parameters()`; None for no loss."""

    def call_gradient(
        self, learner: "OnlineLearner", x: Tensor, targets: StepTargets
    ) -> tuple[float, list[Tensor]] | None:
        """Sum of the losses of all steps of x (T, B, D) and its gradient, where that is possible at once."""
        return None

    def call_updates(self, learner: "OnlineLearner", x: Tensor, targets: StepTargets) -> float | None:
        """Take all steps of x and all updates, where that is possible at once; the sum of the losses."""
        return None

    def peek(self, x: Tensor) -> Tensor:
        """The outputs of the next step, (B, q), without taking it."""
        state = self.state_dict()
        output = self.output(x).detach().clone()
        self.load_state_dict(state)
        return output

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that a stream needs to go on."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class OnlineLearner(Learner):
    """Abstract base of online learners. A subclass makes a `Tracker`.

    **Arguments** that all share

    - `model`: a `rc.train.Predictor` or a layer, of one direction.
    - `loss`, `optimizer`, `rate`, `clip`: as in `BPTT`.
    - `update`: when weights change, once per call ("call") or after every step ("step").
    - `carry`: continue from the state of the previous call, e.g. to feed a stream step by step.

    **Example**

        >>> learner = rc.train.RTRL(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", update="step", carry=True)
        >>> isinstance(learner, rc.train.OnlineLearner), learner.step(torch.randn(1, 3, 2), torch.randn(1, 3, 1)) > 0
        (True, True)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "auto",
        optimizer: Optimizer = "adam",
        rate: float = 1e-3,
        update: str = "call",
        carry: bool = False,
        clip: float | None = None,
        seed: int = 0,
    ):
        super().__init__(model, loss)
        if update not in ("call", "step"):
            raise InputError("update", repr(update), "'call' or 'step'")
        refuse_carried_start(model, CARRIED_BY_LEARNER)
        self.step_fn = StepFunction(model)
        if self.step_fn.layer is None:
            got = f"{type(model).__name__}, without recurrence"
            raise InputError("model", got, "a recurrent layer; BPTT takes any module")
        if next(self.step_fn.layer.parameters(), None) is None:
            raise InputError("model", "a layer without weights", "one that can learn; BPTT takes any module")
        self.update, self.carry = update, carry
        self.clip = None if clip is None else positive("clip", clip)
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.generator = torch.Generator().manual_seed(whole_number("seed", seed))  # of algorithms that draw
        self.tracker: Tracker | None = None
        self._form: list[Any] = []  # what the tracker was made for
        self._parameters = list(model.parameters())
        self._learned = [p.requires_grad for p in self._parameters]
        self._running = False

    @property
    def updates_plainly(self) -> bool:
        """Whether an update is a step of the optimiser and nothing else."""
        return type(self)._apply is OnlineLearner._apply

    @abstractmethod
    def make_tracker(self, batch: int) -> Tracker:
        """A tracker for this many sequences."""

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        targets = self._begin(x, target, mask)
        for parameter in self._parameters:
            parameter.grad = None
        assert self.tracker is not None
        updated = self.tracker.call_updates(self, x, targets)
        if updated is not None:
            total = updated
        else:
            total = self._learn_call(x, targets) if self.update == "call" else self._learn_steps(x, targets)
        self._running = self.carry
        self.steps += 1
        return total / max(targets.total, 1)

    def _learn_call(self, x: Tensor, targets: StepTargets) -> float:
        """One update for all steps; the sum of their losses."""
        whole, total = self._whole_call(x, targets), 0.0
        if whole is not None:
            total = whole[0]
            self._accumulate(whole[1], 1.0 / max(targets.total, 1))
        for t in range(len(x)) if whole is None else ():
            loss, gradient = self._gradient(x[t], targets, t)
            total += loss
            if gradient is not None:
                self._accumulate(gradient, 1.0 / targets.total)
        self._apply()
        return total

    def _learn_steps(self, x: Tensor, targets: StepTargets) -> float:
        """An update after each step that has a target; the sum of the losses."""
        total = 0.0
        for t in range(len(x)):
            loss, gradient = self._gradient(x[t], targets, t)
            total += loss
            if gradient is not None:
                self._accumulate(gradient, 1.0 / int(targets.counts[t].sum()))
                self._apply()
        return total

    def gradients(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Gradient of the mean loss over one call, by parameter name, without an update; a stream does not move."""
        targets = self._begin(x, target, mask)
        if not self._running or self.tracker is None:
            return self._gradients(x, targets)
        before, draws = self.tracker.state_dict(), self.generator.get_state()
        try:
            return self._gradients(x, targets)
        finally:
            self.tracker.load_state_dict(before)
            self.generator.set_state(draws)

    def _gradients(self, x: Tensor, targets: StepTargets) -> dict[str, Tensor]:
        parameters = self.step_fn.parameters()
        whole = self._whole_call(x, targets)
        if whole is not None:
            return {name: g / max(targets.total, 1) for name, g in zip(parameters, whole[1], strict=True)}
        total = [torch.zeros_like(p) for p in parameters.values()]
        for t in range(len(x)):
            for own, part in zip(total, self._gradient(x[t], targets, t)[1] or [], strict=False):
                own += part
        return {name: own / max(targets.total, 1) for name, own in zip(parameters, total, strict=True)}

    def predict(self, x: Tensor) -> Tensor:
        """Outputs (T, B, q) for x (T, B, D), from the state that the stream has reached; the stream does not move."""
        if x.dim() != 3:
            raise InputError("x", f"shape {tuple(x.shape)}", "sequences (T, B, D)")
        self._check(x)
        if self._running:
            running = self._renew(x.shape[1])
            if len(x) == 1:
                return running.peek(x[0])[None]
        draws, tracker = self.generator.get_state(), self.make_tracker(x.shape[1])
        tracker.reset()
        if self._running and self.tracker is not None:
            tracker.load_state_dict(self.tracker.state_dict())
        outputs = []
        for row in x:
            outputs.append(tracker.output(row).detach().clone())
            tracker.gradient(None)
        self.generator.set_state(draws)
        return torch.stack(outputs)

    def explain(self) -> str:
        """The structure found in the model and the cost of a step, as `rc.explain(learner)` gives it."""
        return explain_learner(self)

    def _begin(self, x: Tensor, target: Tensor, mask: Tensor | None) -> StepTargets:
        targets = step_targets(x, target, mask)
        self._check(x)
        tracker = self._renew(x.shape[1])
        if not self._running:
            tracker.reset()
        return targets

    def _check(self, x: Tensor) -> None:
        """Refuse what the compiled step would read as if it were another shape, or the model of the last call."""
        inputs = self.step_fn.cells[0].input_size
        if x.shape[2] != inputs:
            raise ShapeError("x", f"shape {tuple(x.shape)}", f"(T, B, {inputs}) for this model")
        if self._running and self.tracker is not None and self.tracker.batch != x.shape[1]:
            expected = f"{self.tracker.batch}, as the stream had; another learner for another stream"
            raise ShapeError("x", f"{x.shape[1]} sequences", expected)
        if self._learned != [p.requires_grad for p in self._parameters]:
            got = "weights whose requires_grad has changed since the learner was made"
            raise OptionError("model", got, "a new learner")

    def _renew(self, batch: int) -> Tracker:
        """The tracker for this many sequences and for the model as it is now; a stream goes on."""
        before, form = self.tracker, self.step_fn.form()
        if before is not None and before.batch == batch and is_same_form(form, self._form):
            return before
        tracker = self.make_tracker(batch)
        self.tracker, self._form = tracker, form
        if self._running and before is not None:
            tracker.reset()
            tracker.load_state_dict(before.state_dict())
        return tracker

    def _whole_call(self, x: Tensor, targets: StepTargets) -> tuple[float, list[Tensor]] | None:
        """Loss, summed over steps and sequences, and its gradient, without a loop over steps in Python."""
        assert self.tracker is not None
        if not targets.total:
            return None
        return self.tracker.call_gradient(self, x, targets)

    def _gradient(self, x: Tensor, targets: StepTargets, t: int) -> tuple[float, list[Tensor] | None]:
        """Loss at step t, summed over sequences, and its gradient by all weights (None without targets)."""
        assert self.tracker is not None
        with torch.enable_grad():
            output = self.tracker.output(x)
            if not bool(targets.counts[t].any()):
                self.tracker.gradient(None)
                return 0.0, None
            loss = targets.loss_sum(self.loss, output[None], t)
        value = float(loss.detach())
        return value, self.tracker.gradient(loss)

    @torch.no_grad()
    def _accumulate(self, gradient: list[Tensor], factor: float) -> None:
        for parameter, part in zip(self.step_fn.parameters().values(), gradient, strict=True):
            if parameter.grad is None:
                parameter.grad = part * factor
            else:
                parameter.grad.add_(part, alpha=factor)

    def _apply(self) -> None:
        if not update_compiled(self.optimizer, list(self.step_fn.parameters().values()), self.clip):
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def extra_state(self) -> dict[str, Any]:
        carried = self.tracker.state_dict() if self._running and self.tracker is not None else None
        batch = self.tracker.batch if self.tracker is not None else 0
        draws = self.generator.get_state()
        return {"optimizer": self.optimizer.state_dict(), "carried": carried, "batch": batch, "generator": draws}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self._running = state["carried"] is not None
        if self._running:
            self.tracker, self._form = self.make_tracker(state["batch"]), self.step_fn.form()
            self.tracker.reset()
            self.tracker.load_state_dict(state["carried"])
        self.generator.set_state(state["generator"])
