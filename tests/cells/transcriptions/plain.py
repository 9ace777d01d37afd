"""A3, A7, A8, A9, B2, B3, B4: one product and one squashing function."""

import numpy as np
from scipy.linalg import expm

from .mathematics import Array, Result, Weights, function, relu


def rnn(w: Weights, x: Array, h: Array, nonlinearity: object = "tanh") -> Result:
    f, outputs = function(nonlinearity), []
    for x_t in x:
        h = f(w["a.W"] @ h + w["a.U"] @ x_t + w["a.b"])
        outputs.append(h)
    return outputs, (h,)


def jordan_rnn(w: Weights, x: Array, y: Array, s: Array, output_size: int | None = None, decay: float = 0.5) -> Result:
    outputs = []
    for x_t in x:
        s = y + decay * s
        y = np.tanh(w["out.W"] @ np.tanh(w["a.W"] @ s + w["a.U"] @ x_t + w["a.b"]) + w["out.b"])
        outputs.append(y)
    return outputs, (y, s)


def irnn(w: Weights, x: Array, h: Array) -> Result:
    return rnn(w, x, h, "relu")


def orthogonal_rnn(w: Weights, x: Array, h: Array, nonlinearity: object = "tanh", determinant: int = 1) -> Result:
    S, mirror = w["a.W_raw"], np.eye(len(h))
    mirror[0, 0] = determinant
    return rnn({**w, "a.W": mirror @ expm(S - S.T)}, x, h, nonlinearity)


def residual_rnn(w: Weights, x: Array, h: Array) -> Result:
    return rnn({**w, "a.W": w["a.W"] + np.eye(len(h))}, x, h, "tanh")


def rin(w: Weights, x: Array, h: Array, transitions: int = 1) -> Result:
    identity, outputs = np.eye(len(h)), []
    for x_t in x:
        h = relu((w["a.W"] + identity) @ h + w["a.U"] @ x_t + w["a.b"])
        for k in range(transitions - 1):
            h = relu((w[f"deeper.{k}.W"] + identity) @ h + w[f"deeper.{k}.b"])
        outputs.append(h)
    return outputs, (h,)


def unitary_matrix(w: Weights) -> Array:
    """W = D_3 R_2 F^-1 D_2 Π R_1 F D_1, dense."""
    n = len(w["b"])
    k = np.arange(n)
    F = np.exp(-2j * np.pi * np.outer(k, k) / n) / np.sqrt(n)
    permutation = np.eye(n)[w["permutation"]]
    D_1, D_2, D_3 = (np.diag(np.exp(1j * w[f"theta_{i}"])) for i in (1, 2, 3))
    R_1, R_2 = (_reflection(w[f"v_{i}"]) for i in (1, 2))
    return D_3 @ R_2 @ F.conj().T @ D_2 @ permutation @ R_1 @ F @ D_1


def _reflection(v: Array) -> Array:
    v = _complex(v)
    return np.eye(len(v)) - 2 * np.outer(v, v.conj()) / np.linalg.norm(v) ** 2


def _complex(pair: Array) -> Array:
    return pair[: len(pair) // 2] + 1j * pair[len(pair) // 2 :]


def unitary_rnn(w: Weights, x: Array, h: Array) -> Result:
    W, z, outputs = unitary_matrix(w), _complex(h), []
    for x_t in x:
        z = W @ z + _complex(w["net.U"] @ x_t)
        modulus = np.abs(z)
        z = np.where(modulus + w["b"] >= 0, z * (modulus + w["b"]) / modulus, 0)
        outputs.append(np.concatenate([z.real, z.imag]))
    return outputs, (outputs[-1],)


TRANSCRIPTIONS = {
    "rnn": rnn,
    "jordan_rnn": jordan_rnn,
    "identity_rnn": rnn,
    "irnn": irnn,
    "orthogonal_rnn": orthogonal_rnn,
    "residual_rnn": residual_rnn,
    "rin": rin,
    "unitary_rnn": unitary_rnn,
}
