"""
Memory curves
=============

How well can the input of k steps ago be read from the state, by the best linear readout? The curves tell what a cell
remembers before it has learned anything: a start from which some tasks are near and others are far.
"""

import torch

import recurra as rc

torch.manual_seed(0)
noise = torch.rand(1500, 1, 1) * 2 - 1
recall = {}
for name in ("rnn", "orthogonal_rnn", "lstm", "gru", "lem", "scrn", "leaky_rnn", "lmu"):
    curve = rc.inspect.memory_curve(rc.layer(name, 1, 40), noise, delays=60)
    recall[f"{name}: {curve.capacity():.0f} of 40"] = next(iter(curve.recalled.values()))

rc.inspect.curves(recall, title="Recall of the input k steps ago", labels=("k", "squared correlation"))
