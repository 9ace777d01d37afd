"""Backpropagation through time, full or truncated (TBPTT), with the options of Bengio et al. 2013."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.cell import positive_int
from recurra.errors import InputError, OptionError, ShapeError
from recurra.layers import Recurrent
from recurra.models.hierarchical import HierarchicalRNN
from recurra.train.axes import time_comes_first
from recurra.train.learner import (
    CARRIED_BY_LEARNER,
    Learner,
    Optimizer,
    StepTargets,
    check_restart,
    positive,
    refuse_carried_start,
    refuse_future,
    resolve_optimizer,
    run_from,
    step_targets,
)
from recurra.train.objective import Loss
from recurra.train.open_window import OpenWindow, kept_from, unnoticed
from recurra.train.tensor_trees import detach_tree


class BPTT(Learner):
    """Backpropagation through time, full or truncated: TBPTT(k1, k2) of Williams & Peng 1990.

    **Arguments**

    - `model`: a module that maps (T, B, D) to an output or `(output, state)`, such as `rc.train.Predictor`,
      `rc.HierarchicalRNN` or `rc.NARX`. Windows and `carry` need the state and one direction.
    - `loss`: a name ("auto", "cross_entropy", "mse", "mae", "binary_cross_entropy") or a function of (output, target).
    - `optimizer`, `rate`: a name ("adam", "sgd", "rmsprop", "nesterov") with its learning rate, or a function from
      parameters to an optimizer.
    - `k1`: steps between two backward passes; each pass takes the losses of those k1 steps. None: one pass per call.
    - `k2`: steps a gradient travels back from the end of a window, at least k1. Only gradients are truncated; the state
      runs on. With k2 = k1 (the default) windows are chunks that do not overlap; with k2 ≥ T nothing is truncated.
    - `update`: when weights change, after each pass ("window") or once per call ("call").
    - `carry`: start each call from the final state of the previous one, which has read masked steps, too. With k1 and
      `update="window"` calls are pieces of a stream, cut anywhere: a window that a call leaves open is completed by the
      next, and its loss is the mean over its own targets. Without k1, each call is a window.
    - `clip`: the largest joint norm of all gradients.
    - `l1`: the weight of Σ|h| over the outputs of all recurrent layers, for sparse activity.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update.

    **Example**

    >>> learner = rc.train.BPTT(rc.train.Predictor(rc.LSTM(2, 8), 1), "mse", rate=0.01, k1=5, k2=10)
    >>> x = torch.randn(20, 4, 2)
    >>> losses = [learner.step(x, x.sum(2, keepdim=True)) for _ in range(30)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "auto",
        optimizer: Optimizer = "adam",
        rate: float = 1e-3,
        k1: int | None = None,
        k2: int | None = None,
        update: str = "window",
        carry: bool = False,
        clip: float | None = None,
        l1: float = 0.0,
    ):
        super().__init__(model, loss)
        if update not in ("window", "call"):
            raise InputError("update", repr(update), "'window' or 'call'")
        if k1 is None and k2 is not None:
            k1 = k2
        self.k1 = None if k1 is None else positive_int("k1", k1)
        self.k2 = self.k1 if k2 is None else positive_int("k2", k2)
        if self.k1 is not None and self.k2 is not None and self.k2 < self.k1:
            raise InputError("k2", k2, f"at least k1 = {k1}, so that every loss reaches its own step")
        if self.k1 is not None or carry:
            refuse_future(model, "windows (k1, k2) or carry")
            refuse_carried_start(model, CARRIED_BY_LEARNER)
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.update, self.carry, self.l1 = update, carry, l1
        self.clip = None if clip is None else positive("clip", clip)
        self.state: Any = None
        self.open = OpenWindow()

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        own = step_targets(x, target, mask)
        open_ = self.open if self.is_stream else OpenWindow(states={0: self.state if self.carry else None})
        call = len(open_)  # the first step of this call
        x, targets = open_.extended(x, own)
        steps, new, known = len(x), open_.learned, dict(open_.states)  # detached states before a step
        k1, total = self.k1 or steps, 0.0
        self.optimizer.zero_grad(set_to_none=True)
        while new + k1 <= steps if self.is_stream else new < steps:  # the losses of steps new..end are new in this pass
            end = min(new + k1, steps)
            begin = self._first_step(new, end)
            loss, known[end] = self._window(x, targets, known, begin, new, end, call)
            total += loss
            if self.update == "window":
                self._apply()
            new = end
            following = self._first_step(new, new + k1 if self.is_stream else min(new + k1, steps))
            oldest = max(t for t in known if t <= following)
            known = {t: state for t, state in known.items() if t >= oldest}
        if self.update == "call":
            self._apply()
        if self.is_stream:
            total += self._read_ahead(x, targets, known, new, call)
            self.open = kept_from(min(known), new, x, targets, known)
        else:
            self.state = known[steps] if self.carry else None
        self.steps += 1
        return total / max(own.total, 1)

    def _first_step(self, new: int, end: int) -> int:
        """Where the gradient of the losses of steps new..end stops: k2 steps before `end`; chunks do not overlap."""
        return new if self.k1 == self.k2 else max(end - (self.k2 or end), 0)

    @property
    def is_stream(self) -> bool:
        """Whether windows lie on a stream, so that calls may cut it anywhere."""
        return self.carry and self.update == "window" and self.k1 is not None

    def _read_ahead(self, x: Tensor, targets: StepTargets, known: dict[int, Any], new: int, call: int) -> float:
        """The loss of steps whose window later calls complete, and the state after them."""
        if new == len(x):
            self.state = known[new]
            return 0.0
        first, ahead = max(new, call), (self.k2 or 0) - (self.k1 or 0)
        with unnoticed(self.model):
            if new >= call:  # the state that the window will have there, by the weights of now
                begin = max(new - ahead, 0)
                nearest = max(t for t in known if t <= begin)
                self.state = known[nearest]
                for low, high in ((nearest, begin), (begin, new)):
                    if low < high:
                        self.state = self._run(x[low:high], targets, self.state)[1]
            output, self.state = self._run(x[first:], targets, self.state)
            return float(self._loss(output, targets, first))

    def _window(
        self, x: Tensor, targets: StepTargets, known: dict[int, Any], begin: int, new: int, end: int, call: int
    ) -> tuple[float, Any]:
        """Backward pass over steps begin..end from the losses of new..end: the loss from `call` on, the final state."""
        nearest = max(t for t in known if t <= begin)
        state = known[nearest]
        if nearest < begin:
            with torch.no_grad():
                state = self._run(x[nearest:begin], targets, state)[1]
        if begin < new:
            state = self._run(x[begin:new], targets, state)[1]
        hidden: list[Tensor] = []
        hooks = self._watch(hidden) if self.l1 else []
        output, after = self._run(x[new:end], targets, state)
        for hook in hooks:
            hook.remove()
        if output.dim() == 3 and len(output) != end - new:
            raise ShapeError("model output", tuple(output.shape), f"{end - new} steps, as x")
        if end - new < len(x) or self.carry:
            check_restart(self.model, after)
        if self.l1 and not hidden:
            raise OptionError("l1", self.l1, f"0 for {type(self.model).__name__}, which has no recurrent layer")
        loss = self._loss(output, targets, new)
        penalty = sum((h.abs().sum() for h in hidden), loss.new_zeros(()))
        ((loss + self.l1 * penalty) / self._mean_over(targets, new, end)).backward()
        if new < call:  # earlier calls have returned the loss of their own steps
            with torch.no_grad():
                loss = self._loss(output[call - new :], targets, call)
        return float(loss.detach()), detach_tree(after)

    def _mean_over(self, targets: StepTargets, new: int, end: int) -> int:
        """How many targets the loss of the window is divided by: those of the call, on a stream those of the window."""
        return max(int(targets.counts[new:end].sum()) if self.is_stream else targets.total, 1)

    def _loss(self, output: Tensor, targets: StepTargets, start: int) -> Tensor:
        if output.dim() < 3:  # one output per sequence
            ends = targets.counts.any(0)
            return self.loss(output[ends], targets.target[-1][ends]).mean() * int(ends.sum())
        return targets.loss_sum(self.loss, output, start)

    def _run(self, x: Tensor, targets: StepTargets, state: Any) -> tuple[Tensor, Any]:
        with time_comes_first(self.model, x):
            return run_from(self.model, x, state, self._lengths(x, targets))

    def _lengths(self, x: Tensor, targets: StepTargets) -> Tensor | None:
        """Where sequences end, for a pass over whole ones. A carried state has read every step, in windows or not."""
        return None if self.carry or len(x) < len(targets.counts) else targets.lengths

    def _watch(self, hidden: list[Tensor]) -> list[Any]:
        layers = [m for m in self.model.modules() if isinstance(m, (Recurrent, HierarchicalRNN, nn.RNNBase))]
        return [m.register_forward_hook(lambda _m, _i, result: hidden.append(result[0])) for m in layers]

    def _apply(self) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def extra_state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "state": self.state, "open": self.open.state_dict()}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.state = state["state"]
        self.open = OpenWindow.of(state["open"])


def leaks(hidden_size: int, low: float = 0.02, high: float = 0.2, generator: torch.Generator | None = None) -> Tensor:
    """Random time constants for `rc.LeakyRNN(…, tau=leaks(H))`, one per unit.

    h = α h + (1 - α) F(h, x) with α uniform on (low, high), so τ = 1 / (1 - α). The default range is that of Bengio et
    al. 2013 as later work reports it.

    **Returns** τ, (hidden_size,) float64.

    **Example**

    >>> rc.train.leaks(4).shape
    torch.Size([4])
    """
    positive_int("hidden_size", hidden_size)
    if not 0 <= low <= high < 1:
        raise InputError("low, high", (low, high), "0 ≤ low ≤ high < 1")
    keep = low + (high - low) * torch.rand(hidden_size, generator=generator, dtype=torch.float64)
    return 1 / (1 - keep)
