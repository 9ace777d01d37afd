"""Cells in continuous time, for samples at any distance, and for values that are missing.

With `timed=True` the last feature of x is the time since the step before; otherwise every step lasts 1.
"""

import math

import torch
from torch import Tensor, relu, sigmoid, tanh
from torch.nn.functional import linear

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError


class Timed(Cell):
    """Base of cells whose input may end in the time since the last step; "x" of an affine is what precedes it."""

    def __init__(self, input_size: int, hidden_size: int, timed: bool = False, sizes: dict[str, int] | None = None):
        if timed and input_size < 2:
            raise InputError("input_size", input_size, "at least 2 features, of which the last is the time")
        super().__init__(input_size, hidden_size, sizes=sizes)
        self.timed = timed

    def _width(self, operand: str | int) -> int:
        return self.input_size - self.timed if operand == "x" else super()._width(operand)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """The features, and the time since the last step, (B, 1) or 1."""
        return (x[:, :-1], x[:, -1:]) if self.timed else (x, 1.0)


@register("ltc")
class LTC(Timed):
    """Liquid time constants: a gate f of input and state sets both time constant and target; fused solver steps."""

    paper, year = "Hasani, Lechner, Amini, Rus & Grosu, Liquid Time-constant Networks", 2021

    def __init__(self, input_size: int, hidden_size: int, timed: bool = False, unfolds: int = 6):
        super().__init__(input_size, hidden_size, timed)
        self.f, self.unfolds = self.affine("x", "h"), positive_int("unfolds", unfolds)
        self.A, self.rho = self.vector(), self.vector()  # τ = exp(ρ)
        init.uniform_(self.A, 1.0)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        u, dt = self.split(x)
        d = dt * (1 / self.unfolds)
        for _ in range(self.unfolds):
            f = sigmoid(self.f(u, h))
            h = (h + d * f * self.A) / (1 + d * (torch.exp(-self.rho) + f))
        return h


@register("cfc")
class CfC(Timed):
    """Closed-form continuous-time network: a time gate fades from one candidate to another as time passes."""

    paper, year = "Hasani et al., Closed-form Continuous-time Neural Networks", 2022

    def __init__(self, input_size: int, hidden_size: int, timed: bool = False, backbone: int | None = None):
        super().__init__(input_size, hidden_size, timed)
        backbone = hidden_size if backbone is None else positive_int("backbone", backbone)  # 128 units in ncps
        self.backbone = self.affine("x", "h", size=backbone)
        self.f, self.g, self.a, self.b = (self.affine(backbone) for _ in range(4))
        # LeCun's tanh, by vectors: onnxruntime rounds a number that scales a product to single precision.
        self.register_buffer("slope", torch.full((backbone,), 0.666))
        self.register_buffer("gain", torch.full((backbone,), 1.7159))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        u, dt = self.split(x)
        z = self.gain * tanh(self.slope * self.backbone(u, h))
        s = sigmoid(self.a(z) * dt + self.b(z))
        return tanh(self.f(z)) * (1 - s) + s * tanh(self.g(z))


@register("ode_rnn")
class ODERNN(Timed):
    """The state follows a learned differential equation between inputs; a GRU takes each input in."""

    paper, year = "Rubanova, Chen & Duvenaud, Latent ODEs for Irregularly-Sampled Time Series", 2019
    write, candidate = ("z",), "g"

    def __init__(
        self, input_size: int, hidden_size: int, timed: bool = False, steps: int = 4, units: int | None = None
    ):
        super().__init__(input_size, hidden_size, timed)
        self.steps = positive_int("steps", steps)
        units = hidden_size if units is None else positive_int("units", units)
        self.inner, self.outer = self.affine("h", size=units), self.affine(units)
        init.orthogonal_(self.outer.W, 0.1)  # a slow flow; one as fast as the inputs come carries the state away
        self.r, self.z, self.c = (self.affine("x", "h") for _ in range(3))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        u, dt = self.split(x)
        d = dt * (1 / self.steps)
        for _ in range(self.steps):  # Euler
            h = h + d * self.outer(tanh(self.inner(h)))
        r = sigmoid(self.r(u, h))
        z = sigmoid(self.z(u, h))
        g = tanh(self.c(u, r * h))
        return (1 - z) * h + z * g


@register("gru_d")
class GRUD(Timed):
    """GRU for missing values (NaN): inputs fade to their mean, and the state to 0, the longer ago they were seen."""

    paper, year = "Che et al., Recurrent Neural Networks for Multivariate Time Series with Missing Values", 2018
    states = ("h", "v", "s")  # v the last value seen of each feature, s the time since then
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int, timed: bool = False, mean: float | Tensor = 0.0):
        features = input_size - timed
        super().__init__(input_size, hidden_size, timed, sizes={"v": max(1, features), "s": max(1, features)})
        self.r, self.z, self.c = (self.affine("x", "h") for _ in range(3))
        self.m_r, self.m_z, self.m_c = (self.affine("v", bias=False) for _ in range(3))
        self.gamma_x, self.b_x = self.vector(features, fill=0.1), self.vector(features)
        self.gamma_h = self.affine("s")
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.get_default_dtype()).expand(features).clone())
        self.start("v", "mean")  # until a feature is seen
        self.start("s", 0.0 if timed else -1.0)  # no time passes before the first step; with `timed`, x says so

    def step(self, x: Tensor, h: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, dt = self.split(x)
        m = torch.where(torch.isnan(u), torch.zeros_like(u), torch.ones_like(u))
        s = s + dt
        a = torch.exp(-relu(self.gamma_x * s + self.b_x))
        v = torch.where(torch.isnan(u), v, u)
        w = m * v + (1 - m) * (a * v + (1 - a) * self.mean)
        p = torch.exp(-relu(self.gamma_h(s))) * h
        r = sigmoid(self.r(w, p) + self.m_r(m))
        z = sigmoid(self.z(w, p) + self.m_z(m))
        g = tanh(self.c(w, r * p) + self.m_c(m))
        return (1 - z) * p + z * g, v, (1 - m) * s


@register("phased_lstm")
class PhasedLSTM(Timed):
    """Peephole LSTM whose units open periodically: a time gate with a period and a phase lets them change."""

    paper, year = "Neil, Pfeiffer & Liu, Phased LSTM: Accelerating Recurrent Network Training", 2016
    states = ("h", "c", "clock")
    keep, write, candidate = ("f",), ("i",), "g"

    def __init__(
        self, input_size: int, hidden_size: int, timed: bool = False, ratio: float = 0.05, leak: float = 1e-3,
        longest: float = 3.0,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, timed, sizes={"clock": 1})
        if not 0.0 < ratio <= 1.0:
            raise InputError("ratio", ratio, "a share of the period in (0, 1]")
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        self.ratio, self.leak = ratio, leak
        self.rho, self.shift = self.vector(), self.vector()  # the period is exp(ρ)
        with torch.no_grad():
            self.rho.uniform_(0.0, longest)
            self.shift.copy_(torch.rand(hidden_size) * self.rho.exp())
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor, clock: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, dt = self.split(x)
        clock = clock + dt
        phi = torch.remainder((clock - self.shift) * torch.exp(-self.rho), 1.0)
        rest = self.leak * phi if self.training else 0.0 * phi
        rise = 2 * phi / self.ratio
        k = torch.where(phi < self.ratio / 2, rise, torch.where(phi < self.ratio, 2 - rise, rest))
        i = sigmoid(self.i(u, h) + self.p_i * c)
        f = sigmoid(self.f(u, h) + self.p_f * c)
        g = tanh(self.g(u, h))
        new = f * c + i * g
        o = sigmoid(self.o(u, h) + self.p_o * new)
        return k * o * tanh(new) + (1 - k) * h, k * new + (1 - k) * c, clock


@register("lmu")
class LMU(Cell):
    """Legendre memory: a linear memory holds the last `theta` steps as Legendre coefficients; an RNN reads it."""

    paper, year = "Voelker, Kajić & Eliasmith, Legendre Memory Units", 2019
    states = ("h", "m")

    def __init__(self, input_size: int, hidden_size: int, order: int | None = None, theta: float = 100.0):
        order = hidden_size if order is None else positive_int("order", order)
        if not theta > 0:
            raise InputError("theta", theta, "a positive number of steps")
        super().__init__(input_size, hidden_size, sizes={"m": order})
        self.u, self.a = self.affine("x", "h", "m", size=1, bias=False), self.affine("x", "h", "m", bias=False)
        init.uniform_(self.u.U, math.sqrt(3 / input_size))  # LeCun
        init.uniform_(self.u.W_h, math.sqrt(3 / hidden_size))
        init.constant_(self.u.W_m, 0.0)
        for matrix in (self.a.U, self.a.W_h, self.a.W_m):
            init.normal_(matrix, math.sqrt(2 / sum(matrix.shape)))  # Glorot
        A, B = legendre_memory(order, theta)
        self.register_buffer("A", A)
        self.register_buffer("B", B)

    def step(self, x: Tensor, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        u = self.u(x, h, m)
        m = linear(m, self.A) + u * self.B
        return tanh(self.a(x, h, m)), m


def legendre_memory(order: int, theta: float) -> tuple[Tensor, Tensor]:
    """Ā (order, order) and B̄ (order,) of a delay of `theta` steps, held constant over a step (zero-order hold)."""
    i, j = torch.meshgrid(*(torch.arange(order, dtype=torch.float64),) * 2, indexing="ij")
    A = (2 * i + 1) / theta * torch.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    B = (2 * i[:, 0] + 1) / theta * (-1.0) ** i[:, 0]
    joined = torch.zeros(order + 1, order + 1, dtype=torch.float64)
    joined[:order, :order], joined[:order, order] = A, B
    held = torch.linalg.matrix_exp(joined)
    dtype = torch.get_default_dtype()
    return held[:order, :order].to(dtype).contiguous(), held[:order, order].to(dtype).contiguous()
