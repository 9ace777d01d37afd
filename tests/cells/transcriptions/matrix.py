"""Cells with a matrix for every head, as loops over heads and steps."""

import numpy as np

from .mathematics import Array, Result, Weights, relu, sig, softplus


def elu(a: Array) -> Array:
    return np.where(a.real > 0, a, np.exp(a) - 1)


def silu(a: Array) -> Array:
    return a * sig(a)


def largest(a: Array, b: Array) -> Array:
    return np.where(a.real > b.real, a, b)


def size(a: Array) -> Array:
    """The absolute value, for complex numbers with tiny imaginary parts."""
    return np.where(a.real < 0, -a, a)


def unit(a: Array) -> Array:
    return a / np.sqrt(np.sum(a * a))


def heads_of(w: Weights, x: Array, heads: int | None) -> list[tuple[Array, Array, Array]]:
    """(W_q x, W_k x, W_v x) of every head."""
    parts = [np.split(w[f"{name}.U"] @ x, heads or 1) for name in "qkv"]
    return list(zip(*parts, strict=True))


def _run(w: Weights, x: Array, S: Array, heads: int | None, one, *others: Array) -> Result:
    """`one(head, x_t, q, k, v, S, *others)` → (y, S, *others) of one head at one step; states of all are vectors."""
    count = heads or 1
    values = w["v.U"].shape[0] // count
    states = [S.reshape(count, -1, values), *(other.reshape(count, -1) for other in others)]
    outputs = []
    for x_t in x:
        parts = heads_of(w, x_t, heads)
        made = [one(n, x_t, *parts[n], *(state[n] for state in states)) for n in range(count)]
        y, *states = ([each[i] for each in made] for i in range(len(made[0])))
        outputs.append(np.concatenate(y))
    return outputs, tuple(np.concatenate([np.ravel(part) for part in state]) for state in states)


def linear_transformer(w: Weights, x: Array, S: Array, z: Array, heads=None, key_size=None) -> Result:
    def one(n, x_t, q, k, v, S, z):
        q, k = elu(q) + 1, elu(k) + 1
        S, z = S + np.outer(k, v), z + k
        return (q @ S) / (q @ z), S, z

    return _run(w, x, S, heads, one, z)


def delta_net(w: Weights, x: Array, S: Array, heads=None, key_size=None) -> Result:
    def one(n, x_t, q, k, v, S):
        q, k = (elu(q) + 1) / np.sum(elu(q) + 1), (elu(k) + 1) / np.sum(elu(k) + 1)
        beta = sig(w["b.U"][n] @ x_t + w["b.b"][n])
        S = S - beta * np.outer(k, k @ S) + beta * np.outer(k, v)
        return q @ S, S

    return _run(w, x, S, heads, one)


def gated_delta_net(w: Weights, x: Array, S: Array, heads=None, key_size=None) -> Result:
    def one(n, x_t, q, k, v, S):
        q, k, v = unit(silu(q)) / np.sqrt(len(q)), unit(silu(k)), silu(v)
        alpha = np.exp(-np.exp(w["log_rate"][n]) * softplus(w["a.U"][n] @ x_t + w["a.b"][n]))
        beta = sig(w["b.U"][n] @ x_t + w["b.b"][n])
        S = alpha * (np.eye(len(k)) - beta * np.outer(k, k)) @ S + beta * np.outer(k, v)  # their equation 10
        return q @ S, S

    return _run(w, x, S, heads, one)


def mlstm(w: Weights, x: Array, C: Array, n: Array, m: Array, heads=None, key_size=None) -> Result:
    """The gates as exponentials, relative to m."""

    def one(head, x_t, q, k, v, C, n, m):
        k = k / np.sqrt(len(k))
        log_i = w["i.U"][head] @ x_t + w["i.b"][head]
        log_f = np.log(sig(w["f.U"][head] @ x_t + w["f.b"][head])) + m[0]
        m = largest(log_f, log_i)
        C = np.exp(log_f - m) * C + np.exp(log_i - m) * np.outer(k, v)
        n = np.exp(log_f - m) * n + np.exp(log_i - m) * k
        o = np.split(sig(w["o.U"] @ x_t + w["o.b"]), heads or 1)[head]
        return o * (q @ C) / largest(size(n @ q), np.exp(-m)), C, n, np.array([m])

    return _run(w, x, C, heads, one, n, m)


def retention(w: Weights, x: Array, S: Array, t: Array, heads=None, key_size=None) -> Result:
    """Pairs of queries and keys turn by an angle at every step."""
    begun = int(t.real[0])
    steps = iter(range(begun, begun + len(x)))
    pairs = w["q.U"].shape[0] // (heads or 1) // 2
    count, outputs = heads or 1, []
    S = S.reshape(count, 2 * pairs, -1)
    for x_t, now in zip(x, steps, strict=True):
        y, new = [], []
        c, s = np.cos(now * w["theta"]), np.sin(now * w["theta"])
        turn = np.block([[np.diag(c), -np.diag(s)], [np.diag(s), np.diag(c)]])
        for n, (q, k, v) in enumerate(heads_of(w, x_t, heads)):
            new.append(w["gamma"][n] * S[n] + np.outer(turn @ k, v))
            y.append(turn @ q @ new[n] / np.sqrt(2 * pairs))
        S = np.stack(new)
        outputs.append(np.concatenate(y))
    return outputs, (S.ravel(), t + len(x))


def gla(w: Weights, x: Array, S: Array, heads=None, key_size=None, rank=16, temperature=16.0) -> Result:
    def one(n, x_t, q, k, v, S):
        gate = sig(w["a.W"] @ (w["low.U"] @ x_t) + w["a.b"])
        alpha = np.split(gate, heads or 1)[n] ** (1 / temperature)
        S = np.diag(alpha) @ S + np.outer(k, v)
        return q @ S / np.sqrt(len(q)), S

    return _run(w, x, S, heads, one)


def rwkv6(w: Weights, x: Array, S: Array, p: Array, heads=None, key_size=None, rank=32) -> Result:
    count, outputs = heads or 1, []
    S = S.reshape(count, -1, w["v.U"].shape[0] // count)

    def mixed(name: str, x_t: Array) -> Array:
        z = x_t + (p - x_t) * w["mu"]
        return x_t + (p - x_t) * (w[f"mix_{name}.W"] @ np.tanh(w[f"low_{name}.U"] @ z) + w[f"mix_{name}.b"])

    for x_t in x:
        q, k, v = (np.split(w[f"{name}.U"] @ mixed(name, x_t), count) for name in "qkv")
        decay = np.exp(-np.exp(w["w.W"] @ np.tanh(w["low.U"] @ mixed("w", x_t)) + w["w.b"]))
        y = [q[n] @ (S[n] + np.outer(w["u"][n] * k[n], v[n])) / np.sqrt(len(q[n])) for n in range(count)]
        decays = np.split(decay, count)
        S = np.stack([np.diag(decays[n]) @ S[n] + np.outer(k[n], v[n]) for n in range(count)])
        p = x_t
        outputs.append(np.concatenate(y))
    return outputs, (S.ravel(), p)


def rwkv7(w: Weights, x: Array, S: Array, p: Array, heads=None, key_size=None, rank=32) -> Result:
    count, outputs = heads or 1, []
    S = S.reshape(count, -1, w["v.U"].shape[0] // count)
    for x_t in x:
        mixed = {name: x_t + (p - x_t) * w[f"mu_{name}"] for name in "qkvwa"}
        q, v = (np.split(w[f"{name}.U"] @ mixed[name], count) for name in "qv")
        key = w["k.U"] @ mixed["k"]
        decay = np.exp(-np.exp(-0.5) * sig(w["w.W"] @ np.tanh(w["low_w.U"] @ mixed["w"]) + w["w.b"]))
        a = sig(w["a.W"] @ (w["low_a.U"] @ mixed["a"]) + w["a.b"])
        removal, k = np.split(key * w["removal"], count), np.split(key * (1 + (a - 1) * w["replacement"]), count)
        a, decay = np.split(a, count), np.split(decay, count)
        new = []
        for n in range(count):
            r = unit(removal[n])
            transition = np.diag(decay[n]) - np.outer(a[n] * r, r)
            new.append(transition @ S[n] + np.outer(k[n], v[n]))
        S, p = np.stack(new), x_t
        outputs.append(np.concatenate([q[n] @ S[n] for n in range(count)]))
    return outputs, (S.ravel(), p)


def fast_weights(w: Weights, x: Array, h: Array, A: Array, decay=0.95, rate=0.5, loops=1) -> Result:
    outputs = []
    A = A.reshape(len(h), len(h))
    for x_t in x:
        A = decay * A + rate * np.outer(h, h)
        slow = w["a.W"] @ h + w["a.U"] @ x_t + w["a.b"]
        h = relu(slow)
        for _ in range(loops):
            z = slow + A @ h
            centred = z - np.mean(z)
            h = relu(centred / np.sqrt(np.mean(centred * centred) + 1e-5) * w["gain"] + w["shift"])
        outputs.append(h)
    return outputs, (h, A.ravel())


TRANSCRIPTIONS = {
    "linear_transformer": linear_transformer,
    "delta_net": delta_net,
    "gated_delta_net": gated_delta_net,
    "mlstm": mlstm,
    "retention": retention,
    "gla": gla,
    "rwkv6": rwkv6,
    "rwkv7": rwkv7,
    "fast_weights": fast_weights,
}
