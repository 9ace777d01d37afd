"""Which columns of a table are inputs: numbers and categories of steps, steps in columns, static ones."""

import shlex

from ..data_errors import FormatError
from ..sequences import Task
from .column_roles import CATEGORICAL, IGNORED, RoleDraft, Roles
from .table_facts import count_distinct, counts_rows, is_constant_within, split_steps
from .target_and_task import MAX_CATEGORIES, MIN_WIDE_STEPS, words_column


def assign_inputs(draft: RoleDraft, task: Task) -> None:
    """Numbers are inputs, texts with few values categorical ones; a forecast knows only what is given to it."""
    if draft.given.features is not None:
        for name in draft.free():
            draft.assign(name, IGNORED, "not among the inputs asked for")
        return
    id = draft.one("id")
    words = words_column(draft) if task == "tagging" else None
    for name in draft.free():
        kind = draft.kinds[name]
        if name == words:
            draft.assign(name, "input", "the words")
        elif task == "forecasting" and draft.strict:
            draft.assign(name, IGNORED, _why_not_in_a_forecast(name, kind))
        elif kind == "number":
            static = id is not None and is_constant_within(draft.table, name, id)
            draft.assign(name, "static" if static else "input", _why_input(draft, name, id, static))
        elif kind == "text":
            _assign_text(draft, name, task)
        elif kind == "time":
            draft.assign(name, IGNORED, f"a second column of dates; if it orders the steps: --time {name}")
        else:
            expected = f"numbers, text or dates; leave it out with ignore={name}"
            raise FormatError(draft.file, f"a column of {kind}", expected, column=name)


def _why_not_in_a_forecast(name: str, kind: str) -> str:
    if kind == "clock":
        return "a time of day without a date; the rows are taken in their order"
    flag = shlex.quote(name)
    as_label = f"; to predict it: --target {flag}" if kind == "text" else ""
    return f"used with --observed {flag}, or with --inputs {flag} if known in advance{as_label}"


def _why_input(draft: RoleDraft, name: str, id: str | None, static: bool) -> str:
    if static:
        return f"a number that is constant within each {id!r}"
    if counts_rows(draft.table, name):
        return f"a number; it counts the rows of the file: --ignore {name} if it is a row number"
    return "a number"


def _assign_text(draft: RoleDraft, name: str, task: Task) -> None:
    count = count_distinct(draft.table, name)
    id = draft.one("id")
    if id is not None and 1 < count == count_distinct(draft.table, id) and is_constant_within(draft.table, name, id):
        draft.assign(name, IGNORED, f"a different text for every {id!r}: names of sequences")
    elif count > MAX_CATEGORIES or count == draft.table.num_rows > MIN_WIDE_STEPS:
        draft.assign(name, IGNORED, f"text with {count} different values, too many for categories")
    else:
        values = f"{count} different value{'s' if count != 1 else ''}"
        code = "one-hot" if task in ("classification", "regression") else "embedded"  # as in estimators/
        draft.assign(name, CATEGORICAL, f"text with {values}, {code}")


def wide_roles(draft: RoleDraft, task: Task, why: str) -> Roles:
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
            _assign_text(draft, name, task)
            role, reason = draft.found[name]
            draft.found[name] = ("static" if role == CATEGORICAL else role, reason)
        else:
            draft.assign(name, IGNORED, f"a column of {draft.kinds[name]}")
    return draft.result(task, why, "wide", channels if names else {})
