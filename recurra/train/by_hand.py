"""Backpropagation through time written out by hand, as the survey derives it in section 2.3, with its errata fixed.

Time runs forward, T is the last step. Gradients are columns, so the chain rule is dL/db = (da/db)ᵀ dL/da. The passes
through the cells are in `hand_passes.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurra.cell import TIME, Cell
from recurra.dilation import refuse_dilation
from recurra.errors import InputError, OptionError, ShapeError, UnknownNameError
from recurra.layers import Recurrent
from recurra.readout import Readout
from recurra.train.hand_passes import PASSES, CellGradients

StepLoss = Callable[[Tensor, Tensor], Tensor]
KNOWN = (
    "one layer of rnn, identity_rnn, irnn, residual_rnn, leaky_rnn, delay_rnn, lstm, lstm_np, vanilla_lstm, gru (reset "
    "before the product) or mgu, without modifiers"
)


@dataclass
class HandGradients:
    """Gradients of L = Σ_t L_t by outputs, states, inputs, weights and initial states.

    Tensors with a time axis have the layout of the layer: (T, B, …), or (B, T, …) with `batch_first`. A bidirectional
    layer has one `CellGradients` per direction, `forward` and `backward`; the properties below are those of a layer
    with one direction.

    **Example**

        >>> layer = rc.RNN(3, 4)
        >>> x, target = torch.randn(5, 2, 3), torch.randn(5, 2, 2)
        >>> found = rc.train.gradients_by_hand(layer, rc.Readout(layer, 2), x, target)
        >>> found.h.shape, sorted(found.parameters)
        (torch.Size([5, 2, 4]), ['a.U', 'a.W', 'a.b'])
    """

    loss: Tensor
    y: Tensor  # g_t = dL/dy_t, (T, B, q)
    x: Tensor  # dL/dx_t, (T, B, d), of both directions together
    V: Tensor  # [V→, V←] of a bidirectional layer
    b_y: Tensor
    directions: tuple[CellGradients, ...]

    @property
    def forward(self) -> CellGradients:
        return self.directions[0]

    @property
    def backward(self) -> CellGradients:
        """The right-to-left direction, its steps in the order of time."""
        if len(self.directions) < 2:
            raise OptionError("backward", "a layer with one direction", "a bidirectional layer")
        return self.directions[1]

    @property
    def only(self) -> CellGradients:
        if len(self.directions) > 1:
            raise OptionError("gradients", "a bidirectional layer", "those of one direction: .forward or .backward")
        return self.directions[0]

    @property
    def deltas(self) -> dict[str, Tensor]:
        """Gradients by the intermediates: "h" is δ_t = dL/dh_t, "i" is dL/di_t with i_t = W h_{t-1} + U x_t + b_i; of
        an LSTM also "c" and, by the sums inside the gates, "a_i", "a_f", "a_g" (new memory), "a_o"; of a GRU "a_r",
        "a_z", "a_c" (new memory), of an MGU "a_f", "a_c"."""
        return self.only.deltas

    @property
    def h(self) -> Tensor:
        """δ_t = dL/dh_t, total, (T, B, p)."""
        return self.only.deltas["h"]

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Of the cell, by name: "a.W", "i.U", "p_f", …"""
        return self.only.parameters

    @property
    def start(self) -> dict[str, Tensor]:
        """dL/dh_0, dL/dc_0: (B, p), or (B, depth, p) of a delayed state."""
        return self.only.start

    @property
    def vec(self) -> dict[str, Tensor]:
        """W and U (W_1, W_3, … with delays) by the vec/Kronecker form; empty for gated cells."""
        return self.only.vec

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

    @property
    def h_0(self) -> Tensor:
        return self.start["h"]

    def _of_the_rnn(self, name: str) -> Tensor:
        if name not in self.parameters:
            raise UnknownNameError("parameters", repr(name), self.parameters)
        return self.parameters[name]


def gradients_by_hand(
    layer: Recurrent, head: Readout | nn.Linear, x: Tensor, target: Tensor, loss: str | StepLoss = "squared"
) -> HandGradients:
    """All gradients of the survey's section 2.3, computed by its formulas instead of autograd.

    **Arguments**

    - `layer`: one layer, in one or both directions, of rnn, identity_rnn, irnn, residual_rnn, leaky_rnn, delay_rnn,
      lstm, lstm_np, vanilla_lstm, gru (reset before the product) or mgu, without modifiers. With `initial="carried"`
      the pass starts from the carried state and leaves it as it is.
    - `head`: an `rc.Readout` or an `nn.Linear`, y = V h + b.
    - `x`: (T, B, d), or (B, T, d) if the layer is `batch_first`. `target`: (T, B, q) numbers, or (T, B) classes for
      "cross_entropy", in the same layout.
    - `loss`: "squared" (½‖y - d‖²), "cross_entropy" of the softmax, or a function of the outputs (B, q) and targets of
      one step that returns a number. With `head.softmax`, "squared" and a function get the probabilities.

    **Returns** a `HandGradients`: `loss`, gradients by `y`, `h`, `x`, `V`, `b_y`, `parameters` by name, `start`, and
    every intermediate in `deltas`; of a bidirectional layer `forward` and `backward`.

    **Example**

    >>> layer = rc.RNN(3, 4)
    >>> head = rc.Readout(layer, 2)
    >>> x, target = torch.randn(5, 2, 3), torch.randn(5, 2, 2)
    >>> found = rc.train.gradients_by_hand(layer, head, x, target)
    >>> (0.5 * (head(layer(x)[0]) - target).square().sum()).backward()
    >>> torch.allclose(found.V, head.V.grad, atol=1e-4)
    True
    """
    cells = _check(layer, head, x)
    V = head.V if isinstance(head, Readout) else head.weight
    x, target = (x.transpose(0, 1), target.transpose(0, 1)) if layer.batch_first else (x, target)
    sequences = [x, x.flip(0)][: len(cells)]
    with torch.no_grad():
        weights = [_weights(cell) for cell in cells]
        starts = layer._initial_states(None, x, True)
        given = zip(cells, weights, sequences, starts, strict=True)
        tapes, hs = zip(*(PASSES[type(cell)][0](cell, w, s, *start) for cell, w, s, start in given), strict=True)
        h = torch.cat([hs[0], *(back.flip(0) for back in hs[1:])], -1)  # [h→; h←]
    total, g = output_gradients(head, h, target, loss)
    with torch.no_grad():
        r = (g @ V).chunk(len(cells), -1)  # V→ᵀ g_t and V←ᵀ g_t, the gradients of h_t from its own output
        found = []
        for number, (cell, w, tape) in enumerate(zip(cells, weights, tapes, strict=True)):
            one = PASSES[type(cell)][1](cell, w, tape, r[number].flip(0) if number else r[number])
            found.append(_in_layout(_with_start(cell, one), number == 1, layer.batch_first))
        by_x = torch.stack([one.x for one in found]).sum(0)
        by_V = torch.einsum("tbq,tbp->qp", g, h)  # dL/dV = Σ g_t h_tᵀ
        by_y = g.transpose(0, 1) if layer.batch_first else g
        return HandGradients(total, by_y, by_x, by_V, g.sum((0, 1)), tuple(found))


def _check(layer: Recurrent, head: Readout | nn.Linear, x: Tensor) -> list[Cell]:
    if not isinstance(layer, Recurrent):
        raise InputError("layer", type(layer).__name__, KNOWN)
    if layer.num_layers != 1:
        raise InputError("layer", f"{layer.num_layers} layers", KNOWN)
    refuse_dilation("layer", layer)
    for cell in layer.cell_list:
        why = "reset_after=True" if getattr(cell, "reset_after", False) else "modifiers" if cell.modifiers else ""
        if type(cell) not in PASSES or why:
            raise InputError("layer", f"{type(cell).__name__} with {why}" if why else type(cell).__name__, KNOWN)
    if not isinstance(head, (Readout, nn.Linear)):
        raise InputError("head", type(head).__name__, "an rc.Readout or an nn.Linear: y = V h + b")
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[2] != layer.input_size:
        expected = f"({'B, T' if layer.batch_first else 'T, B'}, {layer.input_size})"
        raise ShapeError("x", tuple(getattr(x, "shape", ())), expected)
    return layer.cell_list


def _weights(cell: Cell) -> dict[str, Tensor]:
    """What the step reads; learned states before the first step are no part of it."""
    first = {f"{state.name}_0" for state in cell.carried}
    return {name: w.detach() for name, w in cell.weights().items() if name not in first}


def _with_start(cell: Cell, found: CellGradients) -> CellGradients:
    """Add dL/dh_0 summed over the batch, if the states before the first step are parameters."""
    for state in cell.carried:
        name = cell.starts.get(state.name)
        if state.name != TIME and isinstance(name, str):
            found.parameters[name] = found.start[state.name].sum(0)
    return found


def _in_layout(found: CellGradients, back: bool, batch_first: bool) -> CellGradients:
    """The steps in the order of time, and in the layout of the layer."""

    def lay_out(value: Tensor) -> Tensor:
        value = value.flip(0) if back else value
        return value.transpose(0, 1) if batch_first else value

    deltas = {name: lay_out(value) for name, value in found.deltas.items()}
    return CellGradients(lay_out(found.x), found.parameters, found.start, deltas, found.vec)


# ---------------------------------------------------------------------------------------------------- the output


def output_gradients(
    head: Readout | nn.Linear, h: Tensor, target: Tensor, loss: str | StepLoss
) -> tuple[Tensor, Tensor]:
    """L, and g_t = dL/dy_t at every step."""
    softmax = isinstance(head, Readout) and head.softmax
    y = F.linear(h, head.V, head.b) if isinstance(head, Readout) else F.linear(h, head.weight, head.bias)
    y = y.detach()
    _check_target(y, target, loss)
    if loss == "squared":
        seen = y.softmax(-1) if softmax else y
        g = seen - target
        return 0.5 * g.square().sum(), softmax_jacobian_product(seen, g) if softmax else g
    if loss == "cross_entropy":  # dL_t/dŷ and the softmax's Jacobian together are ŷ - e_k
        e = F.one_hot(target, y.shape[-1]).to(y.dtype)
        return -(e * y.log_softmax(-1)).sum(), y.softmax(-1) - e
    if not callable(loss):
        raise InputError("loss", repr(loss), "'squared', 'cross_entropy' or a function of (output, target)")
    total, by_step = y.new_zeros(()), []
    for y_t, d_t in zip(y, target, strict=True):
        seen = (y_t.softmax(-1) if softmax else y_t).requires_grad_()
        with torch.enable_grad():
            L_t = loss(seen, d_t)
        (g,) = torch.autograd.grad(L_t, seen)  # dL_t/dŷ_t "is calculated based on the formula of the loss"
        by_step.append(softmax_jacobian_product(seen.detach(), g) if softmax else g)
        total = total + L_t.detach()
    return total, torch.stack(by_step)


def _check_target(y: Tensor, target: Tensor, loss: str | StepLoss) -> None:
    expected = {"squared": y.shape, "cross_entropy": y.shape[:2]}.get(loss if isinstance(loss, str) else "")
    if expected is not None and target.shape != expected:
        raise ShapeError("target", tuple(target.shape), f"{tuple(expected)} (time first) for {loss!r}")


def softmax_jacobian_product(p: Tensor, g: Tensor) -> Tensor:
    """(diag(ŷ) - ŷ ŷᵀ) g, the Jacobian being symmetric."""
    return p * g - p * (p * g).sum(-1, keepdim=True)
