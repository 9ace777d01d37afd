"""Which column plays which part, and so what a table asks; every guess comes with its reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from recurra.data.data_errors import FormatError, MissingColumnError
from recurra.data.readers.layout import ID_NAMES, LABEL_NAMES, TARGET_NAMES, TEXT_NAMES, TIME_NAMES
from recurra.data.readers.tables import kind_of
from recurra.problem.tabular import constant_within, counts_within, distinct, stand_together

MORE_IDS = (*ID_NAMES, "id", "sequence", "series", "case", "trial", "subject", "session")
MORE_TIMES = (*TIME_NAMES, "t", "step", "frame")
MORE_TARGETS = (*LABEL_NAMES, *TARGET_NAMES, "target")
ENOUGH_EACH = 3  # whole numbers with fewer sequences each than this are amounts, not classes


@dataclass(frozen=True)
class Parts:
    """The parts of a table's columns.

    `form`: "long", a row is a step; "wide", a row is a sequence and every column of numbers one of its steps;
    "nested", a row is a sequence, its steps in lists or in a text. `unread`: columns that could not be inputs.
    """

    task: str
    why: str
    id: str | None = None
    time: str | None = None
    target: str | None = None
    inputs: tuple[str, ...] = ()
    form: str = "long"
    unread: tuple[str, ...] = ()


def parts_of(
    table: pa.Table,
    path: Path,
    *,
    task: str | None = None,
    target: str | None = None,
    id: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | None = None,
) -> Parts:
    """Every part, as given or as found."""
    kinds = {field.name: kind_of(field.type) for field in table.schema}
    for column in (target, id, time, *(inputs or ())):
        if column is not None and column not in kinds:
            raise MissingColumnError.among(path, column, kinds)
    taken = {column for column in (target, id, time, *(inputs or ())) if column}
    free = {column: kind for column, kind in kinds.items() if column not in taken}
    if any(kind == "list" for kind in kinds.values()) or _named(TEXT_NAMES, free):
        return _nested(kinds, task, target or _named(MORE_TARGETS, free), id, inputs)
    id = id or _named(MORE_IDS, free) or _ending(free, "_id")
    unnamed = None if id else _in_runs(table, free, target)
    id = id or unnamed or _repeated_text(table, free)
    time = time or _named(MORE_TIMES, _without(free, id)) or next((c for c, k in free.items() if k == "time"), None)
    time = time or (_counter(table, _without(free, id), unnamed) if unnamed else None)
    rest = _without(free, id, time)
    target, because = (target, "as asked") if target else _target(table, path, rest, id, task)
    found, why = (
        (task, "as asked")
        if task
        else _task(table, path, target, kinds[target], id, because, _first_text(rest, target))
    )
    features = tuple(inputs) if inputs else _features(found, _without(rest, target))
    unread = () if inputs or found not in ("classify", "regress") else tuple(_without(rest, target, *features))
    if found == "tag" and id is None:
        raise FormatError(path, "no column that tells sentences apart", "its name, as id")
    if found in ("classify", "regress") and id is None and time is None and len(features) > 2:
        return Parts(found, why, None, None, target, features, "wide", unread)
    if found in ("classify", "regress"):
        _check_whole(table, path, found, target, id)
    if not features and found != "forecast":
        raise FormatError(path, f"the columns {', '.join(kinds)}", f"a column of numbers beside {target!r} as input")
    return Parts(found, why, id, time, target, features, unread=unread)


def _check_whole(table: pa.Table, path: Path, task: str, target: str, id: str | None) -> None:
    if id is None:
        raise FormatError(path, "no column that tells sequences apart", "its name, as id", column=None)
    if not constant_within(table, target, id):
        expected = f"one value for each {id!r}, to {task} whole sequences"
        raise FormatError(path, "values that change within a sequence", expected, column=target)


def _nested(
    kinds: dict[str, str], task: str | None, target: str | None, id: str | None, inputs: Sequence[str] | None
) -> Parts:
    found = tuple(inputs or ())
    if task in (None, "tag") and target is not None and kinds[target] == "list":
        tokens = _named(TEXT_NAMES, kinds) or next((c for c, k in kinds.items() if k == "list" and c != target), None)
        return Parts(
            "tag", "a row has a list of words and one of tags", id, None, target, found or (tokens or "",), "nested"
        )
    return Parts(task or "", "a row is a whole sequence", id, None, target, found, "nested")


def _features(task: str, rest: dict[str, str]) -> tuple[str, ...]:
    """Numbers beside the target; words to tag; of a forecast none, since their future is not known."""
    if task == "tag":
        return tuple(column for column, kind in rest.items() if kind == "text")[:1]
    return () if task == "forecast" else tuple(column for column, kind in rest.items() if kind == "number")


def _target(table: pa.Table, path: Path, rest: dict[str, str], id: str | None, task: str | None) -> tuple[str, str]:
    """The column to predict, by its name, by being the same within each sequence, or by being the only one."""
    named = _named(MORE_TARGETS, rest)
    if named:
        return named, f"the column {named!r} is called so"
    usable = [column for column, kind in rest.items() if kind in ("number", "text")]
    numbers = [column for column in usable if rest[column] == "number"]
    constant = [c for c in usable if task != "forecast" and id and constant_within(table, c, id)]
    if len(constant) == 1 and len(usable) > 1:
        return constant[0], f"{constant[0]!r} alone is the same on all rows of a sequence"
    if len(numbers) == 1 and task in (None, "forecast"):
        return numbers[0], f"{numbers[0]!r} is the only column of numbers"
    candidates = ", ".join(constant or numbers or usable or rest) or "none"
    raise FormatError(path, f"several columns that could be predicted ({candidates})", "one of them, named as target")


def _task(
    table: pa.Table, path: Path, target: str, kind: str, id: str | None, because: str, words: str | None
) -> tuple[str, str]:
    whole = id is not None and constant_within(table, target, id) and distinct(table, id) < table.num_rows
    if id is None and (kind == "text" or target.lower() in LABEL_NAMES):
        return "classify", f"{target!r} holds a label for each row"
    if not whole:
        if kind == "text" and id is not None and words:
            return "tag", f"{target!r} holds a text for each row, beside {words!r}"
        if kind == "number":
            return "forecast", f"{target!r} holds numbers that change from row to row"
        expected = "one label for each sequence, with a column that tells sequences apart as id"
        raise FormatError(path, f"a label that changes from row to row ({because})", expected, column=target)
    if kind == "text":
        return "classify", f"{target!r} holds one text for each {id!r}"
    if pa.types.is_floating(table.schema.field(target).type):
        return "regress", f"{target!r} holds one number with decimals for each {id!r}"
    if distinct(table, id or "") < ENOUGH_EACH * distinct(table, target):
        return "regress", f"{target!r} holds one whole number for each {id!r}, too many different ones for classes"
    return "classify", f"{target!r} holds one whole number for each {id!r}"


def _first_text(columns: dict[str, str], target: str) -> str | None:
    return next((column for column, kind in columns.items() if kind == "text" and column != target), None)


def _named(names: Sequence[str], columns: Iterable[str]) -> str | None:
    lowered = {column.lower(): column for column in columns}
    return next((lowered[name] for name in names if name in lowered), None)


def _ending(columns: Iterable[str], end: str) -> str | None:
    return next((column for column in columns if column.lower().endswith(end)), None)


def _repeated_text(table: pa.Table, free: dict[str, str]) -> str | None:
    """A column of text whose values come many times each, one of several such: the name of a series."""
    texts = [column for column, kind in free.items() if kind == "text" and column.lower() not in MORE_TARGETS]
    return next((c for c in texts if 2 * distinct(table, c) <= table.num_rows), None)


def _in_runs(table: pa.Table, free: dict[str, str], target: str | None) -> str | None:
    """Whole numbers that stand together, each on several rows, and tell which text belongs to them."""
    labels = [target] if target else [column for column, kind in free.items() if kind == "text"]
    if len(labels) != 1 or distinct(table, labels[0]) < 2:
        return None
    numbers = [c for c in free if pa.types.is_integer(table.schema.field(c).type) and stand_together(table, c)]
    fitting = [c for c in numbers if constant_within(table, labels[0], c)]
    return max(fitting, key=lambda column: distinct(table, column), default=None)


def _counter(table: pa.Table, free: dict[str, str], id: str) -> str | None:
    """Whole numbers that count the rows of each sequence."""
    numbers = [column for column in free if pa.types.is_integer(table.schema.field(column).type)]
    return next((column for column in numbers if counts_within(table, column, id)), None)


def _without(columns: dict[str, str], *names: str | None) -> dict[str, str]:
    return {column: kind for column, kind in columns.items() if column not in names}
