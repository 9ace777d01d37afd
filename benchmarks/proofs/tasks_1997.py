"""The tasks of Hochreiter & Schmidhuber 1997, in the paper's numbers.

Each is a function of a count and a generator, and returns a batch; `long` makes one of a longer lag. Adding and
temporal order follow the authors' own pages (`nipslstm/node4.html` and `node5.html` of Schmidhuber's site).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recurra.data import tasks
from recurra.data.sequences import Batch
from recurra.data.tasks.base import integers, one_hot, uniform

Draw = Callable[[int, torch.Generator], Batch]


def long(draw: Callable[..., Batch], **lags: Any) -> Draw:
    """The same task with other lags; its first line says so."""
    made = functools.partial(draw, **lags)
    told = ", ".join(f"{name} = {value:,}" for name, value in lags.items())
    made.__doc__ = (draw.__doc__ or "").partition(";")[0].split("\n")[0].rstrip(".") + f", {told}"
    return made


def noise_free(count: int, random: torch.Generator, p: int = 100) -> Batch:
    """2a: (y, a_1 … a_{p-1}, y) or (x, a_1 … a_{p-1}, x), p = 100; predict the last symbol.

    The paper asks for all symbols, from outputs that also see the input; here x or y is asked at the end alone.
    """
    classes = integers(0, 1, count, random)
    middle = torch.arange(2, p + 1)[:, None].expand(-1, count)
    return _first_again(classes, middle, p)


def no_regularities(count: int, random: torch.Generator, p: int = 100) -> Batch:
    """2b: as 2a, with p - 1 symbols of a_1 … a_{p-1} drawn at random, p = 100; predict the last symbol."""
    classes = integers(0, 1, count, random)
    return _first_again(classes, torch.randint(2, p + 1, (p - 1, count), generator=random), p)


def _first_again(classes: Tensor, middle: Tensor, p: int) -> Batch:
    count = len(classes)
    symbols = torch.cat([classes[None], middle])
    return Batch(one_hot(symbols, p + 1), classes, torch.full((count,), p), torch.arange(count))


def distracted(count: int, random: torch.Generator, q: int = 50, p: int = 50) -> Batch:
    """2c: b, then x or y, at least q of p distractors, e; which of x and y was it?

    After the q-th distractor another follows with a chance of 9 in 10, each time.
    """
    b, e, x = p, p + 1, p + 2
    classes, each = integers(0, 1, count, random), torch.arange(count)
    more = (torch.log(1 - uniform((count,), random)) / torch.log(torch.tensor(0.9))).floor().long()
    lengths = q + more + 3
    symbols = torch.randint(0, p, (int(lengths.max()), count), generator=random)
    symbols[0], symbols[1], symbols[lengths - 1, each] = b, x + classes, e
    symbols[torch.arange(len(symbols))[:, None] >= lengths] = -1
    return Batch(one_hot(symbols, p + 4), classes, lengths, each)


def two_sequences(count: int, random: torch.Generator, T: int = 100) -> Batch:
    """3a: 1 or -1 in the first three of T to T + T / 10 steps, noise of variance 0.2 in the others; which class?"""
    longest = T + T // 10
    lengths = integers(T, longest, count, random)
    batch = tasks.latch(length=longest, noise=0.2**0.5, shown=3).draw(count, random)
    past = torch.arange(longest)[:, None] >= lengths
    return Batch(batch.inputs.float().masked_fill(past[..., None], 0.0), batch.targets, lengths, batch.ids)


def adding(count: int, random: torch.Generator, T: int = 100) -> Batch:
    """4: two of T to T + T / 10 values in [-1, 1] are marked in the first half, and 1/2 + (v + v') / 4 is wanted."""
    inputs, pair, lengths = _marked(count, random, T, lowest=-1.0, first=0.0)
    return Batch(inputs, 0.5 + pair.sum(0)[:, None] / 4, lengths, torch.arange(count))


def multiplication(count: int, random: torch.Generator, T: int = 100) -> Batch:
    """5: values in [0, 1], and the product of the two that are marked is wanted."""
    inputs, pair, lengths = _marked(count, random, T, lowest=0.0, first=1.0)
    return Batch(inputs, pair.prod(0)[:, None], lengths, torch.arange(count))


def _marked(count: int, random: torch.Generator, T: int, lowest: float, first: float) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of a value and a mark, the two values marked 1, and lengths.

    The marks: one of the first ten steps, another of the first T / 2, and -1 at both ends. A value at the first step
    counts as `first`, for its mark is -1.
    """
    lengths, each = integers(T, T + T // 10, count, random), torch.arange(count)
    values = uniform((int(lengths.max()), count), random, low=lowest, high=1.0).float()
    marks, one = torch.zeros_like(values), integers(0, 9, count, random)
    other = integers(0, T // 2 - 2, count, random)
    other += other >= one  # of those that are not marked yet
    steps = torch.stack([one, other])
    marks[one, each] = marks[other, each] = 1.0
    marks[0], marks[lengths - 1, each] = -1.0, -1.0
    pair = torch.where(steps == 0, first, values[steps, each])
    past = torch.arange(len(values))[:, None] >= lengths
    return torch.stack([values.masked_fill(past, 0.0), marks], -1), pair, lengths


def reber(count: int, random: torch.Generator) -> Batch:
    """1: embedded Reber strings; predict each next symbol."""
    return tasks.embedded_reber().draw(count, random)


def temporal_order(count: int, random: torch.Generator) -> Batch:
    """6a: the order of X and Y among distractors, four classes."""
    return tasks.temporal_order().draw(count, random)


def three_symbols(count: int, random: torch.Generator) -> Batch:
    """6b: the order of three of X and Y among distractors, eight classes."""
    batch, each = tasks.temporal_order().draw(count, random), torch.arange(count)
    symbols = batch.inputs.argmax(-1)
    for low, high in ((10, 20), (50, 60)):  # where 6a has its two
        here = symbols[low - 1 : high]
        here[here >= 6] = 2
    which = torch.randint(0, 2, (3, count), generator=random)
    for k, (low, high) in enumerate(((10, 20), (33, 43), (66, 76))):
        symbols[integers(low, high, count, random) - 1, each] = 6 + which[k]
    symbols[torch.arange(len(symbols))[:, None] >= batch.lengths] = -1
    return Batch(one_hot(symbols, 8), 4 * which[0] + 2 * which[1] + which[2], batch.lengths, each)
