"""
Gradient flow of eight cells
============================

How much of a gradient is left after k steps back through time, in layers as they come out of the constructor? A plain
RNN has lost it after some twenty steps, and an orthogonal matrix alone does not help, because every tanh shrinks the
gradient too. The forget gates of the LSTM keep more; the identity matrix of the IRNN and the antisymmetric matrix keep
nearly all of it.
"""

import torch

import recurra as rc

torch.manual_seed(0)
x = torch.randn(120, 4, 8)  # (T, B, D)
cells = ("rnn", "irnn", "orthogonal_rnn", "lstm", "gru", "lem", "janet", "antisymmetric_rnn")

# %%
# ``gradient_flow`` measures the norm of the gradient with respect to every earlier state; its ``profile`` is the mean
# over all pairs of steps with the same distance.
profiles = {}
for name in cells:
    flow = rc.inspect.gradient_flow(rc.layer(name, 8, 32), x).flows[-1]
    profiles[f"{name}: {flow.rate:.2f} a step"] = flow.profile[:100]

rc.inspect.curves(profiles, title="Remaining gradient", labels=("steps back", "share of the gradient"), log=True)
