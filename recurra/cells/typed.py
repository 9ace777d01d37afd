"""Strongly typed networks: no matrix multiplies a state, so features keep their meaning; gates read x alone.

T-GRU and T-LSTM read the input before, too, which is one of their states.
"""

from torch import Tensor, sigmoid, tanh

from ..cell import Cell, register

PAPER, YEAR = "Balduzzi & Ghifary, Strongly-Typed Recurrent Neural Networks", 2016


@register("t_rnn")
class TRNN(Cell):
    """Strongly typed RNN: a running average of z = U x, weighted by a gate of the input."""

    paper, year = PAPER, YEAR
    keep, candidate = ("f",), "z"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.c, self.f = self.affine("x", bias=False), self.affine("x")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.c(x)
        f = sigmoid(self.f(x))
        return f * h + (1 - f) * z


@register("t_gru")
class TGRU(Cell):
    """Strongly typed GRU: the gates read the present and the last input; the state forgets and adds."""

    paper, year = PAPER, YEAR
    states = ("h", "v")  # v is the last input
    keep, write, candidate = ("f",), ("o",), "z"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, sizes={"v": input_size})
        self.c, self.f, self.o = (self.affine("x", "v") for _ in range(3))

    def step(self, x: Tensor, h: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        z = self.c(x, v)
        f = sigmoid(self.f(x, v))
        o = tanh(self.o(x, v))
        return f * h + z * o, x


@register("t_lstm")
class TLSTM(Cell):
    """Strongly typed LSTM: a memory that averages, and an output factor; both read the present and the last input."""

    paper, year = PAPER, YEAR
    states = ("c", "v")  # v is the last input
    keep, candidate, memory = ("f",), "z", "c"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, sizes={"v": input_size})
        self.c, self.f, self.o = (self.affine("x", "v") for _ in range(3))

    def step(self, x: Tensor, c: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.c(x, v)
        f = sigmoid(self.f(x, v))
        o = tanh(self.o(x, v))
        c = f * c + (1 - f) * z
        return c * o, c, x
