"""
Lyapunov spectra: order and chaos in a random network
=====================================================

A random tanh network is calm or chaotic, depending on the size of its weights. The largest Lyapunov exponent says how
fast two nearby states part: below zero they come together, above zero they part exponentially.
"""

import torch

import recurra as rc

torch.manual_seed(0)
W = torch.randn(60, 60) / 60**0.5
silence = torch.zeros(400, 1, 1)


def network(gain: float) -> rc.Recurrent:
    layer = rc.RNN(1, 60)
    with torch.no_grad():
        layer.cells[0].a.W.copy_(gain * W)
    return layer


spectra = {}
for gain in (0.8, 1.2, 1.6, 2.0):
    x = silence.clone()
    x[:20] = torch.randn(20, 1, 1)  # a push, then nothing
    spectra[f"gain {gain}"] = rc.inspect.lyapunov(network(gain), x, steps=400, count=20).exponents["RNN"]
print({name: round(float(values[0]), 3) for name, values in spectra.items()})

rc.inspect.curves(
    spectra, range(1, 21), title="Lyapunov spectra", labels=("rank", "exponent per step"), markers=True
)  # fmt: skip
