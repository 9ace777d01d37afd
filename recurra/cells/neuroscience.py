"""Rate networks of computational neuroscience: continuous time, Dale's law, connectivity of low rank."""

import math

import torch
from torch import Tensor

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .activations import Activation, activation
from .derivations import Masked, Signed


class Rates(Cell):
    """Base of rate networks: τ dh/dt = -h + input, by Euler steps of size α = dt / τ; the output is the rate f(h)."""

    def __init__(self, input_size: int, hidden_size: int, tau: float, dt: float, nonlinearity: str | Activation):
        super().__init__(input_size, hidden_size)
        if not 0 < dt <= tau:
            raise InputError("dt", dt, f"a time step in (0, tau], tau = {tau:g}")
        self.alpha, self.nonlinearity = dt / tau, activation(nonlinearity)

    def leak(self, h: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
        """The rate and the state after one Euler step."""
        h = (1 - self.alpha) * h + self.alpha * drive
        return self.nonlinearity(h), h


@register("ctrnn")
class CTRNN(Rates):
    """Continuous-time rate network; options: Dale's law (`excitatory`), a share of connections (`density`), noise."""

    paper, year = (
        "Song, Yang & Wang, Training Excitatory-Inhibitory RNNs for Cognitive Tasks",
        2016,
    )

    def __init__(
        self, input_size: int, hidden_size: int, tau: float = 100.0, dt: float = 20.0,
        nonlinearity: str | Activation = "relu", excitatory: float | None = None, density: float = 1.0,
        noise: float = 0.0,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, tau, dt, nonlinearity)
        self.a = self.affine("x", "h")
        if not 0 <= noise < math.inf:
            raise InputError("noise", noise, "a standard deviation of at least 0")
        # τ dh = (-h + drive) dt + σ √(2τ) dξ, also in evaluation: without drive, h has standard deviation σ (dt → 0).
        self.sigma = noise * math.sqrt(2 / self.alpha)  # the step multiplies it by α: √(2α) σ
        if noise:
            self.noise("xi", "h")
        if not 0 < density <= 1:
            raise InputError("density", density, "a share of the connections in (0, 1]")
        if excitatory is not None and not 0 <= excitatory <= 1:
            raise InputError("excitatory", excitatory, "a share of the units between 0 and 1, or None")
        if excitatory is not None:
            self._obey_dales_law(round(excitatory * hidden_size))
        if density < 1:
            self.a.derive("W", Masked(torch.rand(hidden_size, hidden_size) < density))

    def _obey_dales_law(self, excitatory: int) -> None:
        """A unit excites all others or inhibits all others; no unit reads itself; excitation balances inhibition."""
        size = self.hidden_size
        sign = torch.where(torch.arange(size) < excitatory, 1.0, -1.0)
        weights = init.normal_(torch.empty(size, size), 1 / math.sqrt(size)).abs()
        if 0 < excitatory < size:
            weights[:, excitatory:] *= excitatory / (size - excitatory)
        self.a.W.data.copy_(weights)
        self.a.derive("W", Signed(sign, self_connections=False))

    def step(self, x: Tensor, h: Tensor, *, xi: Tensor | None = None) -> tuple[Tensor, Tensor]:
        r = self.nonlinearity(h)
        drive = self.a(x, r)
        return self.leak(h, drive if xi is None else drive + self.sigma * xi)


@register("low_rank_rnn")
class LowRankRNN(Rates):
    """Rate network whose connectivity is M Nᵀ / H of rank `rank`: the dynamics stay in few dimensions."""

    paper, year = "Mastrogiuseppe & Ostojic, Linking Connectivity, Dynamics, and Computations in Low-Rank RNNs", 2018

    def __init__(
        self, input_size: int, hidden_size: int, rank: int = 1, tau: float = 100.0, dt: float = 20.0,
        nonlinearity: str | Activation = "tanh",
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, tau, dt, nonlinearity)
        self.N = self.affine("h", size=positive_int("rank", rank), bias=False)
        self.M, self.I = self.affine(rank, bias=False), self.affine("x")
        for matrix in (self.N.W, self.M.W):
            init.normal_(matrix, 1.0)
        self.register_buffer("share", torch.full((rank,), 1 / hidden_size))

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        r = self.nonlinearity(h)
        kappa = self.share * self.N(r)
        return self.leak(h, self.M(kappa) + self.I(x))
