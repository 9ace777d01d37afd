"""Strongly typed networks; `before` is the last input."""

import numpy as np

from .mathematics import Array, Result, Weights, sig


def t_rnn(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        f = sig(w["f.U"] @ x_t + w["f.b"])
        h = f * h + (1 - f) * (w["c.U"] @ x_t)
        outputs.append(h)
    return outputs, (h,)


def _three(w: Weights, x: Array, before: Array) -> list[Array]:
    return [w[f"{name}.W"] @ before + w[f"{name}.U"] @ x + w[f"{name}.b"] for name in "cfo"]


def t_gru(w: Weights, x: Array, h: Array, before: Array) -> Result:
    outputs = []
    for x_t in x:
        z, f, o = _three(w, x_t, before)
        h = sig(f) * h + z * np.tanh(o)
        before = x_t
        outputs.append(h)
    return outputs, (h, before)


def t_lstm(w: Weights, x: Array, c: Array, before: Array) -> Result:
    outputs = []
    for x_t in x:
        z, f, o = _three(w, x_t, before)
        c = sig(f) * c + (1 - sig(f)) * z
        before = x_t
        outputs.append(c * np.tanh(o))
    return outputs, (c, before)


TRANSCRIPTIONS = {"t_rnn": t_rnn, "t_gru": t_gru, "t_lstm": t_lstm}
