"""Later cells, from IndRNN to xLSTM's sLSTM."""

import math

import torch
from torch import Tensor, nn, relu, sigmoid, tanh
from torch.nn.functional import logsigmoid

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .derivations import Antisymmetric, BlockDiagonal


@register("indrnn")
class IndRNN(Cell):
    """Independently recurrent network: the recurrent matrix is diagonal, bounded for sequences of `longest` steps."""

    paper, year = "Li et al., Independently Recurrent Neural Network: Building a Longer and Deeper RNN", 2018

    def __init__(self, input_size: int, hidden_size: int, longest: int | None = None, gamma: float = 2.0):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x")
        self.bound = math.inf if longest is None else gamma ** (1 / positive_int("longest", longest))
        self.u = nn.Parameter(torch.rand(hidden_size))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        u = self.u if self.bound == math.inf else self.u.clamp(-self.bound, self.bound)
        return relu(u * h + self.a(x))


@register("min_gru")
class MinGRU(Cell):
    """GRU whose gate and candidate read only the input."""

    paper, year = "Feng et al., Were RNNs All We Needed?", 2024
    write, candidate = ("z",), "g"

    def __init__(self, input_size: int, hidden_size: int, log_form: bool = False):
        """`log_form`: a positive candidate, as the paper's form in logarithms has it."""
        super().__init__(input_size, hidden_size)
        self.z, self.c, self.log_form = self.affine("x"), self.affine("x"), log_form

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = sigmoid(self.z(x))
        g = positive(self.c(x)) if self.log_form else self.c(x)
        return (1 - z) * h + z * g


@register("min_lstm")
class MinLSTM(Cell):
    """LSTM whose gates and candidate read only the input; the gates are normalised to sum to one."""

    paper, year = "Feng et al., Were RNNs All We Needed?", 2024
    keep, write, candidate = ("f",), ("i",), "g"

    def __init__(self, input_size: int, hidden_size: int, log_form: bool = False):
        """`log_form`: a positive candidate, as the paper's form in logarithms has it."""
        super().__init__(input_size, hidden_size)
        self.f, self.i, self.c = (self.affine("x") for _ in range(3))
        self.log_form = log_form

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = sigmoid(self.f(x))
        i = sigmoid(self.i(x))
        g = positive(self.c(x)) if self.log_form else self.c(x)
        return f / (f + i) * h + i / (f + i) * g


def positive(a: Tensor) -> Tensor:
    """A growing function with positive values only, linear above 0."""
    return torch.where(a >= 0, a + 0.5, sigmoid(a))


@register("slstm")
class SLSTM(Cell):
    """LSTM with exponential gates, a normaliser n and a stabiliser m; recurrence stays within each head."""

    paper, year = "Beck et al., xLSTM: Extended Long Short-Term Memory", 2024
    states = ("h", "c", "n", "m")
    keep, write, candidate = ("f",), ("i",), "z"

    def __init__(self, input_size: int, hidden_size: int, heads: int = 1, forget: str = "sigmoid"):
        super().__init__(input_size, hidden_size)
        if hidden_size % positive_int("heads", heads):
            raise InputError("heads", heads, f"a divisor of hidden_size = {hidden_size}")
        if forget not in ("sigmoid", "exp"):
            raise InputError("forget", repr(forget), "'sigmoid' or 'exp'")
        self.i, self.f, self.z, self.o = (self.affine("x", "h") for _ in range(4))
        if heads > 1:
            n = hidden_size // heads
            for gate in (self.i, self.f, self.z, self.o):
                blocks = torch.stack([init.orthogonal_(torch.empty(n, n)) for _ in range(heads)])
                gate.derive("W", BlockDiagonal(), raw=nn.Parameter(blocks))
        self.forget = forget
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor, n: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        past = m
        log_i = self.i(x, h)
        log_f = logsigmoid(self.f(x, h)) if self.forget == "sigmoid" else self.f(x, h)
        m = torch.where(n == 0, log_i, torch.maximum(log_f + past, log_i))  # n = 0: nothing is stored yet
        i = torch.exp(log_i - m)
        f = torch.exp(torch.clamp(log_f + past - m, max=0.0))  # positive only where n = 0, and there f multiplies 0
        z = tanh(self.z(x, h))
        o = sigmoid(self.o(x, h))
        c = f * c + i * z
        n = f * n + i
        return o * c / n, c, n, m


@register("cornn")
class CoRNN(Cell):
    """Coupled oscillators with position y and velocity z, damped and driven by the input."""

    paper, year = "Rusch & Mishra, Coupled Oscillatory Recurrent Neural Network (coRNN)", 2021
    states = ("y", "z")

    def __init__(self, input_size: int, hidden_size: int, dt: float = 0.042, gamma: float = 2.7, epsilon: float = 4.7):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "y", "z")
        self.dt, self.gamma, self.epsilon = dt, gamma, epsilon

    def step(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        z = z + self.dt * (tanh(self.a(x, y, z)) - self.gamma * y - self.epsilon * z)
        y = y + self.dt * z
        return y, z


@register("antisymmetric_rnn")
class AntisymmetricRNN(Cell):
    """Euler step of a stable differential equation with the antisymmetric matrix W = M - Mᵀ - γI."""

    paper, year = "Chang, Chen, Haber & Chi, AntisymmetricRNN: A Dynamical System View on Recurrent Networks", 2019

    def __init__(self, input_size: int, hidden_size: int, epsilon: float = 0.1, gamma: float = 0.1):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        init.normal_(self.a.W, 1 / math.sqrt(hidden_size))
        self.a.derive("W", Antisymmetric(gamma))
        self.epsilon = epsilon

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return h + self.epsilon * tanh(self.a(x, h))


@register("gated_antisymmetric_rnn")
class GatedAntisymmetricRNN(Cell):
    """AntisymmetricRNN with a gate; gate and candidate share the recurrent matrix."""

    paper, year = AntisymmetricRNN.paper, AntisymmetricRNN.year
    candidate = "g"

    def __init__(self, input_size: int, hidden_size: int, epsilon: float = 0.1, gamma: float = 0.1):
        super().__init__(input_size, hidden_size)
        self.V = self.affine("h", bias=False)
        init.normal_(self.V.W, 1 / math.sqrt(hidden_size))
        self.V.derive("W", Antisymmetric(gamma))
        self.z, self.c = self.affine("x"), self.affine("x")
        self.epsilon = epsilon

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = sigmoid(self.V(h) + self.z(x))
        g = tanh(self.V(h) + self.c(x))
        return h + self.epsilon * z * g


@register("lem")
class LEM(Cell):
    """Long expressive memory: two coupled states, each with a learned time step."""

    paper, year = "Rusch, Mishra, Erichson & Mahoney, Long Expressive Memory for Sequence Modeling", 2022
    states = ("y", "z")

    def __init__(self, input_size: int, hidden_size: int, dt: float = 1.0):
        super().__init__(input_size, hidden_size)
        self.slow, self.fast, self.u = (self.affine("x", "y") for _ in range(3))
        self.v = self.affine("x", "z")
        self.dt = dt
        for parameter in self.parameters():
            init.uniform_(parameter, 1 / math.sqrt(hidden_size))

    def step(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        dt_y = self.dt * sigmoid(self.slow(x, y))
        dt_z = self.dt * sigmoid(self.fast(x, y))
        z = (1 - dt_z) * z + dt_z * tanh(self.u(x, y))
        y = (1 - dt_y) * y + dt_y * tanh(self.v(x, z))
        return y, z


@register("ugrnn")
class UGRNN(Cell):
    """Update-gate RNN: one gate chooses between the past and the candidate."""

    paper, year = "Collins, Sohl-Dickstein & Sussillo, Capacity and Trainability in Recurrent Neural Networks", 2017
    keep, candidate = ("g",), "c"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.g, self.c = (self.affine("x", "h") for _ in range(2))
        init.constant_(self.g.b, 1.0)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        g = sigmoid(self.g(x, h))
        c = tanh(self.c(x, h))
        return g * h + (1 - g) * c


@register("janet")
class Janet(Cell):
    """LSTM with only a forget gate; with β > 0 it writes more than it forgets."""

    paper, year = "van der Westhuizen & Lasenby, The Unreasonable Effectiveness of the Forget Gate", 2018
    keep, candidate = ("f",), "g"

    def __init__(self, input_size: int, hidden_size: int, beta: float = 1.0, longest: float = 100.0):
        super().__init__(input_size, hidden_size)
        self.f, self.c = (self.affine("x", "h") for _ in range(2))
        self.beta = beta
        init.chrono(longest)(self)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        s = self.f(x, h)
        g = tanh(self.c(x, h))
        return sigmoid(s) * h + (1 - sigmoid(s - self.beta)) * g
