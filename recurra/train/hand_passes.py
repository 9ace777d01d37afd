"""The forward and backward passes of single cells, written out by hand; `by_hand.py` puts them together.

Rows of a tensor are sequences: `δ W` below is the survey's Wᵀ δ for all sequences. Sums over t are also sums over the
batch. A forward pass returns a tape and the states h (T, B, p); a backward pass reads the tape and r_t = Vᵀ g_t.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from recurra.cell import Cell
from recurra.cells.activations import identity
from recurra.cells.greff import LSTMNP
from recurra.cells.gru import GRU, MGU
from recurra.cells.lstm import LSTM, VanillaLSTM
from recurra.cells.plain import IRNN, RNN, IdentityRNN, ResidualRNN
from recurra.cells.timescales import DelayRNN, LeakyRNN

Weights = dict[str, Tensor]


@dataclass
class CellGradients:
    """What one backward pass finds. Sums over t are done; everything else has one row for each step."""

    x: Tensor  # dL/dx_t, (T, B, d)
    parameters: Weights  # by name in the cell: "a.W", "i.U", "p_f", …
    start: Weights  # dL/dh_0, dL/dc_0
    deltas: Weights  # dL/d(intermediate), (T, B, p) each: "h" is the survey's δ_t
    vec: Weights = field(default_factory=dict)  # matrices by the vec/Kronecker form


def in_order(backwards: list[Tensor]) -> Tensor:
    return torch.stack(backwards[::-1])


# ------------------------------------------------------------------------------------------ rnn, delays, leaky units


@dataclass
class SimpleRecurrence:
    """h_t = (1 - α) h_{t-1} + α f(i_t), i_t = Σ_k W_k h_{t-k} + U x_t + b_i: the RNN, long delays and leaky units.

    α = 1/τ is 1 except in leaky units; k is 1 except in an RNN with delays. A residual RNN has W + I for W.
    """

    matrices: dict[int, str]  # the name of W_k by the delay k
    f: Callable[[Tensor], Tensor]
    alpha: Tensor
    delayed: bool = False  # the state is (B, depth, p) instead of (B, p)
    residual: bool = False  # i_t also has h_{t-1} as it is

    def recurrent(self, w: Weights, k: int) -> Tensor:
        """What h_{t-k} is multiplied by: W_k, or W + I."""
        W = w[self.matrices[k]]
        return W + torch.eye(len(W), dtype=W.dtype, device=W.device) if self.residual else W

    @classmethod
    def of(cls, cell: Cell, w: Weights) -> "SimpleRecurrence":
        one = torch.ones((), dtype=w["a.U"].dtype, device=w["a.U"].device)
        if isinstance(cell, LeakyRNN):
            return cls({1: "a.W"}, torch.tanh, 1 / leak_times(w))
        if isinstance(cell, DelayRNN):
            delays = cell.carried[0].delays or (1,)
            names = (f"a.{name}" for name in cell.a.recurrent())
            return cls(dict(zip(delays, names, strict=True)), torch.tanh, one, delayed=True)
        f = torch.relu if isinstance(cell, IRNN) else getattr(cell, "nonlinearity", torch.tanh)
        return cls({1: "a.W"}, f, one, residual=isinstance(cell, ResidualRNN))


def leak_times(w: Weights) -> Tensor:
    """τ of a leaky cell: fixed, or 1 + softplus(ρ)."""
    return w["tau"] if "tau" in w else 1 + softplus(w["rho"])


def slope(activation: nn.Module | Callable, a: Tensor, h: Tensor) -> Tensor:
    """The diagonal of D_t = df/di_t: 1 - h ⊙ h for tanh, and not (1 - hᵀh) I."""
    if activation is torch.tanh:
        return 1 - h * h
    if activation is torch.sigmoid:
        return h * (1 - h)
    if activation is torch.relu:
        return (a > 0).to(a.dtype)
    if activation is identity:
        return torch.ones_like(a)
    with torch.enable_grad():
        leaf = a.detach().requires_grad_()
        return torch.autograd.grad(activation(leaf).sum(), leaf)[0]


def simple_forward(cell: Cell, w: Weights, x: Tensor, start: Tensor) -> tuple[list[tuple], Tensor]:
    """The tape holds (x_t, {k: h_{t-k}}, D_t, h̃_t - h_{t-1}); `start` is (B, p), or (B, depth, p) newest first."""
    net = SimpleRecurrence.of(cell, w)
    past = [start] if start.dim() == 2 else list(start.unbind(1))  # h_{t-1}, h_{t-2}, …
    tape, hs = [], []
    for x_t in x:
        read = {k: past[k - 1] for k in net.matrices}
        i = sum((h @ net.recurrent(w, k).T for k, h in read.items()), x_t @ w["a.U"].T + w.get("a.b", 0))
        candidate = net.f(i)
        h = (1 - net.alpha) * past[0] + net.alpha * candidate
        tape.append((x_t, read, slope(net.f, i, candidate), candidate - past[0]))
        past = [h, *past[:-1]]
        hs.append(h)
    return tape, torch.stack(hs)


def simple_backward(cell: Cell, w: Weights, tape: list[tuple], r: Tensor) -> CellGradients:
    """δ_t = Vᵀ g_t + (1 - α) δ_{t+1} + Σ_k W_kᵀ e_{t+k} with e_t = dL/di_t = α D_t δ_t."""
    net, steps = SimpleRecurrence.of(cell, w), len(tape)
    deltas, errors = torch.zeros_like(r), torch.zeros_like(r)
    by_alpha = torch.zeros_like(r[0, 0])
    for t in reversed(range(steps)):
        _, _, D, change = tape[t]
        delta = r[t] + sum((errors[t + k] @ net.recurrent(w, k) for k in net.matrices if t + k < steps), 0)
        deltas[t] = delta + ((1 - net.alpha) * deltas[t + 1] if t + 1 < steps else 0)
        errors[t] = net.alpha * D * deltas[t]
        by_alpha += (deltas[t] * change).sum(0)  # dL/dα = Σ δ_t ⊙ (h̃_t - h_{t-1})
    xs = torch.stack([x_t for x_t, *_ in tape])
    grads = {"a.U": torch.einsum("tbp,tbd->pd", errors, xs)}  # Σ e_t x_tᵀ
    for k, name in net.matrices.items():
        grads[name] = torch.einsum("tbp,tbq->pq", errors, torch.stack([read[k] for _, read, *_ in tape]))
    if "a.b" in w:
        grads["a.b"] = errors.sum((0, 1))
    if "rho" in w:  # α = 1/τ, τ = 1 + softplus(ρ)
        grads["rho"] = -by_alpha / leak_times(w).square() * torch.sigmoid(w["rho"])
    start = _by_start(net, w, deltas, errors)
    found = {"h": deltas, "i": errors}
    return CellGradients(errors @ w["a.U"], grads, start, found, _by_kronecker(net, w, tape, deltas))


def _by_start(net: SimpleRecurrence, w: Weights, deltas: Tensor, errors: Tensor) -> Weights:
    """dL/dh_{1-j} for the states before the first step, newest first: what the first steps read of them."""
    depth = max(net.matrices)
    before = [torch.zeros_like(deltas[0]) for _ in range(depth)]
    for k in net.matrices:
        for t in range(min(k, len(errors))):  # step t reads h_{t-k}, which lies k - 1 - t places back
            before[k - 1 - t] = before[k - 1 - t] + errors[t] @ net.recurrent(w, k)
    before[0] = before[0] + (1 - net.alpha) * deltas[0]
    return {"h": torch.stack(before, 1) if net.delayed else before[0]}


def _by_kronecker(net: SimpleRecurrence, w: Weights, tape: list[tuple], deltas: Tensor) -> Weights:
    """The same matrices from vec⁻¹ Σ_t (∂⁺h_t/∂vec W)ᵀ δ_t, as the survey writes them."""
    names = {f"W_{k}" if len(net.matrices) > 1 or k > 1 else "W": k for k in net.matrices}
    found = {name: torch.zeros_like(w[net.matrices[k]].mT).flatten() for name, k in names.items()}
    found["U"] = torch.zeros_like(w["a.U"].mT).flatten()
    for (x_t, read, D, _), delta in zip(tape, deltas, strict=True):
        for name, k in names.items():
            found[name] += kronecker_form(read[k], net.alpha * D, delta)
        found["U"] += kronecker_form(x_t, net.alpha * D, delta)
    return {name: vec.view(-1, deltas.shape[-1]).mT for name, vec in found.items()}  # vec⁻¹: columns were stacked


def kronecker_form(source: Tensor, D: Tensor, delta: Tensor) -> Tensor:
    """(∂⁺h_t/∂vec W)ᵀ δ_t with ∂⁺h_t/∂vec W = D_t (sourceᵀ ⊗ I): the immediate partial, the past held fixed."""
    eye = torch.eye(D.shape[1], dtype=D.dtype, device=D.device)
    rows = [(torch.diag(d) @ torch.kron(s[None], eye)).T @ v for s, d, v in zip(source, D, delta, strict=True)]
    return torch.stack(rows).sum(0)


# ---------------------------------------------------------------------------------------------------- lstm


def lstm_forward(cell: Cell, w: Weights, x: Tensor, h: Tensor, c: Tensor) -> tuple[list[tuple], Tensor]:
    p_i, p_f, p_o = (w.get(f"p_{gate}", torch.zeros((), dtype=x.dtype)) for gate in "ifo")
    tape, hs = [], []
    for x_t in x:
        a = {k: h @ w[f"{k}.W"].T + x_t @ w[f"{k}.U"].T + w.get(f"{k}.b", 0) for k in "ifgo"}
        i, f, g = torch.sigmoid(a["i"] + p_i * c), torch.sigmoid(a["f"] + p_f * c), torch.tanh(a["g"])
        new = f * c + i * g
        o = torch.sigmoid(a["o"] + p_o * new)  # the output gate sees the new memory
        tape.append((x_t, h, c, i, f, g, o, new))
        h, c = o * torch.tanh(new), new
        hs.append(h)
    return tape, torch.stack(hs)


def lstm_backward(cell: Cell, w: Weights, tape: list[tuple], r: Tensor) -> CellGradients:
    p_i, p_f, p_o = (w.get(f"p_{gate}", torch.zeros((), dtype=r.dtype)) for gate in "ifo")
    grads = {name: torch.zeros_like(w[name]) for name in w}
    dh_next, dc_next = torch.zeros_like(r[0]), torch.zeros_like(r[0])
    deltas: dict[str, list[Tensor]] = {name: [] for name in ("h", "c", "a_i", "a_f", "a_g", "a_o")}
    by_x = []
    for t in reversed(range(len(tape))):
        x_t, h_before, c_before, i, f, g, o, c = tape[t]
        dh = r[t] + dh_next
        squashed = torch.tanh(c)
        a_o = dh * squashed * o * (1 - o)
        dc = dh * o * (1 - squashed**2) + p_o * a_o + dc_next
        a_f = dc * c_before * f * (1 - f)
        a_i = dc * g * i * (1 - i)
        a_g = dc * i * (1 - g**2)
        gates = {"i": a_i, "f": a_f, "g": a_g, "o": a_o}
        _add_products(grads, gates, dict.fromkeys(gates, h_before), x_t)
        for name, product in (("p_i", a_i * c_before), ("p_f", a_f * c_before), ("p_o", a_o * c)):
            if name in grads:
                grads[name] += product.sum(0)
        dh_next = sum((a @ w[f"{k}.W"] for k, a in gates.items()), torch.zeros_like(dh))
        dc_next = dc * f + p_i * a_i + p_f * a_f
        for name, value in {"h": dh, "c": dc, "a_i": a_i, "a_f": a_f, "a_g": a_g, "a_o": a_o}.items():
            deltas[name].append(value)
        by_x.append(sum((a @ w[f"{k}.U"] for k, a in gates.items()), torch.zeros_like(x_t)))
    found = {name: in_order(values) for name, values in deltas.items()}
    return CellGradients(in_order(by_x), grads, {"h": dh_next, "c": dc_next}, found)


def _add_products(grads: Weights, gates: Weights, sources: Weights, x_t: Tensor) -> None:
    """dW += a sourceᵀ, dU += a xᵀ, db += a, for every gate."""
    for k, a in gates.items():
        grads[f"{k}.W"] += a.T @ sources[k]
        grads[f"{k}.U"] += a.T @ x_t
        if f"{k}.b" in grads:
            grads[f"{k}.b"] += a.sum(0)


# ---------------------------------------------------------------------------------------------------- gru


def gru_forward(cell: Cell, w: Weights, x: Tensor, h: Tensor) -> tuple[list[tuple], Tensor]:
    tape, hs = [], []
    for x_t in x:
        r = torch.sigmoid(h @ w["r.W"].T + x_t @ w["r.U"].T + w.get("r.b", 0))
        z = torch.sigmoid(h @ w["z.W"].T + x_t @ w["z.U"].T + w.get("z.b", 0))
        g = torch.tanh((r * h) @ w["c.W"].T + x_t @ w["c.U"].T + w.get("c.b", 0))
        tape.append((x_t, h, r, z, g))
        h = (1 - z) * h + z * g
        hs.append(h)
    return tape, torch.stack(hs)


def gru_backward(cell: Cell, w: Weights, tape: list[tuple], arriving: Tensor) -> CellGradients:
    grads = {name: torch.zeros_like(w[name]) for name in w}
    dh_next = torch.zeros_like(arriving[0])
    deltas: dict[str, list[Tensor]] = {name: [] for name in ("h", "a_r", "a_z", "a_c")}
    by_x = []
    for t in reversed(range(len(tape))):
        x_t, h, r, z, g = tape[t]
        dh = arriving[t] + dh_next
        a_z = dh * (g - h) * z * (1 - z)
        a_c = dh * z * (1 - g**2)
        q = a_c @ w["c.W"]  # W_cᵀ a_c, which reaches r ⊙ h
        a_r = q * h * r * (1 - r)
        gates = {"r": a_r, "z": a_z, "c": a_c}
        _add_products(grads, gates, {"r": h, "z": h, "c": r * h}, x_t)
        dh_next = dh * (1 - z) + q * r + a_r @ w["r.W"] + a_z @ w["z.W"]
        for name, value in {"h": dh, "a_r": a_r, "a_z": a_z, "a_c": a_c}.items():
            deltas[name].append(value)
        by_x.append(sum((a @ w[f"{k}.U"] for k, a in gates.items()), torch.zeros_like(x_t)))
    found = {name: in_order(values) for name, values in deltas.items()}
    return CellGradients(in_order(by_x), grads, {"h": dh_next}, found)


# ---------------------------------------------------------------------------------------------------- mgu


def mgu_forward(cell: Cell, w: Weights, x: Tensor, h: Tensor) -> tuple[list[tuple], Tensor]:
    tape, hs = [], []
    for x_t in x:
        f = torch.sigmoid(h @ w["f.W"].T + x_t @ w["f.U"].T + w.get("f.b", 0))
        g = torch.tanh((f * h) @ w["c.W"].T + x_t @ w["c.U"].T + w.get("c.b", 0))
        tape.append((x_t, h, f, g))
        h = (1 - f) * h + f * g
        hs.append(h)
    return tape, torch.stack(hs)


def mgu_backward(cell: Cell, w: Weights, tape: list[tuple], arriving: Tensor) -> CellGradients:
    """A GRU whose gates are one: its gradient is the sum of those of z and r."""
    grads = {name: torch.zeros_like(w[name]) for name in w}
    dh_next = torch.zeros_like(arriving[0])
    deltas: dict[str, list[Tensor]] = {name: [] for name in ("h", "a_f", "a_c")}
    by_x = []
    for t in reversed(range(len(tape))):
        x_t, h, f, g = tape[t]
        dh = arriving[t] + dh_next
        a_c = dh * f * (1 - g**2)
        q = a_c @ w["c.W"]  # W_cᵀ a_c, which reaches f ⊙ h
        a_f = (dh * (g - h) + q * h) * f * (1 - f)
        _add_products(grads, {"f": a_f, "c": a_c}, {"f": h, "c": f * h}, x_t)
        dh_next = dh * (1 - f) + q * f + a_f @ w["f.W"]
        for name, value in {"h": dh, "a_f": a_f, "a_c": a_c}.items():
            deltas[name].append(value)
        by_x.append(a_f @ w["f.U"] + a_c @ w["c.U"])
    found = {name: in_order(values) for name, values in deltas.items()}
    return CellGradients(in_order(by_x), grads, {"h": dh_next}, found)


#: forward and backward pass by the class of the cell
PASSES: dict[type[Cell], tuple[Callable[..., Any], Callable[..., CellGradients]]] = {
    RNN: (simple_forward, simple_backward),
    IdentityRNN: (simple_forward, simple_backward),
    IRNN: (simple_forward, simple_backward),
    ResidualRNN: (simple_forward, simple_backward),
    LeakyRNN: (simple_forward, simple_backward),
    DelayRNN: (simple_forward, simple_backward),
    LSTM: (lstm_forward, lstm_backward),
    LSTMNP: (lstm_forward, lstm_backward),
    VanillaLSTM: (lstm_forward, lstm_backward),
    GRU: (gru_forward, gru_backward),
    MGU: (mgu_forward, mgu_backward),
}
