"""Memory tasks: adding, copy, temporal order, latch, serial recall, parity."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ..sequences import Batch
from . import scores
from .base import CanonicalTask, check_sizes, integers, one_hot, register, uniform, unpadded_batch


@register("adding")
@dataclass(frozen=True)
class Adding(CanonicalTask):
    """The adding problem: the sum of two marked numbers, one in each half (Hochreiter & Schmidhuber 1997).

    Inputs (v_t, m_t): values v uniform on (0, 1) and marks m. The trivial answer 1 has error 1/6, the variance of the
    sum.

    **Arguments**

    - `length`: steps of a sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.adding(length=50)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 2])
    """

    length: int = 100

    kind, metric, better = "regression", "mse", "lower"
    input_size, output_size, baseline = 2, 1, 1 / 6

    def __post_init__(self):
        if not isinstance(self.length, int) or self.length < 2:
            raise InputError("length", self.length, "at least 2")

    def draw(self, count: int, random: torch.Generator) -> Batch:
        half, each = self.length // 2, torch.arange(count)
        values = uniform((self.length, count), random)
        first = integers(0, half - 1, count, random)
        second = integers(half, self.length - 1, count, random)
        marks = torch.zeros_like(values)
        marks[first, each] = marks[second, each] = 1
        total = values[first, each] + values[second, each]
        return unpadded_batch(torch.stack([values, marks], dim=-1), total[:, None])

    def trivial(self, batch: Batch) -> Tensor:
        return torch.ones_like(batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.mse(outputs, batch.targets)


@register("copy_memory")
@dataclass(frozen=True)
class CopyMemory(CanonicalTask):
    """The copy task: reproduce a string of symbols after a delay (Arjovsky et al. 2016).

    The input is `items` symbols, `lag` - 1 blanks, a delimiter, and `items` blanks; the target is blank, then the
    symbols. Symbols are 0 to alphabet - 1, then the blank, then the delimiter. Guessing at the end costs items ·
    ln(alphabet) / (lag + 2 items) nats per step.

    **Arguments**

    - `lag`: steps between the string and its copy. `items`: its length. `alphabet`: the number of symbols.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.copy_memory(lag=30)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 10])
    """

    lag: int = 100
    items: int = 10
    alphabet: int = 8

    kind, metric, better = "tagging", "cross_entropy", "lower"

    def __post_init__(self):
        check_sizes(lag=self.lag, items=self.items, alphabet=self.alphabet)

    @property
    def input_size(self) -> int:
        return self.alphabet + 2

    @property
    def output_size(self) -> int:
        return self.alphabet + 1

    @property
    def baseline(self) -> float:
        return self.items * math.log(self.alphabet) / (self.lag + 2 * self.items)

    def draw(self, count: int, random: torch.Generator) -> Batch:
        blank, delimiter = self.alphabet, self.alphabet + 1
        data = torch.randint(0, self.alphabet, (self.items, count), generator=random)
        inputs = torch.full((self.lag + 2 * self.items, count), blank)
        inputs[: self.items] = data
        inputs[self.items + self.lag - 1] = delimiter
        targets = torch.full_like(inputs, blank)
        targets[-self.items :] = data
        return unpadded_batch(one_hot(inputs, self.input_size), targets)

    def trivial(self, batch: Batch) -> Tensor:
        logits = torch.full((*batch.targets.shape, self.output_size), -math.inf)
        logits[: -self.items, :, self.alphabet] = 0
        logits[-self.items :, :, : self.alphabet] = 0
        return logits

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.cross_entropy(outputs, batch.targets)


@register("temporal_order")
@dataclass(frozen=True)
class TemporalOrder(CanonicalTask):
    """Temporal order: classify the order of two symbols X or Y among distractors (HS97, task 6a).

    The symbols are at steps 10–20 and 50–60 of 100–110. A sequence begins with E and ends with B; the distractors are
    a, b, c, d. The classes are XX, XY, YX, YY.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.temporal_order()
        >>> next(task.batches(4).epoch(0)).inputs.shape[1:]  # (B, D)
        torch.Size([4, 8])
    """

    kind, metric, better = "classification", "accuracy", "higher"
    symbols = ("E", "B", "a", "b", "c", "d", "X", "Y")
    input_size, output_size, baseline = 8, 4, 1 / 4

    def draw(self, count: int, random: torch.Generator) -> Batch:
        lengths, each = integers(100, 110, count, random), torch.arange(count)
        sequence = torch.randint(2, 6, (int(lengths.max()), count), generator=random)
        first, second = (torch.randint(0, 2, (count,), generator=random) for _ in range(2))
        sequence[integers(10, 20, count, random) - 1, each] = 6 + first  # steps are counted from 1
        sequence[integers(50, 60, count, random) - 1, each] = 6 + second
        sequence[0], sequence[lengths - 1, each] = 0, 1
        sequence[torch.arange(len(sequence))[:, None] >= lengths] = -1
        return Batch(one_hot(sequence, self.input_size), 2 * first + second, lengths, each)

    def trivial(self, batch: Batch) -> Tensor:
        return one_hot(torch.zeros_like(batch.targets), self.output_size)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.accuracy(outputs, batch.targets)


@register("latch")
@dataclass(frozen=True)
class Latch(CanonicalTask):
    """Latching: classify the sign of the first inputs after a long stretch of noise (Bengio et al. 1994).

    **Arguments**

    - `length`: steps of a sequence. `noise`: its standard deviation. `shown`: how many inputs have the sign.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.latch(length=50)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 1])
    """

    length: int = 100
    noise: float = 0.2
    shown: int = 3

    kind, metric, better = "classification", "accuracy", "higher"
    input_size, output_size, baseline = 1, 2, 1 / 2

    def __post_init__(self):
        check_sizes(length=self.length, shown=self.shown)
        if self.shown > self.length or self.noise < 0:
            raise InputError(
                "latch", f"shown {self.shown} of {self.length}, noise {self.noise}", "shown ≤ length, noise ≥ 0"
            )

    def draw(self, count: int, random: torch.Generator) -> Batch:
        labels = torch.randint(0, 2, (count,), generator=random)
        inputs = self.noise * torch.randn(self.length, count, generator=random, dtype=torch.float64)
        inputs[: self.shown] = 2.0 * labels - 1
        return unpadded_batch(inputs[..., None], labels)

    def trivial(self, batch: Batch) -> Tensor:
        return one_hot(torch.zeros_like(batch.targets), self.output_size)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.accuracy(outputs, batch.targets)


@register("serial_recall")
@dataclass(frozen=True)
class SerialRecall(CanonicalTask):
    """Serial recall: reproduce a string after a delay, from a cue on (Sutskever & Hinton 2010).

    Symbols are 0 to alphabet - 1, then the blank, then the cue. Only the recalled symbols are scored.

    **Arguments**

    - `items`: the length of the string. `delay`: blanks before the cue. `alphabet`: the number of symbols.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.serial_recall(items=5, delay=20)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([30, 4, 28])
    """

    items: int = 5
    delay: int = 20
    alphabet: int = 26

    kind, metric, better = "tagging", "accuracy", "higher"

    def __post_init__(self):
        check_sizes(items=self.items, delay=self.delay, alphabet=self.alphabet)

    @property
    def input_size(self) -> int:
        return self.alphabet + 2

    @property
    def output_size(self) -> int:
        return self.alphabet + 1

    @property
    def baseline(self) -> float:
        return 1 / self.alphabet

    def draw(self, count: int, random: torch.Generator) -> Batch:
        string = torch.randint(0, self.alphabet, (self.items, count), generator=random)
        inputs = torch.full((2 * self.items + self.delay, count), self.alphabet)
        inputs[: self.items] = string
        inputs[self.items + self.delay] = self.alphabet + 1
        targets = torch.full_like(inputs, self.alphabet)
        targets[-self.items :] = string
        return unpadded_batch(one_hot(inputs, self.input_size), targets)

    def trivial(self, batch: Batch) -> Tensor:
        return one_hot(torch.zeros_like(batch.targets), self.output_size)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.accuracy(outputs[-self.items :], batch.targets[-self.items :])


@register("parity")
@dataclass(frozen=True)
class Parity(CanonicalTask):
    """Parity: whether the number of ones so far is odd, at every step of a random bit string.

    **Arguments**

    - `length`: steps of a sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.parity(length=40)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([40, 4, 1])
    """

    length: int = 40

    kind, metric, better = "tagging", "accuracy", "higher"
    input_size, output_size, baseline = 1, 2, 1 / 2

    def __post_init__(self):
        check_sizes(length=self.length)

    def draw(self, count: int, random: torch.Generator) -> Batch:
        bits = torch.randint(0, 2, (self.length, count), generator=random)
        return unpadded_batch(bits[..., None].double(), bits.cumsum(dim=0) % 2)

    def trivial(self, batch: Batch) -> Tensor:
        return one_hot(torch.zeros_like(batch.targets), self.output_size)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.accuracy(outputs, batch.targets)
