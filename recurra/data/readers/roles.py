"""Roles of the columns of a table (id, time, input, target, …) and the task that follows; every choice has a reason.

`infer_roles` is the one place where columns get their roles: `rc.data.read`, `rc.infer_problem`, the command line and
the estimators call it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ..data_errors import FormatError, MissingColumnError
from ..sequences import Task
from .column_kinds import can_combine, kind_of, type_name
from .layout import (
    ID_HINTS,
    ID_NAMES,
    LABEL_NAMES,
    NO_COLUMN,
    TARGET_HINTS,
    TEXT_NAMES,
    TIME_HINTS,
    TIME_PARTS,
    Layout,
)
from .table_facts import (
    are_few_whole_numbers,
    count_distinct,
    counts_rows,
    is_constant_within,
    is_contiguous,
    is_row_number,
    is_unique_within,
    split_steps,
)

MIN_SEQUENCES_PER_CLASS = 3  # whole numbers with fewer sequences per value are amounts, not classes
MAX_CATEGORIES = 64  # text columns with more distinct values are no inputs unless asked for
MIN_WIDE_STEPS = 3
CATEGORICAL, OBSERVED, IGNORED = "categorical input", "observed input", "ignored"
AHEAD = ("forecasting", "next_step", "language")


@dataclass(frozen=True)
class ColumnRole:
    """What a column is used for, and why."""

    name: str
    type: str
    role: str
    why: str


@dataclass(frozen=True)
class Roles:
    """The roles of all columns and the task.

    `form` is "long" (a row is a step), "wide" (a row is a sequence, its steps in columns) or "nested" (a row is a
    sequence, its steps in a list or a text). `channels` are the columns of a wide table, step by step.
    """

    task: Task
    reason: str
    form: str
    columns: tuple[ColumnRole, ...]
    channels: dict[str, list[str]] = field(default_factory=dict)

    def named(self, *roles: str) -> tuple[str, ...]:
        """The columns with one of these roles, in the order of the file."""
        return tuple(column.name for column in self.columns if column.role in roles)

    def one(self, role: str) -> str | None:
        return next(iter(self.named(role)), None)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.named("input", CATEGORICAL, OBSERVED, "static")


@dataclass
class _Draft:
    """Roles while they are found."""

    table: pa.Table
    given: Layout
    file: str | Path
    strict: bool
    kinds: dict[str, str]
    found: dict[str, tuple[str, str]] = field(default_factory=dict)

    def assign(self, column: str | None, role: str, why: str) -> None:
        if column is not None and column not in self.found:
            self.found[column] = (role, why)

    def free(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds.items() if name not in self.found and (not kinds or kind in kinds)]

    def one(self, role: str) -> str | None:
        return next((name for name, (found, _) in self.found.items() if found == role), None)

    def has_inputs(self) -> bool:
        return any(role in ("input", CATEGORICAL, OBSERVED, "static") for role, _ in self.found.values())

    def times(self) -> list[str]:
        return [name for name, (found, _) in self.found.items() if found == "time"]

    def result(self, task: Task, reason: str, form: str, channels: dict[str, list[str]] | None = None) -> Roles:
        columns = []
        for item in self.table.schema:
            role, why = self.found.get(item.name, (IGNORED, "has no use here"))
            columns.append(ColumnRole(item.name, type_name(self.table, item.name), role, why))
        return Roles(task, reason, form, tuple(columns), channels or {})


def infer_roles(table: pa.Table, given: Layout, file: str | Path, *, strict: bool = False) -> Roles:
    """The roles as given, the others inferred from names, types and values of the columns.

    `strict`: what could be predicted in several ways is an error; otherwise all numeric columns are forecast, and
    labels that change within a sequence are tags.
    """
    draft = _Draft(table, given, file, strict, {item.name: kind_of(item.type) for item in table.schema})
    _assign_given(draft)
    _ignore_row_numbers(draft)
    nested = [name for name in draft.kinds if draft.kinds[name] == "list" and name not in given.ignore]
    if nested or first_named(TEXT_NAMES, draft.free("text")) or _asked_for_text(draft):
        return _nested(draft)
    _find_time(draft)
    _find_id(draft)
    return _find_task(draft)


def _assign_given(draft: _Draft) -> None:
    given = draft.given
    target = (given.label,) if given.label else given.target or ()
    inputs = tuple(
        name for name in given.features or () if name not in target
    )  # a target may be an input of a forecast
    for role, names in (
        ("target", target),
        ("id", (given.id,)),
        ("time", given.time),
        ("static", given.static),
        (OBSERVED, given.observed),
        (IGNORED, given.ignore),
        ("input", inputs),
    ):
        for name in names:
            if name is None or name == NO_COLUMN:
                continue
            if name not in draft.kinds:
                raise MissingColumnError.among(draft.file, name, draft.kinds)
            if draft.found.get(name, (role,))[0] != role and not (role == "input" and draft.found[name][0] == "static"):
                taken = draft.found[name][0]
                raise FormatError(draft.file, f"the roles {taken} and {role}", "one role per column", column=name)
            draft.assign(name, CATEGORICAL if role == "input" and draft.kinds[name] == "text" else role, "as given")


def _ignore_row_numbers(draft: _Draft) -> None:
    for name in draft.free("number"):
        if draft.table.column(name).null_count == draft.table.num_rows:
            draft.assign(name, IGNORED, "an empty column")
    for name in draft.free("number", "text"):
        if not is_row_number(name):
            continue
        if counts_rows(draft.table, name):
            written = "an index that was written without a name" if _is_unnamed(name) else "a row number"
            draft.assign(name, IGNORED, f"counts the rows of the file: {written}")
        elif draft.kinds[name] == "text" and count_distinct(draft.table, name) == draft.table.num_rows:
            draft.assign(name, IGNORED, "a different text in every row: names of rows")


def _is_unnamed(name: str) -> bool:
    return name.strip() == "" or name.strip().lower().startswith("unnamed")


def _asked_for_text(draft: _Draft) -> bool:
    """Whether the only input asked for is one text, to be read by character."""
    return (
        len(draft.given.features or ()) == 1
        and draft.kinds[(draft.given.features or ("",))[0]] == "text"
        and (first_named(TEXT_NAMES, draft.given.features or ()) is not None or draft.given.vocabulary is not None)
    )


# ---------------------------------------------------------------------------------------------------- time and id


def _find_time(draft: _Draft) -> None:
    if draft.given.time:
        return
    free = draft.free("time", "number", "clock")
    for parts in TIME_PARTS:
        names = [name for part in parts if (name := first_named((part,), free)) is not None]
        if len(names) == len(parts) and can_combine([draft.kinds[name] for name in names]):
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


def _find_id(draft: _Draft) -> None:
    if draft.given.id is not None:
        return
    rows = draft.table.num_rows
    named = first_named(ID_HINTS, draft.free("text", "number")) or _first_ending(draft.free("text", "number"), "_id")
    if named:
        if count_distinct(draft.table, named) < rows or (named.strip().lower() in ID_NAMES and draft.times()):
            draft.assign(named, "id", "by its name")
        elif draft.times() or counts_rows(draft.table, named):
            draft.assign(named, IGNORED, "a different value in every row")
        else:
            draft.assign(named, "id", "by its name; one row per value")
        return
    times = draft.times()
    if times and not is_unique_within(draft.table, times, None):
        for name in [*_possible_ids(draft, "text"), *_possible_ids(draft, "number")]:
            if is_unique_within(draft.table, times, name) and count_distinct(draft.table, name) < rows:
                draft.assign(name, "id", f"{times[0]!r} repeats, but not within one {name!r}")
                return
    _find_run_id(draft)


def _possible_ids(draft: _Draft, kind: str) -> list[str]:
    names = [name for name in draft.free(kind) if name.lower() not in TARGET_HINTS]
    if kind == "text":
        return names
    return [name for name in names if pa.types.is_integer(draft.table.schema.field(name).type)]


def _find_run_id(draft: _Draft) -> None:
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
    texts = _possible_ids(draft, "text")
    if not draft.times() and len(texts) == 1 and len(draft.free("number")) == 1 and is_contiguous(table, texts[0]):
        draft.assign(texts[0], "id", "contiguous rows of equal text beside one column of numbers")


# ---------------------------------------------------------------------------------------------------- task


def _find_task(draft: _Draft) -> Roles:
    given, id = draft.given, draft.one("id")
    one_row_each = id is None or count_distinct(draft.table, id) == draft.table.num_rows
    if given.unlabelled:
        return _without_target(draft, one_row_each)
    reason = _find_target(draft, one_row_each)
    target = draft.one("target")
    if target is None:
        return _forecast_everything(draft)
    task, why = (given.task, "as given") if given.task else _infer_task(draft, target, one_row_each, reason)
    _check_kind(draft, task, target)
    if task in ("classification", "regression") and _is_wide(draft, one_row_each):
        return _wide(draft, task, why)
    if draft.strict and task in ("classification", "regression"):
        _check_one_target_each(draft, task, target, id)
    _assign_inputs(draft, task)
    if draft.strict and task != "forecasting" and not draft.has_inputs():
        raise FormatError(draft.file, f"the columns {', '.join(draft.kinds)}", f"an input column besides {target!r}")
    return draft.result(task, why, "long")


def _is_wide(draft: _Draft, one_row_each: bool) -> bool:
    if draft.given.form is not None or draft.given.id == NO_COLUMN:
        return draft.given.form == "wide"
    numbers = draft.free("number") + [name for name, (role, _) in draft.found.items() if role == "input"]
    return one_row_each and not draft.times() and len(numbers) >= MIN_WIDE_STEPS


def _without_target(draft: _Draft, one_row_each: bool) -> Roles:
    """The roles of data to predict for: a column of targets, if there is one, is not used."""
    draft.found |= {name: (IGNORED, "the target") for name, (role, _) in draft.found.items() if role == "target"}
    task = draft.given.task or "regression"
    if _is_wide(draft, one_row_each):
        return _wide(draft, task, "as given")
    _assign_inputs(draft, task)
    return draft.result(task, "as given", "long")


def _find_target(draft: _Draft, one_row_each: bool) -> str:
    """Assign the target, if there is one, and say why."""
    if draft.one("target"):
        return "as given"
    task, id = draft.given.task, draft.one("id")
    usable = draft.free("number", "text")
    if named := first_named(TARGET_HINTS, usable):
        draft.assign(named, "target", "by its name")
        return "the target by its name"
    if draft.given.features and not draft.strict and task in (None, *AHEAD):
        return ""
    numbers = [name for name in usable if draft.kinds[name] == "number"]
    texts = [name for name in usable if draft.kinds[name] == "text"]
    constant = [
        n for n in usable if task not in AHEAD and id and not one_row_each and is_constant_within(draft.table, n, id)
    ]
    chosen, why = None, ""
    if len(constant) == 1 and len(usable) > 1:
        chosen, why = constant[0], "the only column that is constant within each sequence"
    elif len(numbers) == 1 and task in (None, *AHEAD) and (draft.times() or not texts or id):
        chosen, why = numbers[0], "the only numeric column"
    elif one_row_each and not draft.times() and len(texts) == 1 and len(numbers) >= MIN_WIDE_STEPS:
        chosen, why = texts[0], "the only text column"
    if chosen is None and draft.strict:
        candidates = ", ".join((constant or numbers or usable)[:12]) or "none"
        raise FormatError(draft.file, f"several possible targets ({candidates})", "one; choose it with target=")
    draft.assign(chosen, "target", why)
    return why


def _infer_task(draft: _Draft, target: str, one_row_each: bool, target_reason: str) -> tuple[Task, str]:
    """The task and why, from the target's type and whether it is constant within each sequence."""
    table, id, kind = draft.table, draft.one("id"), draft.kinds[target]
    is_label = kind == "text" or target.lower() in LABEL_NAMES or draft.given.label is not None
    if (
        one_row_each
        and not draft.times()
        and is_label
        and len(draft.free("number")) + len(draft.given.features or ()) >= MIN_WIDE_STEPS
    ):
        return _class_or_number(draft, target, id, table.num_rows)
    whole = id is not None and is_constant_within(table, target, id) and count_distinct(table, id) < table.num_rows
    if whole and draft.given.label is None:
        return _class_or_number(draft, target, id, count_distinct(table, id or ""))
    if whole or (id is not None and is_label and is_constant_within(table, target, id)):
        return "classification", f"{target!r} has one label per {id!r}"
    if kind == "text" and id is not None and draft.free("text"):
        return "tagging", f"{target!r} has one text label per row, next to {draft.free('text')[0]!r}"
    if kind == "number" and not is_label:
        return "forecasting", f"{target!r} has numbers that change from row to row"
    if not draft.strict:
        return "tagging", f"{target!r} has one label per row"
    expected = "one label per sequence; name the column that identifies sequences with id=; or label every step with "
    expected += 'task="classify_steps"'
    got = f"a label that changes from row to row ({target_reason})"
    raise FormatError(draft.file, got, expected, column=target)


def _class_or_number(draft: _Draft, target: str, id: str | None, sequences: int) -> tuple[Task, str]:
    each = f"per {id!r}" if id else "per row"
    if draft.kinds[target] == "text" or draft.given.label is not None:
        return "classification", f"{target!r} has one {'text ' if draft.kinds[target] == 'text' else ''}label {each}"
    if are_few_whole_numbers(draft.table, target, sequences, MIN_SEQUENCES_PER_CLASS):
        return "classification", f"{target!r} has one of few whole numbers {each}"
    if pa.types.is_integer(draft.table.schema.field(target).type):
        return "regression", f"{target!r} has one integer {each}, too many distinct values for classes"
    return "regression", f"{target!r} has one decimal number {each}"


def _check_kind(draft: _Draft, task: Task, target: str) -> None:
    kind = draft.kinds[target]
    if task in ("forecasting", "next_step", "regression", "transduction") and kind not in ("number", "list"):
        wanted = {"forecasting": "forecast", "regression": "regress"}.get(task, "predict")
        raise FormatError(draft.file, f"values of type {kind}", f"numbers to {wanted}", column=target)


def _check_one_target_each(draft: _Draft, task: Task, target: str, id: str | None) -> None:
    if id is None:
        raise FormatError(draft.file, "no column that identifies sequences", "one; name it with id=")
    if not is_constant_within(draft.table, target, id):
        verb = "classify" if task == "classification" else "regress"
        expected = f"one value per {id!r} to {verb} whole sequences"
        raise FormatError(draft.file, "values that change within a sequence", expected, column=target)


# ---------------------------------------------------------------------------------------------------- inputs


def _assign_inputs(draft: _Draft, task: Task) -> None:
    """Numbers are inputs, texts with few values categorical ones; a forecast knows only what is given to it."""
    if draft.given.features is not None:
        for name in draft.free():
            draft.assign(name, IGNORED, "not among the inputs asked for")
        return
    id = draft.one("id")
    for name in draft.free():
        kind = draft.kinds[name]
        if task == "tagging" and draft.free("text") and kind == "text":
            draft.assign(name, "input", "the words")
            task = "transduction"  # one column of words; other texts are categories
        elif task == "forecasting" and draft.strict:
            draft.assign(name, IGNORED, f"used with --observed {name}, or with --inputs {name} if known in advance")
        elif kind == "number":
            static = id is not None and is_constant_within(draft.table, name, id)
            draft.assign(name, "static" if static else "input", _why_input(draft, name, id, static))
        elif kind == "text":
            _assign_text(draft, name)
        elif kind == "time":
            draft.assign(name, IGNORED, f"a second column of dates; if it orders the steps: --time {name}")
        else:
            expected = f"numbers, text or dates; leave it out with ignore={name}"
            raise FormatError(draft.file, f"a column of {kind}", expected, column=name)


def _why_input(draft: _Draft, name: str, id: str | None, static: bool) -> str:
    if static:
        return f"a number that is constant within each {id!r}"
    if counts_rows(draft.table, name):
        return f"a number; it counts the rows of the file: --ignore {name} if it is a row number"
    return "a number"


def _assign_text(draft: _Draft, name: str) -> None:
    count = count_distinct(draft.table, name)
    if count > MAX_CATEGORIES or count == draft.table.num_rows > MIN_WIDE_STEPS:
        draft.assign(name, IGNORED, f"text with {count} different values, too many for categories")
    else:
        draft.assign(name, CATEGORICAL, f"text with {count} different value{'s' if count != 1 else ''}, embedded")


def _wide(draft: _Draft, task: Task, why: str) -> Roles:
    """Every row is a sequence. Numbered columns are its steps; other numbers and texts are static."""
    given = list(draft.given.features or ())
    candidates = given or draft.free("number")
    channels, others = split_steps(candidates)
    count = len(next(iter(channels.values())))
    names = [name for steps in channels.values() for name in steps]
    for steps in channels.values():
        for position, name in enumerate(steps, start=1):
            draft.found[name] = ("input", f"step {position} of {count}")
    for name in others:
        draft.found[name] = ("static", "a number that is no step: its name has no number like the others")
    for name in draft.free():
        if given:
            draft.assign(name, IGNORED, "not among the inputs asked for")
        elif draft.kinds[name] == "text":
            _assign_text(draft, name)
            role, reason = draft.found[name]
            draft.found[name] = ("static" if role == CATEGORICAL else role, reason)
        else:
            draft.assign(name, IGNORED, f"a column of {draft.kinds[name]}")
    return draft.result(task, why, "wide", channels if names else {})


def _forecast_everything(draft: _Draft) -> Roles:
    """All numbers are forecast one step ahead; the task of a table in which nothing else is to be predicted."""
    if draft.given.task in ("classification", "tagging", "regression", "transduction"):
        _assign_inputs(draft, draft.given.task)
        return draft.result(draft.given.task, "as given", "long")
    _assign_inputs(draft, "next_step")
    if not draft.has_inputs():
        raise FormatError(
            draft.file, f"the columns {', '.join(draft.kinds)}", "at least one column of numbers as input"
        )
    return draft.result(draft.given.task or "forecasting", "every numeric column is predicted one step ahead", "long")


def _nested(draft: _Draft) -> Roles:
    """Every row is a whole sequence: a list of numbers or words, or a text."""
    given = draft.given
    if given.features is None and draft.one("target") is None:
        draft.assign(first_named(TARGET_HINTS, draft.free("text", "number", "list")), "target", "by its name")
    target = draft.one("target")
    task, reason = _nested_task(draft, target)
    words = first_named(TEXT_NAMES, draft.free("text", "list"))
    if given.features is None:
        names = [words] if words else draft.free("list")
        for name in names[:1] if task == "tagging" else names:
            draft.assign(name, "input", "the words of a sequence" if words else "the steps of a sequence")
    draft.assign(first_named(ID_HINTS, draft.free("text", "number")), "id", "by its name")
    for name in draft.free():
        draft.assign(name, IGNORED, "beside whole sequences in lists or texts")
    return draft.result(task, reason, "nested")


def _nested_task(draft: _Draft, target: str | None) -> tuple[Task, str]:
    given = draft.given
    if target is None:
        return given.task or "next_step", "each row is a whole sequence"
    if draft.kinds[target] == "list":
        is_tag = given.label is not None or (given.target is None and given.task in (None, "tagging"))
        if is_tag:
            return "tagging", "each row has a list of words and a list of tags"
        return given.task or "transduction", "each row has a list of steps and a list of numbers"
    if given.task is not None:
        return given.task, "as given"
    return _class_or_number(draft, target, None, draft.table.num_rows)


def first_named(names: Sequence[str], columns: Iterable[str]) -> str | None:
    """The first of `names` that is a column, in any case."""
    lowered = {column.strip().lower(): column for column in columns}
    return next((lowered[name] for name in names if name in lowered), None)


def _first_ending(columns: Iterable[str], end: str) -> str | None:
    return next((column for column in columns if column.lower().endswith(end)), None)
