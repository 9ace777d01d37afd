"""The learning rule LSTM was published with (Hochreiter & Schmidhuber 1997; with forget gates, Gers et al. 2000).

Errors do not travel back through h_{t-1} into gates or candidate, nor through peepholes; only the memory's own loop
survives. What is left can be carried forward in one number a weight, so a step costs as much as the weights are many:

    s_t  = [x_t; h_{t-1}; 1]                      what every gate reads
    S^g ← f ⊙ S^g + (i ⊙ g'(a_g)) s_tᵀ            dc_t / d(weights of the candidate), one row a memory cell
    S^i ← f ⊙ S^i + (g ⊙ i (1 - i)) s_tᵀ          … of the input gate
    S^f ← f ⊙ S^f + (c_{t-1} ⊙ f (1 - f)) s_tᵀ    … of the forget gate, where there is one (else f = 1)
    u = dL_t/dh_t;   ε = u ⊙ o ⊙ q'(c_t);   δ_o = u ⊙ q(c_t) ⊙ o (1 - o)
    dL_t/dθ_{g,i,f} = diag(ε) S;   dL_t/dθ_o = δ_o s_tᵀ

So it runs where weights change at each step. Where they change once a call, Σ_t diag(ε_t) S_t is summed the other way
round, over the errors e_t = ε_t + f_{t+1} ⊙ e_{t+1} that meet at each step: the same sum, in a few large products.
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
from recurra.train.learner import Learner, Optimizer, Wanted, positive, resolve_optimizer, wanted
from recurra.train.objective import Loss
from recurra.train.step_function import Machine

SERVED = (LSTM, VanillaLSTM, OriginalLSTM, LSTMNFG)


@dataclass
class Memory:
    """What is carried from step to step: the states, and the eligibility of every weight."""

    h: Tensor  # (B, H)
    c: Tensor  # (B, H)
    S: Tensor  # (gates, B, H, K): candidate, input gate, forget gate
    S_p: Tensor  # (gates, B, H): their peepholes


class OriginalLSTMRule(Learner):
    """Truncated BPTT and RTRL in one, online: for lstm, vanilla_lstm, original_lstm and lstm_nfg, one layer.

    `update` is when weights change: once a call, or after each step that has a target. `carry` keeps state and
    eligibilities from call to call.
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
        if update not in ("call", "step"):
            raise InputError("update", repr(update), "'call' or 'step'")
        machine = Machine(model)
        if len(machine.cells) != 1 or type(machine.cells[0]) not in SERVED or machine.cells[0].modifiers:
            got = ", ".join(type(cell).__name__ for cell in machine.cells) or "no recurrent layer"
            names = "lstm, vanilla_lstm, original_lstm, lstm_nfg"
            raise InputError("model", got, f"one plain layer of {names}; RTRL(approximation='snap1') serves any cell")
        self.cell, self.head = machine.cells[0], machine.head
        self.forgets = hasattr(self.cell, "f")
        self.update, self.carry = update, carry
        self.clip = None if clip is None else positive("clip", clip)
        self.optimizer = resolve_optimizer(optimizer, model.parameters(), positive("rate", rate))
        self.memory: Memory | None = None

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        asked = wanted(x, target, mask)
        if self.memory is None or not self.carry or len(self.memory.h) != x.shape[1]:
            self.memory = self._fresh(x)
        self.optimizer.zero_grad(set_to_none=True)
        learn = self._learn_at_each_step if self.update == "step" else self._learn_at_once
        total = learn(x, asked)
        self.steps += 1
        return total / max(asked.total, 1)

    def _learn_at_each_step(self, x: Tensor, asked: Wanted) -> float:
        gates, total = Gates.of(self.cell), 0.0
        counts = asked.counts.sum(1).tolist()
        for t, x_t in enumerate(x.unbind(0)):
            self.memory, now = gates.advance(self.memory, x_t)  # pyrefly: ignore
            if counts[t]:
                loss, u = self._errors(self.memory.h[None], asked, counts[t], t)
                gates.add_gradients(self.cell, *gates.gradients(self.memory, now, u[0]))
                self._apply()
                gates, total = Gates.of(self.cell), total + loss
        return total

    def _learn_at_once(self, x: Tensor, asked: Wanted) -> float:
        """The whole call on the engine, then its errors back along the memory's own loop."""
        gates, memory, total = Gates.of(self.cell), self.memory, 0.0
        assert memory is not None
        with torch.no_grad():
            found = scan(self.cell, Sequences(x, (memory.h, memory.c), {}), keep_trace=True)
            h, c = found.y, found.trace["c"]  # pyrefly: ignore
            h_before, c_before = (torch.cat([a[None], b[:-1]]) for a, b in ((memory.h, h), (memory.c, c)))
            now = gates.now(torch.cat([x, h_before, h.new_ones(*h.shape[:2], 1)], -1), c_before, c)
        if asked.total:
            total, u = self._errors(h, asked, asked.total)
            gates.add_gradients(self.cell, *gates.summed_gradients(memory, now, u))
            self._apply()
        if self.carry:
            self.memory = gates.after(memory, now, h[-1])
        return total

    def _fresh(self, x: Tensor) -> Memory:
        with torch.no_grad():
            h, c = (value.clone() for value in self.cell.initial_state(x.shape[1], x))
        kinds, width = 3 if self.forgets else 2, self.cell.hidden_size
        reads = self.cell.input_size + width + 1
        return Memory(h, c, x.new_zeros(kinds, len(h), width, reads), x.new_zeros(kinds, len(h), width))

    def _errors(self, h: Tensor, asked: Wanted, count: int, start: int = 0) -> tuple[float, Tensor]:
        """Σ of the loss at the steps of h (n, B, H), and the gradient of loss / count by h; the head gets its own."""
        h = h.detach().requires_grad_()
        loss = asked.loss_sum(self.loss, self.head(h), start)
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
        self.memory = None if state["memory"] is None else Memory(**state["memory"])


@dataclass(frozen=True)
class Now:
    """What one step, or each of many (T, B, …), leaves for its gradient."""

    source: Tensor  # (B, K): what every gate reads
    before: Tensor  # c_{t-1}
    c: Tensor
    f: Tensor
    o: Tensor
    q: Tensor  # the squashed memory
    slope: Tensor  # q'(c)
    factor: Tensor  # (gates, B, H): dc_t by the sums that enter candidate, input gate, forget gate


@dataclass(frozen=True)
class Gates:
    """The weights of one moment, packed: candidate, input gate, forget gate where there is one, output gate."""

    names: tuple[str, ...]
    packed: Tensor  # (gates · H, K)
    peepholes: dict[str, Tensor]
    old: bool  # the squashing functions of 1997

    @classmethod
    def of(cls, cell: Cell) -> "Gates":
        names = ("g", "i", "f", "o") if hasattr(cell, "f") else ("g", "i", "o")
        with torch.no_grad():
            w = cell.weights()
            blank = w["g.U"].new_zeros(cell.hidden_size)
            rows = [torch.cat([w[f"{n}.U"], w[f"{n}.W"], w.get(f"{n}.b", blank)[:, None]], 1) for n in names]
            peepholes = {n: w[f"p_{n}"].clone() for n in names if f"p_{n}" in w}
            return cls(names, torch.cat(rows), peepholes, getattr(cell, "squash", "tanh") == "1997")

    # ------------------------------------------------------------------------------------------ forward

    @torch.no_grad()
    def now(self, source: Tensor, before: Tensor, c: Tensor | None = None) -> Now:
        """The gates that read `source` (…, B, K) and the memory before; the new memory, unless it is known."""
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
        return Now(source, before, c, f, o, q, slope, torch.stack(factors))

    @torch.no_grad()
    def advance(self, memory: Memory, x: Tensor) -> tuple[Memory, Now]:
        now = self.now(torch.cat([x, memory.h, x.new_ones(len(x), 1)], 1), memory.c)
        S = torch.addcmul(now.factor[..., None] * now.source[:, None, :], now.f[..., None], memory.S)
        S_p = now.f * memory.S_p + now.factor * memory.c if self.peepholes else memory.S_p
        return Memory(now.o * now.q, now.c, S, S_p), now

    @torch.no_grad()
    def after(self, memory: Memory, now: Now, h: Tensor) -> Memory:
        """What is carried on after all steps (T, B, …) of a call: what each left, times the forget gates since."""
        kept = now.f.flip(0).cumprod(0).flip(0)  # (T, B, H): f_t … f_T
        since = torch.cat([kept[1:], torch.ones_like(kept[:1])]) * now.factor  # (gates, T, B, H)
        S = kept[0, ..., None] * memory.S + torch.einsum("gtbh,tbk->gbhk", since, now.source)
        S_p = kept[0] * memory.S_p + (since * now.before).sum(1) if self.peepholes else memory.S_p
        return Memory(h, now.c[-1], S, S_p)

    def _candidate(self, a: Tensor) -> tuple[Tensor, Tensor]:
        if self.old:
            s = a.sigmoid()
            return 4 * s - 2, 4 * s * (1 - s)
        g = a.tanh()
        return g, 1 - g * g

    def _squash(self, c: Tensor) -> tuple[Tensor, Tensor]:
        if self.old:
            s = c.sigmoid()
            return 2 * s - 1, 2 * s * (1 - s)
        q = c.tanh()
        return q, 1 - q * q

    # ------------------------------------------------------------------------------------------ gradients

    def gradients(self, memory: Memory, now: Now, u: Tensor) -> tuple[Tensor, Tensor]:
        """diag(ε) S and δ_o sᵀ of one step, summed over the batch: (gates + 1, H, K); of peepholes, (gates + 1, H)."""
        error = u * now.o * now.slope
        d_o = u * now.q * now.o * (1 - now.o)
        by_gate = torch.cat([torch.einsum("bh,gbhk->ghk", error, memory.S), (d_o.T @ now.source)[None]])
        return by_gate, torch.cat([(error * memory.S_p).sum(1), (d_o * now.c).sum(0, keepdim=True)])

    def summed_gradients(self, memory: Memory, now: Now, u: Tensor) -> tuple[Tensor, Tensor]:
        """The same, summed over the steps of a call (T, B, …) that began with `memory`."""
        error = u * now.o * now.slope
        for t in range(len(error) - 2, -1, -1):
            error[t].addcmul_(now.f[t + 1], error[t + 1])
        d_o = u * now.q * now.o * (1 - now.o)
        sums = torch.cat([error * now.factor, d_o[None]])  # (gates + 1, T, B, H)
        by_gate = torch.einsum("gtbh,tbk->ghk", sums, now.source)
        by_peephole = torch.cat([(sums[:-1] * now.before).sum((1, 2)), (d_o * now.c).sum((0, 1))[None]])
        first = now.f[0] * error[0]
        by_gate[:-1] += torch.einsum("bh,gbhk->ghk", first, memory.S)
        by_peephole[:-1] += (first * memory.S_p).sum(1)
        return by_gate, by_peephole

    def add_gradients(self, cell: Cell, by_gate: Tensor, by_peephole: Tensor) -> None:
        """Into the parameters' own."""
        gradients: dict[str, Tensor] = {}
        for name, gradient, peephole in zip(self.names, by_gate, by_peephole, strict=True):
            U, W, b = gradient.split([cell.input_size, cell.hidden_size, 1], 1)
            gradients |= {f"{name}.U": U, f"{name}.W": W, f"{name}.b": b[:, 0], f"p_{name}": peephole}
        with torch.enable_grad():  # blocks of cells share their gates: a derived weight passes its gradient on
            own = {n: w for n, w in cell.weights().items() if n in gradients and w.requires_grad}
        torch.autograd.backward(list(own.values()), [gradients[name] for name in own])
