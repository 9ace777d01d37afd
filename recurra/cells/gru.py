"""Gated recurrent units: the GRU, its mutations MUT1 to MUT3, and the minimal gated units.

In this family an open update gate overwrites the state: h = (1 - z) h + z g. torch.nn.GRU's z is one minus this one.
"""

from torch import Tensor, sigmoid, tanh

from .. import init
from ..cell import Cell, register


@register("gru")
class GRU(Cell):
    """Gated recurrent unit, the reset gate before the product (the survey) or after it (torch and Keras)."""

    paper, year = "Cho et al., Learning Phrase Representations using RNN Encoder-Decoder", 2014
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int, reset_after: bool = False):
        super().__init__(input_size, hidden_size)
        self.r, self.z = (self.affine("x", "h") for _ in range(2))
        self.c = self.affine("x") if reset_after else self.affine("x", "h")
        if reset_after:
            self.m = self.affine("h")
        self.reset_after = reset_after
        for gate in (self.r, self.z, self.c):
            init.normal_(gate.U, 0.01)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        r = sigmoid(self.r(x, h))
        z = sigmoid(self.z(x, h))
        g = tanh(self.c(x) + r * self.m(h)) if self.reset_after else tanh(self.c(x, r * h))
        return (1 - z) * h + z * g


class Mutant(Cell):
    """Base of MUT1 and MUT2, which add x without a weight; where sizes differ, x goes through a projection E."""

    paper, year = "Jozefowicz, Zaremba & Sutskever, An Empirical Exploration of Recurrent Network Architectures", 2015
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.E = self.affine("x", bias=False) if input_size != hidden_size else None

    def projected(self, x: Tensor) -> Tensor:
        """x with hidden_size features."""
        return x if self.E is None else self.E(x)


@register("mut1")
class MUT1(Mutant):
    """First mutation of the GRU: the update gate reads the input only, the candidate tanh(x)."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.z, self.r, self.c = self.affine("x"), self.affine("x", "h"), self.affine("h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = sigmoid(self.z(x))
        r = sigmoid(self.r(x, h))
        g = tanh(self.c(r * h) + tanh(self.projected(x)))
        return z * g + (1 - z) * h


@register("mut2")
class MUT2(Mutant):
    """Second mutation of the GRU: the reset gate reads x without a weight."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.z, self.r, self.c = self.affine("x", "h"), self.affine("h"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = sigmoid(self.z(x, h))
        r = sigmoid(self.r(h) + self.projected(x))
        g = tanh(self.c(x, r * h))
        return z * g + (1 - z) * h


@register("mut3")
class MUT3(Cell):
    """Third mutation of the GRU: the update gate reads tanh(h)."""

    paper, year = Mutant.paper, Mutant.year
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.z, self.r, self.c = (self.affine("x", "h") for _ in range(3))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = sigmoid(self.z(x, tanh(h)))
        r = sigmoid(self.r(x, h))
        g = tanh(self.c(x, r * h))
        return z * g + (1 - z) * h


@register("mgu")
class MGU(Cell):
    """Minimal gated unit: one gate resets and updates. f = 1 overwrites the state, unlike LSTM's forget gate."""

    paper, year = "Zhou, Wu, Zhang & Zhou, Minimal Gated Unit for Recurrent Neural Networks", 2016
    write, candidate = ("f",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.f, self.c = (self.affine("x", "h") for _ in range(2))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = sigmoid(self.f(x, h))
        g = tanh(self.c(x, f * h))
        return (1 - f) * h + f * g


class SmallerMGU(Cell):
    """Base of the reduced MGUs."""

    paper, year = "Heck & Salem, Simplified Minimal Gated Unit Variations for Recurrent Neural Networks", 2017
    write, candidate = ("f",), "g"


@register("mgu1")
class MGU1(SmallerMGU):
    """MGU whose gate does not read the input."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.f, self.c = self.affine("h"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = sigmoid(self.f(h))
        g = tanh(self.c(x, f * h))
        return (1 - f) * h + f * g


@register("mgu2")
class MGU2(SmallerMGU):
    """MGU whose gate reads only the state, without bias."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.f, self.c = self.affine("h", bias=False), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = sigmoid(self.f(h))
        g = tanh(self.c(x, f * h))
        return (1 - f) * h + f * g


@register("mgu3")
class MGU3(SmallerMGU):
    """MGU whose gate is a constant per unit."""

    write = ()

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.b_f = self.vector()
        self.c = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = sigmoid(self.b_f)
        g = tanh(self.c(x, f * h))
        return (1 - f) * h + f * g
