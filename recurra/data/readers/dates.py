"""Dates as people write them: 1949-01, 2012/01/31, 31.01.1949, Jan 1949, 1970 Q1, 19580329, times and zones.

A column is read in one format: the first of `FORMATS` that fits all its values. 01/02/2012 fits two, day first and
month first; a value such as 31/01/2012 decides, or the option `dates`, otherwise the column is refused with both
readings. A year of two digits is one of 1930 to 2029, as spreadsheets read it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np

DateOrder = Literal["day-first", "month-first"]

#: names of the twelve months in English, German, French, Spanish, Italian, Dutch and Portuguese
MONTHS = (
    "jan january januar jänner janv janvier ene enero gen gennaio januari janeiro",
    "feb february februar févr février fevrier febrero febbraio februari fev fevereiro",
    "mar march mär märz mrz maerz mars marzo maart mrt março marco",
    "apr april avr avril abr abril aprile",
    "may mai mayo mag maggio mei maio",
    "jun june juni juin junio giu giugno junho",
    "jul july juli juil juillet julio lug luglio julho",
    "aug august août aout ago agosto augustus",
    "sep sept september septembre septiembre set settembre setembro",
    "oct october okt oktober octobre octubre ott ottobre out outubro",
    "nov november novembre noviembre novembro",
    "dec december dez dezember déc décembre decembre dic diciembre dicembre dezembro",
)
MONTH_NUMBERS = {name: number for number, names in enumerate(MONTHS, start=1) for name in names.split()}
YEARS = range(1500, 2200)
CLOCK = r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:\.\d+)?))?(?: ?(?P<half>[AaPp][Mm]))?)?"
NAME = r"(?P<name>[^\W\d_]{3,10})\.?"
WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?,? +)?"
YEAR = r"(?P<year>\d{4})"
SHORT_YEAR = r"'?(?P<short>\d{2})"
FIRST_SHORT_YEAR = 1930
WEEK = 7 * 86_400_000_000
LOCAL_DAYS = "days of a time zone"


@dataclass(frozen=True)
class DateFormat:
    """A way to write a date: its name, a pattern with named groups, and whether days and months can be confused."""

    name: str
    pattern: re.Pattern[str]

    def parse(self, text: str) -> int | None:
        """Microseconds since 1970 (UTC), or None if the text is not written in this way."""
        found = self.pattern.fullmatch(text)
        return None if found is None else _microseconds(found.groupdict())


def _format(name: str, pattern: str, clock: bool = True) -> DateFormat:
    return DateFormat(name, re.compile(r"\s*" + pattern + (CLOCK if clock else "") + r"\s*"))


def _slashes(first: str, second: str, third: str) -> str:
    parts = {"day": r"(?P<day>\d{1,2})", "month": r"(?P<month>\d{1,2})", "year": YEAR, "short": SHORT_YEAR}
    return r"(?P<sign>[/-])".join((parts[first], "")) + r"(?P=sign)".join((parts[second], parts[third]))


#: ways to write a date that can be confused with each other
CONFUSED: tuple[tuple[DateFormat, ...], ...] = (
    (
        _format("day/month/year", _slashes("day", "month", "year")),
        _format("month/day/year", _slashes("month", "day", "year")),
    ),
    (
        _format("day/month/year of two digits", _slashes("day", "month", "short")),
        _format("month/day/year of two digits", _slashes("month", "day", "short")),
        _format("year of two digits/month/day", _slashes("short", "month", "day")),
    ),
)
FORMATS: tuple[DateFormat, ...] = (
    _format("year-month-day", rf"{YEAR}(?P<sign>[-/.])(?P<month>\d{{1,2}})(?P=sign)(?P<day>\d{{1,2}})"),
    _format("year-month", rf"{YEAR}[-/.M](?P<month>\d{{1,2}})", clock=False),
    _format("month-year", rf"(?P<month>\d{{1,2}})[-/.]{YEAR}", clock=False),
    _format("day.month.year", rf"(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.{YEAR}"),
    _format("month name and year", rf"{NAME}[ -]{YEAR}", clock=False),
    _format("year and month name", rf"{YEAR}[ -]{NAME}", clock=False),
    _format("day, month name, year", rf"{WEEKDAY}(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[ -]{NAME}[ ,-]+{YEAR}"),
    _format("month name, day, year", rf"{WEEKDAY}{NAME}[ -](?P<day>\d{{1,2}})(?:st|nd|rd|th)?[ ,-]+{YEAR}"),
    _format("year and quarter", rf"{YEAR}[ -]?[Qq](?P<quarter>[1-4])", clock=False),
    _format("quarter and year", rf"[Qq](?P<quarter>[1-4])[ /-]?{YEAR}", clock=False),
    _format("year and week", rf"{YEAR}[ -]?W(?P<week>\d{{1,2}})(?:-(?P<weekday>[1-7]))?", clock=False),
    _format("yearmonthday", rf"{YEAR}(?P<month>\d{{2}})(?P<day>\d{{2}})", clock=False),
    _format("day.month.year of two digits", rf"(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.{SHORT_YEAR}"),
    _format("month name and year of two digits", rf"{NAME}[ -]{SHORT_YEAR}", clock=False),
    _format("day, month name, year of two digits", rf"(?P<day>\d{{1,2}})[ -]{NAME}[ ,-]+{SHORT_YEAR}"),
)


class AmbiguousDate(Exception):
    """A column of dates that can be read in several ways, such as day first and month first; `text` is one of them."""

    def __init__(self, text: str, formats: Sequence[DateFormat]):
        super().__init__(text)
        self.text = text
        times = [time for each in formats if (time := each.parse(text)) is not None]
        self.readings = tuple(dict.fromkeys(map(_as_words, times)))


def find_date_format(texts: Sequence[str], order: DateOrder | None = None) -> tuple[str, np.ndarray] | None:
    """The name of the format that all of `texts` share, and their microseconds; None if there is none.

    ISO 8601 with a zone or fractions of a second is tried last, so that times are converted to UTC; days of a zone stay
    days, also where its clocks change.
    """
    if not texts:
        return None
    for each in FORMATS:
        if (found := _parse_all(texts, each.parse)) is not None:
            return each.name, found
    for confused in CONFUSED:
        if (fitting := _fitting(texts, confused, order)) is not None:
            return fitting
    found = _parse_all(texts, _iso)
    if found is None:
        return None
    written = _parse_all(texts, _iso_without_zone)
    if written is not None and are_local_days(found, written):
        return LOCAL_DAYS, written
    return "ISO 8601", found


def are_local_days(times: np.ndarray, local: np.ndarray) -> bool:
    """Whether times are at one time of day on the clocks of a zone: at midnight there, or at no single time in UTC."""
    day = WEEK // 7
    clocks, shown = np.unique(times % day), np.unique(local % day)
    return len(shown) == 1 and (len(clocks) > 1 or (shown[0] == 0 and clocks[0] != 0))


def _fitting(
    texts: Sequence[str], formats: Sequence[DateFormat], order: DateOrder | None
) -> tuple[str, np.ndarray] | None:
    """The one of several formats that fits all texts; where they disagree, that of the order asked for."""
    found = [(each, times) for each in formats if (times := _parse_all(texts, each.parse)) is not None]
    different = [np.flatnonzero(found[0][1] != times) for _, times in found[1:]]
    if any(map(len, different)):
        if order is None:
            raise AmbiguousDate(texts[int(next(each[0] for each in different if len(each)))].strip(), formats)
        start = "day/month" if order == "day-first" else "month/day"
        found = [(each, times) for each, times in found if each.name.startswith(start)]
    return (found[0][0].name, found[0][1]) if found else None


def is_date(text: str) -> bool:
    """Whether a text is a date in any of the formats."""
    every = (*FORMATS, *(each for confused in CONFUSED for each in confused))
    return any(each.parse(text) is not None for each in every) or _iso(text) is not None


def _parse_all(texts: Sequence[str], parse: Callable[[str], int | None]) -> np.ndarray | None:
    found = np.empty(len(texts), np.int64)
    for k, text in enumerate(texts):
        value = parse(text)
        if value is None:
            return None
        found[k] = value
    return found


def _iso(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)


def _iso_without_zone(text: str) -> int | None:
    try:
        return _iso(datetime.fromisoformat(text.strip()).replace(tzinfo=None).isoformat())
    except ValueError:
        return None


def _microseconds(parts: dict[str, str | None]) -> int | None:
    year, month, day = int(parts.get("year") or 0), 1, int(parts.get("day") or 1)
    if parts.get("short"):
        year = FIRST_SHORT_YEAR + (int(parts["short"] or 0) - FIRST_SHORT_YEAR) % 100
    if parts.get("month"):
        month = int(parts["month"] or 1)
    elif parts.get("name"):
        month = _month_number(parts["name"] or "")
    elif parts.get("quarter"):
        month = 3 * int(parts["quarter"] or 1) - 2
    if year not in YEARS:
        return None
    try:
        if parts.get("week"):
            moment = datetime.fromisocalendar(year, int(parts["week"] or 1), int(parts.get("weekday") or 1))
        else:
            moment = datetime(year, month, day)
    except ValueError:
        return None
    clock = _clock(parts)
    return None if clock is None else (moment - datetime(1970, 1, 1)).days * (WEEK // 7) + clock


def _clock(parts: dict[str, str | None]) -> int | None:
    """Microseconds since midnight."""
    if not parts.get("hour"):
        return 0
    hour, minute, second = int(parts["hour"] or 0), int(parts["minute"] or 0), float(parts.get("second") or 0)
    if half := parts.get("half"):
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    if hour > 23 or minute > 59 or second >= 60:
        return None
    return (hour * 3600 + minute * 60) * 1_000_000 + round(second * 1e6)


def _month_number(name: str) -> int:
    """1 to 12, or 0 for what is no month."""
    return MONTH_NUMBERS.get(name.lower(), 0)


def _as_words(time: int) -> str:
    date = np.datetime64(time, "us").item()
    return f"{date.day} {date:%B %Y}"
