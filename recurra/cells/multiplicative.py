"""Units in which input and state multiply: every input symbol has, in effect, a recurrent matrix of its own."""

from torch import Tensor, clamp, sigmoid, tanh
from torch.nn.functional import softplus

from .. import init
from ..cell import Cell, register
from ..errors import InputError
from .lstm import Memory


def hard_sigmoid(a: Tensor) -> Tensor:
    """The hard sigmoid of Theano, in which SGU was written: 0.2 a + 0.5 in [0, 1]. torch's has the slope 1/6."""
    return clamp(0.2 * a + 0.5, 0.0, 1.0)


@register("sgu")
class SGU(Cell):
    """Simple gated unit: the input multiplies the state, and the product gates it; one update gate."""

    paper, year = "Gao & Glowacka, Deep Gate Recurrent Neural Network", 2016
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.p, self.m = self.affine("x"), self.affine("h", bias=False)
        self.z = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        p = self.p(x)
        m = tanh(self.m(p * h))
        g = softplus(m * h)
        z = hard_sigmoid(self.z(x, h))
        return (1 - z) * h + z * g


@register("dsgu")
class DSGU(Cell):
    """Deep simple gated unit: an SGU with one more product and a sigmoid for the candidate."""

    paper, year = SGU.paper, SGU.year
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.p, self.m, self.c = self.affine("x"), self.affine("h", bias=False), self.affine("h", bias=False)
        self.z = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        p = self.p(x)
        m = tanh(self.m(p * h))
        g = sigmoid(self.c(m * h))
        z = hard_sigmoid(self.z(x, h))
        return (1 - z) * h + z * g


@register("multiplicative_rnn")
class MultiplicativeRNN(Cell):
    """RNN whose recurrent matrix is W diag(V x) R: one for every input, from shared factors."""

    paper, year = "Sutskever, Martens & Hinton, Generating Text with Recurrent Neural Networks", 2011

    def __init__(self, input_size: int, hidden_size: int, factors: int | None = None):
        super().__init__(input_size, hidden_size)
        factors = factors or hidden_size
        self.p = self.affine("x", size=factors, bias=False)
        self.q = self.affine("h", size=factors, bias=False)
        self.a = self.affine("x", factors)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        m = self.p(x) * self.q(h)
        return tanh(self.a(x, m))


@register("multiplicative_lstm")
class MultiplicativeLSTM(Memory):
    """LSTM whose gates read m = (U x) (W h) in the place of h; `standard` squashes where an LSTM does."""

    paper, year = "Krause, Lu, Murray & Renals, Multiplicative LSTM for Sequence Modelling", 2016

    def __init__(self, input_size: int, hidden_size: int, standard: bool = False):
        super().__init__(input_size, hidden_size)
        self.standard = standard
        self.p, self.q = self.affine("x", bias=False), self.affine("h", bias=False)
        self.i, self.f, self.g, self.o = (self.affine("x", hidden_size) for _ in range(4))
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        m = self.p(x) * self.q(h)
        i = sigmoid(self.i(x, m))
        f = sigmoid(self.f(x, m))
        g = self.g(x, m)
        o = sigmoid(self.o(x, m))
        # The paper's LSTM has a linear candidate and its output gate inside the tanh. Most programs that name the paper
        # (torchrecurrent, the sentiment neuron) compute the other form.
        c = f * c + i * (tanh(g) if self.standard else g)
        return o * tanh(c) if self.standard else tanh(o * c), c


@register("mogrifier_lstm")
class MogrifierLSTM(Memory):
    """LSTM before which input and state scale each other in turn, for several rounds."""

    paper, year = "Melis, Kočiský & Blunsom, Mogrifier LSTM", 2020

    def __init__(self, input_size: int, hidden_size: int, rounds: int = 5):
        super().__init__(input_size, hidden_size)
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
            raise InputError("rounds", rounds, "a number of rounds, 0 for an LSTM")
        self.rounds = rounds
        for k in range(1, rounds + 1):  # odd rounds scale x by h, even ones h by x
            odd = self.affine("h", size=input_size) if k % 2 else self.affine("x")
            setattr(self, f"q_{k}", odd)
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        u, v = x, h
        for k in range(1, self.rounds + 1):
            if k % 2:
                u = 2 * sigmoid(getattr(self, f"q_{k}")(v)) * u
            else:
                v = 2 * sigmoid(getattr(self, f"q_{k}")(u)) * v
        i = sigmoid(self.i(u, v))
        f = sigmoid(self.f(u, v))
        g = tanh(self.g(u, v))
        o = sigmoid(self.o(u, v))
        c = f * c + i * g
        return o * tanh(c), c
