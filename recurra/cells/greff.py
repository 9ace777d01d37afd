"""The variants of Greff et al. 2017: the peephole LSTM with one thing removed or changed at a time.

`lstm_fgr` (full gate recurrence) is the class FullGateLSTM of lstm.py. All eight start at N(0, 0.1²), forget biases
included: the study changes one thing at a time, and a forget bias of 1 in one variant alone would be a second.
"""

from torch import Tensor, nn, sigmoid, tanh

from .. import init
from ..affine import Affine
from ..cell import register
from .lstm import LSTM, Memory


class Variant(Memory):
    """A peephole LSTM with the named gates only; all parameters start at N(0, 0.1²), as in the study."""

    paper, year = "Greff, Srivastava, Koutník, Steunebrink & Schmidhuber, LSTM: A Search Space Odyssey", 2017
    gates: tuple[str, ...]
    i: Affine
    f: Affine
    o: Affine
    p_i: nn.Parameter
    p_f: nn.Parameter
    p_o: nn.Parameter

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        for gate in self.gates:
            setattr(self, gate, self.affine("x", "h"))
            setattr(self, f"p_{gate}", self.vector())
        self.g = self.affine("x", "h")
        for parameter in self.parameters():
            init.normal_(parameter, 0.1)


@register("lstm_nig")
class LSTMNIG(Variant):
    """No input gate: the candidate is always written."""

    gates, write = ("f", "o"), ()

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f = sigmoid(self.f(x, h) + self.p_f * c)
        g = tanh(self.g(x, h))
        c = f * c + g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * tanh(c), c


@register("lstm_nfg")
class LSTMNFG(Variant):
    """No forget gate: the memory only accumulates."""

    gates, keep, write = ("i", "o"), (), ()

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        g = tanh(self.g(x, h))
        c = c + i * g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * tanh(c), c


@register("lstm_nog")
class LSTMNOG(Variant):
    """No output gate: the memory is always read."""

    gates = ("i", "f")

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        f = sigmoid(self.f(x, h) + self.p_f * c)
        g = tanh(self.g(x, h))
        c = f * c + i * g
        return tanh(c), c


@register("lstm_np")
class LSTMNP(LSTM):
    """No peepholes: the equations of `lstm` with the study's initialisation, without a forget bias of 1."""

    paper, year = Variant.paper, Variant.year

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        for parameter in self.parameters():
            init.normal_(parameter, 0.1)


@register("lstm_niaf")
class LSTMNIAF(Variant):
    """No input activation function: the candidate is linear."""

    gates = ("i", "f", "o")

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        f = sigmoid(self.f(x, h) + self.p_f * c)
        g = self.g(x, h)
        c = f * c + i * g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * tanh(c), c


@register("lstm_noaf")
class LSTMNOAF(Variant):
    """No output activation function: the memory is read as it is."""

    gates = ("i", "f", "o")

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        f = sigmoid(self.f(x, h) + self.p_f * c)
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * c, c


@register("lstm_cifg")
class LSTMCIFG(Variant):
    """Coupled input and forget gate: what is written is what is forgotten, f = 1 - i."""

    gates, keep = ("i", "o"), ()

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        f = 1 - i
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * tanh(c), c
