"""Linear recurrences whose decay is a gate of the input: a scan over time gives all their steps at once."""

import math

import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.nn.functional import silu, softplus

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .minimal import share


@register("sru")
class SRU(Cell):
    """Simple recurrent unit: a forget gate over a linear candidate, and a highway around them."""

    paper, year = "Lei, Zhang, Wang, Dai & Artzi, Simple Recurrent Units for Highly Parallelizable Recurrence", 2018
    states = ("c",)
    keep, candidate = ("f",), "g"

    def __init__(self, input_size: int, hidden_size: int, peepholes: bool = False, scale: float = math.sqrt(3)):
        """`peepholes`: gates read c as well, as in the paper's last version; c is then no longer a scan."""
        super().__init__(input_size, hidden_size)
        self.c = self.affine("x", bias=False)
        self.f, self.r = (self.affine("x") for _ in range(2))
        self.skip = None if input_size == hidden_size else self.affine("x", bias=False)
        for part in (self.c, self.f, self.r, *([] if self.skip is None else [self.skip])):
            init.uniform_(part.U, math.sqrt(3 / input_size))
        self.peepholes, self.scale = peepholes, scale
        if peepholes:
            self.v_f, self.v_r = self.vector(), self.vector()

    def step(self, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        g = self.c(x)
        f = sigmoid(self.f(x) + self.v_f * c if self.peepholes else self.f(x))
        r = sigmoid(self.r(x) + self.v_r * c if self.peepholes else self.r(x))
        c = f * c + (1 - f) * g
        u = x if self.skip is None else self.skip(x)
        return r * c + (1 - r) * self.scale * u, c


@register("qrnn")
class QRNN(Cell):
    """Quasi-recurrent network: gates and candidate are convolutions over the last inputs, the pooling is linear."""

    paper, year = "Bradbury, Merity, Xiong & Socher, Quasi-Recurrent Neural Networks", 2016
    states = ("c", "v")  # v: the inputs before
    keep, candidate = ("f",), "g"

    def __init__(self, input_size: int, hidden_size: int, window: int = 2, pooling: str = "fo"):
        """`window`: steps that a convolution reads; `pooling`: "f", "fo" or "ifo", the gates of the pooling."""
        if positive_int("window", window) < 2:
            raise InputError("window", window, "at least 2 steps")
        if pooling not in ("f", "fo", "ifo"):
            raise InputError("pooling", repr(pooling), "'f', 'fo' or 'ifo'")
        super().__init__(input_size, hidden_size, sizes={"v": input_size}, delays={"v": range(1, window)})
        past = [f"v[{k}]" for k in range(1, window)]
        self.g, self.f = (self.affine("x", *past) for _ in range(2))
        self.o = self.affine("x", *past) if "o" in pooling else None
        self.i = self.affine("x", *past) if "i" in pooling else None

    def step(self, x: Tensor, c: Tensor, v: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        g = tanh(self.g(x, *v))
        f = sigmoid(self.f(x, *v))
        i = 1 - f if self.i is None else sigmoid(self.i(x, *v))
        c = f * c + i * g
        o = 1.0 if self.o is None else sigmoid(self.o(x, *v))
        return o * c, c, x


@register("hgrn")
class HGRN(Cell):
    """Hierarchically gated network: complex units that rotate and decay; `floor` bounds the gate from below."""

    paper, year = "Qin, Yang & Zhong, Hierarchically Gated Recurrent Neural Network for Sequence Modeling", 2023
    states = ("re", "im")
    keep = ("f",)

    def __init__(self, input_size: int, hidden_size: int, floor: float = 0.0):
        """`floor`: the least share of the past; the paper lets it grow from the lower layers to the upper ones."""
        super().__init__(input_size, hidden_size, output_size=2 * hidden_size)
        self.c_re, self.c_im, self.f = (self.affine("x") for _ in range(3))
        self.g = self.affine("x", size=2 * hidden_size)
        self.theta = nn.Parameter(10000.0 ** (-torch.arange(hidden_size) / hidden_size))
        self.floor = share("floor", floor)

    def step(self, x: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f = sigmoid(self.f(x))
        if self.floor:
            f = self.floor + (1 - self.floor) * f
        p, q = torch.cos(self.theta), torch.sin(self.theta)
        g = sigmoid(self.g(x))
        turned = f * (p * re - q * im) + (1 - f) * silu(self.c_re(x))
        im = f * (q * re + p * im) + (1 - f) * silu(self.c_im(x))
        return g * torch.cat([turned, im], dim=-1), turned, im


@register("rg_lru")
class RGLRU(Cell):
    """Real-gated linear unit of Griffin: a learned decay to the power of a gate; a longer past shrinks the input."""

    paper, year = "De et al., Griffin: Mixing Gated Linear Recurrences with Local Attention", 2024
    write = ("i",)

    def __init__(self, input_size: int, hidden_size: int, power: float = 8.0, low: float = 0.9, high: float = 0.999):
        """`low`, `high`: the decay of a step with an open gate is drawn evenly from between them."""
        super().__init__(input_size, hidden_size)
        if not 0.0 < low < high < 1.0:
            raise InputError("low", (low, high), "0 < low < high < 1")
        self.r, self.i = (self.affine("x") for _ in range(2))
        self.u = None if input_size == hidden_size else self.affine("x", bias=False)
        self.power = power
        decay = torch.empty(hidden_size).uniform_(low, high) ** (1 / power)
        self.rho = nn.Parameter(torch.log(decay / (1 - decay)))  # the decay is σ(ρ)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        r = sigmoid(self.r(x))
        i = sigmoid(self.i(x))
        k = -self.power * r * softplus(-self.rho)  # the logarithm of the decay
        u = x if self.u is None else self.u(x)
        return torch.exp(k) * h + torch.sqrt(-torch.expm1(2 * k)) * (i * u)


@register("gateloop")
class GateLoop(Cell):
    """Complex units whose decay and rotation are both read from x; keys and queries gate what enters and leaves."""

    paper, year = "Katsch, GateLoop: Fully Data-Controlled Linear Recurrence for Sequence Modeling", 2023
    states = ("re", "im")
    keep = ("f",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.q, self.k, self.v = (self.affine("x", bias=False) for _ in range(3))
        self.f, self.theta = (self.affine("x") for _ in range(2))

    def step(self, x: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f = sigmoid(self.f(x))
        theta = self.theta(x)
        p, r = torch.cos(theta), torch.sin(theta)
        turned = f * (p * re - r * im) + self.k(x) * self.v(x)
        im = f * (r * re + p * im)
        return self.q(x) * turned, turned, im
