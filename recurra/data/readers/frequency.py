"""Detects the frequency of timestamps: fixed steps, months, month ends or business days."""

from collections.abc import Callable, Sequence

import numpy as np

DAY = 86_400_000_000  # microseconds
JITTER = 0.05  # of a step
ROUNDING = 2  # microseconds between equal steps of times with six decimals


def _by_clock(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return times, np.zeros_like(times)


def _by_month(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    months = times.astype("datetime64[us]").astype("datetime64[M]")
    return months.astype(np.int64), times - months.astype("datetime64[us]").astype(np.int64)


def _by_month_end(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _by_month(times + DAY)


def _by_business_day(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    days = times.astype("datetime64[us]").astype("datetime64[D]")
    clock = times - days.astype("datetime64[us]").astype(np.int64)
    weekend = ~np.is_busday(days)
    return np.busday_count(np.datetime64("1970-01-01"), days).astype(np.int64), np.where(
        weekend, -1 - np.arange(len(days)), clock
    )


#: timestamps → number of periods and remainder; at a regular frequency both have constant differences
CALENDARS: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "clock": _by_clock,
    "month": _by_month,
    "month end": _by_month_end,
    "business day": _by_business_day,
}


class FrequencyDetector:
    """Takes timestamps in order and keeps the calendars in which all steps so far are equal.

    Clocks jitter: steps of seconds, or of dates less than a day apart, may differ by `JITTER`. `seconds`: times are
    numbers with decimals.
    """

    def __init__(self, dated: bool, seconds: bool = False):
        self.dated, self.seconds = dated, seconds
        self.steps: dict[str, int | None] = dict.fromkeys(CALENDARS if dated else ("clock",))

    def feed(self, times: np.ndarray, within: np.ndarray) -> int | None:
        """The first pair (k, k + 1) within a sequence after which no calendar is left, or None."""
        breaks = []
        for name in list(self.steps):
            count, rest = CALENDARS[name](times)
            steps, rests = np.diff(count), np.diff(rest)
            if self.steps[name] is None and within.any():
                self.steps[name] = median(steps[within])
            usual = self.steps[name] or 0
            allowed = allowed_jitter(usual, self.dated, self.seconds) if name == "clock" else 0
            wrong = np.flatnonzero(within & ((np.abs(steps - usual) > allowed) | (rests != 0)))
            if len(wrong):
                breaks.append(int(wrong[0]))
                del self.steps[name]
        return None if self.steps else max(breaks)


def allowed_jitter(step: int, dated: bool, seconds: bool) -> int:
    """By how many microseconds steps that are equal may differ."""
    if seconds:
        return max(ROUNDING, int(JITTER * step))
    return int(JITTER * step) if dated and step < DAY else 0


def median(steps: np.ndarray) -> int:
    """The middle one of all steps; of two, the shorter."""
    return int(np.sort(steps)[(len(steps) - 1) // 2])


def times_at(calendar: str, counts: np.ndarray, rest: int) -> np.ndarray:
    """Timestamps from numbers of periods and the remainder: the inverse of `CALENDARS`."""
    if calendar == "clock":
        return counts
    if calendar == "business day":
        days = np.busday_offset(np.datetime64("1970-01-01"), counts, roll="forward")
        return days.astype("datetime64[us]").astype(np.int64) + rest
    months = counts.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)
    return months + rest - (DAY if calendar == "month end" else 0)


def regular_grid(series: Sequence[np.ndarray], dated: bool) -> list[np.ndarray] | None:
    """The timestamps of every series with the missing ones, at the most common step; None without such a step."""
    best = None
    for name in CALENDARS if dated else ("clock",):
        counted = [CALENDARS[name](times) for times in series]
        steps = np.concatenate([np.diff(count) for count, _ in counted])
        if not len(steps) or (steps <= 0).any() or any((np.diff(rest) != 0).any() for _, rest in counted):
            continue
        values, how_often = np.unique(steps, return_counts=True)
        step = int(values[how_often.argmax()])
        if (steps % step).any():
            continue
        grid = [times_at(name, np.arange(c[0], c[-1] + 1, step), int(rest[0])) for c, rest in counted]
        if best is None or sum(map(len, grid)) < sum(map(len, best)):
            best = grid
    return best
