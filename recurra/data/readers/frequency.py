"""Detects the frequency of timestamps: fixed steps, months, month ends or business days."""

from collections.abc import Callable

import numpy as np

DAY = 86_400_000_000  # microseconds


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
    """Takes timestamps in order and keeps the calendars in which all steps so far are equal."""

    def __init__(self, dated: bool):
        self.steps: dict[str, int | None] = dict.fromkeys(CALENDARS if dated else ("clock",))

    def feed(self, times: np.ndarray, within: np.ndarray) -> int | None:
        """The first pair (k, k + 1) within a sequence after which no calendar is left, or None."""
        breaks = []
        for name in list(self.steps):
            count, rest = CALENDARS[name](times)
            steps, rests = np.diff(count), np.diff(rest)
            if self.steps[name] is None and within.any():
                self.steps[name] = int(steps[within][0])
            wrong = np.flatnonzero(within & ((steps != self.steps[name]) | (rests != 0)))
            if len(wrong):
                breaks.append(int(wrong[0]))
                del self.steps[name]
        return None if self.steps else max(breaks)
