"""A10, A11, B1, B6, B28: delays, leaks, traces and slow context."""

from collections.abc import Sequence

import numpy as np

from .mathematics import Array, Result, Weights, function, net, sig, softplus


def delay_rnn(w: Weights, x: Array, history: Array, delays: Sequence[int] = (1, 3)) -> Result:
    """h_t = tanh(Σ_k W_k h_{t-k} + U x_t + b); `history` holds h_0, h_{-1}, … as rows."""
    past = list(history[::-1])  # oldest first, so that past[-k] is h_{t-k}
    matrices = {k: w["a.W" if len(delays) == 1 else f"a.W_{k}"] for k in delays}
    for x_t in x:
        past.append(np.tanh(sum(W @ past[-k] for k, W in matrices.items()) + w["a.U"] @ x_t + w["a.b"]))
    return past[-len(x) :], (np.array(past[-max(delays) :][::-1]),)


def leaky_rnn(w: Weights, x: Array, h: Array, tau: float | None = None, learn: bool = False) -> Result:
    per_unit = 1 + softplus(w["rho"]) if learn else w["tau"] if tau is None else np.full(len(h), tau)
    outputs = []
    for x_t in x:
        h = (1 - 1 / per_unit) * h + (1 / per_unit) * np.tanh(net(w, "a", x_t, h))
        outputs.append(h)
    return outputs, (h,)


def temporal_kernel_rnn(
    w: Weights, x: Array, h: Array, a: Array, nonlinearity: object = "sigmoid", decay: float = 0.9, learn: bool = True
) -> Result:
    f, outputs = function(nonlinearity), []
    for x_t in x:
        a = sig(w["rho"]) * a + net(w, "net", x_t, h)
        h = f(a)
        outputs.append(h)
    return outputs, (h, a)


def scrn(
    w: Weights,
    x: Array,
    h: Array,
    s: Array,
    alpha: float = 0.95,
    adaptive: bool = False,
    context: str = "current",
    context_size: int = 0,
    start: float = 0.0,
) -> Result:
    q = sig(w["beta"]) if adaptive else np.full(len(s), alpha)
    outputs = []
    for x_t in x:
        before = s
        s = (1 - q) * (w["B.U"] @ x_t) + q * s
        seen = s if context == "current" else before
        h = sig(w["P.W"] @ seen + w["net.U"] @ x_t + w["net.W"] @ h)
        outputs.append(np.concatenate([h, s]))
    return outputs, (h, s)


def focused_rnn(w: Weights, x: Array, s: Array, nonlinearity: object = "tanh") -> Result:
    f, outputs = function(nonlinearity), []
    for x_t in x:
        s = sig(w["rho"]) * s + f(w["a.U"] @ x_t + w["a.b"])
        outputs.append(s)
    return outputs, (s,)


def tau_gru(w: Weights, x: Array, history: Array, delay: int = 10) -> Result:
    past = list(history[::-1])  # oldest first
    for x_t in x:
        h, late = past[-1], past[-1 - delay]
        u, g, a = np.tanh(net(w, "u", x_t, h)), sig(net(w, "g", x_t, h)), sig(net(w, "a", x_t, h))
        z = np.tanh(net(w, "z", x_t, late))
        past.append((1 - g) * h + g * (u + a * z))
    return past[-len(x) :], (np.array(past[-1 - delay :][::-1]),)


def clockwork(w: Weights, x: Array, h: Array, t: Array, periods: Sequence[int] = (1, 2, 4, 8)) -> Result:
    n, groups = len(h), len(periods)
    group = [unit * groups // n for unit in range(n)]
    W = np.array([[w["a.W_raw"][i, j] if group[j] >= group[i] else 0.0 for j in range(n)] for i in range(n)])
    outputs, now = [], round(t[0].real)
    for x_t in x:
        new = np.tanh(W @ h + w["a.U"] @ x_t + w["a.b"])
        h = np.array([new[i] if now % periods[group[i]] == 0 else h[i] for i in range(n)])
        now += 1
        outputs.append(h)
    return outputs, (h, t + len(x))


TRANSCRIPTIONS = {
    "delay_rnn": delay_rnn,
    "leaky_rnn": leaky_rnn,
    "temporal_kernel_rnn": temporal_kernel_rnn,
    "scrn": scrn,
    "focused_rnn": focused_rnn,
    "tau_gru": tau_gru,
    "clockwork": clockwork,
}
