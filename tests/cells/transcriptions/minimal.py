"""Units with fewer parts than a GRU. Papers without biases get them, as the cells have them."""

import numpy as np

from .mathematics import Array, Result, Weights, function, net, relu, sig


def cfn(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        forget = sig(w["theta.W"] @ h + w["theta.U"] @ x_t + w["theta.b"])
        write = sig(w["eta.W"] @ h + w["eta.U"] @ x_t + w["eta.b"])
        h = forget * np.tanh(h) + write * np.tanh(w["c.U"] @ x_t)
        outputs.append(h)
    return outputs, (h,)


def ran(w: Weights, x: Array, h: Array, c: Array, nonlinearity: object = "tanh") -> Result:
    outputs, g = [], function(nonlinearity)
    for x_t in x:
        i, f = sig(net(w, "i", x_t, h)), sig(net(w, "f", x_t, h))
        c = i * (w["c.U"] @ x_t) + f * c
        h = g(c)
        outputs.append(h)
    return outputs, (h, c)


def minimal_rnn(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        latent = np.tanh(w["phi.U"] @ x_t + w["phi.b"])
        update = sig(w["u.W"] @ h + w["v.W"] @ latent + w["u.b"])
        h = update * h + (1 - update) * latent
        outputs.append(h)
    return outputs, (h,)


def li_gru(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        z, new = sig(net(w, "z", x_t, h)), relu(net(w, "c", x_t, h))
        h = z * h + (1 - z) * new
        outputs.append(h)
    return outputs, (h,)


def atr(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        p, q = w["p.U"] @ x_t + w["p.b"], w["q.W"] @ h + w["q.b"]
        h = sig(p + q) * p + sig(p - q) * h
        outputs.append(h)
    return outputs, (h,)


def sgrn(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        inner = w["p.U"] @ x_t + w["p.b"]
        f = sig(inner + w["q.W"] @ h)
        i = 1 - f
        h = np.tanh(i * inner + f * h)
        outputs.append(h)
    return outputs, (h,)


def star(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        z = np.tanh(w["phi.U"] @ x_t + w["phi.b"])
        k = sig(net(w, "k", x_t, h))
        h = np.tanh((1 - k) * h + k * z)
        outputs.append(h)
    return outputs, (h,)


def light_ru(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        f = sig(net(w, "f", x_t, h))
        h = (1 - f) * h + f * np.tanh(w["c.U"] @ x_t + w["c.b"])
        outputs.append(h)
    return outputs, (h,)


def fast_rnn(w: Weights, x: Array, h: Array, nonlinearity: object = "tanh") -> Result:
    outputs, g = [], function(nonlinearity)
    for x_t in x:
        h = sig(w["alpha"]) * g(net(w, "a", x_t, h)) + sig(w["beta"]) * h
        outputs.append(h)
    return outputs, (h,)


def fast_grnn(w: Weights, x: Array, h: Array, rank: int | None = None) -> Result:
    U, W = w["U.U"], w["W.W"]
    if rank is not None:
        U, W = w["U_2.W"] @ U, w["W_2.W"] @ W
    outputs = []
    for x_t in x:
        z, new = sig(U @ x_t + W @ h + w["b_z"]), np.tanh(U @ x_t + W @ h + w["b_c"])
        h = (sig(w["zeta"]) * (1 - z) + sig(w["nu"])) * new + z * h
        outputs.append(h)
    return outputs, (h,)


def miru1(w: Weights, x: Array, h: Array, update: float = 0.5) -> Result:
    outputs = []
    for x_t in x:
        r = sig(net(w, "r", x_t, h))
        h = update * h + (1 - update) * np.tanh(w["c.U"] @ x_t + w["c.W"] @ (r * h) + w["c.b"])
        outputs.append(h)
    return outputs, (h,)


def miru2(w: Weights, x: Array, h: Array, update: float = 0.5, reset: float = 0.5) -> Result:
    outputs = []
    for x_t in x:
        h = update * h + (1 - update) * np.tanh(w["c.U"] @ x_t + w["c.W"] @ (w["beta"] * h) + w["c.b"])
        outputs.append(h)
    return outputs, (h,)


TRANSCRIPTIONS = {
    "cfn": cfn,
    "ran": ran,
    "minimal_rnn": minimal_rnn,
    "li_gru": li_gru,
    "atr": atr,
    "sgrn": sgrn,
    "star": star,
    "light_ru": light_ru,
    "fast_rnn": fast_rnn,
    "fast_grnn": fast_grnn,
    "miru1": miru1,
    "miru2": miru2,
}
