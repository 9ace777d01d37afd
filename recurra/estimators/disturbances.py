"""Disturbances of a series: single wild values, and breaks after which it goes on at another level.

A regression that reads a wild value forecasts another one, and an interval in units of a window that holds the level
before a break and after it is as wide as the break. So the past is calmed first: wild values are replaced, and what
came before a break is moved to the level after it, in logarithms where the change is out of proportion there (a fall to
a thousandth) and in values elsewhere. This is the classical treatment by interventions (Chen & Liu 1993).

Only what no ordinary change comes near is taken for a disturbance, and only if it is rare: what recurs is a part of the
series, to be forecast.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

WILD = 10.0  # times the largest usual change
UNUSUAL, FEWEST_UNUSUAL = 0.02, 4  # the share of changes, and how many at least, that may be out of the usual
SHORTEST = 40  # steps that tell what is usual
LONGEST_SPIKE = 2  # steps; what lasts longer is another level
AROUND = 8  # steps on both sides whose medians tell one level from another
MOST_BREAKS = 3  # more are a part of the series
OTHER_SIZE = 4.0  # times: changes after a break that are so much larger or smaller are another scale


class Limits(NamedTuple):
    """The changes from one step to the next beyond which a series is disturbed, and what it does not fall below."""

    values: float = np.inf
    logs: float = np.inf
    floor: float = -np.inf

    @classmethod
    def of(cls, y: np.ndarray, seasons: Sequence[int]) -> "Limits":
        """From the whole past of a series (T,). One that has been zero and never less is taken to stay so."""
        least = float(y.min(initial=np.inf))
        logs = _limit(np.log(y), seasons) if len(y) and least > 0 else np.inf
        return cls(_limit(y, seasons), logs, 0.0 if least == 0 else -np.inf)


def _limit(y: np.ndarray, seasons: Sequence[int]) -> float:
    if len(y) < SHORTEST:
        return np.inf
    changes = np.sort(np.abs(np.diff(y)))
    unusual = max(FEWEST_UNUSUAL, int(UNUSUAL * len(changes)))
    usual, least = changes[-1 - unusual], 1e-9 * np.abs(y).max()
    if usual <= least and unusual > FEWEST_UNUSUAL:
        return np.inf
    limit = float(WILD * usual) if usual > least else float(changes[changes > least].min(initial=np.inf)) / 2
    return limit if len(_breaks(_without_spikes(y, limit, seasons), limit, seasons)) <= MOST_BREAKS else np.inf


def calm(y: np.ndarray, limits: Limits, seasons: Sequence[int]) -> np.ndarray:
    """The series (T,) without disturbances, at its last level; y itself if there are none."""
    if np.isfinite(limits.logs) and len(y) and y.min() > 0:
        logs = np.log(y)
        calmed = _calm(logs, limits.logs, seasons)
        y = y if calmed is logs else np.exp(calmed)
    return _calm(y, limits.values, seasons) if np.isfinite(limits.values) else y


def _calm(y: np.ndarray, limit: float, seasons: Sequence[int]) -> np.ndarray:
    if not np.any(np.abs(np.diff(y)) > limit):
        return y
    found = _without_spikes(y, limit, seasons)
    breaks = _breaks(found, limit, seasons)
    for at, stop in pairwise([*breaks, len(y)]):
        found[:at] = _moved(found[:at], found[at:stop], seasons)
    return y if np.array_equal(found, y) else found


def _without_spikes(y: np.ndarray, limit: float, seasons: Sequence[int]) -> np.ndarray:
    """A copy in which wild values that the series comes back from, or ends with, are replaced."""
    found = y.copy()
    for at in (1 + np.flatnonzero(np.abs(np.diff(y)) > limit)).tolist():
        before = found[at - 1]
        if abs(found[at] - before) <= limit or _recurs(y, at, limit, seasons):
            continue
        ahead = found[at : at + LONGEST_SPIKE + 1]
        back = np.flatnonzero(np.abs(ahead - before) < limit / 2)
        if not len(back) and len(ahead) > LONGEST_SPIKE:
            continue
        stop = at + (int(back[0]) if len(back) else len(ahead))
        found[at:stop] = _usual(found, at, stop, seasons)
    return found


def _usual(y: np.ndarray, at: int, stop: int, seasons: Sequence[int]) -> np.ndarray:
    """What the steps `at` to `stop` would have been: as one season before, or between their neighbours."""
    season = next((s for s in seasons if 1 < s < at), None)
    if season is not None:
        return y[at - season + np.arange(stop - at) % season] + y[at - 1] - y[at - 1 - season]
    after = y[stop] if stop < len(y) else y[at - 1]
    return np.interp(np.arange(at, stop), [at - 1, stop], [y[at - 1], after])


def _recurs(y: np.ndarray, at: int, limit: float, seasons: Sequence[int]) -> bool:
    """Whether the series changes like this a season before or after."""
    change = y[at] - y[at - 1]
    others = [at + sign * season for season in seasons if season > 1 for sign in (-1, 1)]
    return any((y[k] - y[k - 1]) * np.sign(change) > limit / 2 for k in others if 0 < k < len(y))


def _breaks(y: np.ndarray, limit: float, seasons: Sequence[int]) -> list[int]:
    """The first steps of another level that lasts."""
    found = []
    for at in (1 + np.flatnonzero(np.abs(np.diff(y)) > limit)).tolist():
        change = y[at] - y[at - 1]
        rise = np.median(y[at : at + AROUND]) - np.median(y[max(0, at - AROUND) : at])
        if len(y) - at > LONGEST_SPIKE and rise * np.sign(change) > limit / 2 and not _recurs(y, at, limit, seasons):
            found.append(at)
    return found


def _moved(before: np.ndarray, after: np.ndarray, seasons: Sequence[int]) -> np.ndarray:
    """What came before a break, at the level after it; and with its changes, if these are of another size."""
    season = next((s for s in seasons if 1 < s <= len(before)), None)
    if season is None:
        rise = np.median(after[:AROUND]) - np.median(before[-AROUND:])
    else:
        first = after[:season]
        rise = np.median(first - before[len(before) - season :][: len(first)])
    steps, level, ratio = max(season or 1, AROUND), np.median(before[-(season or AROUND) :]), 1.0
    if min(len(before), len(after)) > steps:
        sizes = [np.abs(np.diff(part)).mean() for part in (before[-steps - 1 :], after[: steps + 1])]
        ratio = sizes[1] / sizes[0] if sizes[0] and not 1 / OTHER_SIZE < sizes[1] / sizes[0] < OTHER_SIZE else 1.0
    return level + rise + ratio * (before - level)
