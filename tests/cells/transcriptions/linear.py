"""Linear recurrences: gated ones, and diagonal state spaces, whose complex units are 2×2 matrices here."""

import numpy as np

from .mathematics import Array, Result, Weights, sig, softplus


def of_x(w: Weights, gate: str, x: Array) -> Array:
    return w[f"{gate}.U"] @ x + w.get(f"{gate}.b", 0.0)


def silu(a: Array) -> Array:
    return a * sig(a)


def sru(w: Weights, x: Array, c: Array, peepholes: bool = False, scale: float = np.sqrt(3)) -> Result:
    outputs = []
    for x_t in x:
        read_f, read_r = (w["v_f"] * c, w["v_r"] * c) if peepholes else (0.0, 0.0)
        forget, highway = sig(of_x(w, "f", x_t) + read_f), sig(of_x(w, "r", x_t) + read_r)
        c = forget * c + (1 - forget) * (w["c.U"] @ x_t)
        carried = w["skip.U"] @ x_t if "skip.U" in w else x_t
        outputs.append(highway * c + (1 - highway) * scale * carried)
    return outputs, (c,)


def qrnn(w: Weights, x: Array, c: Array, v: Array, window: int = 2, pooling: str = "fo") -> Result:
    """A convolution is a sum over the window, the newest input first."""
    outputs, past = [], list(v.reshape(window - 1, -1))

    def conv(gate: str, seen: list[Array]) -> Array:
        names = ["U", *(["W"] if window == 2 else [f"W_{k}" for k in range(1, window)])]
        return sum(w[f"{gate}.{name}"] @ u for name, u in zip(names, seen, strict=True)) + w[f"{gate}.b"]

    for x_t in x:
        seen = [x_t, *past]
        z, f = np.tanh(conv("g", seen)), sig(conv("f", seen))
        i = sig(conv("i", seen)) if pooling == "ifo" else 1 - f
        c = f * c + i * z
        outputs.append(c if pooling == "f" else sig(conv("o", seen)) * c)
        past = seen[:-1]
    return outputs, (c, np.stack(past))


def hgrn(w: Weights, x: Array, re: Array, im: Array, floor: float = 0.0) -> Result:
    outputs = []
    turn = rotations(w["theta"])
    for x_t in x:
        decay = floor + (1 - floor) * sig(of_x(w, "f", x_t))
        given = np.stack([silu(of_x(w, "c_re", x_t)), silu(of_x(w, "c_im", x_t))])
        re, im = decay * apply(turn, re, im) + (1 - decay) * given
        outputs.append(sig(of_x(w, "g", x_t)) * np.concatenate([re, im]))
    return outputs, (re, im)


def rg_lru(w: Weights, x: Array, h: Array, power: float = 8.0, low: float = 0.9, high: float = 0.999) -> Result:
    outputs = []
    for x_t in x:
        a = sig(w["rho"]) ** (power * sig(of_x(w, "r", x_t)))
        u = w["u.U"] @ x_t if "u.U" in w else x_t
        h = a * h + np.sqrt(1 - a**2) * sig(of_x(w, "i", x_t)) * u
        outputs.append(h)
    return outputs, (h,)


def gateloop(w: Weights, x: Array, re: Array, im: Array) -> Result:
    outputs = []
    for x_t in x:
        re, im = sig(of_x(w, "f", x_t)) * apply(rotations(of_x(w, "theta", x_t)), re, im)
        re = re + (w["k.U"] @ x_t) * (w["v.U"] @ x_t)
        outputs.append((w["q.U"] @ x_t) * re)
    return outputs, (re, im)


# ---------------------------------------------------------------------------------------------------- state spaces


def rotations(angle: Array) -> Array:
    """(units, 2, 2)."""
    rows = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return np.moveaxis(np.array(rows), (0, 1), (1, 2))


def apply(matrices: Array, re: Array, im: Array) -> Array:
    """A 2×2 matrix of each unit times (re, im), (2, units)."""
    return np.einsum("nij,jn->in", matrices, np.stack([re, im]))


def hold(re: Array, im: Array, dt: Array) -> tuple[Array, Array]:
    """exp(L dt) and L⁻¹ (exp(L dt) - 1) of L = [[re, -im], [im, re]], for each unit."""
    L = np.moveaxis(np.array([[re, -im], [im, re]]), (0, 1), (1, 2))
    decay = np.exp(re * dt)[:, None, None] * rotations(im * dt)
    return decay, np.linalg.solve(L, decay - np.eye(2))


def lru(w: Weights, x: Array, re: Array, im: Array, modes: int | None = None, **ring: float) -> Result:
    outputs = []
    A = np.exp(-np.exp(w["nu"]))[:, None, None] * rotations(np.exp(w["theta"]))
    for x_t in x:
        re, im = apply(A, re, im) + np.exp(w["gamma"]) * np.stack([w["b_re.U"] @ x_t, w["b_im.U"] @ x_t])
        outputs.append(w["c_re.W"] @ re - w["c_im.W"] @ im + w["d.U"] @ x_t)
    return outputs, (re, im)


def s5(w: Weights, x: Array, re: Array, im: Array, modes: int | None = None, **times: float) -> Result:
    outputs = []
    A, B = hold(-np.exp(w["rho"]), w["omega"], np.exp(w["dt"]))
    for x_t in x:
        re, im = apply(A, re, im) + apply(B, w["b_re.U"] @ x_t, w["b_im.U"] @ x_t)
        outputs.append(2 * (w["c_re.W"] @ re - w["c_im.W"] @ im) + w["d.U"] @ x_t)
    return outputs, (re, im)


def s4d(w: Weights, x: Array, re: Array, im: Array, modes: int = 16, **times: float) -> Result:
    """One system for each unit; the states of a mode lie side by side."""
    outputs, units = [], len(w["d"])
    re, im = (state.reshape(modes, units).astype(np.result_type(state, x)) for state in (re, im))
    systems = [hold(-np.exp(w["rho"][:, j]), w["omega"][:, j], np.exp(w["dt"][j])) for j in range(units)]
    for x_t in x:
        u, y = w["u.U"] @ x_t, []
        columns = []
        for j, (A, B) in enumerate(systems):
            new = apply(A, re[:, j], im[:, j]) + apply(B, np.full(modes, u[j]), np.zeros(modes))
            columns.append(new)
            y.append(2 * (w["c_re"][:, j] @ new[0] - w["c_im"][:, j] @ new[1]) + w["d"][j] * u[j])
        re, im = np.stack(columns, 2)
        outputs.append(np.array(y))
    return outputs, (re.reshape(-1), im.reshape(-1))


def mamba(
    w: Weights, x: Array, s: Array, v: Array, state_size: int = 16, window: int = 4, rank: int | None = None,
    **times: float,
) -> Result:  # fmt: skip
    outputs, past, S = [], list(v.reshape(window - 1, -1)), s.reshape(state_size, -1)
    A = -np.exp(w["a"])
    for x_t in x:
        seen = [w["u.U"] @ x_t, *past]
        q = silu(sum(k * u for k, u in zip(w["k"], seen, strict=True)) + w["k_b"])
        delta = softplus(w["dt.W"] @ (w["r.W"] @ q) + w["dt.b"])
        S = np.exp(delta * A) * S + np.outer(w["b.W"] @ q, delta * q)
        outputs.append((w["c.W"] @ q @ S + w["d"] * q) * silu(w["z.U"] @ x_t))
        past = seen[:-1]
    return outputs, (S.reshape(-1), np.stack(past))


TRANSCRIPTIONS = {
    "sru": sru,
    "qrnn": qrnn,
    "hgrn": hgrn,
    "rg_lru": rg_lru,
    "gateloop": gateloop,
    "lru": lru,
    "s5": s5,
    "s4d": s4d,
    "mamba": mamba,
}
