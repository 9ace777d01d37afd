"""Counting and timing tasks: a^n b^n, a^n b^n c^n, and the distance between spikes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import InputError
from ..sequences import IGNORE, Batch
from . import scores
from .base import CanonicalTask, check_sizes, integers, one_hot, register, unpadded_batch


@dataclass(frozen=True)
class CountingTask(CanonicalTask):
    """Predict the next symbol of S, n times each letter, T (Gers & Schmidhuber 2001).

    After the first letter, itself or the second letter may follow; later symbols follow from n. A string is correct if
    the largest output is legal at every step. Without counting, only n = 1 can be correct.
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
        batch = unpadded_batch(
            one_hot(inputs.masked_fill(padding, -1), self.input_size), targets.masked_fill(padding, IGNORE)
        )
        batch.lengths = lengths
        return batch

    def legal(self, batch: Batch) -> Tensor:
        """(T, B, letters + 1) bool: the symbols that may follow."""
        reading_first = batch.inputs[..., 1] > 0
        legal = one_hot(batch.targets, self.output_size) > 0
        legal[..., :2] |= reading_first[..., None]
        return legal

    def trivial(self, batch: Batch) -> Tensor:
        """Predicts a after S, after each letter the next one, and T after the last."""
        return batch.inputs

    def score(self, outputs: Tensor, batch: Batch) -> float:
        chosen = outputs.argmax(dim=-1, keepdim=True)
        right = self.legal(batch).gather(-1, chosen)[..., 0] | ~batch.mask
        return float(right.all(dim=0).double().mean())


@register("anbn")
@dataclass(frozen=True)
class AnBn(CountingTask):
    """Predict strings a^n b^n, a context-free language.

    **Arguments**

    - `low`, `high`: the range of n, inclusive.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.anbn(low=3, high=3)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([7, 4, 3])
    """

    letters = 2


@register("anbncn")
@dataclass(frozen=True)
class AnBnCn(CountingTask):
    """Predict strings a^n b^n c^n, a context-sensitive language.

    **Arguments**

    - `low`, `high`: the range of n, inclusive.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.anbncn(low=3, high=3)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([10, 4, 4])
    """

    letters = 3


@register("spike_distance")
@dataclass(frozen=True)
class SpikeDistance(CanonicalTask):
    """Measure intervals between spikes: `offset` + I I uniform on 0..10 (Gers & Schmidhuber 2000).

    The target at a spike is I / 10. The first spike is at the first step; the sequence ends with the last one. The
    target is zero at other steps. Only spikes that end an interval are scored. The trivial answer 1/2 has error 1/10,
    the variance of I / 10. The scaling of the target is our choice.

    **Arguments**

    - `offset`: the shortest interval. `intervals`: how many per sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.spike_distance(offset=10, intervals=5)
        >>> next(task.batches(4).epoch(0)).inputs.shape[1:]  # (B, D)
        torch.Size([4, 1])
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
        batch = unpadded_batch(inputs[..., None], targets[..., None])
        batch.lengths = lengths
        return batch

    def scored(self, batch: Batch) -> Tensor:
        """(T, B) bool: the spikes that end an interval."""
        spikes = batch.inputs[..., 0] > 0
        spikes[0] = False
        return spikes

    def trivial(self, batch: Batch) -> Tensor:
        return batch.inputs / 2

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.mse(outputs, batch.targets, self.scored(batch))
