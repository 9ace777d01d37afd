"""Spiking neurons. The imaginary part of a spike is the surrogate's slope times that of the potential."""

import math

import numpy as np

from .mathematics import Array, Result, Weights, relu, sig

SURROGATES = {
    "fast_sigmoid": lambda v, slope: 1 / (1 + slope * abs(v)) ** 2,
    "atan": lambda v, slope: slope / 2 / (1 + (math.pi / 2 * slope * v) ** 2),
    "triangle": lambda v, slope: np.maximum(0, 1 - slope * abs(v)),
}


def spike(v: Array, kind: str = "fast_sigmoid", slope: float = 25.0, scale: float = 1.0) -> Array:
    fired = (v.real > 0).astype(float)
    return fired + 1j * scale * SURROGATES[kind](v.real, slope) * v.imag if np.iscomplexobj(v) else fired


def above(v: Array, threshold: float) -> Array:
    return (v.real > threshold).astype(float)


def current(w: Weights, x: Array) -> Array:
    return w["current.U"] @ x + w["current.b"]


def lif(
    w: Weights, x: Array, v: Array, q: Array | None = None, beta: float = 0.9, threshold: float = 1.0,
    reset: str = "subtract", refractory: int = 0,
) -> Result:  # fmt: skip
    outputs = []
    for x_t in x:
        fired = above(v, threshold)
        held = beta * v - threshold * fired if reset == "subtract" else np.where(fired == 1, 0.0, beta * v)
        new = held + current(w, x_t)
        if q is None:
            v = new
            s = spike(v - threshold)
        else:
            quiet = q.real > 0
            v = np.where(quiet, np.where(v.real > threshold, threshold, v), new)
            s = np.where(quiet, 0.0, spike(v - threshold))
            q = np.where(s.real > 0, refractory, relu(q - 1))
        outputs.append(s)
    return outputs, (v,) if q is None else (v, q)


def recurrent_lif(w: Weights, x: Array, s: Array, v: Array, beta: float = 0.9, threshold: float = 1.0) -> Result:
    outputs = []
    for x_t in x:
        v = beta * v + current(w, x_t) + w["current.W"] @ s - threshold * above(v, threshold)
        s = spike(v - threshold)
        outputs.append(s)
    return outputs, (s, v)


def parametric_lif(w: Weights, x: Array, v: Array, tau: float = 2.0, threshold: float = 1.0) -> Result:
    outputs = []
    for x_t in x:
        charged = v + sig(w["w"]) * (current(w, x_t) - v)
        s = spike(charged - threshold, "atan", 2.0)
        v = charged * (1 - s)
        outputs.append(s)
    return outputs, (v,)


def adaptive_lif(
    w: Weights, x: Array, s: Array, v: Array, a: Array, tau: float = 20.0, tau_a: float = 200.0, beta: float = 1.8,
    threshold: float = 0.01,
) -> Result:  # fmt: skip
    alpha, rho, outputs = math.exp(-1 / tau), math.exp(-1 / tau_a), []
    n, B = len(s), threshold + beta * a
    W = np.array([[0.0 if i == j else w["current.W_raw"][i, j] for j in range(n)] for i in range(n)])
    for x_t in x:
        v = alpha * v + (1 - alpha) * (w["current.U"] @ x_t + W @ s) - B * s
        a = rho * a + (1 - rho) * s
        B = threshold + beta * a
        s = spike((v - B) / B, "triangle", 1.0, 0.3)
        outputs.append(s)
    return outputs, (s, v, a)


def synaptic(
    w: Weights, x: Array, i: Array, v: Array, alpha: float = 0.8, beta: float = 0.9, threshold: float = 1.0
) -> Result:
    outputs = []
    for x_t in x:
        i = alpha * i + current(w, x_t)
        v = beta * v + i - threshold * above(v, threshold)
        outputs.append(spike(v - threshold))
    return outputs, (i, v)


def alpha(
    w: Weights, x: Array, e: Array, i: Array, v: Array, alpha: float = 0.9, beta: float = 0.8, threshold: float = 1.0
) -> Result:
    gain, outputs = math.log(alpha) / (math.log(beta) - math.log(alpha)) + 1, []
    for x_t in x:
        fired = above(v, threshold)
        e, i = alpha * e + current(w, x_t), beta * i - current(w, x_t)
        v = gain * (e + i) - threshold * fired
        outputs.append(spike(v - threshold))
    return outputs, (e, i, v)


def izhikevich(
    w: Weights, x: Array, v: Array, u: Array, a: float = 0.02, b: float = 0.2, c: float = -65.0, d: float = 8.0
) -> Result:
    outputs = []
    for x_t in x:
        for _ in range(2):
            v = v + 0.5 * (0.04 * v**2 + 5 * v + 140 - u + current(w, x_t))
        u = u + a * (b * np.where(v.real > 30.0, v.real, v) - u)  # no derivative through the top of a spike
        s = spike(v - 30.0, slope=1.0)
        fired = above(v, 30.0)
        v, u = np.where(fired == 1, c, v), u + d * fired
        outputs.append(s)
    return outputs, (v, u)


def srm(
    w: Weights, x: Array, p: Array, q: Array, r: Array, tau: float = 5.0, tau_r: float = 2.0, threshold: float = 1.0
) -> Result:
    """By the kernels themselves: ε(k) = k/τ exp(1 - k/τ), and 2θ exp(-k/τ_r) after a spike."""
    outputs, currents = [], []
    p_0, q_0, r_0 = p, q, r
    spikes: list[Array] = []
    for t, x_t in enumerate(x, start=1):
        currents.append(w["current.U"] @ x_t)
        past = list(enumerate(reversed(currents)))
        driven = sum(k * math.exp(-k / tau) * i for k, i in past) + math.exp(-t / tau) * (q_0 + t * p_0)
        held = sum(2 * threshold * math.exp(-k / tau_r) * s for k, s in enumerate(reversed(spikes), start=1))
        v = math.e / tau * driven - held - math.exp(-(t - 1) / tau_r) * r_0
        spikes.append(spike(v - threshold))
        outputs.append(spikes[-1])
    T = len(x)
    p = sum(math.exp(-k / tau) * i for k, i in past) + math.exp(-T / tau) * p_0
    r = sum(2 * threshold * math.exp(-k / tau_r) * s for k, s in enumerate(reversed(spikes), start=1))
    return outputs, (p, driven, r + math.exp(-T / tau_r) * r_0)


TRANSCRIPTIONS = {
    "lif": lif,
    "recurrent_lif": recurrent_lif,
    "parametric_lif": parametric_lif,
    "adaptive_lif": adaptive_lif,
    "synaptic": synaptic,
    "alpha": alpha,
    "izhikevich": izhikevich,
    "srm": srm,
}
