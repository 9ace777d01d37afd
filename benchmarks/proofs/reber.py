"""Continual embedded Reber strings, never reset: with and without a forget gate, and how many symbols it takes.

Gers, Schmidhuber & Cummins 2000; with a Kalman filter, Pérez-Ortiz, Gers, Eck & Schmidhuber 2003. Eight memory cells,
as many as in the first paper, each with gates of its own.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import recurra as rc
from benchmarks.proofs.common import Clock, Row, set_rate
from recurra.data import tasks
from recurra.data.batching import generator
from recurra.train import DEKF, OriginalLSTMRule, Predictor


def streams(count: int, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless embedded Reber strings, `count` beside each other, in pieces of `steps`."""
    task = tasks.continual_reber(length=6000)
    for number in range(10_000):
        batch = task.draw(count, generator(seed, number))
        for start in range(0, 6000, steps):
            yield batch.inputs[start : start + steps], batch.targets[start : start + steps]


class Judge:
    """How many outer predictions are right on eight streams kept apart."""

    def __init__(self, seed: int, length: int):
        self.task = tasks.continual_reber(length=length)
        self.batch = self.task.draw(8, generator(77_000 + seed))

    @torch.no_grad()
    def __call__(self, model: Predictor) -> float:
        return self.task.score(model(self.batch.inputs)[0], self.batch)


def reber(cell: str, seed: int, minutes: float, symbols: int = 1_000_000) -> Row:
    """The original rule on four streams, until 99.5 % is right on streams kept for that; then 80,000 other symbols."""
    clock = Clock(minutes)
    torch.manual_seed(seed)
    model = Predictor(rc.layer(cell, 7, 8), 7)
    learner = OriginalLSTMRule(model, "cross_entropy", "adam", 0.01, carry=True, clip=1.0)
    watch, seen = Judge(seed, 1000), 0
    for number, (x, target) in enumerate(streams(4, 30, seed)):
        set_rate(learner, 0.01 * 0.5 ** (seen / 300_000))
        learner.step(x, target)
        seen += target.numel()
        if (number % 200 == 199 and watch(model) >= 0.995) or seen >= symbols or clock.over:
            break
    row = {"seed": seed, "accuracy": round(Judge(seed + 1000, 10_000)(model), 4), "symbols": seen}
    print(cell, row, round(clock.seconds), flush=True)
    return row | {"seconds": round(clock.seconds)}


def fewer_symbols(rule: str, seed: int, minutes: float) -> Row:
    """One stream: symbols until 98 % of outer predictions are right, looked at every 500."""
    clock = Clock(minutes)
    torch.manual_seed(seed)
    model = Predictor(rc.layer("lstm", 7, 8), 7)
    if rule == "dekf":
        learner: Any = DEKF(model, "cross_entropy", derivatives="rtrl", carry=True, anneal=2000)
    else:
        learner = OriginalLSTMRule(model, "cross_entropy", "adam", 0.005, carry=True, clip=1.0)
    judge, seen, score, piece = Judge(seed, 1000), 0, 0.0, 500 if rule == "dekf" else 20
    for x, target in streams(1, piece, seed):
        learner.step(x, target)
        seen += len(x)
        if seen % 500 == 0:
            score = judge(model)
            if score >= 0.98 or clock.over:
                break
    print(rule, seed, seen, round(score, 4), round(clock.seconds), flush=True)
    return {"seed": seed, "symbols": seen, "accuracy": round(score, 4), "seconds": round(clock.seconds)}
