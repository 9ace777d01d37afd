"""Roles of the columns of a table (id, time, input, target, …) and the task that follows; every choice has a reason.

`infer_roles` is the one place where columns get their roles: `rc.data.read`, `rc.infer_problem`, the command line and
the estimators call it.
"""

from pathlib import Path

import pyarrow as pa

from ..data_errors import FormatError, MissingColumnError
from ..sequences import Task
from .column_kinds import kind_of
from .column_roles import CATEGORICAL, IGNORED, OBSERVED, RoleDraft, Roles, first_named
from .id_and_time import find_id, find_time, two_ids
from .input_roles import assign_inputs, wide_roles
from .layout import ID_HINTS, NO_COLUMN, TARGET_HINTS, TEXT_NAMES, TIME_HINTS, Layout
from .table_facts import count_distinct, counts_rows, counts_up, is_headless, is_permutation, is_row_number
from .target_and_task import MIN_WIDE_STEPS, check_kind, check_one_target_each, class_or_number, find_target, infer_task


def infer_roles(
    table: pa.Table, given: Layout, file: str | Path, *, strict: bool = False, why_id: str = "as given"
) -> Roles:
    """The roles as given, the others inferred from names, types and values of the columns.

    `strict`: what could be predicted in several ways is an error; otherwise all numeric columns are forecast, and
    labels that change within a sequence are tags. `why_id` is the reason for an id that was found before.
    """
    draft = RoleDraft(table, given, file, strict, {item.name: kind_of(item.type) for item in table.schema})
    _assign_given(draft)
    if given.id in draft.kinds:
        draft.found[given.id or ""] = ("id", why_id)
    _refuse_unreadable(draft)
    _ignore_row_numbers(draft)
    nested = [name for name in draft.kinds if draft.kinds[name] == "list" and name not in given.ignore]
    if nested or first_named(TEXT_NAMES, draft.free("text")) or _asked_for_text(draft):
        return _nested(draft)
    find_time(draft)
    find_id(draft)
    return _find_task(draft)


def _assign_given(draft: RoleDraft) -> None:
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
            why = f"a part of the id {given.id!r}" if role == IGNORED and name in _parts_of_id(given) else "as given"
            draft.assign(name, CATEGORICAL if role == "input" and draft.kinds[name] == "text" else role, why)


def find_joined_id(table: pa.Table, given: Layout, file: str | Path) -> str | None:
    """`a+b` if only two columns together identify sequences: a person and a trial, a store and an item."""
    draft = RoleDraft(table, given, file, False, {item.name: kind_of(item.type) for item in table.schema})
    _assign_given(draft)
    _ignore_row_numbers(draft)
    find_time(draft)
    return two_ids(draft)


def _parts_of_id(given: Layout) -> list[str]:
    """The columns that are joined to the id."""
    return (given.id or "").split("+")


def _refuse_unreadable(draft: RoleDraft) -> None:
    """Raise for a column whose name gives it a role, but whose type cannot be read: bytes, durations, periods."""
    if draft.given.features is not None and draft.given.time:
        return  # inputs and times are chosen
    for name in draft.free("another type"):
        if name.strip().lower() in (*TARGET_HINTS, *TIME_HINTS, *ID_HINTS):
            got = f"a column of type {draft.table.schema.field(name).type}"
            raise FormatError(draft.file, got, f"numbers, text or dates; leave it out with ignore={name}", column=name)


def _ignore_row_numbers(draft: RoleDraft) -> None:
    for name in draft.free("number"):
        if draft.table.column(name).null_count == draft.table.num_rows:
            draft.assign(name, IGNORED, "an empty column")
    for name in draft.free("number", "text"):
        if not is_row_number(name) and not (name == "f0" and is_headless(draft.table)):
            continue
        if counts_rows(draft.table, name) or is_permutation(draft.table, name):
            unnamed = _is_unnamed(name) or is_headless(draft.table)
            written = "an index that was written without a name" if unnamed else "a row number"
            draft.assign(name, IGNORED, f"counts the rows of the file: {written}")
        elif _is_unnamed(name) and pa.types.is_integer(draft.table.schema.field(name).type):
            if not counts_up(draft.table, name):  # else it may be the time, such as years
                draft.assign(
                    name, IGNORED, f"an index that was written without a name; if it is data: --inputs {name!r}"
                )
        elif draft.kinds[name] == "text" and count_distinct(draft.table, name) == draft.table.num_rows:
            draft.assign(name, IGNORED, "a different text in every row: names of rows")


def _is_unnamed(name: str) -> bool:
    return name.strip().lower().startswith(("unnamed", "__index_level_")) or name.strip() == ""


def _asked_for_text(draft: RoleDraft) -> bool:
    """Whether the only input asked for is one text, to be read by character."""
    return (
        len(draft.given.features or ()) == 1
        and draft.kinds[(draft.given.features or ("",))[0]] == "text"
        and (first_named(TEXT_NAMES, draft.given.features or ()) is not None or draft.given.vocabulary is not None)
    )


def _find_task(draft: RoleDraft) -> Roles:
    given, id = draft.given, draft.one("id")
    one_row_each = id is None or count_distinct(draft.table, id) == draft.table.num_rows
    if given.unlabelled:
        return _without_target(draft, one_row_each)
    reason = find_target(draft, one_row_each)
    target = draft.one("target")
    if target is None:
        return _forecast_everything(draft)
    task, why = (given.task, "as given") if given.task else infer_task(draft, target, one_row_each, reason)
    check_kind(draft, task, target)
    if task in ("classification", "regression") and _is_wide(draft, one_row_each):
        return wide_roles(draft, task, why)
    if draft.strict and task in ("classification", "regression"):
        check_one_target_each(draft, task, target, id)
    assign_inputs(draft, task)
    if draft.strict and task != "forecasting" and not draft.has_inputs():
        raise FormatError(draft.file, f"the columns {', '.join(draft.kinds)}", f"an input column besides {target!r}")
    return draft.result(task, why, "long")


def _is_wide(draft: RoleDraft, one_row_each: bool) -> bool:
    if draft.given.form is not None or draft.given.id == NO_COLUMN:
        return draft.given.form == "wide"
    numbers = draft.free("number") + [name for name, (role, _) in draft.found.items() if role == "input"]
    return one_row_each and not draft.times() and len(numbers) >= MIN_WIDE_STEPS


def _without_target(draft: RoleDraft, one_row_each: bool) -> Roles:
    """The roles of data to predict for: a column of targets, if there is one, is not used."""
    draft.found |= {name: (IGNORED, "the target") for name, (role, _) in draft.found.items() if role == "target"}
    task = draft.given.task or "regression"
    if _is_wide(draft, one_row_each):
        return wide_roles(draft, task, "as given")
    assign_inputs(draft, task)
    return draft.result(task, "as given", "long")


def _forecast_everything(draft: RoleDraft) -> Roles:
    """All numbers are forecast one step ahead; the task of a table in which nothing else is to be predicted."""
    if draft.given.task in ("classification", "tagging", "regression", "transduction"):
        assign_inputs(draft, draft.given.task)
        return draft.result(draft.given.task, "as given", "long")
    assign_inputs(draft, "next_step")
    if not draft.has_inputs():
        raise FormatError(
            draft.file, f"the columns {', '.join(draft.kinds)}", "at least one column of numbers as input"
        )
    return draft.result(draft.given.task or "forecasting", "every numeric column is predicted one step ahead", "long")


def _nested(draft: RoleDraft) -> Roles:
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


def _nested_task(draft: RoleDraft, target: str | None) -> tuple[Task, str]:
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
    return class_or_number(draft, target, None, draft.table.num_rows)
