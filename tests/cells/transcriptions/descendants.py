"""C5, C8, C9, C12, C14, C16, C17: later cells."""

import numpy as np
from scipy.linalg import block_diag

from .mathematics import Array, Result, Weights, clip, net, relu, sig


def indrnn(w: Weights, x: Array, h: Array, longest: int | None = None, gamma: float = 2.0) -> Result:
    bound = np.inf if longest is None else gamma ** (1 / longest)
    u, outputs = clip(w["u"], bound), []
    for x_t in x:
        h = relu(u * h + w["a.U"] @ x_t + w["a.b"])
        outputs.append(h)
    return outputs, (h,)


def candidate(w: Weights, x: Array, log_form: bool) -> Array:
    a = w["c.U"] @ x + w["c.b"]
    return np.where(a.real >= 0, a + 0.5, sig(a)) if log_form else a


def min_gru(w: Weights, x: Array, h: Array, log_form: bool = False) -> Result:
    outputs = []
    for x_t in x:
        z = sig(w["z.U"] @ x_t + w["z.b"])
        h = (1 - z) * h + z * candidate(w, x_t, log_form)
        outputs.append(h)
    return outputs, (h,)


def min_lstm(w: Weights, x: Array, h: Array, log_form: bool = False) -> Result:
    outputs = []
    for x_t in x:
        f, i = (sig(w[f"{gate}.U"] @ x_t + w[f"{gate}.b"]) for gate in "fi")
        keep, write = f / (f + i), i / (f + i)
        h = keep * h + write * candidate(w, x_t, log_form)
        outputs.append(h)
    return outputs, (h,)


def slstm(
    w: Weights, x: Array, h: Array, c: Array, n: Array, m: Array, heads: int = 1, forget: str = "sigmoid"
) -> Result:
    R = {gate: block_diag(*w[f"{gate}.W_raw"]) if heads > 1 else w[f"{gate}.W"] for gate in "ifzo"}
    outputs = []
    for x_t in x:
        a = {gate: w[f"{gate}.U"] @ x_t + R[gate] @ h + w[f"{gate}.b"] for gate in "ifzo"}
        log_f = np.log(sig(a["f"])) if forget == "sigmoid" else a["f"]
        new = a["i"] if np.all(n == 0) else np.maximum(log_f + m, a["i"])
        i, f = np.exp(a["i"] - new), np.exp(log_f + m - new)
        m = new
        c = f * c + i * np.tanh(a["z"])
        n = f * n + i
        h = sig(a["o"]) * c / n
        outputs.append(h)
    return outputs, (h, c, n, m)


def cornn(
    w: Weights, x: Array, y: Array, z: Array, dt: float = 0.042, gamma: float = 2.7, epsilon: float = 4.7
) -> Result:
    outputs = []
    for x_t in x:
        force = np.tanh(w["a.W_y"] @ y + w["a.W_z"] @ z + w["a.U"] @ x_t + w["a.b"])
        z = z + dt * (force - gamma * y - epsilon * z)
        y = y + dt * z
        outputs.append(y)
    return outputs, (y, z)


def antisymmetric_rnn(w: Weights, x: Array, h: Array, epsilon: float = 0.1, gamma: float = 0.1) -> Result:
    M, outputs = w["a.W_raw"], []
    for x_t in x:
        h = h + epsilon * np.tanh((M - M.T - gamma * np.eye(len(h))) @ h + w["a.U"] @ x_t + w["a.b"])
        outputs.append(h)
    return outputs, (h,)


def gated_antisymmetric_rnn(w: Weights, x: Array, h: Array, epsilon: float = 0.1, gamma: float = 0.1) -> Result:
    M, outputs = w["V.W_raw"], []
    for x_t in x:
        turned = (M - M.T - gamma * np.eye(len(h))) @ h
        z = sig(turned + w["z.U"] @ x_t + w["z.b"])
        h = h + epsilon * z * np.tanh(turned + w["c.U"] @ x_t + w["c.b"])
        outputs.append(h)
    return outputs, (h,)


def lem(w: Weights, x: Array, y: Array, z: Array, dt: float = 1.0) -> Result:
    outputs = []
    for x_t in x:
        slow = dt * sig(net(w, "slow", x_t, y))
        fast = dt * sig(net(w, "fast", x_t, y))
        z = (1 - fast) * z + fast * np.tanh(net(w, "u", x_t, y))
        y = (1 - slow) * y + slow * np.tanh(net(w, "v", x_t, z))
        outputs.append(y)
    return outputs, (y, z)


def ugrnn(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        g = sig(net(w, "g", x_t, h))
        h = g * h + (1 - g) * np.tanh(net(w, "c", x_t, h))
        outputs.append(h)
    return outputs, (h,)


def janet(w: Weights, x: Array, h: Array, beta: float = 1.0) -> Result:
    outputs = []
    for x_t in x:
        s = net(w, "f", x_t, h)
        h = sig(s) * h + (1 - sig(s - beta)) * np.tanh(net(w, "c", x_t, h))
        outputs.append(h)
    return outputs, (h,)


TRANSCRIPTIONS = {
    "indrnn": indrnn,
    "min_gru": min_gru,
    "min_lstm": min_lstm,
    "slstm": slstm,
    "cornn": cornn,
    "antisymmetric_rnn": antisymmetric_rnn,
    "gated_antisymmetric_rnn": gated_antisymmetric_rnn,
    "lem": lem,
    "ugrnn": ugrnn,
    "janet": janet,
}
