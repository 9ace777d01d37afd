"""Units with fewer parts than a GRU: one or two gates, shared products, candidates that read the input alone.

Some of these papers print no biases. The affines have them, at zero; a layer with `bias=False` is the printed form.
"""

import math

import torch
from torch import Tensor, relu, sigmoid, tanh

from .. import init
from ..cell import Cell, register
from ..errors import InputError
from .activations import Activation, activation


@register("cfn")
class CFN(Cell):
    """Chaos-free network: a forget and an input gate around tanh(h) and tanh(x); without input the state decays."""

    paper, year = "Laurent & von Brecht, A Recurrent Neural Network Without Chaos", 2016
    keep, write, candidate = ("theta",), ("eta",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.theta, self.eta = (self.affine("x", "h") for _ in range(2))
        self.c = self.affine("x", bias=False)
        for matrix in (self.theta.U, self.theta.W, self.eta.U, self.eta.W, self.c.U):
            init.uniform_(matrix, 0.07)
        init.constant_(self.theta.b, 1.0)
        init.constant_(self.eta.b, -1.0)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        theta = sigmoid(self.theta(x, h))
        eta = sigmoid(self.eta(x, h))
        g = tanh(self.c(x))
        return theta * tanh(h) + eta * g


@register("ran")
class RAN(Cell):
    """Recurrent additive network: an LSTM whose candidate is linear in the input and whose output has no gate."""

    paper, year = "Lee, Levy & Zettlemoyer, Recurrent Additive Networks", 2017
    states = ("h", "c")
    keep, write, candidate, memory = ("f",), ("i",), "g", "c"

    def __init__(self, input_size: int, hidden_size: int, nonlinearity: str | Activation = "tanh"):
        super().__init__(input_size, hidden_size)
        self.c = self.affine("x", bias=False)
        self.i, self.f = (self.affine("x", "h") for _ in range(2))
        self.nonlinearity = activation(nonlinearity)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        g = self.c(x)
        i = sigmoid(self.i(x, h))
        f = sigmoid(self.f(x, h))
        c = i * g + f * c
        return self.nonlinearity(c), c


@register("minimal_rnn")
class MinimalRNN(Cell):
    """One gate between the past and a latent z = tanh(U x + b), which the gate reads as well."""

    paper, year = "Chen, MinimalRNN: Toward More Interpretable and Trainable Recurrent Neural Networks", 2017
    keep, candidate = ("u",), "z"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.phi = self.affine("x")
        self.u, self.v = self.affine("h"), self.affine(hidden_size, bias=False)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.phi(x))
        u = sigmoid(self.u(h) + self.v(z))
        return u * h + (1 - u) * z


@register("li_gru")
class LiGRU(Cell):
    """Light GRU: no reset gate, a rectified candidate. The paper also normalises the products with x by batch."""

    paper, year = "Ravanelli, Brakel, Omologo & Bengio, Light Gated Recurrent Units for Speech Recognition", 2018
    keep, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.z, self.c = (self.affine("x", "h") for _ in range(2))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = sigmoid(self.z(x, h))
        g = relu(self.c(x, h))
        return z * h + (1 - z) * g


@register("atr")
class ATR(Cell):
    """Addition-subtraction twin gates: p + q opens the input gate, p - q the forget gate."""

    paper, year = "Zhang et al., Simplifying Neural Machine Translation with Addition-Subtraction Twin-Gated RNN", 2018
    candidate = "p"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.p, self.q = self.affine("x"), self.affine("h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        p = self.p(x)
        q = self.q(h)
        i = sigmoid(p + q)
        f = sigmoid(p - q)
        return i * p + f * h


@register("sgrn")
class SGRN(Cell):
    """Simple gated recurrent network: one gate, whose product with x is the candidate, too."""

    paper, year = (
        "Simple Gated Recurrent Network, IET Generation, Transmission & Distribution, doi 10.1049/gtd2.12056",
        2021,
    )

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.p, self.q = self.affine("x"), self.affine("h", bias=False)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        p = self.p(x)
        f = sigmoid(p + self.q(h))
        return tanh((1 - f) * p + f * h)


@register("star")
class STAR(Cell):
    """Stackable recurrent unit: one gate, a candidate of the input alone, and a squashed sum, for deep stacks."""

    paper, year = "Turkoglu, D'Aronco, Wegner & Schindler, Gating Revisited: Deep Multi-layer RNNs", 2021
    write, candidate = ("k",), "z"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.phi, self.k = self.affine("x"), self.affine("x", "h")
        for matrix in (self.phi.U, self.k.U, self.k.W):
            init.orthogonal_(matrix)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = tanh(self.phi(x))
        k = sigmoid(self.k(x, h))
        return tanh((1 - k) * h + k * z)


@register("light_ru")
class LightRU(Cell):
    """Light recurrent unit: one gate reads the state, the candidate only the input."""

    paper, year = "Ye et al., Light Recurrent Unit: Towards an Interpretable Recurrent Neural Network", 2024
    write, candidate = ("f",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.c, self.f = self.affine("x"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        g = tanh(self.c(x))
        f = sigmoid(self.f(x, h))
        return (1 - f) * h + f * g


@register("fast_rnn")
class FastRNN(Cell):
    """RNN with a weighted residual connection: two learned numbers mix candidate and past."""

    paper, year = "Kusupati et al., FastGRNN: A Fast, Accurate, Stable and Tiny Gated Recurrent Neural Network", 2018
    candidate = "g"

    def __init__(self, input_size: int, hidden_size: int, nonlinearity: str | Activation = "tanh"):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.alpha, self.beta = self.vector(1, fill=-3.0), self.vector(1, fill=3.0)
        self.nonlinearity = activation(nonlinearity)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        g = self.nonlinearity(self.a(x, h))
        return sigmoid(self.alpha) * g + sigmoid(self.beta) * h


@register("fast_grnn")
class FastGRNN(Cell):
    """Gate and candidate share their matrices and differ in the bias; `rank` makes both matrices products."""

    paper, year = FastRNN.paper, FastRNN.year
    candidate = "g"

    def __init__(self, input_size: int, hidden_size: int, rank: int | None = None):
        super().__init__(input_size, hidden_size)
        if rank is not None and not 1 <= rank <= hidden_size:
            raise InputError("rank", rank, f"None, or a rank between 1 and hidden_size = {hidden_size}")
        self.rank = rank
        inner = rank or hidden_size
        self.U, self.W = self.affine("x", size=inner, bias=False), self.affine("h", size=inner, bias=False)
        if rank is not None:
            self.U_2, self.W_2 = (self.affine(rank, bias=False) for _ in range(2))
        self.b_z, self.b_c = self.vector(fill=1.0), self.vector(fill=1.0)
        self.zeta, self.nu = self.vector(1, fill=1.0), self.vector(1, fill=-4.0)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = self.U(x) + self.W(h) if self.rank is None else self.U_2(self.U(x)) + self.W_2(self.W(h))
        z = sigmoid(a + self.b_z)
        g = tanh(a + self.b_c)
        return (sigmoid(self.zeta) * (1 - z) + sigmoid(self.nu)) * g + z * h


@register("miru1")
class MiRU1(Cell):
    """Minion unit: a GRU whose update gate is one fixed number λ."""

    paper, year = "Zyarah & Kudithipudi, Minion Gated Recurrent Unit for Continual Learning", 2025
    candidate = "g"

    def __init__(self, input_size: int, hidden_size: int, update: float = 0.5):
        super().__init__(input_size, hidden_size)
        self.r, self.c = (self.affine("x", "h") for _ in range(2))
        self.update = share("update", update)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        r = sigmoid(self.r(x, h))
        g = tanh(self.c(x, r * h))
        return self.update * h + (1 - self.update) * g


@register("miru2")
class MiRU2(Cell):
    """Minion unit without gates: fixed numbers β and λ in the places of a GRU's reset and update gate."""

    paper, year = MiRU1.paper, MiRU1.year
    candidate = "g"

    def __init__(self, input_size: int, hidden_size: int, update: float = 0.5, reset: float = 0.5):
        super().__init__(input_size, hidden_size)
        self.c = self.affine("x", "h")
        self.update = share("update", update)
        # A vector: onnxruntime rounds a number that scales a product to single precision.
        self.register_buffer("beta", torch.full((hidden_size,), share("reset", reset)))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        g = tanh(self.c(x, self.beta * h))
        return self.update * h + (1 - self.update) * g


def share(argument: str, value: float) -> float:
    """A number between 0 and 1, checked."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or not 0 <= value <= 1:
        raise InputError(argument, value, "a number between 0 and 1")
    return float(value)
