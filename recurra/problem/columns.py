"""Infers the roles of a table's columns (id, time, target, inputs) and the task; every choice has a reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from recurra.data.data_errors import FormatError, MissingColumnError
from recurra.data.readers.layout import ID_NAMES, LABEL_NAMES, TARGET_NAMES, TEXT_NAMES, TIME_NAMES
from recurra.data.readers.tables import kind_of
from recurra.problem.tabular import count_distinct, counts_rows, is_constant_within, is_contiguous

ID_HINTS = (*ID_NAMES, "id", "sequence", "series", "case", "trial", "subject", "session")
TIME_HINTS = (*TIME_NAMES, "t", "step", "frame")
TARGET_HINTS = (*LABEL_NAMES, *TARGET_NAMES, "target")
MIN_SEQUENCES_PER_CLASS = 3  # integer targets with fewer sequences per value are amounts, not classes


@dataclass(frozen=True)
class ColumnRoles:
    """The task of a table and the role of each column.

    `form` is "long" (a row is a step), "wide" (a row is a sequence, each numeric column one step) or "nested" (a row is
    a sequence, its steps in lists or in a text). `ignored` lists the columns that cannot be inputs.
    """

    task: str
    reason: str
    id: str | None = None
    time: str | None = None
    target: str | None = None
    inputs: tuple[str, ...] = ()
    form: str = "long"
    ignored: tuple[str, ...] = ()


def infer_roles(
    table: pa.Table,
    path: Path,
    *,
    task: str | None = None,
    target: str | None = None,
    id: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | None = None,
) -> ColumnRoles:
    """The roles as given, the others inferred from column names, types and values."""
    kinds = {field.name: kind_of(field.type) for field in table.schema}
    for column in (target, id, time, *(inputs or ())):
        if column is not None and column not in kinds:
            raise MissingColumnError.among(path, column, kinds)
    taken = {column for column in (target, id, time, *(inputs or ())) if column}
    free = {column: kind for column, kind in kinds.items() if column not in taken}
    if any(kind == "list" for kind in kinds.values()) or _first_named(TEXT_NAMES, free):
        return _nested(kinds, task, target or _first_named(TARGET_HINTS, free), id, inputs)
    id = id or _first_named(ID_HINTS, free) or _first_ending(free, "_id")
    unnamed = None if id else _run_id(table, free, target)
    id = id or unnamed or _repeated_text(table, free)
    time = time or _first_named(TIME_HINTS, _without(free, id)) or _first_of_kind("time", free)
    time = time or (_row_counter(table, _without(free, id), unnamed) if unnamed else None)
    rest = _without(free, id, time)
    target, target_reason = (target, "as given") if target else _infer_target(table, path, rest, id, task)
    found, reason = (
        (task, "as given")
        if task
        else _infer_task(table, path, target, kinds[target], id, target_reason, _first_of_kind("text", rest, target))
    )
    if found in ("forecast", "regress") and kinds[target] != "number":
        raise FormatError(path, f"values of type {kinds[target]}", f"numbers to {found}", column=target)
    features = tuple(inputs) if inputs else _features(found, _without(rest, target))
    ignored = () if inputs or found not in ("classify", "regress") else tuple(_without(rest, target, *features))
    if found == "tag" and id is None:
        raise FormatError(path, "no column that identifies sentences", "one; name it with id=")
    if found in ("classify", "regress") and id is None and time is None and len(features) > 2:
        return ColumnRoles(found, reason, None, None, target, features, "wide", ignored)
    if found in ("classify", "regress"):
        _check_one_target_each(table, path, found, target, id)
    if not features and found != "forecast":
        raise FormatError(path, f"the columns {', '.join(kinds)}", f"a numeric input column besides {target!r}")
    return ColumnRoles(found, reason, id, time, target, features, ignored=ignored)


def _check_one_target_each(table: pa.Table, path: Path, task: str, target: str, id: str | None) -> None:
    if id is None:
        raise FormatError(path, "no column that identifies sequences", "one; name it with id=")
    if not is_constant_within(table, target, id):
        expected = f"one value per {id!r} to {task} whole sequences"
        raise FormatError(path, "values that change within a sequence", expected, column=target)


def _nested(
    kinds: dict[str, str], task: str | None, target: str | None, id: str | None, inputs: Sequence[str] | None
) -> ColumnRoles:
    found = tuple(inputs or ())
    if task in (None, "tag") and target is not None and kinds[target] == "list":
        words = found or (_first_named(TEXT_NAMES, kinds) or _first_of_kind("list", kinds, target) or "",)
        return ColumnRoles("tag", "each row has a list of words and a list of tags", id, None, target, words, "nested")
    return ColumnRoles(task or "", "each row is a whole sequence", id, None, target, found, "nested")


def _features(task: str, rest: dict[str, str]) -> tuple[str, ...]:
    """Numeric columns; for tagging the first text column; for a forecast none, since their future is unknown."""
    if task == "tag":
        return tuple(column for column, kind in rest.items() if kind == "text")[:1]
    return () if task == "forecast" else tuple(column for column, kind in rest.items() if kind == "number")


def _infer_target(
    table: pa.Table, path: Path, rest: dict[str, str], id: str | None, task: str | None
) -> tuple[str, str]:
    """The column to predict and why: by its name, as the only one constant within sequences, or as the only number."""
    named = _first_named(TARGET_HINTS, rest)
    if named:
        return named, "the target by its name"
    usable = [column for column, kind in rest.items() if kind in ("number", "text")]
    numbers = [column for column in usable if rest[column] == "number"]
    constant = [c for c in usable if task != "forecast" and id and is_constant_within(table, c, id)]
    if len(constant) == 1 and len(usable) > 1:
        return constant[0], "the only column that is constant within each sequence"
    if len(numbers) == 1 and task in (None, "forecast"):
        return numbers[0], "the only numeric column"
    candidates = ", ".join(constant or numbers or usable or rest) or "none"
    raise FormatError(path, f"several possible targets ({candidates})", "one; choose it with target=")


def _infer_task(
    table: pa.Table, path: Path, target: str, kind: str, id: str | None, target_reason: str, words: str | None
) -> tuple[str, str]:
    """The task and why, from the target's type and whether it is constant within each sequence."""
    whole = id is not None and is_constant_within(table, target, id) and count_distinct(table, id) < table.num_rows
    if id is None and (kind == "text" or target.lower() in LABEL_NAMES):
        return "classify", f"{target!r} has one label per row"
    if not whole:
        if kind == "text" and id is not None and words:
            return "tag", f"{target!r} has one text label per row, next to {words!r}"
        if kind == "number":
            return "forecast", f"{target!r} has numbers that change from row to row"
        expected = "one label per sequence; name the column that identifies sequences with id="
        raise FormatError(path, f"a label that changes from row to row ({target_reason})", expected, column=target)
    if kind == "text":
        return "classify", f"{target!r} has one text label per {id!r}"
    if pa.types.is_floating(table.schema.field(target).type):
        return "regress", f"{target!r} has one decimal number per {id!r}"
    if count_distinct(table, id or "") < MIN_SEQUENCES_PER_CLASS * count_distinct(table, target):
        return "regress", f"{target!r} has one integer per {id!r}, too many distinct values for classes"
    return "classify", f"{target!r} has one integer per {id!r}"


def _first_of_kind(wanted: str, columns: dict[str, str], but: str | None = None) -> str | None:
    return next((column for column, kind in columns.items() if kind == wanted and column != but), None)


def _first_named(names: Sequence[str], columns: Iterable[str]) -> str | None:
    lowered = {column.lower(): column for column in columns}
    return next((lowered[name] for name in names if name in lowered), None)


def _first_ending(columns: Iterable[str], end: str) -> str | None:
    return next((column for column in columns if column.lower().endswith(end)), None)


def _repeated_text(table: pa.Table, free: dict[str, str]) -> str | None:
    """The first text column whose values repeat: the name of a series."""
    texts = [column for column, kind in free.items() if kind == "text" and column.lower() not in TARGET_HINTS]
    return next((c for c in texts if 2 * count_distinct(table, c) <= table.num_rows), None)


def _run_id(table: pa.Table, free: dict[str, str], target: str | None) -> str | None:
    """An unnamed id: an integer column in contiguous runs within which the label is constant."""
    labels = [target] if target else [column for column, kind in free.items() if kind == "text"]
    if len(labels) != 1 or count_distinct(table, labels[0]) < 2:
        return None
    numbers = [c for c in free if pa.types.is_integer(table.schema.field(c).type) and is_contiguous(table, c)]
    candidates = [c for c in numbers if is_constant_within(table, labels[0], c)]
    return max(candidates, key=lambda column: count_distinct(table, column), default=None)


def _row_counter(table: pa.Table, free: dict[str, str], id: str) -> str | None:
    """An integer column that counts the rows of each sequence."""
    numbers = [column for column in free if pa.types.is_integer(table.schema.field(column).type)]
    return next((column for column in numbers if counts_rows(table, column, id)), None)


def _without(columns: dict[str, str], *names: str | None) -> dict[str, str]:
    return {column: kind for column, kind in columns.items() if column not in names}
