"""Spiking neurons: outputs of 0 and 1, membrane potentials as states, surrogate derivatives (`rc.cells.spike`).

All read their input through an affine, so a layer of them is a layer of neurons with synapses. As in snntorch, a neuron
that is above its threshold after a step is reset in the next step, and no gradient flows through the reset; that of
`parametric_lif`, `adaptive_lif` and `srm` has one, as in their papers.
"""

import math

import torch
from torch import Tensor, relu, sigmoid

from .. import init
from ..affine import Affine
from ..cell import Cell, register
from ..errors import InputError
from .derivations import ZeroDiagonal
from .surrogates import spike


class Spiking(Cell):
    """Base of spiking cells: a threshold and a surrogate derivative."""

    current: Affine  # of the input, and of spikes in recurrent ones

    def __init__(self, input_size: int, hidden_size: int, threshold: float, surrogate: str, slope: float | None):
        super().__init__(input_size, hidden_size)
        if not threshold > 0:
            raise InputError("threshold", threshold, "a positive number")
        spike(torch.zeros(1), surrogate, slope)  # unknown names and slopes raise here
        self.threshold, self.surrogate, self.slope = threshold, surrogate, slope

    def drive(self, power: float) -> None:
        """Input weights at which neurons fire, whatever the sizes: fluctuation-driven (Rossbroich, Gygax & Zenke 2022).

        `power` is the sum of squares of the potential's response to one impulse. Independent inputs of variance one
        give the potential, without resets, a standard deviation of 2.5 thresholds: then neurons fire in some 5 to 30 %
        of the steps, in stacks of three layers, too.
        """
        spread = 2.5 * self.threshold / math.sqrt(self.input_size * power)
        init.uniform_(self.current.U, math.sqrt(3.0) * spread)

    def fire(self, v: Tensor) -> Tensor:
        """1 where v is positive."""
        return spike(v, self.surrogate, self.slope)

    def last(self, v: Tensor) -> Tensor:
        """Which neurons ended the last step above the threshold, without a gradient."""
        return torch.where(v > self.threshold, torch.ones_like(v), torch.zeros_like(v))


def decay(argument: str, value: float) -> float:
    """A share of the past strictly between 0 and 1, checked."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise InputError(argument, value, "a number strictly between 0 and 1")
    return float(value)


@register("lif")
class LIF(Spiking):
    """Leaky integrate-and-fire neurons: the potential decays by β, a spike subtracts the threshold or resets to 0."""

    paper, year = "Lapicque, Recherches quantitatives sur l'excitation électrique des nerfs; Eshraghian et al.", 2023
    states = ("v",)

    def __init__(
        self, input_size: int, hidden_size: int, beta: float = 0.9, threshold: float = 1.0, reset: str = "subtract",
        refractory: int = 0, surrogate: str = "fast_sigmoid", slope: float | None = None,
    ):  # fmt: skip
        if isinstance(refractory, bool) or not isinstance(refractory, int) or refractory < 0:
            raise InputError("refractory", refractory, "a number of steps, 0 for none")
        if refractory:
            self.__dict__["states"] = ("v", "q")  # q: steps of silence that remain
        super().__init__(input_size, hidden_size, threshold, surrogate, slope)
        if reset not in ("subtract", "zero"):
            raise InputError("reset", repr(reset), "'subtract' or 'zero'")
        self.current = self.affine("x")
        self.beta, self.reset, self.refractory = decay("beta", beta), reset, refractory
        self.drive(1 / (1 - beta**2))

    def step(self, x: Tensor, v: Tensor, *silence: Tensor) -> tuple[Tensor, ...]:
        r = self.last(v)
        past = v
        v = self.beta * v - self.threshold * r if self.reset == "subtract" else self.beta * (1 - r) * v
        v = v + self.current(x)
        if not self.refractory:
            return self.fire(v - self.threshold), v
        (q,) = silence
        v = torch.where(q > 0, torch.clamp(past, max=self.threshold), v)  # held, below the threshold
        s = torch.where(q > 0, torch.zeros_like(v), self.fire(v - self.threshold))
        return s, v, torch.where(s > 0, float(self.refractory), relu(q - 1))


@register("recurrent_lif")
class RecurrentLIF(Spiking):
    """LIF neurons that also read each other's last spikes."""

    paper, year = "Eshraghian et al., Training Spiking Neural Networks Using Lessons From Deep Learning", 2023
    states = ("s", "v")

    def __init__(
        self, input_size: int, hidden_size: int, beta: float = 0.9, threshold: float = 1.0,
        surrogate: str = "fast_sigmoid", slope: float | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, threshold, surrogate, slope)
        self.current, self.beta = self.affine("x", "s"), decay("beta", beta)
        self.drive(1 / (1 - beta**2))

    def step(self, x: Tensor, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        r = self.last(v)
        v = self.beta * v + self.current(x, s) - self.threshold * r
        return self.fire(v - self.threshold), v


@register("parametric_lif", "plif")
class ParametricLIF(Spiking):
    """LIF neurons with one learned time constant, and a hard reset to 0."""

    paper, year = "Fang et al., Incorporating Learnable Membrane Time Constant to Enhance Learning of SNNs", 2021
    states = ("v",)

    def __init__(
        self, input_size: int, hidden_size: int, tau: float = 2.0, threshold: float = 1.0, surrogate: str = "atan",
        slope: float | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, threshold, surrogate, slope)
        if not tau > 1:
            raise InputError("tau", tau, "a time constant above 1 step")
        self.current = self.affine("x")
        self.w = self.vector(1, fill=-math.log(tau - 1))  # 1/τ = sig(w)
        self.drive(1 / (2 * tau - 1))

    def step(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u = v + sigmoid(self.w) * (self.current(x) - v)
        s = self.fire(u - self.threshold)
        return s, (1 - s) * u


@register("adaptive_lif", "lsnn")
class AdaptiveLIF(Spiking):
    """Recurrent LIF neurons whose threshold rises with each spike and recovers slowly, a long memory (LSNN)."""

    paper, year = "Bellec et al., Long Short-term Memory and Learning-to-learn in Networks of Spiking Neurons", 2018
    states = ("s", "v", "a")

    def __init__(
        self, input_size: int, hidden_size: int, tau: float = 20.0, tau_a: float = 200.0, beta: float = 1.8,
        threshold: float = 0.01, surrogate: str = "triangle", slope: float | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, threshold, surrogate, slope)
        for name, value in (("tau", tau), ("tau_a", tau_a)):
            if not value > 0:
                raise InputError(name, value, "a positive time constant, in steps")
        self.current = self.affine("x", "s", bias=False)
        init.normal_(self.current.U, 1 / math.sqrt(input_size))
        init.normal_(self.current.W, 1 / math.sqrt(hidden_size))
        self.current.derive("W", ZeroDiagonal())  # no neuron reads itself
        self.alpha, self.rho, self.beta = math.exp(-1 / tau), math.exp(-1 / tau_a), beta

    def step(self, x: Tensor, s: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        crossed = self.threshold + self.beta * a  # the threshold of the last step
        v = self.alpha * v + (1 - self.alpha) * self.current(x, s) - crossed * s
        a = self.rho * a + (1 - self.rho) * s
        b = self.threshold + self.beta * a
        u = (v - b) / b  # relative to the threshold
        return spike(u, self.surrogate, self.slope, scale=0.3), v, a


@register("synaptic")
class Synaptic(Spiking):
    """LIF neurons behind synapses: the input drives a decaying current i, the current the potential."""

    paper, year = RecurrentLIF.paper, RecurrentLIF.year
    states = ("i", "v")

    def __init__(
        self, input_size: int, hidden_size: int, alpha: float = 0.8, beta: float = 0.9, threshold: float = 1.0,
        surrogate: str = "fast_sigmoid", slope: float | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, threshold, surrogate, slope)
        self.current = self.affine("x")
        self.alpha, self.beta = decay("alpha", alpha), decay("beta", beta)
        a, b = alpha**2, beta**2
        self.drive((1 + alpha * beta) / ((1 - alpha * beta) * (1 - a) * (1 - b)))  # Σ ((αᵏ - βᵏ) / (α - β))²

    def step(self, x: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r = self.last(v)
        i = self.alpha * i + self.current(x)
        v = self.beta * v + i - self.threshold * r
        return self.fire(v - self.threshold), i, v


@register("alpha")
class Alpha(Spiking):
    """Alpha neurons: an excitatory and an inhibitory current shape each input into a bump of the potential."""

    paper, year = RecurrentLIF.paper, RecurrentLIF.year
    states = ("e", "i", "v")

    def __init__(
        self, input_size: int, hidden_size: int, alpha: float = 0.9, beta: float = 0.8, threshold: float = 1.0,
        surrogate: str = "fast_sigmoid", slope: float | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, threshold, surrogate, slope)
        if not decay("beta", beta) < decay("alpha", alpha):
            raise InputError("alpha", alpha, f"more than beta = {beta:g}: excitation outlasts inhibition")
        self.current = self.affine("x")
        self.alpha, self.beta = alpha, beta
        self.gain = math.log(alpha) / (math.log(beta) - math.log(alpha)) + 1
        self.drive(self.gain**2 * (1 / (1 - alpha**2) + 1 / (1 - beta**2) - 2 / (1 - alpha * beta)))  # Σ (αᵏ - βᵏ)²

    def step(self, x: Tensor, e: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        r = self.last(v)
        u = self.current(x)
        e = self.alpha * e + u
        i = self.beta * i - u
        v = self.gain * (e + i) - self.threshold * r
        return self.fire(v - self.threshold), e, i, v


@register("izhikevich")
class Izhikevich(Spiking):
    """Two quadratic equations per neuron that spike, burst, chatter or resonate, by four numbers; 1 ms per step."""

    paper, year = "Izhikevich, Simple Model of Spiking Neurons", 2003
    states = ("v", "u")

    def __init__(
        self, input_size: int, hidden_size: int, a: float = 0.02, b: float = 0.2, c: float = -65.0, d: float = 8.0,
        surrogate: str = "fast_sigmoid", slope: float | None = 1.0,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, 30.0, surrogate, slope)
        self.current = self.affine("x")
        init.constant_(self.current.b, 10.0)  # enough to fire without input
        self.a, self.b, self.c, self.d = a, b, c, d
        self.start("v", c)
        self.start("u", b * c)

    def step(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        i = self.current(x)
        for _ in range(2):  # half a millisecond each, as in the paper's program
            v = v + 0.5 * (0.04 * v * v + 5 * v + 140 - u + i)
        # The top of a spike is forgotten by the reset. Through u, gradients would still grow tenfold with every spike.
        w = torch.where(v > self.threshold, v.detach(), v)
        u = u + self.a * (self.b * w - u)
        s = self.fire(v - self.threshold)
        fired = self.last(v)
        return s, v + fired * (self.c - v), u + self.d * fired


@register("srm")
class SRM(Spiking):
    """Spike response model: each input leaves an alpha-shaped response, each spike a refractory dip."""

    paper, year = "Gerstner, Time Structure of the Activity in Neural Network Models", 1995
    states = ("p", "q", "r")  # two currents that make t/τ exp(1 - t/τ), and the refractory trace

    def __init__(
        self, input_size: int, hidden_size: int, tau: float = 5.0, tau_r: float = 2.0, threshold: float = 1.0,
        surrogate: str = "fast_sigmoid", slope: float | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, threshold, surrogate, slope)
        for name, value in (("tau", tau), ("tau_r", tau_r)):
            if not value > 0:
                raise InputError(name, value, "a positive time constant, in steps")
        self.current = self.affine("x", bias=False)
        self.beta, self.rho, self.gain = math.exp(-1 / tau), math.exp(-1 / tau_r), math.e / tau
        q = self.beta**2
        self.drive(self.gain**2 * q * (1 + q) / (1 - q) ** 3)  # Σ (k βᵏ)²

    def step(self, x: Tensor, p: Tensor, q: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        q = self.beta * (q + p)  # Σ k βᵏ I_{t-k}
        p = self.beta * p + self.current(x)  # Σ βᵏ I_{t-k}
        v = self.gain * q - r
        s = self.fire(v - self.threshold)
        return s, p, q, self.rho * (r + 2 * self.threshold * s)
