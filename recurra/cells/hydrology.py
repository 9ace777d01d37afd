"""Cells of rainfall-runoff models: static attributes of a basin as a gate, and a memory that conserves mass."""

import torch
from torch import Tensor, sigmoid, softmax, tanh

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .lstm import Memory


@register("ea_lstm")
class EALSTM(Memory):
    """Entity-aware LSTM: the input gate reads only static features, the last `static` ones of x."""

    paper, year = "Kratzert et al., Towards Learning Universal, Regional, and Local Hydrological Behaviors", 2019
    write = ()

    def __init__(self, input_size: int, hidden_size: int, static: int | None = None):
        super().__init__(input_size, hidden_size)
        self.static = min(1, input_size - 1) if static is None else static
        if not 0 <= self.static < input_size:
            raise InputError("static", static, f"a number of features below input_size = {input_size}")
        self.f, self.g, self.o = (self.affine("x", "h") for _ in range(3))
        if self.static:
            self.i = self.affine(self.static)
        else:
            self.b_i = self.vector()
        for gate in (self.f, self.g, self.o):  # as in the authors' program
            init.orthogonal_(gate.U)
            init.identity_(gate.W)
        init.constant_(self.f.b, 5.0)

    def _width(self, operand: str | int) -> int:
        return self.input_size - self.static if operand == "x" else super()._width(operand)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        u = x[:, : self.input_size - self.static]
        f = sigmoid(self.f(u, h))
        g = tanh(self.g(u, h))
        o = sigmoid(self.o(u, h))
        i = sigmoid(self.i(x[:, self.input_size - self.static :]) if self.static else self.b_i)
        c = f * c + i * g
        return o * tanh(c), c


@register("mass_conserving_lstm")
class MassConservingLSTM(Cell):
    """LSTM that conserves mass: what enters by the first `mass` features stays in c or leaves in the output."""

    paper, year = "Hoedt et al., MC-LSTM: Mass-Conserving LSTM", 2021
    states = ("c",)

    def __init__(self, input_size: int, hidden_size: int, mass: int = 1):
        super().__init__(input_size, hidden_size)
        if positive_int("mass", mass) > input_size:
            raise InputError("mass", mass, f"at most input_size = {input_size} features")
        self.mass = mass
        operands = ("x", "c") if input_size > mass else ("c",)
        self.i = self.affine(*operands, size=hidden_size * mass)
        self.R = self.affine(*operands, size=hidden_size * hidden_size)  # most of the cost: H² (D + H) products a step
        self.o = self.affine(*operands)
        self.R.b.data.copy_(torch.eye(hidden_size).flatten())  # as in the authors' program
        init.constant_(self.o.b, -3.0)  # little leaves at first

    def _width(self, operand: str | int) -> int:
        return self.input_size - self.mass if operand == "x" else super()._width(operand)

    def step(self, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        H = self.hidden_size
        m = x[:, : self.mass]
        s = c / (c.abs().sum(-1, keepdim=True) + 1e-5)  # shares of the stored mass
        read = (x[:, self.mass :], s) if self.input_size > self.mass else (s,)
        i = softmax(self.i(*read).view(-1, self.mass, H), dim=-1)  # how each input spreads over the cells
        R = softmax(self.R(*read).view(-1, H, H), dim=-1)  # row: from a cell, column: to a cell
        o = sigmoid(self.o(*read))
        total = (c.unsqueeze(-1) * R).sum(1) + (m.unsqueeze(-1) * i).sum(1)
        return o * total, (1 - o) * total
