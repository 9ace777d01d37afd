"""The tasks of Hochreiter & Schmidhuber 1997 that `recurra.data.tasks` has not, in the paper's numbers.

Each is a function of a count and a generator, and returns a batch.
"""

import torch

from recurra.data import tasks
from recurra.data.sequences import Batch
from recurra.data.tasks.base import integers, one_hot, uniform

LAG = 100


def noise_free(count: int, random: torch.Generator) -> Batch:
    """2a: (y, a_1 … a_{p-1}, y) or (x, a_1 … a_{p-1}, x), p = 100; predict the last symbol.

    The paper asks for all symbols, from outputs that also see the input; here x or y is asked at the end alone.
    """
    classes = integers(0, 1, count, random)
    middle = torch.arange(2, LAG + 1)[:, None].expand(-1, count)
    symbols = torch.cat([classes[None], middle, classes[None]])  # (p + 1, B)
    lengths, each = torch.full((count,), LAG), torch.arange(count)
    return Batch(one_hot(symbols[:-1], LAG + 1), classes, lengths, each)


def distracted(count: int, random: torch.Generator, lag: int = 50, distractors: int = 50) -> Batch:
    """2c: b, then x or y, at least q = 50 of p = 50 distractors, e; which of x and y was it?

    After the q-th distractor another follows with a chance of 9 in 10, each time.
    """
    b, e, x = distractors, distractors + 1, distractors + 2
    classes, each = integers(0, 1, count, random), torch.arange(count)
    more = (torch.log(1 - uniform((count,), random)) / torch.log(torch.tensor(0.9))).floor().long()
    lengths = lag + more + 3
    symbols = torch.randint(0, distractors, (int(lengths.max()), count), generator=random)
    symbols[0], symbols[1], symbols[lengths - 1, each] = b, x + classes, e
    symbols[torch.arange(len(symbols))[:, None] >= lengths] = -1
    return Batch(one_hot(symbols, distractors + 4), classes, lengths, each)


def two_sequences(count: int, random: torch.Generator) -> Batch:
    """3a: 1 or -1 in the first three of 100 to 110 steps, noise of variance 0.2 in the others; which class?"""
    lengths = integers(LAG, LAG + 10, count, random)
    batch = tasks.latch(length=LAG + 10, noise=0.2**0.5, shown=3).draw(count, random)
    past = torch.arange(LAG + 10)[:, None] >= lengths
    return Batch(batch.inputs.float().masked_fill(past[..., None], 0.0), batch.targets, lengths, batch.ids)


def adding(count: int, random: torch.Generator) -> Batch:
    """4: values in [-1, 1], and 1/2 + (v + v') / 4 is wanted."""
    batch = tasks.adding(length=LAG).draw(count, random)
    values, marks = batch.inputs.unbind(-1)
    return Batch(torch.stack([2 * values - 1, marks], -1), batch.targets / 2, batch.lengths, batch.ids)


def multiplication(count: int, random: torch.Generator) -> Batch:
    """5: values in [0, 1], and the product of the two that are marked is wanted."""
    batch = tasks.adding(length=LAG).draw(count, random)
    values, marks = batch.inputs.unbind(-1)
    product = torch.where(marks > 0, values, 1.0).prod(0)
    return Batch(batch.inputs, product[:, None], batch.lengths, batch.ids)


def reber(count: int, random: torch.Generator) -> Batch:
    """1: embedded Reber strings; predict each next symbol."""
    return tasks.embedded_reber().draw(count, random)


def temporal_order(count: int, random: torch.Generator) -> Batch:
    """6a: the order of X and Y among distractors, four classes."""
    return tasks.temporal_order().draw(count, random)
