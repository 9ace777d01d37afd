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


TRANSCRIPTIONS = {
    "delay_rnn": delay_rnn,
    "leaky_rnn": leaky_rnn,
    "temporal_kernel_rnn": temporal_kernel_rnn,
    "scrn": scrn,
    "focused_rnn": focused_rnn,
}
