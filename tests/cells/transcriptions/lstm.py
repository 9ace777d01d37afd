"""A13 to A17, B12 to B15: long short-term memory and its close kin.

`peephole` is A13 with the switches of Greff et al.; what is more than a switch is written out on its own.
"""

import numpy as np

from .mathematics import Array, Result, Weights, clip, net, sig


def lstm(w: Weights, x: Array, h: Array, c: Array) -> Result:
    outputs = []
    for x_t in x:
        i, f, o = (sig(net(w, gate, x_t, h)) for gate in "ifo")
        c = f * c + i * np.tanh(net(w, "g", x_t, h))
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c)


def peephole(w: Weights, x: Array, h: Array, c: Array, without: str = "") -> Result:
    outputs, one = [], np.ones(len(c))
    for x_t in x:
        i = one if without == "NIG" else sig(net(w, "i", x_t, h) + w["p_i"] * c)
        if without == "CIFG":
            f = 1 - i
        else:
            f = one if without == "NFG" else sig(net(w, "f", x_t, h) + w["p_f"] * c)
        new = net(w, "g", x_t, h) if without == "NIAF" else np.tanh(net(w, "g", x_t, h))
        c = f * c + i * new
        o = one if without == "NOG" else sig(net(w, "o", x_t, h) + w["p_o"] * c)
        h = o * c if without == "NOAF" else o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c)


def variant(without: str):
    return lambda w, x, h, c: peephole(w, x, h, c, without)


def original_lstm(w: Weights, x: Array, h: Array, c: Array, squash: str = "tanh", block_size: int = 1) -> Result:
    outputs = []
    for x_t in x:
        i, o = (_block_gate(w, gate, x_t, h, block_size) for gate in "io")
        a = net(w, "g", x_t, h)
        c = c + i * (np.tanh(a) if squash == "tanh" else 4 * sig(a) - 2)
        h = o * (np.tanh(c) if squash == "tanh" else 2 * sig(c) - 1)
        outputs.append(h)
    return outputs, (h, c)


def _block_gate(w: Weights, gate: str, x: Array, h: Array, block_size: int) -> Array:
    """One number a block, seen by each of its cells."""
    kind = "_raw" if block_size > 1 else ""
    block = sig(w[f"{gate}.W{kind}"] @ h + w[f"{gate}.U{kind}"] @ x + w[f"{gate}.b{kind}"])
    return np.array([block[unit // block_size] for unit in range(len(h))])


def full_gate_lstm(w: Weights, x: Array, h: Array, c: Array, i: Array, f: Array, o: Array) -> Result:
    outputs = []
    for x_t in x:
        a = {
            gate: w[f"{gate}.W_h"] @ h
            + w[f"{gate}.U"] @ x_t
            + w[f"{gate}.b"]
            + w[f"{gate}.W_i"] @ i
            + w[f"{gate}.W_f"] @ f
            + w[f"{gate}.W_o"] @ o
            for gate in "ifo"
        }
        i = sig(a["i"] + w["p_i"] * c)
        f = sig(a["f"] + w["p_f"] * c)
        c = f * c + i * np.tanh(net(w, "g", x_t, h))
        o = sig(a["o"] + w["p_o"] * c)
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c, i, f, o)


def original_full_gate_lstm(
    w: Weights, x: Array, h: Array, c: Array, i: Array, o: Array, squash: str = "1997"
) -> Result:
    outputs = []
    for x_t in x:
        a = {
            k: w[f"{k}.W_h"] @ h + w[f"{k}.U"] @ x_t + w[f"{k}.b"] + w[f"{k}.W_i"] @ i + w[f"{k}.W_o"] @ o for k in "io"
        }
        i, o, new = sig(a["i"]), sig(a["o"]), net(w, "g", x_t, h)
        c = c + i * (np.tanh(new) if squash == "tanh" else 4 * sig(new) - 2)
        h = o * (np.tanh(c) if squash == "tanh" else 2 * sig(c) - 1)
        outputs.append(h)
    return outputs, (h, c, i, o)


def dynamic_cortex_memory(
    w: Weights, x: Array, h: Array, c: Array, i: Array, f: Array, o: Array, same_step: bool = False
) -> Result:
    outputs = []
    for x_t in x:
        a = {g: net(w, g, x_t, h) + w[f"r_{g}i"] * i + w[f"r_{g}f"] * f + w[f"r_{g}o"] * o for g in "ifo"}
        i = sig(a["i"] + w["p_i"] * c)
        f = sig(a["f"] + w["p_f"] * c + (w["k_fi"] * i if same_step else 0))
        c = f * c + i * np.tanh(net(w, "g", x_t, h))
        o = sig(a["o"] + w["p_o"] * c + (w["k_oi"] * i + w["k_of"] * f if same_step else 0))
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c, i, f, o)


def projection_lstm(
    w: Weights,
    x: Array,
    r: Array,
    c: Array,
    proj_size: int = 2,
    output_proj_size: int = 0,
    peepholes: bool = True,
    cell_clip: float = np.inf,
    proj_clip: float = np.inf,
    forget_bias: float = 0.0,
) -> Result:
    p_i, p_f, p_o = (w[f"p_{gate}"] if peepholes else 0.0 for gate in "ifo")
    outputs = []
    for x_t in x:
        i = sig(net(w, "i", x_t, r) + p_i * c)
        f = sig(net(w, "f", x_t, r) + p_f * c + forget_bias)
        c = clip(f * c + i * np.tanh(net(w, "g", x_t, r)), cell_clip)
        o = sig(net(w, "o", x_t, r) + p_o * c)
        m = o * np.tanh(c)
        r = clip(w["R.W"] @ m, proj_clip)
        outputs.append(np.concatenate([r, w["Q.W"] @ m]) if output_proj_size else r)
    return outputs, (r, c)


def slope_lstm(w: Weights, x: Array, h: Array, c: Array, per: str = "unit") -> Result:
    outputs = []
    for x_t in x:
        i = sig(w["lambda_i"] * (net(w, "i", x_t, h) + w["p_i"] * c))
        f = sig(w["lambda_f"] * (net(w, "f", x_t, h) + w["p_f"] * c))
        c = f * c + i * np.tanh(net(w, "g", x_t, h))
        o = sig(w["lambda_o"] * (net(w, "o", x_t, h) + w["p_o"] * c))
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, (h, c)


TRANSCRIPTIONS = {
    "lstm": lstm,
    "vanilla_lstm": peephole,
    "original_lstm": original_lstm,
    "full_gate_lstm": full_gate_lstm,
    "original_full_gate_lstm": original_full_gate_lstm,
    "dynamic_cortex_memory": dynamic_cortex_memory,
    "projection_lstm": projection_lstm,
    "slope_lstm": slope_lstm,
    "lstm_nig": variant("NIG"),
    "lstm_nfg": variant("NFG"),
    "lstm_nog": variant("NOG"),
    "lstm_niaf": variant("NIAF"),
    "lstm_np": lstm,
    "lstm_noaf": variant("NOAF"),
    "lstm_cifg": variant("CIFG"),
}
