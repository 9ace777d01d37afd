"""The learning rule LSTM was published with (Hochreiter & Schmidhuber 1997; with forget gates, Gers et al. 2000).

Errors do not travel back through h_{t-1} into gates or candidate, nor through peepholes; only the memory's own loop
survives. What is left can be carried forward in one number a weight, so a step costs as much as the weights are many:

    s_t  = [x_t; h_{t-1}; 1]                      what every gate reads
    S^g ← f ⊙ S^g + (i ⊙ g'(a_g)) s_tᵀ            dc_t / d(weights of the candidate), one row a memory cell
    S^i ← f ⊙ S^i + (g ⊙ i (1 - i)) s_tᵀ          … of the input gate
    S^f ← f ⊙ S^f + (c_{t-1} ⊙ f (1 - f)) s_tᵀ    … of the forget gate, where there is one (else f = 1)
    u = dL_t/dh_t;   ε = u ⊙ o ⊙ q'(c_t);   δ_o = u ⊙ q(c_t) ⊙ o (1 - o)
    dL_t/dθ_{g,i,f} = diag(ε) S;   dL_t/dθ_o = δ_o s_tᵀ
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recurra.cell import Cell
from recurra.cells.greff import LSTMNFG
from recurra.cells.lstm import LSTM, OriginalLSTM, VanillaLSTM
from recurra.errors import InputError
from recurra.train.learner import Learner, Optimizer, Wanted, positive, resolve_optimizer, wanted
from recurra.train.machine import Machine
from recurra.train.objective import Loss

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
        total = 0.0
        gates = Gates.of(self.cell)
        some = asked.counts.any(1).tolist()
        for t, x_t in enumerate(x.unbind(0)):
            self.memory, now = gates.advance(self.memory, x_t)
            if not some[t]:
                continue
            count = int(asked.counts[t].sum()) if self.update == "step" else asked.total
            total += self._learn(gates, now, asked, t, count)
            if self.update == "step":
                self._apply()
                gates = Gates.of(self.cell)
        if self.update == "call":
            self._apply()
        self.steps += 1
        return total / max(asked.total, 1)

    def _fresh(self, x: Tensor) -> Memory:
        with torch.no_grad():
            h, c = (value.clone() for value in self.cell.initial_state(x.shape[1], x))
        kinds, width = 3 if self.forgets else 2, self.cell.hidden_size
        reads = self.cell.input_size + width + 1
        return Memory(h, c, x.new_zeros(kinds, len(h), width, reads), x.new_zeros(kinds, len(h), width))

    def _learn(self, gates: "Gates", now: "Now", asked: Wanted, t: int, count: int) -> float:
        """Add the gradient of step t's loss to the parameters."""
        h = self.memory.h.detach().requires_grad_()  # pyrefly: ignore
        loss = asked.loss_sum(self.loss, self.head(h)[None], t)
        readout = [p for p in self.head.parameters() if p.requires_grad]
        u, *by_readout = torch.autograd.grad(loss / count, [h, *readout])
        for parameter, gradient in zip(readout, by_readout, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        gates.add_gradients(self.cell, self.memory, now, u)  # pyrefly: ignore
        return float(loss.detach())

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
    """What one step leaves for its own gradient."""

    source: Tensor  # (B, K)
    o: Tensor
    q: Tensor  # the squashed memory
    slope: Tensor  # q'(c)
    c: Tensor


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

    @torch.no_grad()
    def advance(self, memory: Memory, x: Tensor) -> tuple[Memory, Now]:
        h, c = memory.h, memory.c
        source = torch.cat([x, h, x.new_ones(len(x), 1)], 1)
        a = dict(zip(self.names, (source @ self.packed.T).chunk(len(self.names), 1), strict=True))
        for name in ("i", "f"):
            if name in self.peepholes:
                a[name] = a[name] + self.peepholes[name] * c
        i = a["i"].sigmoid()
        f = a["f"].sigmoid() if "f" in a else torch.ones_like(c)
        g, g_slope = self._candidate(a["g"])
        factors = [i * g_slope, g * i * (1 - i)] + ([c * f * (1 - f)] if "f" in a else [])
        factor = torch.stack(factors)  # (gates, B, H)
        S = torch.addcmul(factor[..., None] * source[:, None, :], f[..., None], memory.S)
        S_p = f * memory.S_p + factor * c if self.peepholes else memory.S_p
        c = f * c + i * g
        o = (a["o"] + self.peepholes["o"] * c if "o" in self.peepholes else a["o"]).sigmoid()
        q, slope = self._squash(c)
        return Memory(o * q, c, S, S_p), Now(source, o, q, slope, c)

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

    def add_gradients(self, cell: Cell, memory: Memory, now: Now, u: Tensor) -> None:
        """diag(ε) S and δ_o sᵀ, summed over the batch, into the parameters' gradients."""
        epsilon = u * now.o * now.slope
        d_o = u * now.q * now.o * (1 - now.o)
        by_gate = [*torch.einsum("bh,gbhk->ghk", epsilon, memory.S), d_o.T @ now.source]  # each (H, K)
        gradients: dict[str, Tensor] = {}
        for name, gradient in zip(self.names, by_gate, strict=True):
            U, W, b = gradient.split([cell.input_size, cell.hidden_size, 1], 1)
            gradients |= {f"{name}.U": U, f"{name}.W": W, f"{name}.b": b[:, 0]}
        for kind, name in enumerate(self.names[:-1]):
            gradients[f"p_{name}"] = (epsilon * memory.S_p[kind]).sum(0)
        gradients["p_o"] = (d_o * now.c).sum(0)
        with torch.enable_grad():  # blocks of cells share their gates: a derived weight passes its gradient on
            own = {n: w for n, w in cell.weights().items() if n in gradients and w.requires_grad}
        torch.autograd.backward(list(own.values()), [gradients[name] for name in own])
