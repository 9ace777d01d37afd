"""Counting: aⁿbⁿ learned from n ≤ 10, and how far beyond it holds (Gers & Schmidhuber 2001).

At each step all symbols that may come next are wanted, one output each, as in the paper: a string is right if at every
step exactly the legal ones are above one half. The peephole LSTM without a forget gate: strings come one by one, and
counting needs no forgetting.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.proofs.common import Clock, Row, set_rate
from recurra.data import tasks
from recurra.data.batching import generator
from recurra.train import BPTT, DEKF, Predictor


class Probabilities(nn.Module):
    """A linear readout through sigmoids: what a filter observes."""

    def __init__(self, hidden_size: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(hidden_size, outputs)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h).sigmoid()


def largest_n(model: Predictor, half: float, highest: int = 1000) -> int:
    """The largest n up to which every string asked is right: all to 40, then every 20th."""
    right = 0
    for n in [*range(1, 41), *range(60, highest + 1, 20)]:
        task = tasks.anbn(low=n, high=n)
        batch = task.draw(1, generator(0))
        with torch.no_grad():
            outputs = model(batch.inputs.double())[0]
        if not torch.equal(outputs > half, task.legal(batch)):
            break
        right = n
    return right


def counting(rule: str, seed: int, minutes: float) -> Row:
    """The largest n after training, and the best of the looks on the way."""
    clock, bptt = Clock(minutes), rule == "bptt"
    torch.manual_seed(seed)
    task, units = tasks.anbn(high=10), 2
    layer = rc.layer("lstm_nfg", 3, units, dtype=torch.float64)
    model = Predictor(layer, 3 if bptt else Probabilities(units, 3))
    learner: Any = (
        BPTT(model, "binary_cross_entropy", "adam", 0.2, clip=1.0) if bptt else DEKF(model, "mse", anneal=2000)
    )
    steps, look, size, half = (2000, 100, 30, 0.0) if bptt else (120, 10, 10, 0.5)
    found: list[int] = []
    for number, batch in enumerate(task.batches(size, steps, seed=seed).epoch(0)):
        if bptt:
            set_rate(learner, 0.2 * (1 + math.cos(math.pi * number / steps)) / 2)
        learner.step(batch.inputs.double(), task.legal(batch).double(), batch.mask)
        if number % look == look - 1:
            found.append(largest_n(model, half))
        if clock.over:
            break
    row = {
        "seed": seed,
        "largest_n": largest_n(model, half),
        "best on the way": max(found),
        "strings": size * (number + 1),
    }
    print(rule, row, round(clock.seconds), flush=True)
    return row | {"seconds": round(clock.seconds)}
