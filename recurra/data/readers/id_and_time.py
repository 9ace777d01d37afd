"""Which column of a table identifies sequences, and which orders their steps."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pyarrow as pa

from .column_roles import IGNORED, RoleDraft, first_named
from .date_parts import find_date_parts
from .layout import ID_HINTS, ID_NAMES, TARGET_HINTS, TIME_HINTS
from .table_facts import (
    codes_of,
    count_distinct,
    counts_rows,
    counts_up,
    grows_evenly,
    is_constant_within,
    is_contiguous,
    is_row_number,
    is_unique_within,
    start_together,
)
from .table_scan import timestamps

MIN_CLOCK_STEPS = 5  # rows of a sequence, on average, from which equal steps are no chance
MIN_REPEATED = 0.1  # the share of rows whose time other rows have, from which whole numbers may be ids


def find_time(draft: RoleDraft) -> None:
    if draft.given.time:
        return
    if names := find_date_parts(draft.table, draft.free("time", "number", "clock", "text")):
        for name in names:
            draft.assign(name, "time", f"{' and '.join(names)} together are the date")
        return
    named = first_named(TIME_HINTS, draft.free("time", "number"))
    if named:
        draft.assign(named, "time", "by its name")
        return
    dates = draft.free("time")
    if dates:
        draft.assign(dates[0], "time", "the first column of dates")
        return
    for name in draft.free("number"):
        whole = pa.types.is_integer(draft.table.schema.field(name).type)
        if is_row_number(name) and whole and counts_up(draft.table, name):
            draft.assign(name, "time", "an index that increases by one from row to row")
            return


def find_id(draft: RoleDraft) -> None:
    if draft.given.id is not None:
        if draft.given.id in draft.kinds:
            _find_clock(draft, draft.given.id)
        return
    rows = draft.table.num_rows
    named = first_named(ID_HINTS, draft.free("text", "number")) or _first_ending(draft.free("text", "number"), "_id")
    if named:
        _find_clock(draft, named)
        if count_distinct(draft.table, named) < rows or (named.strip().lower() in ID_NAMES and draft.times()):
            draft.assign(named, "id", "by its name")
        elif draft.times() or counts_rows(draft.table, named):
            draft.assign(named, IGNORED, "a different value in every row")
        else:
            draft.assign(named, "id", "by its name; one row per value")
        return
    times = draft.times()
    if times and not is_unique_within(draft.table, times, None):
        for name in [*_possible_ids(draft, "text"), *_repeated_with_times(draft, times)]:
            if is_unique_within(draft.table, times, name) and count_distinct(draft.table, name) < rows:
                draft.assign(name, "id", f"{times[0]!r} repeats, but not within one {name!r}")
                return
    _find_run_id(draft)


def _find_clock(draft: RoleDraft, id: str) -> None:
    """The time of sequences with a known id: a column that starts and grows alike in all of them, beside inputs."""
    if draft.times() or draft.given.time or draft.given.features is not None:
        return
    if draft.table.num_rows < MIN_CLOCK_STEPS * count_distinct(draft.table, id):
        return
    clocks = [name for name in draft.free("number") if name != id and grows_evenly(draft.table, name, id)]
    others = [name for name in draft.free("number") if name.lower() not in TARGET_HINTS and name not in (id, *clocks)]
    if clocks and others and clocks[0].lower() not in TARGET_HINTS:
        draft.assign(clocks[0], "time", f"starts and grows alike in each {id!r}")


def two_ids(draft: RoleDraft) -> str | None:
    """`a+b` if dates repeat within each of two columns, but not within both; or if both are named like ids.

    Their rows stand together, or every pair has all times. Where times are numbers that start anew, another column may
    be the label of a part of the rows.
    """
    table, times = draft.table, draft.times()
    names = [name for name in draft.free("text", "number") if name.lower() not in TARGET_HINTS]
    named = [name for name in names if name.lower() in ID_HINTS or name.lower().endswith("_id")]
    codes = {name: codes_of(table, name) for name in names if _may_be_part(table, name)}
    if times and is_unique_within(table, times, None):
        return None
    if times and any(
        is_unique_within(table, times, name)
        for name in codes
        if draft.kinds[name] == "text" or is_contiguous(table, name) or _covers_times(table, times, name)
    ):
        return None
    found, is_dated = [], any(draft.kinds[name] == "time" for name in times)
    for a, b in combinations(codes, 2):
        if not is_dated and not (a in named and b in named):
            continue
        pair = np.unique(np.stack([codes[a], codes[b]]), axis=1, return_inverse=True)[1].reshape(-1)
        count, runs = int(pair.max()) + 1, 1 + int(np.count_nonzero(np.diff(pair)))
        is_finer = count > max(len(np.unique(codes[a])), len(np.unique(codes[b])))
        sizes = np.bincount(pair)
        is_balanced = bool(times) and sizes.min() == sizes.max() and count < table.num_rows
        if not is_finer or 2 * count > table.num_rows or not (runs == count or is_balanced):
            continue
        if not times or _are_unique_within(table, times, pair):
            found.append(f"{a}+{b}")
    return found[0] if len(found) == 1 else None


def _may_be_part(table: pa.Table, name: str) -> bool:
    """Whether a column may be one of two ids: text or whole numbers without gaps, each in several rows."""
    column = table.column(name)
    whole = pa.types.is_integer(column.type) or not pa.types.is_floating(column.type)
    return whole and not column.null_count and 1 < count_distinct(table, name) <= table.num_rows // 2


def _are_unique_within(table: pa.Table, times: list[str], pair: np.ndarray) -> bool:
    rows = np.stack([pair, *(codes_of(table, name) for name in times)])
    return len(np.unique(rows, axis=1).T) == table.num_rows


def _possible_ids(draft: RoleDraft, kind: str) -> list[str]:
    names = [name for name in draft.free(kind) if name.lower() not in TARGET_HINTS]
    if kind == "text":
        return names
    return [name for name in names if pa.types.is_integer(draft.table.schema.field(name).type)]


def _repeated_with_times(draft: RoleDraft, times: list[str]) -> list[str]:
    """Whole numbers that may be ids: most times repeat, or equal numbers follow each other.

    If few times repeat, these rows were written twice, and numbers that happen to differ there are no ids.
    """
    table, moments = draft.table, len(np.unique(np.stack([codes_of(draft.table, name) for name in times]), axis=1).T)
    often = (table.num_rows - moments) >= MIN_REPEATED * table.num_rows
    numbers = _possible_ids(draft, "number")
    return [n for n in numbers if is_contiguous(table, n) or (often and _covers_times(table, times, n))]


def _covers_times(table: pa.Table, times: list[str], name: str) -> bool:
    """Whether the rows of a value have most of the times between its first and its last, as those of an id have."""
    if len(times) > 1:
        return True
    places = np.unique(timestamps(table.column(times[0]).combine_chunks()), return_inverse=True)[1].reshape(-1)
    codes = codes_of(table, name)
    first, last = np.full(codes.max() + 1, len(places)), np.zeros(codes.max() + 1, dtype=np.int64)
    np.minimum.at(first, codes, places)
    np.maximum.at(last, codes, places)
    return 2 * table.num_rows >= int((last - first + 1).sum())


def _find_run_id(draft: RoleDraft) -> None:
    """An id without a usual name: a column in contiguous runs, within which the label is constant."""
    table, target = draft.table, draft.one("target")
    labels = [target] if target else [n for n in draft.free("text") if n.lower() in TARGET_HINTS] or draft.free("text")
    candidates = [*_possible_ids(draft, "text"), *_possible_ids(draft, "number")]
    runs = {name: count_distinct(table, name) for name in candidates if is_contiguous(table, name)}
    pairs = [
        (id, label)
        for label in labels
        for id in runs
        if id != label and runs[id] > count_distinct(table, label) >= 2 and is_constant_within(table, label, id)
    ]
    if pairs:
        best, label = max(pairs, key=lambda pair: runs[pair[0]])
        draft.assign(best, "id", f"contiguous rows, within which {label!r} is constant")
        counters = [name for name in draft.free("number") if counts_rows(table, name, best)]
        if counters and not draft.times():
            draft.assign(counters[0], "time", f"counts the rows of each {best!r}")
        return
    if not draft.times() and (counted := _restarting_counter(draft, list(runs))):
        id, counter = counted
        draft.assign(id, "id", f"contiguous rows, which {counter!r} counts")
        draft.assign(counter, "time", f"counts the rows of each {id!r}")
        return
    texts = _possible_ids(draft, "text")
    if not draft.times() and len(texts) == 1 and len(draft.free("number")) == 1 and is_contiguous(table, texts[0]):
        draft.assign(texts[0], "id", "contiguous rows of equal text beside one column of numbers")


def _restarting_counter(draft: RoleDraft, candidates: list[str]) -> tuple[str, str] | None:
    """A column in contiguous runs, and one that counts the rows of each run, starting again in each."""
    table = draft.table
    for id in candidates:
        for name in draft.free("number") if count_distinct(table, id) >= 2 else ():
            restarts = name != id and counts_rows(table, name, id) and not counts_rows(table, name)
            if restarts and start_together(table, name, id):
                return id, name
    return None


def _first_ending(columns: Iterable[str], end: str) -> str | None:
    return next((column for column in columns if column.lower().endswith(end)), None)
