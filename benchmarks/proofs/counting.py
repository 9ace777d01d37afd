"""Counting: aⁿbⁿ learned from n ≤ 10, and how far beyond it holds (Gers & Schmidhuber 2001).

At each step all symbols that may come next are wanted, one output each, as in the paper: a string is right if at every
step exactly the legal ones are above one half. The peephole LSTM without a forget gate: strings come one by one, and
counting needs no forgetting.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

import recurra as rc
from benchmarks.proofs.common import Clock, Row, set_rate
from recurra.data import tasks
from recurra.data.batching import generator
from recurra.data.tasks.counting import CountingTask
from recurra.train import DEKF, Predictor


class Probabilities(nn.Module):
    """A linear readout through sigmoids: what a filter observes."""

    def __init__(self, hidden_size: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(hidden_size, outputs)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h).sigmoid()


def largest_n(
    model: Predictor, half: float, highest: int = 1000, language: Callable[..., CountingTask] = tasks.anbn
) -> int:
    """The largest n up to which every string asked is right: all to 40, then every 20th."""
    right = 0
    for n in [*range(1, 41), *range(60, highest + 1, 20)]:
        task = language(low=n, high=n)
        batch = task.draw(1, generator(0))
        with torch.no_grad():
            outputs = model(batch.inputs.double())[0]
        if not torch.equal(outputs > half, task.legal(batch)):
            break
        right = n
    return right


def counting_dekf(seed: int, minutes: float) -> Row:
    """The filter, ten strings at a time: the largest n after training, and the best of the looks on the way."""
    clock = Clock(minutes)
    torch.manual_seed(seed)
    task, units, found = tasks.anbn(high=10), 3, []
    model = Predictor(rc.layer("lstm_nfg", 3, units, dtype=torch.float64), Probabilities(units, 3))
    learner = DEKF(model, "mse", q=(1e-2, 1e-9), anneal=2000)
    for number, batch in enumerate(task.batches(10, 80, seed=seed).epoch(0)):
        learner.step(batch.inputs.double(), task.legal(batch).double(), batch.mask)
        if number % 5 == 4:
            found.append(largest_n(model, 0.5))
        if clock.over:
            break
    row = {"seed": seed, "largest_n": found[-1], "best on the way": max(found), "strings": 10 * learner.steps}
    print("dekf", row, round(clock.seconds), flush=True)
    return row | {"seconds": round(clock.seconds)}


def counting_bptt(
    seeds: list[int],
    minutes: float,
    steps: int = 2000,
    language: Callable[..., CountingTask] = tasks.anbn,
    units: int = 2,
    rate: float = 0.2,
) -> list[Row]:
    """BPTT and Adam on batches of 30 strings; all seeds beside each other, as one network with one more axis.

    The first steps equal those of `rc.train.BPTT`, seed for seed.
    """
    clock, task = Clock(minutes), language(high=10)
    together = Together([_network(seed, task.input_size, units) for seed in seeds], rate)
    looks: list[list[int]] = []
    for number, batch in enumerate(task.batches(30, steps, seed=0).epoch(0)):
        together.set_rate(0.5 * rate * (1 + math.cos(math.pi * number / steps)))
        together.step(batch.inputs.double(), task.legal(batch).double(), batch.mask)
        done = clock.over or number == steps - 1
        if number % 200 == 199 or done:
            looks.append([largest_n(model, 0.0, language=language) for model in together.networks()])
            print("bptt", number + 1, looks[-1], round(clock.seconds), flush=True)
        if done:
            break
    best, seconds = [max(each) for each in zip(*looks, strict=True)], round(clock.seconds / len(seeds))
    return [
        {"seed": s, "largest_n": n, "best on the way": b, "strings": 30 * (number + 1), "seconds": seconds}
        for s, n, b in zip(seeds, looks[-1], best, strict=True)
    ]


def _network(seed: int, size: int = 3, units: int = 2) -> Predictor:
    torch.manual_seed(seed)
    return Predictor(rc.layer("lstm_nfg", size, units, dtype=torch.float64), size)


class Together:
    """Several networks of one kind, each learning as `BPTT(model, "binary_cross_entropy", "adam", rate, clip=1)`."""

    def __init__(self, models: list[Predictor], rate: float):
        self.models = models
        self.weights = {
            name: torch.stack([dict(m.named_parameters())[name].detach() for m in models]).requires_grad_()
            for name, _ in models[0].named_parameters()
        }
        self.optimizer = torch.optim.Adam(self.weights.values(), lr=rate)

    def set_rate(self, rate: float) -> None:
        set_rate(self, rate)

    def step(self, x: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        """The loss of each network (n,), before learning."""

        def loss(weights: dict[str, Tensor]) -> Tensor:
            outputs = functional_call(self.models[0], weights, (x,))[0]
            each = F.binary_cross_entropy_with_logits(outputs, target, reduction="none").sum(-1)
            return (each * mask).sum() / mask.sum()

        losses = vmap(loss)(self.weights)
        gradients = torch.autograd.grad(losses.sum(), list(self.weights.values()))
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
        shrink = (1 / (norms + 1e-6)).clamp_max(1.0)  # as torch.nn.utils.clip_grad_norm_ does, network by network
        for w, gradient in zip(self.weights.values(), gradients, strict=True):
            w.grad = gradient * shrink.view(-1, *[1] * (w.dim() - 1))
        self.optimizer.step()
        return losses.detach()

    @torch.no_grad()
    def networks(self) -> list[Predictor]:
        """Each with its own weights as they are now."""
        for k, model in enumerate(self.models):
            for name, parameter in model.named_parameters():
                parameter.copy_(self.weights[name][k])
        return self.models
