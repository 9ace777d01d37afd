"""Sequences that are windows of one series, cut one after the other so that they share steps.

A left-out window is nearly known if its neighbours are not left out: features that remember would seem to forecast.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

FEWEST = 20  # windows
BLOCKS = 10  # that are left out one after the other
LEAST_SHARED = 8  # the part of its steps that a window must share with the next, as a divisor
USUAL = 0.9  # the share of windows that overlap the next: several series may follow each other


class Held(NamedTuple):
    """Rows to leave out together, and which of them to predict; the margin around these is too near to learn from."""

    rows: np.ndarray
    predicted: slice


def blocks_of_windows(series: Sequence[np.ndarray]) -> list[Held] | None:
    """Blocks of neighbours to leave out together, with a margin on both sides; None unless windows overlap."""
    steps = len(series[0])
    shift = _shift(series)
    if shift is None:
        return None
    count, margin = len(series), -(-steps // shift)
    ends = np.linspace(0, count, BLOCKS + 1).round().astype(int)
    margin = min(margin, int(np.diff(ends).min()))
    found = []
    for first, stop in pairwise(ends):
        start = max(0, first - margin)
        rows = np.arange(start, min(count, stop + margin))
        found.append(Held(rows, slice(first - start, stop - start)))
    return found


def _shift(series: Sequence[np.ndarray]) -> int | None:
    """By how many steps every window begins after the one before it; None unless windows share steps."""
    steps = len(series[0])
    if len(series) < FEWEST or any(len(x) != steps for x in series):
        return None
    first, second = series[0], series[1]
    last = steps - max(3, steps // LEAST_SHARED)
    shift = next((s for s in range(1, last + 1) if _continues(first, second, s)), None)
    if shift is None:
        return None
    shared = np.mean([_continues(a, b, shift) for a, b in pairwise(series)])
    return shift if shared >= USUAL else None


def _continues(before: np.ndarray, after: np.ndarray, shift: int) -> bool:
    """Whether a window goes on where another one is after `shift` steps; constant steps do not tell."""
    shared = before[shift:]
    return bool(np.array_equal(shared, after[: len(shared)]) and np.ptp(shared) > 0)
