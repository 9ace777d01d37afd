"""Cells of rainfall-runoff models."""

import numpy as np

from .mathematics import Array, Result, Weights, net, sig


def ea_lstm(w: Weights, x: Array, h: Array, c: Array, static: int = 1) -> Result:
    outputs = []
    for x_t in x:
        dynamic = x_t[: len(x_t) - static]
        i = sig(w["i.W"] @ x_t[len(x_t) - static :] + w["i.b"]) if static else sig(w["b_i"])
        f, o = sig(net(w, "f", dynamic, h)), sig(net(w, "o", dynamic, h))
        c = f * c + i * np.tanh(net(w, "g", dynamic, h))
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c)


def mass_conserving_lstm(w: Weights, x: Array, c: Array, mass: int = 1) -> Result:
    n, outputs = len(c), []
    for x_t in x:
        shares = c / (np.where(c.real < 0, -c, c).sum() + 1e-5)
        a = {gate: w[f"{gate}.W"] @ shares + w[f"{gate}.b"] for gate in "iRo"}
        if len(x_t) > mass:
            a = {gate: value + w[f"{gate}.U"] @ x_t[mass:] for gate, value in a.items()}
        total = np.zeros(n)
        for source in range(n):  # what each cell passes on
            e = np.exp(a["R"][source * n : (source + 1) * n])
            total = total + c[source] * e / e.sum()
        for source in range(mass):
            e = np.exp(a["i"][source * n : (source + 1) * n])
            total = total + x_t[source] * e / e.sum()
        o = sig(a["o"])
        c = (1 - o) * total
        outputs.append(o * total)
    return outputs, (c,)


TRANSCRIPTIONS = {"ea_lstm": ea_lstm, "mass_conserving_lstm": mass_conserving_lstm}
