"""Cells in continuous time, and for missing values."""

import numpy as np
from scipy.linalg import expm

from .mathematics import Array, Result, Weights, net, relu, sig


def parts(x: Array, timed: bool) -> tuple[Array, Array | float]:
    return (x[:-1], x[-1]) if timed else (x, 1.0)


def ltc(w: Weights, x: Array, h: Array, timed: bool = False, unfolds: int = 6) -> Result:
    tau, outputs = np.exp(w["rho"]), []
    for x_t in x:
        u, dt = parts(x_t, timed)
        for _ in range(unfolds):
            f = sig(net(w, "f", u, h))
            h = (h + dt / unfolds * f * w["A"]) / (1 + dt / unfolds * (1 / tau + f))
        outputs.append(h)
    return outputs, (h,)


def cfc(w: Weights, x: Array, h: Array, timed: bool = False, backbone: int | None = None) -> Result:
    outputs = []
    for x_t in x:
        u, dt = parts(x_t, timed)
        z = w["gain"] * np.tanh(w["slope"] * net(w, "backbone", u, h))
        first, second, a, b = (w[f"{head}.W"] @ z + w[f"{head}.b"] for head in "fgab")
        gate = sig(a * dt + b)
        h = np.tanh(first) * (1 - gate) + gate * np.tanh(second)
        outputs.append(h)
    return outputs, (h,)


def ode_rnn(w: Weights, x: Array, h: Array, timed: bool = False, steps: int = 4, units: int | None = None) -> Result:
    outputs = []
    for x_t in x:
        u, dt = parts(x_t, timed)
        for _ in range(steps):
            slope = w["outer.W"] @ np.tanh(w["inner.W"] @ h + w["inner.b"]) + w["outer.b"]
            h = h + dt / steps * slope
        r, z = sig(net(w, "r", u, h)), sig(net(w, "z", u, h))
        h = (1 - z) * h + z * np.tanh(net(w, "c", u, r * h))
        outputs.append(h)
    return outputs, (h,)


def gru_d(
    w: Weights,
    x: Array,
    h: Array,
    seen: Array,
    since: Array,
    timed: bool = False,
    mean: float = 0.0,
    start: float = 0.0,
) -> Result:
    outputs = []
    for x_t in x:
        u, dt = parts(x_t, timed)
        m = 1.0 - np.isnan(u.real)
        since = since + dt
        fade_x = np.exp(-relu(w["gamma_x"] * since + w["b_x"]))
        fade_h = np.exp(-relu(w["gamma_h.W"] @ since + w["gamma_h.b"]))
        seen = np.where(m == 1, u, seen)
        filled = np.where(m == 1, seen, fade_x * seen + (1 - fade_x) * w["mean"])
        h = fade_h * h
        r, z = (sig(net(w, gate, filled, h) + w[f"m_{gate}.W"] @ m) for gate in "rz")
        new = np.tanh(net(w, "c", filled, r * h) + w["m_c.W"] @ m)
        h = (1 - z) * h + z * new
        since = (1 - m) * since
        outputs.append(h)
    return outputs, (h, seen, since)


def phased_lstm(
    w: Weights, x: Array, h: Array, c: Array, clock: Array, timed: bool = False, ratio: float = 0.05, leak: float = 1e-3
) -> Result:
    outputs = []
    for x_t in x:
        u, dt = parts(x_t, timed)
        clock = clock + dt
        turns = (clock - w["shift"]) / np.exp(w["rho"])
        phi = turns - np.floor(turns.real)
        closed = np.where(phi.real < ratio, 2 - 2 * phi / ratio, leak * phi)
        k = np.where(phi.real < ratio / 2, 2 * phi / ratio, closed)
        i, f = (sig(net(w, gate, u, h) + w[f"p_{gate}"] * c) for gate in "if")
        proposed = f * c + i * np.tanh(net(w, "g", u, h))
        o = sig(net(w, "o", u, h) + w["p_o"] * proposed)
        h = k * (o * np.tanh(proposed)) + (1 - k) * h
        c = k * proposed + (1 - k) * c
        outputs.append(h)
    return outputs, (h, c, clock)


def lmu(w: Weights, x: Array, h: Array, m: Array, order: int | None = None, theta: float = 100.0) -> Result:
    n = len(m)
    A = np.array([[-1.0 if i < j else (-1.0) ** (i - j + 1) for j in range(n)] for i in range(n)])
    A *= (2 * np.arange(n)[:, None] + 1) / theta
    B = (2 * np.arange(n) + 1) * (-1.0) ** np.arange(n) / theta
    held = expm(A)
    np.testing.assert_allclose(w["A"], held, rtol=1e-6, atol=1e-6)  # the cell's buffers come from single precision
    np.testing.assert_allclose(w["B"], np.linalg.solve(A, (held - np.eye(n)) @ B), rtol=1e-5, atol=1e-6)
    outputs = []
    for x_t in x:
        u = w["u.U"] @ x_t + w["u.W_h"] @ h + w["u.W_m"] @ m
        m = w["A"] @ m + w["B"] * u
        h = np.tanh(w["a.U"] @ x_t + w["a.W_h"] @ h + w["a.W_m"] @ m)
        outputs.append(h)
    return outputs, (h, m)


TRANSCRIPTIONS = {
    "ltc": ltc,
    "cfc": cfc,
    "ode_rnn": ode_rnn,
    "gru_d": gru_d,
    "phased_lstm": phased_lstm,
    "lmu": lmu,
}
