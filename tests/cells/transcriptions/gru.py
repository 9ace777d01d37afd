"""A18, A19, B16, B17: gated recurrent units, mutants, minimal gated units."""

import numpy as np

from .mathematics import Array, Result, Weights, net, sig


def gru(w: Weights, x: Array, h: Array, reset_after: bool = False) -> Result:
    outputs = []
    for x_t in x:
        r = sig(net(w, "r", x_t, h))
        z = sig(net(w, "z", x_t, h))
        if reset_after:
            new = np.tanh(w["c.U"] @ x_t + w["c.b"] + r * (w["m.W"] @ h + w["m.b"]))
        else:
            new = np.tanh(w["c.W"] @ (r * h) + w["c.U"] @ x_t + w["c.b"])
        h = (1 - z) * h + z * new
        outputs.append(h)
    return outputs, (h,)


def _bare(w: Weights, x: Array) -> Array:
    """x itself where it has the state's size, else its projection."""
    return w["E.U"] @ x if "E.U" in w else x


def mut1(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        z = sig(w["z.U"] @ x_t + w["z.b"])
        r = sig(w["r.U"] @ x_t + w["r.W"] @ h + w["r.b"])
        h = np.tanh(w["c.W"] @ (r * h) + np.tanh(_bare(w, x_t)) + w["c.b"]) * z + h * (1 - z)
        outputs.append(h)
    return outputs, (h,)


def mut2(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        z = sig(w["z.U"] @ x_t + w["z.W"] @ h + w["z.b"])
        r = sig(_bare(w, x_t) + w["r.W"] @ h + w["r.b"])
        h = np.tanh(w["c.W"] @ (r * h) + w["c.U"] @ x_t + w["c.b"]) * z + h * (1 - z)
        outputs.append(h)
    return outputs, (h,)


def mut3(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        z = sig(w["z.U"] @ x_t + w["z.W"] @ np.tanh(h) + w["z.b"])
        r = sig(w["r.U"] @ x_t + w["r.W"] @ h + w["r.b"])
        h = np.tanh(w["c.W"] @ (r * h) + w["c.U"] @ x_t + w["c.b"]) * z + h * (1 - z)
        outputs.append(h)
    return outputs, (h,)


def mgu(w: Weights, x: Array, h: Array, gate: str = "W h + U x + b") -> Result:
    outputs = []
    for x_t in x:
        terms = {
            "W h + U x + b": lambda x_t=x_t, h=h: w["f.W"] @ h + w["f.U"] @ x_t + w["f.b"],
            "W h + b": lambda h=h: w["f.W"] @ h + w["f.b"],
            "W h": lambda h=h: w["f.W"] @ h,
            "b": lambda: w["b_f"],
        }
        f = sig(terms[gate]())
        h = (1 - f) * h + f * np.tanh(w["c.W"] @ (f * h) + w["c.U"] @ x_t + w["c.b"])
        outputs.append(h)
    return outputs, (h,)


TRANSCRIPTIONS = {
    "gru": gru,
    "mut1": mut1,
    "mut2": mut2,
    "mut3": mut3,
    "mgu": mgu,
    "mgu1": lambda w, x, h: mgu(w, x, h, "W h + b"),
    "mgu2": lambda w, x, h: mgu(w, x, h, "W h"),
    "mgu3": lambda w, x, h: mgu(w, x, h, "b"),
}
