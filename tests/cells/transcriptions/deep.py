"""Cells that are deep within one step."""

import numpy as np

from .mathematics import Array, Result, Weights, sig


def rhn(w: Weights, x: Array, s: Array, transitions: int = 3, coupled: bool = True) -> Result:
    outputs = []
    for x_t in x:
        for layer in range(1, transitions + 1):

            def net(kind: str, x_t=x_t, s=s, layer=layer) -> Array:
                a = w[f"{kind}_{layer}.W"] @ s + w[f"{kind}_{layer}.b"]
                return a + w[f"{kind}_{layer}.U"] @ x_t if layer == 1 else a

            t = sig(net("t"))
            s = np.tanh(net("h")) * t + s * (1 - t if coupled else sig(net("c")))
        outputs.append(s)
    return outputs, (s,)


def fast_slow_lstm(
    w: Weights, x: Array, h: Array, c: Array, s: Array, d: Array, fast: int = 2, slow_size: int | None = None
) -> Result:
    def lstm(name: str, memory: Array, read: dict[str, Array]) -> tuple[Array, Array]:
        i, f, g, o = (sum(w[f"{name}_{k}.{m}"] @ v for m, v in read.items()) + w[f"{name}_{k}.b"] for k in "ifgo")
        memory = sig(f) * memory + sig(i) * np.tanh(g)
        return sig(o) * np.tanh(memory), memory

    memories, outputs = list(np.split(c, fast)), []
    for x_t in x:
        h, memories[0] = lstm("fast_1", memories[0], {"U": x_t, "W": h})
        s, d = lstm("slow", d, {"W_s": s, "W_h": h})
        h, memories[1] = lstm("fast_2", memories[1], {"W_h": h, "W_s": s})
        for k in range(2, fast):
            h, memories[k] = lstm(f"fast_{k + 1}", memories[k], {"W": h})
        outputs.append(h)
    return outputs, (h, np.concatenate(memories), s, d)


TRANSCRIPTIONS = {"rhn": rhn, "fast_slow_lstm": fast_slow_lstm}
