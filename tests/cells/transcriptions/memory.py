"""LSTMs with another memory."""

import numpy as np

from .mathematics import Array, Result, Weights, net, relu, sig


def residual_lstm(w: Weights, x: Array, h: Array, c: Array) -> Result:
    outputs = []
    for x_t in x:
        i, f = (sig(net(w, gate, x_t, h) + w[f"p_{gate}"] * c) for gate in "if")
        c = f * c + i * np.tanh(net(w, "g", x_t, h))
        o = sig(net(w, "o", x_t, h) + w["p_o"] * c)
        m = w["P.W"] @ np.tanh(c)
        h = o * (m + (w["E.U"] @ x_t if "E.U" in w else x_t))
        outputs.append(h)
    return outputs, (h, c)


def working_memory(w: Weights, x: Array, h: Array, c: Array) -> Result:
    def seen(gate: str, memory: Array) -> Array:
        return np.tanh(w[f"m_{gate}.W"] @ memory + w[f"m_{gate}.b"])

    outputs = []
    for x_t in x:
        i, f = (sig(net(w, gate, x_t, h) + seen(gate, c)) for gate in "if")
        c = f * c + i * np.tanh(net(w, "g", x_t, h))
        h = sig(net(w, "o", x_t, h) + seen("o", c)) * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c)


def memory_controller_lstm(w: Weights, x: Array, v: Array, c: Array) -> Result:
    outputs = []
    for x_t in x:
        i, f, o, m = (sig(net(w, gate, x_t, v)) for gate in "ifom")
        c = f * c + i * np.tanh(net(w, "g", x_t, v))
        v = m * np.tanh(c)
        outputs.append(o * np.tanh(c))
    return outputs, (v, c)


def nested_lstm(w: Weights, x: Array, h: Array, c: Array, d: Array) -> Result:
    def inner(gate: str, now: Array, past: Array) -> Array:
        return w[f"inner_{gate}.W_h"] @ now + w[f"inner_{gate}.W_c"] @ past + w[f"inner_{gate}.b"]

    outputs = []
    for x_t in x:
        i, f, o = (sig(net(w, gate, x_t, h)) for gate in "ifo")
        now, past = i * np.tanh(net(w, "g", x_t, h)), f * c
        d = sig(inner("f", now, past)) * d + sig(inner("i", now, past)) * np.tanh(inner("g", now, past))
        c = sig(inner("o", now, past)) * np.tanh(d)
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c, d)


def nas(w: Weights, x: Array, h: Array, c: Array) -> Result:
    outputs = []
    for x_t in x:
        leaf = {k: net(w, f"a_{k}", x_t, h) for k in (1, 2, 3, 5, 6, 7, 8)}
        leaf[4] = (w["p.U"] @ x_t + w["p.b"]) * (w["q.W"] @ h)
        first = np.tanh(sig(leaf[1]) * relu(leaf[2]))
        second = np.tanh(sig(leaf[3]) + relu(leaf[4]))
        third = np.tanh(np.tanh(leaf[5]) * sig(leaf[6]))
        fourth = sig(np.tanh(leaf[7]) + sig(leaf[8]))
        c = np.tanh(first + c) * second
        h = np.tanh(c * np.tanh(third + fourth))
        outputs.append(h)
    return outputs, (h, c)


def intersection_rnn(w: Weights, x: Array, h: Array) -> Result:
    outputs = []
    for x_t in x:
        depth, recurrent = relu(net(w, "u", x_t, h)), np.tanh(net(w, "g", x_t, h))
        gate_y, gate_h = sig(net(w, "p", x_t, h)), sig(net(w, "k", x_t, h))
        bare = w["E.U"] @ x_t if "E.U" in w else x_t
        h = gate_h * h + (1 - gate_h) * recurrent
        outputs.append(gate_y * bare + (1 - gate_y) * depth)
    return outputs, (h,)


def elstm(w: Weights, x: Array, h: Array, c: Array, t: Array, longest: int = 100) -> Result:
    outputs = []
    for k, x_t in enumerate(x):
        i, f, o = (sig(w[f"{gate}.W"] @ h + w[f"{gate}.U"] @ x_t) for gate in "ifo")
        scale = w["S"][min(int(t[0].real) + k, longest - 1)]
        c = f * c + scale * i * np.tanh(w["g.W"] @ h + w["g.U"] @ x_t) + w["b"]
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c, t + len(x))


TRANSCRIPTIONS = {
    "residual_lstm": residual_lstm,
    "mc_lstm_working_memory": working_memory,
    "memory_controller_lstm": memory_controller_lstm,
    "nested_lstm": nested_lstm,
    "nas": nas,
    "intersection_rnn": intersection_rnn,
    "elstm": elstm,
}
