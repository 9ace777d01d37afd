"""Linear state spaces, diagonal and complex: units that rotate and decay, written as pairs of real states.

`modes` counts the complex units. Of S4D and S5 each stands for itself and its conjugate.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError


@register("lru")
class LRU(Cell):
    """Linear recurrent unit: a diagonal complex recurrence that starts on a ring, read out by a matrix."""

    paper, year = "Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences", 2023
    states = ("re", "im")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        modes: int | None = None,
        smallest: float = 0.0,
        largest: float = 1.0,
        phase: float = 2 * math.pi,
    ):
        """`smallest` and `largest` bound the moduli at the start, `phase` the angles."""
        modes = hidden_size if modes is None else positive_int("modes", modes)
        super().__init__(input_size, hidden_size, sizes={"re": modes, "im": modes}, output_size=hidden_size)
        if not 0.0 <= smallest < largest <= 1.0:
            raise InputError("smallest", (smallest, largest), "0 ≤ smallest < largest ≤ 1")
        modulus = torch.sqrt(torch.empty(modes).uniform_(smallest**2, largest**2)).clamp(1e-4, 1 - 1e-6)
        self.nu = nn.Parameter(torch.log(-torch.log(modulus)))
        self.theta = nn.Parameter(torch.log(torch.empty(modes).uniform_(1e-6, phase)))
        self.gamma = nn.Parameter(0.5 * torch.log1p(-(modulus**2)))
        self.b_re, self.b_im = (self.affine("x", size=modes, bias=False) for _ in range(2))
        self.c_re, self.c_im = (self.affine(state, bias=False) for state in self.states)
        self.d = self.affine("x", bias=False)
        _complex_normal(self.b_re.U, self.b_im.U, 1 / input_size)
        _complex_normal(self.c_re.W, self.c_im.W, 1 / modes)
        init.normal_(self.d.U, 1 / math.sqrt(input_size))

    def step(self, x: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r, phi = torch.exp(-torch.exp(self.nu)), torch.exp(self.theta)
        p, q = r * torch.cos(phi), r * torch.sin(phi)
        turned = p * re - q * im + torch.exp(self.gamma) * self.b_re(x)
        im = q * re + p * im + torch.exp(self.gamma) * self.b_im(x)
        return self.c_re(turned) - self.c_im(im) + self.d(x), turned, im


@register("s5")
class S5(Cell):
    """Simplified state space: one diagonal HiPPO system for all inputs, by zero-order hold, read out by a matrix."""

    paper, year = "Smith, Warrington & Linderman, Simplified State Space Layers for Sequence Modeling", 2023
    states = ("re", "im")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        modes: int | None = None,
        shortest: float = 1e-3,
        longest: float = 0.1,
    ):
        """`shortest` and `longest` bound the time that a step lasts for each mode, at the start."""
        modes = max(1, hidden_size // 2) if modes is None else positive_int("modes", modes)
        super().__init__(input_size, hidden_size, sizes={"re": modes, "im": modes}, output_size=hidden_size)
        self.dt = nn.Parameter(_log_uniform((modes,), shortest, longest))
        omega, V = hippo_modes(modes)
        self.rho, self.omega = self.vector(modes, fill=math.log(0.5)), nn.Parameter(omega)
        self.b_re, self.b_im = (self.affine("x", size=modes, bias=False) for _ in range(2))
        self.c_re, self.c_im = (self.affine(state, bias=False) for state in self.states)
        self.d = self.affine("x", bias=False)
        B = V.conj().T @ torch.randn(2 * modes, input_size).to(V.dtype) / math.sqrt(input_size)
        C = torch.randn(hidden_size, 2 * modes, dtype=V.dtype) @ V / math.sqrt(2 * modes)
        with torch.no_grad():
            for affine, value in ((self.b_re, B.real), (self.b_im, B.imag)):
                affine.U.copy_(value)
            for affine, value in ((self.c_re, C.real), (self.c_im, C.imag)):
                affine.W.copy_(value)
        init.normal_(self.d.U, 1 / math.sqrt(input_size))

    def step(self, x: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, q, k_re, k_im = zero_order_hold(-torch.exp(self.rho), self.omega, torch.exp(self.dt))
        u_re, u_im = self.b_re(x), self.b_im(x)
        turned = p * re - q * im + k_re * u_re - k_im * u_im
        im = q * re + p * im + k_re * u_im + k_im * u_re
        return 2 * (self.c_re(turned) - self.c_im(im)) + self.d(x), turned, im


@register("s4d")
class S4D(Cell):
    """Diagonal state space: every unit has HiPPO modes of its own, by zero-order hold, and adds them up."""

    paper, year = (
        "Gu, Gupta, Goel & Ré, On the Parameterization and Initialization of Diagonal State Space Models",
        2022,
    )
    states = ("re", "im")

    def __init__(
        self, input_size: int, hidden_size: int, modes: int = 16, shortest: float = 1e-3, longest: float = 0.1
    ):
        """`shortest` and `longest` bound the time that a step lasts for each unit, at the start."""
        wide = positive_int("modes", modes) * hidden_size
        super().__init__(input_size, hidden_size, sizes={"re": wide, "im": wide}, output_size=hidden_size)
        self.modes = modes
        self.u = self.affine("x", bias=False)
        self.dt = nn.Parameter(_log_uniform((hidden_size,), shortest, longest))
        omega, _ = hippo_modes(modes)
        self.omega = nn.Parameter(omega[:, None].repeat(1, hidden_size))  # (modes, units)
        self.rho = nn.Parameter(torch.full((modes, hidden_size), math.log(0.5)))
        self.c_re, self.c_im = (nn.Parameter(torch.empty(modes, hidden_size)) for _ in range(2))
        _complex_normal(self.c_re, self.c_im, 1.0)
        self.d = nn.Parameter(torch.randn(hidden_size))

    def step(self, x: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, q, k_re, k_im = zero_order_hold(-torch.exp(self.rho), self.omega, torch.exp(self.dt))
        u = self.u(x)
        re, im = (state.unflatten(-1, (self.modes, -1)) for state in (re, im))
        turned = p * re - q * im + k_re * u.unsqueeze(1)
        im = q * re + p * im + k_im * u.unsqueeze(1)
        return 2 * (self.c_re * turned - self.c_im * im).sum(1) + self.d * u, turned.flatten(1), im.flatten(1)


@register("mamba")
class Mamba(Cell):
    """Selective state space: step length, input and output of every unit's states are read from a short convolution."""

    paper, year = "Gu & Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023
    states = ("s", "v")  # v: the projected inputs before, for the convolution

    def __init__(
        self, input_size: int, hidden_size: int, state_size: int = 16, window: int = 4, rank: int | None = None,
        shortest: float = 1e-3, longest: float = 0.1,
    ):  # fmt: skip
        """`state_size`: states of a unit; `window`: steps of the convolution; `rank` of the step lengths."""
        if positive_int("window", window) < 2:
            raise InputError("window", window, "at least 2 steps")
        wide = positive_int("state_size", state_size) * hidden_size
        super().__init__(
            input_size, hidden_size, sizes={"s": wide}, delays={"v": range(1, window)}, output_size=hidden_size
        )
        self.state_size = state_size
        rank = math.ceil(input_size / 16) if rank is None else positive_int("rank", rank)
        self.u, self.z = (self.affine("x", bias=False) for _ in range(2))
        self.k, self.k_b = nn.Parameter(torch.empty(window, hidden_size)), self.vector()
        init.uniform_(self.k, 1 / math.sqrt(window))
        init.uniform_(self.k_b, 1 / math.sqrt(window))
        self.r = self.affine(hidden_size, size=rank, bias=False)
        self.b, self.c = (self.affine(hidden_size, size=state_size, bias=False) for _ in range(2))
        self.dt = self.affine(rank)
        init.uniform_(self.dt.W, rank**-0.5)
        lasts = torch.exp(_log_uniform((hidden_size,), shortest, longest))
        self.a = nn.Parameter(torch.log(torch.arange(1.0, state_size + 1))[:, None].repeat(1, hidden_size))
        self.d = self.vector(fill=1.0)
        with torch.no_grad():
            self.dt.b.copy_(lasts + torch.log(-torch.expm1(-lasts)))  # softplus(b) is the time

    def step(self, x: Tensor, s: Tensor, v: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        u = self.u(x)
        q = self.k[0] * u + self.k_b
        for lag, past in enumerate(v, 1):
            q = q + self.k[lag] * past
        q = silu(q)
        dt = softplus(self.dt(self.r(q)))
        b, c = self.b(q).unsqueeze(-1), self.c(q).unsqueeze(-1)
        s = s.unflatten(-1, (self.state_size, -1))
        s = torch.exp(-dt.unsqueeze(1) * torch.exp(self.a)) * s + b * (dt * q).unsqueeze(1)
        z = silu(self.z(x))
        return ((c * s).sum(1) + self.d * q) * z, s.flatten(1), u


# ---------------------------------------------------------------------------------------------------- complex numbers


def zero_order_hold(re: Tensor, im: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """λ = re + i im over a time dt: the real and imaginary parts of `exp(λ dt)` and of `(exp(λ dt) - 1) / λ`."""
    decay = torch.exp(re * dt)
    cos, sin = decay * torch.cos(im * dt), decay * torch.sin(im * dt)
    square = re * re + im * im
    return cos, sin, ((cos - 1) * re + sin * im) / square, (sin * re - (cos - 1) * im) / square


def hippo_modes(modes: int) -> tuple[Tensor, Tensor]:
    """Of the normal part of the HiPPO-LegS matrix with 2 · `modes` states: the positive frequencies, (modes,), and
    their eigenvectors, (2 · modes, modes). All eigenvalues have the real part -1/2."""
    n = torch.arange(2 * modes, dtype=torch.float64)
    outer = torch.sqrt(2 * n + 1)[:, None] * torch.sqrt(2 * n + 1)
    skew = (torch.triu(outer, 1) - torch.tril(outer, -1)) / 2  # S + I/2, with S the matrix plus P Pᵀ, P² = n + 1/2
    omega, V = torch.linalg.eigh(-1j * skew)
    single = torch.complex64 if torch.get_default_dtype() == torch.float32 else torch.complex128
    return omega[modes:].to(torch.get_default_dtype()), V[:, modes:].to(single)


def _complex_normal(re: Tensor, im: Tensor, variance: float) -> None:
    """Complex numbers of mean 0 and this variance."""
    for part in (re, im):
        init.normal_(part, math.sqrt(variance / 2))


def _log_uniform(shape: tuple[int, ...], low: float, high: float) -> Tensor:
    """Logarithms of numbers between two bounds, evenly."""
    if not 0 < low < high:
        raise InputError("shortest", (low, high), "0 < shortest < longest")
    return torch.empty(shape).uniform_(math.log(low), math.log(high))
