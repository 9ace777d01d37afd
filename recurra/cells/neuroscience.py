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
        if excitatory is not None:  # a unit excites all others or inhibits all others; no unit reads itself
            sign = torch.where(torch.arange(hidden_size) < round(excitatory * hidden_size), 1.0, -1.0)
            self.a.derive("W", Signed(sign, self_connections=False))
        if density < 1:
            self.a.derive("W", Masked(torch.rand(hidden_size, hidden_size) < density))
        if excitatory is not None:
            self._balance()

    @torch.no_grad()
    def _balance(self, radius: float = 1.5) -> None:
        """Gamma-distributed weights, inhibition balancing excitation in every row, scaled to a spectral radius."""
        raw = self.a.stored("W")
        raw.fill_(1.0)
        signs = self.a.W  # 0 where there is no connection
        excitation, inhibition = (part.relu().sum(1, keepdim=True) for part in (signs, -signs))
        both = (excitation > 0) & (inhibition > 0)
        balance = torch.where(both, excitation / inhibition.clamp_min(1.0), 1.0)
        raw.exponential_().add_(torch.empty_like(raw).exponential_())  # Γ(2)
        raw.mul_(torch.where(signs < 0, balance, 1.0))
        raw.div_(raw.norm(dim=1, keepdim=True))
        found = torch.linalg.eigvals(self.a.W).abs().max()
        raw.mul_(torch.where(found > 1e-3, radius / found, 1.0))  # 0 where no two units read each other

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
