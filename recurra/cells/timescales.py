"""Cells with time scales: delays, leaky units, traces and slow context units (survey sections 3.2 and 3.3)."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.nn.functional import softplus

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .activations import Activation, activation
from .derivations import Masked


@register("delay_rnn")
class DelayRNN(Cell):
    """RNN that also reads states several steps back, each with its own matrix (NARX network)."""

    paper, year = "Lin, Horne, Tiño & Giles, Learning Long-Term Dependencies in NARX Recurrent Neural Networks", 1995

    def __init__(self, input_size: int, hidden_size: int, delays: Sequence[int] = (1, 3)):
        super().__init__(input_size, hidden_size, delays={"h": delays})
        self.a = self.affine("x", *(f"h[{k}]" for k in delays))
        for name in self.a.recurrent():
            init.orthogonal_(getattr(self.a, name), 1 / math.sqrt(len(delays)))

    def step(self, x: Tensor, h: tuple[Tensor, ...]) -> Tensor:
        return tanh(self.a(x, *h))


@register("leaky_rnn")
class LeakyRNN(Cell):
    """Leaky-integrator RNN: each unit has a time constant τ ≥ 1; with τ = 1 it is an RNN."""

    paper, year = "Jaeger, Lukoševičius, Popovici & Siewert, Optimization and Applications of Echo State Networks", 2007
    candidate = "g"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        tau: float | Tensor | None = None,
        longest: float = 100.0,
        learn: bool = False,
    ):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.learn = learn
        tau = _time_constants(tau, longest, hidden_size)
        if learn:  # τ = 1 + softplus(ρ) never falls below 1
            self.rho = nn.Parameter(torch.log(torch.expm1((tau - 1).clamp_min(1e-4))))
        else:
            self.register_buffer("tau", tau)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        tau = 1 + softplus(self.rho) if self.learn else self.tau
        g = tanh(self.a(x, h))
        return (1 - 1 / tau) * h + 1 / tau * g


def _time_constants(tau: float | Tensor | None, longest: float, size: int) -> Tensor:
    """τ per unit: given, or log-uniform in [1, longest]."""
    if tau is None:
        return torch.empty(size).uniform_(0.0, math.log(longest)).exp() if longest > 1 else torch.ones(size)
    if not isinstance(tau, (int, float, Tensor, Sequence)) or isinstance(tau, (bool, str)):
        raise InputError("tau", repr(tau), f"a number, or one for each of {size} units")
    tau = torch.as_tensor(tau, dtype=torch.get_default_dtype())
    if tau.numel() != 1 and tuple(tau.shape) != (size,):
        raise InputError("tau", f"shape {tuple(tau.shape)}", f"a number, or one for each of {size} units")
    tau = tau.expand(size).clone()
    if not bool((tau >= 1).all()):
        raise InputError("tau", f"{tau.min():g}", "time constants of at least 1 step")
    return tau


@register("temporal_kernel_rnn")
class TemporalKernelRNN(Cell):
    """RNN whose pre-activation is a decaying sum over all earlier steps."""

    paper, year = "Sutskever & Hinton, Temporal-Kernel Recurrent Neural Networks", 2010
    states = ("h", "a")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        decay: float = 0.9,
        learn: bool = True,
        nonlinearity: str | Activation = "sigmoid",
    ):
        super().__init__(input_size, hidden_size)
        if not 0.0 < decay < 1.0:
            raise InputError("decay", decay, "a number strictly between 0 and 1")
        self.net = self.affine("x", "h")
        init.orthogonal_(self.net.W, 1 - decay)  # summed over the kernel, the states of the past weigh as in an RNN
        self.rho = self.vector(fill=math.log(decay / (1 - decay)))
        self.rho.requires_grad_(learn)
        self.nonlinearity = activation(nonlinearity)

    def step(self, x: Tensor, h: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        a = sigmoid(self.rho) * a + self.net(x, h)
        return self.nonlinearity(a), a


@register("scrn")
class SCRN(Cell):
    """Structurally constrained recurrent network: slow linear units s, fast units h; the output is [h; s]."""

    paper, year = "Mikolov et al., Learning Longer Memory in Recurrent Neural Networks", 2015
    states = ("h", "s")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        context_size: int | None = None,
        alpha: float = 0.95,
        adaptive: bool = False,
        context: str = "current",
        start: float = 0.0,
    ):
        slow = context_size or max(1, round(0.4 * hidden_size))  # the paper's 40 slow units beside 100 fast ones
        super().__init__(input_size, hidden_size, sizes={"s": slow}, output_size=hidden_size + slow)
        if context not in ("current", "previous"):
            raise InputError("context", repr(context), "'current' (the paper) or 'previous' (its released code)")
        if not 0.0 <= alpha <= 1.0 or (adaptive and alpha in (0.0, 1.0)):
            raise InputError("alpha", alpha, "a share of the past in [0, 1], strictly inside where it is adaptive")
        self.B = self.affine("x", size=slow, bias=False)
        self.P = self.affine("s", bias=False)
        self.net = self.affine("x", "h", bias=False)
        for matrix in (self.B.U, self.P.W, self.net.U, self.net.W):
            init.normal_(matrix, 0.05)
        self.alpha, self.adaptive, self.context = alpha, adaptive, context
        if adaptive:
            self.beta = self.vector(slow, fill=math.log(alpha / (1 - alpha)))
        for state in self.states:
            self.start(state, start)

    def step(self, x: Tensor, h: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        past = s
        alpha = sigmoid(self.beta) if self.adaptive else self.alpha
        s = (1 - alpha) * self.B(x) + alpha * s
        h = sigmoid(self.P(s if self.context == "current" else past) + self.net(x, h))
        return torch.cat([h, s], dim=-1), h, s


@register("focused_rnn")
class FocusedRNN(Cell):
    """Focused network: units that read only themselves and the input, so that exact gradients need no history."""

    paper, year = "Mozer, A Focused Backpropagation Algorithm for Temporal Pattern Recognition", 1989

    def __init__(self, input_size: int, hidden_size: int, decay: float = 0.9, nonlinearity: str | Activation = "tanh"):
        super().__init__(input_size, hidden_size)
        if not 0.0 < decay < 1.0:
            raise InputError("decay", decay, "a number strictly between 0 and 1")
        self.a = self.affine("x")
        self.rho = self.vector(fill=math.log(decay / (1 - decay)))
        self.nonlinearity = activation(nonlinearity)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return sigmoid(self.rho) * h + self.nonlinearity(self.a(x))


@register("tau_gru")
class TauGRU(Cell):
    """GRU for a delay equation: besides a candidate of the last state, one of the state `delay` steps before it."""

    paper, year = "Erichson, Lim & Mahoney, Gated Recurrent Neural Networks with Weighted Time-Delay Feedback", 2022
    write = ("g",)

    def __init__(self, input_size: int, hidden_size: int, delay: int = 10):
        super().__init__(input_size, hidden_size, delays={"h": (1, 1 + positive_int("delay", delay))})
        past = f"h[{1 + delay}]"
        self.u, self.z = self.affine("x", "h[1]"), self.affine("x", past)
        self.g, self.a = (self.affine("x", "h[1]") for _ in range(2))

    def step(self, x: Tensor, h: tuple[Tensor, ...]) -> Tensor:
        last, past = h
        u = tanh(self.u(x, last))
        z = tanh(self.z(x, past))
        g = sigmoid(self.g(x, last))
        a = sigmoid(self.a(x, last))
        return (1 - g) * last + g * (u + a * z)


@register("clockwork")
class Clockwork(Cell):
    """Groups of units with periods: a group changes where its period divides the time, and reads slower groups."""

    paper, year = "Koutník, Greff, Gomez & Schmidhuber, A Clockwork RNN", 2014

    def __init__(self, input_size: int, hidden_size: int, periods: Sequence[int] = (1, 2, 4, 8)):
        super().__init__(input_size, hidden_size)
        if not periods or any(positive_int("periods", period) > later for period, later in pairwise((*periods, 2**62))):
            raise InputError("periods", tuple(periods), "whole numbers of at least 1, in ascending order")
        group = torch.arange(hidden_size) * len(periods) // hidden_size  # nearly equal groups, the fastest first
        self.a = self.affine("x", "h")
        self.a.derive("W", Masked(group[:, None] <= group))
        self.register_buffer("period", torch.tensor(periods, dtype=torch.get_default_dtype())[group])

    def step(self, x: Tensor, h: Tensor, *, t: Tensor) -> Tensor:
        g = tanh(self.a(x, h))
        return torch.where(torch.remainder(t, self.period) == 0, g, h)
