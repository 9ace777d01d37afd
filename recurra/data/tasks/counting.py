"""Tasks of counting and timing: strings with equal numbers of symbols, and the distance between spikes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import InputError
from ..sequences import IGNORE, Batch
from . import scores
from .base import CanonicalTask, check_sizes, integers, one_hot, register, whole


@dataclass(frozen=True)
class CountingTask(CanonicalTask):
    """S, then n of each letter in turn, then T; at every step the next symbol is wanted (Gers & Schmidhuber 2001).

    While the first letter is read, both it and the second may follow; from then on n decides all. A string is right if
    every largest output is legal. Without counting, at best n = 1 is right: one string in as many as there are n.
    """

    low: int = 1
    high: int = 10

    letters: ClassVar[int]

    kind, metric, better = "tagging", "strings_right", "higher"

    def __post_init__(self):
        check_sizes(low=self.low, high=self.high)
        if self.low > self.high:
            raise InputError("low", self.low, f"at most high = {self.high}")

    @property
    def input_size(self) -> int:
        return self.letters + 1  # S and the letters

    @property
    def output_size(self) -> int:
        return self.letters + 1  # the letters and T

    @property
    def baseline(self) -> float:
        return 1 / (self.high - self.low + 1) if self.low == 1 else 0.0

    @property
    def classes(self) -> tuple[str, ...]:
        return (*"abc"[: self.letters], "T")

    def draw(self, count: int, random: torch.Generator) -> Batch:
        repeats = integers(self.low, self.high, count, random)
        lengths = 1 + self.letters * repeats
        steps = torch.arange(int(lengths.max()))[:, None]
        inputs = torch.where(steps == 0, 0, 1 + (steps - 1) // repeats)  # S is 0, a is 1, …
        targets = steps // repeats  # a is 0, …, T is the number of letters
        padding = steps >= lengths
        batch = whole(one_hot(inputs.masked_fill(padding, -1), self.input_size), targets.masked_fill(padding, IGNORE))
        batch.lengths = lengths
        return batch

    def legal(self, batch: Batch) -> Tensor:
        """Which symbols may follow: (T, B, letters + 1) bool."""
        reading_first = batch.inputs[..., 1] > 0
        legal = one_hot(batch.targets, self.output_size) > 0
        legal[..., :2] |= reading_first[..., None]
        return legal

    def trivial(self, batch: Batch) -> Tensor:
        """After S comes a, after each letter the next one, after the last T."""
        return batch.inputs

    def score(self, outputs: Tensor, batch: Batch) -> float:
        chosen = outputs.argmax(dim=-1, keepdim=True)
        right = self.legal(batch).gather(-1, chosen)[..., 0] | ~batch.mask
        return float(right.all(dim=0).double().mean())


@register("anbn")
@dataclass(frozen=True)
class AnBn(CountingTask):
    """a^n b^n, n from `low` to `high`: a context-free language."""

    letters = 2


@register("anbncn")
@dataclass(frozen=True)
class AnBnCn(CountingTask):
    """a^n b^n c^n, n from `low` to `high`: a context-sensitive language."""

    letters = 3


@register("spike_distance")
@dataclass(frozen=True)
class SpikeDistance(CanonicalTask):
    """Spikes at intervals F + I with I uniform on 0..10: at each spike, I / 10 (Gers & Schmidhuber 2000).

    A spike comes at the first step, and the sequence ends with the last one; the target is zero where there is no
    spike, and only the spikes that end an interval are scored. Answering 1/2 at each has the variance of I / 10 as
    error, 1/10. The scaling of the target is our choice.
    """

    offset: int = 10
    intervals: int = 5

    kind, metric, better = "transduction", "mse", "lower"
    input_size, output_size, baseline = 1, 1, 1 / 10

    def __post_init__(self):
        check_sizes(offset=self.offset, intervals=self.intervals)

    def draw(self, count: int, random: torch.Generator) -> Batch:
        extras = torch.randint(0, 11, (self.intervals, count), generator=random)
        times = (self.offset + extras).cumsum(dim=0)
        lengths = times[-1] + 1
        inputs, targets = (torch.zeros(int(lengths.max()), count, dtype=torch.float64) for _ in range(2))
        inputs[0] = 1
        inputs.scatter_(0, times, 1.0)
        targets.scatter_(0, times, extras.double() / 10)
        batch = whole(inputs[..., None], targets[..., None])
        batch.lengths = lengths
        return batch

    def scored(self, batch: Batch) -> Tensor:
        """The spikes that end an interval: (T, B)."""
        spikes = batch.inputs[..., 0] > 0
        spikes[0] = False
        return spikes

    def trivial(self, batch: Batch) -> Tensor:
        return batch.inputs / 2

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.mse(outputs, batch.targets, self.scored(batch))
