"""The learning rule LSTM was published with (Hochreiter & Schmidhuber 1997; with forget gates, Gers et al. 2000).

Errors do not propagate back through h_{t-1} into gates or candidate, nor through peepholes; only the path through the
memory c remains. Its derivative is carried forward as one eligibility per weight, so a step is linear in the weights:

    s_t  = [x_t; h_{t-1}; 1]                      the input of every gate
    S^g ← f ⊙ S^g + (i ⊙ g'(a_g)) s_tᵀ            dc_t / d(weights of the candidate), one row per memory cell
    S^i ← f ⊙ S^i + (g ⊙ i (1 - i)) s_tᵀ          … of the input gate
    S^f ← f ⊙ S^f + (c_{t-1} ⊙ f (1 - f)) s_tᵀ    … of the forget gate, where there is one (else f = 1)
    u = dL_t/dh_t;   ε = u ⊙ o ⊙ q'(c_t);   δ_o = u ⊙ q(c_t) ⊙ o (1 - o)
    dL_t/dθ_{g,i,f} = diag(ε) S;   dL_t/dθ_o = δ_o s_tᵀ

This form runs with `update="step"`. With `update="call"`, Σ_t diag(ε_t) S_t is computed in reverse from the errors
e_t = ε_t + f_{t+1} ⊙ e_{t+1}: the same sum in a few large products.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recurra.cell import Cell
from recurra.cells.greff import LSTMNFG
from recurra.cells.lstm import LSTM, OriginalLSTM, VanillaLSTM
from recurra.engine.dispatch import Sequences, scan
from recurra.errors import InputError
from recurra.models.hierarchical import HierarchicalRNN
from recurra.models.narx import NARX
from recurra.train.learner import (
    CARRIED_BY_LEARNER,
    Learner,
    Optimizer,
    StepTargets,
    positive,
    refuse_carried_start,
    refuse_learned_start,
    resolve_optimizer,
    step_targets,
)
from recurra.train.objective import Loss
from recurra.train.step_function import StepFunction

STEPPED = (NARX, HierarchicalRNN)  # networks that `StepFunction` reads as a cell of another name
SUPPORTED = (LSTM, VanillaLSTM, OriginalLSTM, LSTMNFG)


@dataclass
class Eligibility:
    """Carried from step to step: the states h and c, and the eligibility of every weight."""

    h: Tensor  # (B, H)
    c: Tensor  # (B, H)
    S: Tensor  # (gates, B, H, K): candidate, input gate, forget gate
    S_p: Tensor  # (gates, B, H), of their peepholes


class OriginalLSTMRule(Learner):
    """The learning rule LSTM was published with (Hochreiter & Schmidhuber 1997): truncated BPTT plus RTRL, online.

    A step costs as much as the weights are many, whatever the length of the sequence.

    **Arguments**

    - `model`: a `rc.train.Predictor` with one layer of lstm, vanilla_lstm, original_lstm or lstm_nfg.
    - `loss`, `optimizer`, `rate`, `clip`: as in `BPTT`.
    - `update`: when weights change, once per call ("call") or after every step that has a target ("step").
    - `carry`: keep states and eligibilities between calls.

    **Returns** from `step(x, target, mask=None)` the mean loss before the update.

    **Example**

    >>> learner = rc.train.OriginalLSTMRule(rc.train.Predictor(rc.LSTM(2, 4), 1), "mse", rate=0.05)
    >>> x = torch.randn(20, 4, 2)
    >>> losses = [learner.step(x, x.sum(2, keepdim=True)) for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "auto",
        optimizer: Optimizer = "sgd",
        rate: float = 0.1,
        update: str = "call",
        carry: bool = False,
        clip: float | None = None,
    ):
        super().__init__(model, loss)
        refuse_carried_start(model, CARRIED_BY_LEARNER)
        refuse_learned_start(model, "a fixed one: the rule has no gradient for it")
        if update not in ("call", "step"):
            raise InputError("update", repr(update), "'call' or 'step'")
        step_fn = StepFunction(model)
        if len(step_fn.cells) != 1 or type(step_fn.cells[0]) not in SUPPORTED or step_fn.cells[0].modifiers:
            network = model if isinstance(model, STEPPED) else getattr(model, "layer", None)
            cells = ", ".join(type(cell).__name__ for cell in step_fn.cells) or "no recurrent layer"
            got = type(network).__name__ if isinstance(network, STEPPED) else cells
            names = "lstm, vanilla_lstm, original_lstm, lstm_nfg"
            raise InputError("model", got, f"one plain layer of {names}; RTRL(approximation='snap1') takes any cell")
        self.cell, self.head = step_fn.cells[0], step_fn.head
        self.forgets = hasattr(self.cell, "f")
        self.update, self.carry = update, carry
        self.clip = None if clip is None else positive("clip", clip)
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.memory: Eligibility | None = None

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        targets = step_targets(x, target, mask)
        if self.memory is None or not self.carry or len(self.memory.h) != x.shape[1]:
            self.memory = self._fresh(x)
        self.optimizer.zero_grad(set_to_none=True)
        learn = self._learn_at_each_step if self.update == "step" else self._learn_at_once
        total = learn(x, targets)
        self.steps += 1
        return total / max(targets.total, 1)

    def _learn_at_each_step(self, x: Tensor, targets: StepTargets) -> float:
        gates, total = PackedGates.of(self.cell), 0.0
        counts = targets.counts.sum(1).tolist()
        for t, x_t in enumerate(x.unbind(0)):
            self.memory, values = gates.advance(self.memory, x_t)  # pyrefly: ignore
            if counts[t]:
                loss, u = self._errors(self.memory.h[None], targets, counts[t], t)
                gates.add_gradients(self.cell, *gates.gradients(self.memory, values, u[0]))
                self._apply()
                gates, total = PackedGates.of(self.cell), total + loss
        return total

    def _learn_at_once(self, x: Tensor, targets: StepTargets) -> float:
        """Forward pass of the whole call on the engine, then errors back along the memory path."""
        gates, memory, total = PackedGates.of(self.cell), self.memory, 0.0
        assert memory is not None
        with torch.no_grad():
            found = scan(self.cell, Sequences(x, (memory.h, memory.c), {}), keep_trace=True)
            h, c = found.y, found.trace["c"]  # pyrefly: ignore
            h_before, c_before = (torch.cat([a[None], b[:-1]]) for a, b in ((memory.h, h), (memory.c, c)))
            values = gates.values(torch.cat([x, h_before, h.new_ones(*h.shape[:2], 1)], -1), c_before, c)
        if targets.total:
            total, u = self._errors(h, targets, targets.total)
            gates.add_gradients(self.cell, *gates.summed_gradients(memory, values, u))
            self._apply()
        if self.carry:
            self.memory = gates.after(memory, values, h[-1])
        return total

    def _fresh(self, x: Tensor) -> Eligibility:
        with torch.no_grad():
            h, c = (value.clone() for value in self.cell.initial_state(x.shape[1], x))
        kinds, width = 3 if self.forgets else 2, self.cell.hidden_size
        reads = self.cell.input_size + width + 1
        return Eligibility(h, c, x.new_zeros(kinds, len(h), width, reads), x.new_zeros(kinds, len(h), width))

    def _errors(self, h: Tensor, targets: StepTargets, count: int, start: int = 0) -> tuple[float, Tensor]:
        """Loss sum at the steps of h (n, B, H), and the gradient of loss / count by h; sets `.grad` of the head."""
        h = h.detach().requires_grad_()
        loss = targets.loss_sum(self.loss, self.head(h), start)
        readout = [p for p in self.head.parameters() if p.requires_grad]
        u, *by_readout = torch.autograd.grad(loss / count, [h, *readout])
        for parameter, gradient in zip(readout, by_readout, strict=True):
            parameter.grad = gradient
        return float(loss.detach()), u

    def _apply(self) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def extra_state(self) -> dict[str, Any]:
        memory = vars(self.memory).copy() if self.memory is not None and self.carry else None
        return {"optimizer": self.optimizer.state_dict(), "memory": memory}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.memory = None if state["memory"] is None else Eligibility(**state["memory"])


@dataclass(frozen=True)
class StepValues:
    """Intermediate values of one step, or of many (T, B, …), that the gradient needs."""

    source: Tensor  # (B, K), the input of every gate
    before: Tensor  # c_{t-1}
    c: Tensor
    f: Tensor
    o: Tensor
    q: Tensor  # squashed memory
    slope: Tensor  # q'(c)
    factor: Tensor  # (gates, B, H): dc_t by the sums that enter candidate, input gate, forget gate


@dataclass(frozen=True)
class PackedGates:
    """Current weights in one matrix: candidate, input gate, forget gate (if any), output gate."""

    names: tuple[str, ...]
    packed: Tensor  # (gates · H, K)
    peepholes: dict[str, Tensor]
    squash_1997: bool  # the squashing functions of 1997

    @classmethod
    def of(cls, cell: Cell) -> "PackedGates":
        names = ("g", "i", "f", "o") if hasattr(cell, "f") else ("g", "i", "o")
        with torch.no_grad():
            w = cell.weights()
            blank = w["g.U"].new_zeros(cell.hidden_size)
            rows = [torch.cat([w[f"{n}.U"], w[f"{n}.W"], w.get(f"{n}.b", blank)[:, None]], 1) for n in names]
            peepholes = {n: w[f"p_{n}"].clone() for n in names if f"p_{n}" in w}
            return cls(names, torch.cat(rows), peepholes, getattr(cell, "squash", "tanh") == "1997")

    # ------------------------------------------------------------------------------------------ forward

    @torch.no_grad()
    def values(self, source: Tensor, before: Tensor, c: Tensor | None = None) -> StepValues:
        """Gate values from `source` (…, B, K) and the previous memory; computes the new memory unless `c` is given."""
        a = dict(zip(self.names, (source @ self.packed.T).chunk(len(self.names), -1), strict=True))
        for name in ("i", "f"):
            if name in self.peepholes:
                a[name] = a[name] + self.peepholes[name] * before
        i = a["i"].sigmoid()
        f = a["f"].sigmoid() if "f" in a else torch.ones_like(before)
        g, g_slope = self._candidate(a["g"])
        factors = [i * g_slope, g * i * (1 - i)] + ([before * f * (1 - f)] if "f" in a else [])
        c = f * before + i * g if c is None else c
        o = (a["o"] + self.peepholes["o"] * c if "o" in self.peepholes else a["o"]).sigmoid()
        q, slope = self._squash(c)
        return StepValues(source, before, c, f, o, q, slope, torch.stack(factors))

    @torch.no_grad()
    def advance(self, memory: Eligibility, x: Tensor) -> tuple[Eligibility, StepValues]:
        values = self.values(torch.cat([x, memory.h, x.new_ones(len(x), 1)], 1), memory.c)
        S = torch.addcmul(values.factor[..., None] * values.source[:, None, :], values.f[..., None], memory.S)
        S_p = values.f * memory.S_p + values.factor * memory.c if self.peepholes else memory.S_p
        return Eligibility(values.o * values.q, values.c, S, S_p), values

    @torch.no_grad()
    def after(self, memory: Eligibility, values: StepValues, h: Tensor) -> Eligibility:
        """States and eligibilities after all steps (T, B, …) of a call."""
        kept = values.f.flip(0).cumprod(0).flip(0)  # (T, B, H): f_t … f_T
        since = torch.cat([kept[1:], torch.ones_like(kept[:1])]) * values.factor  # (gates, T, B, H)
        S = kept[0, ..., None] * memory.S + torch.einsum("gtbh,tbk->gbhk", since, values.source)
        S_p = kept[0] * memory.S_p + (since * values.before).sum(1) if self.peepholes else memory.S_p
        return Eligibility(h, values.c[-1], S, S_p)

    def _candidate(self, a: Tensor) -> tuple[Tensor, Tensor]:
        if self.squash_1997:
            s = a.sigmoid()
            return 4 * s - 2, 4 * s * (1 - s)
        g = a.tanh()
        return g, 1 - g * g

    def _squash(self, c: Tensor) -> tuple[Tensor, Tensor]:
        if self.squash_1997:
            s = c.sigmoid()
            return 2 * s - 1, 2 * s * (1 - s)
        q = c.tanh()
        return q, 1 - q * q

    # ------------------------------------------------------------------------------------------ gradients

    def gradients(self, memory: Eligibility, values: StepValues, u: Tensor) -> tuple[Tensor, Tensor]:
        """diag(ε) S and δ_o sᵀ of one step, summed over the batch: (gates + 1, H, K); of peepholes, (gates + 1, H)."""
        error = u * values.o * values.slope
        d_o = u * values.q * values.o * (1 - values.o)
        by_gate = torch.cat([torch.einsum("bh,gbhk->ghk", error, memory.S), (d_o.T @ values.source)[None]])
        return by_gate, torch.cat([(error * memory.S_p).sum(1), (d_o * values.c).sum(0, keepdim=True)])

    def summed_gradients(self, memory: Eligibility, values: StepValues, u: Tensor) -> tuple[Tensor, Tensor]:
        """The same, summed over the steps of a call (T, B, …) that began with `memory`."""
        error = u * values.o * values.slope
        for t in range(len(error) - 2, -1, -1):
            error[t].addcmul_(values.f[t + 1], error[t + 1])
        d_o = u * values.q * values.o * (1 - values.o)
        sums = torch.cat([error * values.factor, d_o[None]])  # (gates + 1, T, B, H)
        by_gate = torch.einsum("gtbh,tbk->ghk", sums, values.source)
        by_peephole = torch.cat([(sums[:-1] * values.before).sum((1, 2)), (d_o * values.c).sum((0, 1))[None]])
        first = values.f[0] * error[0]
        by_gate[:-1] += torch.einsum("bh,gbhk->ghk", first, memory.S)
        by_peephole[:-1] += (first * memory.S_p).sum(1)
        return by_gate, by_peephole

    def add_gradients(self, cell: Cell, by_gate: Tensor, by_peephole: Tensor) -> None:
        """Add the gradients to the `.grad` of the cell's parameters."""
        gradients: dict[str, Tensor] = {}
        for name, gradient, peephole in zip(self.names, by_gate, by_peephole, strict=True):
            U, W, b = gradient.split([cell.input_size, cell.hidden_size, 1], 1)
            gradients |= {f"{name}.U": U, f"{name}.W": W, f"{name}.b": b[:, 0], f"p_{name}": peephole}
        with torch.enable_grad():  # cells in a block share gates: a derived weight propagates its gradient
            own = {n: w for n, w in cell.weights().items() if n in gradients and w.requires_grad}
        torch.autograd.backward(list(own.values()), [gradients[name] for name in own])
