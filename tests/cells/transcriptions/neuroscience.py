"""Rate networks, piecewise-linear networks, block-diagonal and convolutional cells."""

import numpy as np

from .mathematics import Array, Result, Weights, function, relu, sig


def absolute(a: Array) -> Array:
    return np.where(a.real < 0, -a, a)


def ctrnn(
    w: Weights, x: Array, h: Array, tau: float = 100.0, dt: float = 20.0, nonlinearity: str = "relu",
    excitatory: float | None = None, density: float = 1.0,
) -> Result:  # fmt: skip
    f, n, outputs = function(nonlinearity), len(h), []
    W = w["a.W_raw"] if "a.W_raw" in w else w["a.W"]
    if excitatory is not None:
        signs = [1.0 if unit < round(excitatory * n) else -1.0 for unit in range(n)]
        W = np.array([[0.0 if i == j else absolute(W[i, j]) * signs[j] for j in range(n)] for i in range(n)])
    if density < 1:
        W = W * w["a.derivations.W.1.mask" if excitatory is not None else "a.derivations.W.0.mask"]
    for x_t in x:
        h = h + dt / tau * (-h + W @ f(h) + w["a.U"] @ x_t + w["a.b"])
        outputs.append(f(h))
    return outputs, (h,)


def low_rank_rnn(
    w: Weights, x: Array, h: Array, rank: int = 1, tau: float = 100.0, dt: float = 20.0, nonlinearity: str = "tanh"
) -> Result:
    f, outputs = function(nonlinearity), []
    J = sum(np.outer(w["M.W"][:, k], w["N.W"][k]) * w["share"][k] for k in range(rank))
    for x_t in x:
        h = h + dt / tau * (-h + J @ f(h) + w["I.U"] @ x_t + w["I.b"])
        outputs.append(f(h))
    return outputs, (h,)


def _hollow(W: Array) -> Array:
    return W - np.diag(np.diag(W))


def plrnn(w: Weights, x: Array, z: Array) -> Result:
    outputs = []
    for x_t in x:
        z = np.diag(w["A"]) @ z + _hollow(w["W.W_raw"]) @ relu(z) + w["C.U"] @ x_t + w["C.b"]
        outputs.append(z)
    return outputs, (z,)


def shallow_plrnn(w: Weights, x: Array, z: Array, units: int | None = None, clipped: bool = False) -> Result:
    outputs = []
    for x_t in x:
        inner = relu(w["inner.W"] @ z + w["inner.b"])
        if clipped:
            inner = inner - relu(w["inner.W"] @ z)
        z = w["A"] * z + w["outer.W"] @ inner + w["C.U"] @ x_t + w["C.b"]
        outputs.append(z)
    return outputs, (z,)


def dendritic_plrnn(w: Weights, x: Array, z: Array, bases: int = 5) -> Result:
    outputs = []
    for x_t in x:
        expanded = sum(w[f"alpha_{b}"] * relu(z - w[f"theta_{b}"]) for b in range(1, bases + 1))
        z = w["A"] * z + _hollow(w["W.W_raw"]) @ expanded + w["C.U"] @ x_t + w["C.b"]
        outputs.append(z)
    return outputs, (z,)


def al_rnn(w: Weights, x: Array, z: Array, rectified: int | None = None) -> Result:
    rectified = max(1, len(z) // 5) if rectified is None else rectified
    outputs = []
    for x_t in x:
        u = np.concatenate([z[: len(z) - rectified], relu(z[len(z) - rectified :])])
        z = w["A"] * z + w["W.W"] @ u + w["C.U"] @ x_t + w["C.b"]
        outputs.append(z)
    return outputs, (z,)


def block_gru(w: Weights, x: Array, h: Array, blocks: int = 4) -> Result:
    size, outputs = len(h) // blocks, []

    def recurrent(gate: str, h: Array) -> Array:
        parts = [w[f"{gate}.W_raw"][b] @ h[b * size : (b + 1) * size] for b in range(blocks)]
        return np.concatenate(parts)

    for x_t in x:
        r, z, c = (recurrent(gate, h) + w[f"{gate}.U"] @ x_t + w[f"{gate}.b"] for gate in "rzc")
        update = sig(z - 1)
        h = (1 - update) * h + update * np.tanh(sig(r) * c)
        outputs.append(h)
    return outputs, (h,)


def convolved(kernel: Array, picture: Array) -> Array:
    """A correlation with zero padding: (out, in, k, k) and (in, H, W) give (out, H, W)."""
    outs, _, k, _ = kernel.shape
    _, height, width = picture.shape
    padded = np.pad(picture, ((0, 0), (k // 2, k // 2), (k // 2, k // 2)))
    found = np.zeros((outs, height, width), dtype=np.result_type(kernel, picture))
    for row in range(height):
        for column in range(width):
            found[:, row, column] = (kernel * padded[None, :, row : row + k, column : column + k]).sum((1, 2, 3))
    return found


def conv_lstm(w: Weights, x: Array, h: Array, c: Array, height: int = 1, width: int = 1, kernel: int = 3) -> Result:
    def net(gate: str, x: Array, h: Array) -> Array:
        seen = convolved(w[f"{gate}.U_raw"], x.reshape(-1, height, width))
        seen = seen + convolved(w[f"{gate}.W_raw"], h.reshape(-1, height, width))
        return (seen + w[f"{gate}.b_raw"][:, None, None]).reshape(-1)

    outputs = []
    for x_t in x:
        i, f = (sig(net(gate, x_t, h) + w[f"p_{gate}"] * c) for gate in "if")
        c = f * c + i * np.tanh(net("g", x_t, h))
        h = sig(net("o", x_t, h) + w["p_o"] * c) * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c)


TRANSCRIPTIONS = {
    "ctrnn": ctrnn,
    "low_rank_rnn": low_rank_rnn,
    "plrnn": plrnn,
    "shallow_plrnn": shallow_plrnn,
    "dendritic_plrnn": dendritic_plrnn,
    "al_rnn": al_rnn,
    "block_gru": block_gru,
    "conv_lstm": conv_lstm,
}
