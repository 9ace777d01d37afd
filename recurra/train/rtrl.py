"""Real-time recurrent learning (RTRL): forward accumulation of the exact gradient, or its SnAp-1 approximation."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.errors import InputError
from recurra.train.learner import Learner, Optimizer, StepTargets, positive, resolve_optimizer, step_targets
from recurra.train.objective import Loss
from recurra.train.sensitivity import Sensitivity, exact, snap1
from recurra.train.step_function import StepFunction


class RTRL(Learner):
    """Real-time recurrent learning (Robinson & Fallside 1987, Williams & Zipser 1989).

    Carries ds/dw forward in time: exact gradients without storing earlier steps, so weights can change at every step.
    Memory and time grow with states × weights. Cells whose states interact element by element (IndRNN, minGRU) need one
    number per state and weight only, and stay exact.

    **Arguments**

    - `model`: a `rc.train.Predictor`, a layer, or a module without recurrence. One direction only.
    - `loss`, `optimizer`, `rate`, `clip`: as in `BPTT`.
    - `update`: when weights change, once per call ("call"; the gradient equals BPTT's) or after every step ("step").
    - `carry`: continue from the state and influence of the previous call, e.g. to feed a stream step by step.
    - `approximation`: "snap1" (Menick et al. 2021) keeps the influence only where a weight reaches a state in one step.
    - `memory_limit`: bytes; a larger influence matrix raises `CostError`.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update. `gradients(x, target)` returns the
    gradient by parameter name without an update.

    **Example**

    >>> learner = rc.train.RTRL(rc.train.Predictor(rc.GRU(2, 4), 1), "mse", rate=0.01, update="step")
    >>> x = torch.randn(20, 4, 2)
    >>> losses = [learner.step(x, x.sum(2, keepdim=True)) for _ in range(5)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "auto",
        optimizer: Optimizer = "adam",
        rate: float = 1e-3,
        update: str = "call",
        carry: bool = False,
        approximation: str | None = None,
        clip: float | None = None,
        memory_limit: int = 4 << 30,
    ):
        super().__init__(model, loss)
        if update not in ("call", "step"):
            raise InputError("update", repr(update), "'call' or 'step'")
        if approximation not in (None, "snap1"):
            raise InputError("approximation", repr(approximation), "None or 'snap1'")
        self.step_fn = StepFunction(model)
        self.update, self.carry, self.approximation, self.memory_limit = update, carry, approximation, memory_limit
        self.clip = None if clip is None else positive("clip", clip)
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.sensitivity: Sensitivity = self._sensitivity(1)  # raises CostError for a model that is too large
        self._running = False

    def _sensitivity(self, batch: int) -> Sensitivity:
        choose = exact if self.approximation is None else snap1
        return choose(self.step_fn, batch, self.memory_limit)

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        targets, total = self._begin(x, target, mask), 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for t in range(len(x)):
            loss, gradient = self._gradient(x[t], targets, t)
            total += loss
            if gradient is None:
                continue
            count = int(targets.counts[t].sum()) if self.update == "step" else targets.total
            accumulate(self.step_fn, gradient / count)
            if self.update == "step":
                self._apply()
        if self.update == "call":
            self._apply()
        self._running = self.carry
        self.steps += 1
        return total / max(targets.total, 1)

    def gradients(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Gradient of the mean loss over one call, by parameter name, without an update."""
        targets = self._begin(x, target, mask)
        found = [self._gradient(x[t], targets, t)[1] for t in range(len(x))]
        total = torch.stack([g for g in found if g is not None]).sum(0) / targets.total
        sizes = [p.numel() for p in self.step_fn.parameters().values()]
        named = zip(self.step_fn.parameters().items(), total.split(sizes), strict=True)
        return {name: part.view(p.shape) for (name, p), part in named}

    def _begin(self, x: Tensor, target: Tensor, mask: Tensor | None) -> StepTargets:
        targets = step_targets(x, target, mask)
        batch = x.shape[1]
        if not self._running or self.sensitivity.state.shape[0] != batch:
            self.sensitivity = self._sensitivity(batch)
            self.sensitivity.reset(batch)
        return targets

    def _gradient(self, x: Tensor, targets: StepTargets, t: int) -> tuple[float, Tensor | None]:
        """Loss at step t, summed over sequences, and its flat gradient by all weights (None without targets)."""
        y, by_weights, by_readout = self.sensitivity.advance(x)
        if not bool(targets.counts[t].any()):
            return 0.0, None
        with torch.enable_grad():
            output = y.detach().requires_grad_()
            loss = targets.loss_sum(self.loss, output[None], t)
            g = torch.autograd.grad(loss, output)[0]  # (B, q)
        parts = (torch.einsum("bq,bqp->p", g, by) for by in (by_weights, by_readout))
        return float(loss.detach()), torch.cat(list(parts))

    def _apply(self) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def extra_state(self) -> dict[str, Any]:
        carried = self.sensitivity.state_dict() if self._running else None
        return {"optimizer": self.optimizer.state_dict(), "carried": carried}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self._running = state["carried"] is not None
        if self._running:
            self.sensitivity = self._sensitivity(len(state["carried"]["state"]))
            self.sensitivity.load_state_dict(state["carried"])


@torch.no_grad()
def accumulate(step_fn: StepFunction, gradient: Tensor) -> None:
    """Add a flat gradient to the `.grad` of the parameters."""
    parameters = step_fn.parameters().values()
    for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        part = part.view(parameter.shape)
        parameter.grad = part.clone() if parameter.grad is None else parameter.grad + part
