"""Bistable cells, and undamped oscillators."""

import numpy as np

from .mathematics import Array, Result, Weights, sig


def _bistable(w: Weights, x: Array, h: Array, read) -> Result:
    outputs = []
    for x_t in x:
        a = 1 + np.tanh(w["a.U"] @ x_t + w["a.b"] + read("a", h))
        c = sig(w["c.U"] @ x_t + w["c.b"] + read("c", h))
        h = c * h + (1 - c) * np.tanh(w["g.U"] @ x_t + w["g.b"] + a * h)
        outputs.append(h)
    return outputs, (h,)


def brc(w: Weights, x: Array, h: Array) -> Result:
    return _bistable(w, x, h, lambda gate, h: w[f"w_{gate}"] * h)


def nbrc(w: Weights, x: Array, h: Array) -> Result:
    return _bistable(w, x, h, lambda gate, h: w[f"{gate}.W"] @ h)


def unicornn(w: Weights, x: Array, y: Array, z: Array, dt: float = 0.1, alpha: float = 1.0) -> Result:
    step = dt * (0.5 + 0.5 * np.tanh(w["c"] / 2))
    outputs = []
    for x_t in x:
        force = np.tanh(w["w"] * y + w["a.U"] @ x_t + w["a.b"]) + alpha * y
        z = z - step * force
        y = y + step * z
        outputs.append(y)
    return outputs, (y, z)


TRANSCRIPTIONS = {"brc": brc, "nbrc": nbrc, "unicornn": unicornn}
