"""Real-time recurrent learning (Robinson & Fallside 1987, Williams & Zipser 1989): gradients carried along."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.errors import InputError
from recurra.train.learner import Learner, Optimizer, Wanted, positive, resolve_optimizer, wanted
from recurra.train.objective import Loss
from recurra.train.sensitivity import Sensitivity, exact, snap1
from recurra.train.step_function import Machine


class RTRL(Learner):
    """The exact gradient without a look back: nothing is stored for earlier steps, and learning can happen at each.

    `update` is when weights change: once a call ("call", where the gradient equals BPTT's), or after each time step
    ("step"). With `carry` a call goes on where the previous one ended, so that a stream may come one step at a time.
    `approximation="snap1"` keeps of the influence only what a weight reaches within one step. Where states meet element
    by element the exact influence is that small by itself, and is used.
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
        self.machine = Machine(model)
        self.update, self.carry, self.approximation, self.memory_limit = update, carry, approximation, memory_limit
        self.clip = None if clip is None else positive("clip", clip)
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.sensitivity: Sensitivity = self._sensitivity(1)  # refuses a model that is too large, before any data
        self._running = False

    def _sensitivity(self, batch: int) -> Sensitivity:
        choose = exact if self.approximation is None else snap1
        return choose(self.machine, batch, self.memory_limit)

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        asked, total = self._begin(x, target, mask), 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for t in range(len(x)):
            loss, gradient = self._gradient(x[t], asked, t)
            total += loss
            if gradient is None:
                continue
            count = int(asked.counts[t].sum()) if self.update == "step" else asked.total
            accumulate(self.machine, gradient / count)
            if self.update == "step":
                self._apply()
        if self.update == "call":
            self._apply()
        self._running = self.carry
        self.steps += 1
        return total / max(asked.total, 1)

    def gradients(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """The gradient of the mean loss over one call, by parameter name; nothing is learned."""
        asked = self._begin(x, target, mask)
        found = [self._gradient(x[t], asked, t)[1] for t in range(len(x))]
        total = torch.stack([g for g in found if g is not None]).sum(0) / asked.total
        sizes = [p.numel() for p in self.machine.parameters().values()]
        named = zip(self.machine.parameters().items(), total.split(sizes), strict=True)
        return {name: part.view(p.shape) for (name, p), part in named}

    def _begin(self, x: Tensor, target: Tensor, mask: Tensor | None) -> Wanted:
        asked = wanted(x, target, mask)
        batch = x.shape[1]
        if not self._running or self.sensitivity.state.shape[0] != batch:
            self.sensitivity = self._sensitivity(batch)
            self.sensitivity.reset(batch)
        return asked

    def _gradient(self, x: Tensor, asked: Wanted, t: int) -> tuple[float, Tensor | None]:
        """Σ over the sequences of the loss at step t, and its gradient by all weights."""
        y, by_weights, by_readout = self.sensitivity.advance(x)
        if not bool(asked.counts[t].any()):
            return 0.0, None
        with torch.enable_grad():
            output = y.detach().requires_grad_()
            loss = asked.loss_sum(self.loss, output[None], t)
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
def accumulate(machine: Machine, gradient: Tensor) -> None:
    """Add a flat gradient to the parameters' own."""
    parameters = machine.parameters().values()
    for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        part = part.view(parameter.shape)
        parameter.grad = part.clone() if parameter.grad is None else parameter.grad + part
