"""Backpropagation through time written out by hand, as the survey derives it in section 2.3, with its errata fixed.

Time runs forward, T is the last step. Gradients are columns, so the chain rule is dL/db = (da/db)ᵀ dL/da. Rows of a
tensor are sequences: `δ W` below is the survey's Wᵀ δ for all sequences. Sums over t are also sums over the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurra.cell import Cell
from recurra.cells.activations import identity
from recurra.cells.gru import GRU
from recurra.cells.lstm import LSTM, VanillaLSTM
from recurra.cells.plain import RNN
from recurra.errors import InputError, ShapeError, UnknownNameError
from recurra.layers import Recurrent
from recurra.readout import Readout

StepLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class HandGradients:
    """Gradients of L = Σ_t L_t by outputs, states, inputs, weights and initial states."""

    loss: Tensor
    y: Tensor  # g_t = dL/dy_t, (T, B, q)
    h: Tensor  # δ_t = dL/dh_t, total, (T, B, p)
    x: Tensor  # dL/dx_t, (T, B, d)
    V: Tensor
    b_y: Tensor
    parameters: dict[str, Tensor]  # of the cell, by name: "a.W", "i.U", "p_f", …
    start: dict[str, Tensor]  # dL/dh_0, dL/dc_0: (B, p)
    vec: dict[str, Tensor] = field(default_factory=dict)  # for rnn: W, U by the vec/Kronecker form

    @property
    def W(self) -> Tensor:
        """dL/dW of the survey's RNN; a gated cell has one W per gate, in `parameters`."""
        return self._of_the_rnn("a.W")

    @property
    def U(self) -> Tensor:
        return self._of_the_rnn("a.U")

    @property
    def b_i(self) -> Tensor:
        return self._of_the_rnn("a.b")

    def _of_the_rnn(self, name: str) -> Tensor:
        if name not in self.parameters:
            raise UnknownNameError("parameters", repr(name), self.parameters)
        return self.parameters[name]

    @property
    def h_0(self) -> Tensor:
        return self.start["h"]


def gradients_by_hand(
    layer: Recurrent, head: Readout, x: Tensor, target: Tensor, loss: str | StepLoss = "squared"
) -> HandGradients:
    """All gradients of the survey's section 2.3, computed by its formulas instead of autograd.

    **Arguments**

    - `layer`: one layer, one direction, of rnn, lstm, vanilla_lstm or gru (reset before the product), no modifiers.
    - `head`: an `rc.Readout`, y = V h + b.
    - `x`: (T, B, d). `target`: (T, B, q) numbers, or (T, B) classes for "cross_entropy".
    - `loss`: "squared" (½‖y - d‖²), "cross_entropy" of the softmax, or a function of the outputs (B, q) and targets of
      one step that returns a number; with `head.softmax` it gets the probabilities.

    **Returns** a `HandGradients`: `loss`, gradients by `y`, `h`, `x`, `V`, `b_y`, `parameters` by name, `start`.

    **Example**

    >>> layer = rc.RNN(3, 4)
    >>> head = rc.Readout(layer, 2)
    >>> x, target = torch.randn(5, 2, 3), torch.randn(5, 2, 2)
    >>> found = rc.train.gradients_by_hand(layer, head, x, target)
    >>> (0.5 * (head(layer(x)[0]) - target).square().sum()).backward()
    >>> torch.allclose(found.V, head.V.grad, atol=1e-4)
    True
    """
    cell = _check(layer, head, x)
    with torch.no_grad():
        weights = {name: w.detach() for name, w in cell.weights().items()}
        states = cell.initial_state(x.shape[1], x)
        kind = next(k for k in PASSES if type(cell) is k)
        tape, hs = PASSES[kind][0](cell, weights, x, *states)
    total, g = output_gradients(head, hs, target, loss)
    with torch.no_grad():
        r = g @ head.V  # Vᵀ g_t, the gradient of h_t from its own output
        delta, by_x, parameters, start, vec = PASSES[kind][1](weights, tape, r)
        V = torch.einsum("tbq,tbp->qp", g, hs)  # dL/dV = Σ g_t h_tᵀ
        return HandGradients(total, g, delta, by_x, V, g.sum((0, 1)), parameters, start, vec)


def _check(layer: Recurrent, head: Readout, x: Tensor) -> Cell:
    cells = layer.cell_list if isinstance(layer, Recurrent) else []
    if len(cells) != 1 or type(cells[0]) not in PASSES or cells[0].modifiers or getattr(cells[0], "reset_after", False):
        raise InputError("layer", layer, "one plain layer of rnn, lstm, vanilla_lstm or gru (reset before the product)")
    if not isinstance(head, Readout):
        raise InputError("head", type(head).__name__, "an rc.Readout: y = V h + b")
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[2] != layer.input_size:
        raise ShapeError("x", tuple(getattr(x, "shape", ())), f"(T, B, {layer.input_size})")
    return cells[0]


# ---------------------------------------------------------------------------------------------------- the output


def output_gradients(head: Readout, h: Tensor, target: Tensor, loss: str | StepLoss) -> tuple[Tensor, Tensor]:
    """L, and g_t = dL/dy_t at every step."""
    y = F.linear(h, head.V, head.b).detach()
    if loss == "squared":
        return 0.5 * (y - target).square().sum(), y - target
    if loss == "cross_entropy":  # dL_t/dŷ and the softmax's Jacobian together are ŷ - e_k
        e = F.one_hot(target, y.shape[-1]).to(y.dtype)
        return -(e * y.log_softmax(-1)).sum(), y.softmax(-1) - e
    if not callable(loss):
        raise InputError("loss", repr(loss), "'squared', 'cross_entropy' or a function of (output, target)")
    total, by_step = y.new_zeros(()), []
    for y_t, d_t in zip(y, target, strict=True):
        seen = (y_t.softmax(-1) if head.softmax else y_t).requires_grad_()
        with torch.enable_grad():
            L_t = loss(seen, d_t)
        (g,) = torch.autograd.grad(L_t, seen)  # dL_t/dŷ_t "is calculated based on the formula of the loss"
        by_step.append(softmax_jacobian_product(seen.detach(), g) if head.softmax else g)
        total = total + L_t.detach()
    return total, torch.stack(by_step)


def softmax_jacobian_product(p: Tensor, g: Tensor) -> Tensor:
    """(diag(ŷ) - ŷ ŷᵀ) g, the Jacobian being symmetric."""
    return p * g - p * (p * g).sum(-1, keepdim=True)


# ---------------------------------------------------------------------------------------------------- rnn


def slope(activation: nn.Module | Callable, a: Tensor, h: Tensor) -> Tensor:
    """The diagonal of D_t = dh_t/da_t: 1 - h ⊙ h for tanh, and not (1 - hᵀh) I."""
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


def rnn_forward(cell: RNN, w: dict[str, Tensor], x: Tensor, h: Tensor) -> tuple[list[tuple], Tensor]:
    tape, hs = [], []
    for x_t in x:
        a = h @ w["a.W"].T + x_t @ w["a.U"].T + w.get("a.b", 0)  # a_t = W h_{t-1} + U x_t + b_i
        new = cell.nonlinearity(a)
        tape.append((x_t, h, slope(cell.nonlinearity, a, new)))
        h = new
        hs.append(h)
    return tape, torch.stack(hs)


def rnn_backward(w: dict[str, Tensor], tape: list[tuple], r: Tensor) -> tuple:
    W, U = w["a.W"], w["a.U"]
    carried = torch.zeros_like(r[0])  # (dh_{t+1}/dh_t)ᵀ δ_{t+1}, nothing comes from beyond T
    deltas, by_x = [], []
    gW, gU, gb = torch.zeros_like(W), torch.zeros_like(U), W.new_zeros(len(W))
    vec_W, vec_U = W.new_zeros(W.numel()), U.new_zeros(U.numel())
    for t in reversed(range(len(tape))):
        x_t, h_before, D = tape[t]
        delta = r[t] + carried  # δ_t = Vᵀ g_t + Wᵀ D_{t+1} δ_{t+1}
        e = D * delta  # e_t = dL/da_t = D_t δ_t
        gW += e.T @ h_before  # Σ e_t h_{t-1}ᵀ
        gU += e.T @ x_t  # Σ e_t x_tᵀ
        gb += e.sum(0)
        vec_W += kronecker_form(h_before, D, delta)
        vec_U += kronecker_form(x_t, D, delta)
        carried = e @ W  # Wᵀ e_t; at t = 1 this is dL/dh_0
        deltas.append(delta)
        by_x.append(e @ U)  # Uᵀ e_t
    vec = {"W": vec_W.view(W.mT.shape).mT, "U": vec_U.view(U.mT.shape).mT}  # vec⁻¹: columns were stacked
    parameters = {"a.W": gW, "a.U": gU} | ({"a.b": gb} if "a.b" in w else {})
    return _in_order(deltas), _in_order(by_x), parameters, {"h": carried}, vec


def kronecker_form(source: Tensor, D: Tensor, delta: Tensor) -> Tensor:
    """(∂⁺h_t/∂vec W)ᵀ δ_t with ∂⁺h_t/∂vec W = D_t (sourceᵀ ⊗ I): the immediate partial, the past held fixed."""
    eye = torch.eye(D.shape[1], dtype=D.dtype, device=D.device)
    rows = [(torch.diag(d) @ torch.kron(s[None], eye)).T @ v for s, d, v in zip(source, D, delta, strict=True)]
    return torch.stack(rows).sum(0)


def _in_order(backwards: list[Tensor]) -> Tensor:
    return torch.stack(backwards[::-1])


# ---------------------------------------------------------------------------------------------------- lstm


def lstm_forward(cell: Cell, w: dict[str, Tensor], x: Tensor, h: Tensor, c: Tensor) -> tuple[list[tuple], Tensor]:
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


def lstm_backward(w: dict[str, Tensor], tape: list[tuple], r: Tensor) -> tuple:
    p_i, p_f, p_o = (w.get(f"p_{gate}", torch.zeros((), dtype=r.dtype)) for gate in "ifo")
    grads = {name: torch.zeros_like(w[name]) for name in w}
    dh_next, dc_next = torch.zeros_like(r[0]), torch.zeros_like(r[0])
    deltas, by_x = [], []
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
        deltas.append(dh)
        by_x.append(sum((a @ w[f"{k}.U"] for k, a in gates.items()), torch.zeros_like(x_t)))
    return _in_order(deltas), _in_order(by_x), grads, {"h": dh_next, "c": dc_next}, {}


def _add_products(grads: dict, gates: dict[str, Tensor], sources: dict[str, Tensor], x_t: Tensor) -> None:
    """dW += a sourceᵀ, dU += a xᵀ, db += a, for every gate."""
    for k, a in gates.items():
        grads[f"{k}.W"] += a.T @ sources[k]
        grads[f"{k}.U"] += a.T @ x_t
        if f"{k}.b" in grads:
            grads[f"{k}.b"] += a.sum(0)


# ---------------------------------------------------------------------------------------------------- gru


def gru_forward(cell: GRU, w: dict[str, Tensor], x: Tensor, h: Tensor) -> tuple[list[tuple], Tensor]:
    tape, hs = [], []
    for x_t in x:
        r = torch.sigmoid(h @ w["r.W"].T + x_t @ w["r.U"].T + w.get("r.b", 0))
        z = torch.sigmoid(h @ w["z.W"].T + x_t @ w["z.U"].T + w.get("z.b", 0))
        g = torch.tanh((r * h) @ w["c.W"].T + x_t @ w["c.U"].T + w.get("c.b", 0))
        tape.append((x_t, h, r, z, g))
        h = (1 - z) * h + z * g
        hs.append(h)
    return tape, torch.stack(hs)


def gru_backward(w: dict[str, Tensor], tape: list[tuple], arriving: Tensor) -> tuple:
    grads = {name: torch.zeros_like(w[name]) for name in w}
    dh_next = torch.zeros_like(arriving[0])
    deltas, by_x = [], []
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
        deltas.append(dh)
        by_x.append(sum((a @ w[f"{k}.U"] for k, a in gates.items()), torch.zeros_like(x_t)))
    return _in_order(deltas), _in_order(by_x), grads, {"h": dh_next}, {}


PASSES: dict[type[Cell], tuple[Callable, Callable]] = {
    RNN: (rnn_forward, rnn_backward),
    LSTM: (lstm_forward, lstm_backward),
    VanillaLSTM: (lstm_forward, lstm_backward),
    GRU: (gru_forward, gru_backward),
}
