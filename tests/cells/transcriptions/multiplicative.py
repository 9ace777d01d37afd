"""Units in which input and state multiply."""

import numpy as np

from .lstm import lstm
from .mathematics import Array, Result, Weights, net, sig, softplus


def hard_sigmoid(a: Array) -> Array:
    line = 0.2 * a + 0.5
    return np.where(line.real < 0, 0.0, np.where(line.real > 1, 1.0, line))


def sgu(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        x_g = w["p.U"] @ x_t + w["p.b"]
        z_g = np.tanh(w["m.W"] @ (x_g * h))
        z_out = softplus(z_g * h)
        z = hard_sigmoid(net(w, "z", x_t, h))
        h = (1 - z) * h + z * z_out
        outputs.append(h)
    return outputs, (h,)


def dsgu(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        x_g = w["p.U"] @ x_t + w["p.b"]
        z_g = np.tanh(w["m.W"] @ (x_g * h))
        z_out = sig(w["c.W"] @ (z_g * h))
        z = hard_sigmoid(net(w, "z", x_t, h))
        h = (1 - z) * h + z * z_out
        outputs.append(h)
    return outputs, (h,)


def multiplicative_rnn(w: Weights, x: Array, h: Array, factors: int | None = None) -> Result:
    outputs = []
    for x_t in x:
        f = np.diag(w["p.U"] @ x_t) @ w["q.W"] @ h
        h = np.tanh(w["a.W"] @ f + w["a.U"] @ x_t + w["a.b"])
        outputs.append(h)
    return outputs, (h,)


def multiplicative_lstm(w: Weights, x: Array, h: Array, c: Array, standard: bool = False) -> Result:
    outputs = []
    for x_t in x:
        m = (w["p.U"] @ x_t) * (w["q.W"] @ h)
        i, f, o = (sig(w[f"{gate}.W"] @ m + w[f"{gate}.U"] @ x_t + w[f"{gate}.b"]) for gate in "ifo")
        g = w["g.W"] @ m + w["g.U"] @ x_t + w["g.b"]
        c = f * c + i * (np.tanh(g) if standard else g)
        h = o * np.tanh(c) if standard else np.tanh(o * c)
        outputs.append(h)
    return outputs, (h, c)


def mogrifier_lstm(w: Weights, x: Array, h: Array, c: Array, rounds: int = 5) -> Result:
    outputs = []
    for x_t in x:
        now, past = x_t, h
        for k in range(1, rounds + 1):
            if k % 2 == 1:
                now = 2 * sig(w[f"q_{k}.W"] @ past + w[f"q_{k}.b"]) * now
            else:
                past = 2 * sig(w[f"q_{k}.U"] @ now + w[f"q_{k}.b"]) * past
        (h,), (_, c) = lstm(w, now[None], past, c)
        outputs.append(h)
    return outputs, (h, c)


TRANSCRIPTIONS = {
    "sgu": sgu,
    "dsgu": dsgu,
    "multiplicative_rnn": multiplicative_rnn,
    "multiplicative_lstm": multiplicative_lstm,
    "mogrifier_lstm": mogrifier_lstm,
}
