"""Which column of a table is to be predicted, and the task that follows from its values."""

import pyarrow as pa

from ..data_errors import FormatError
from ..sequences import Task
from .column_roles import RoleDraft, first_named
from .layout import LABEL_NAMES, NO_COLUMN, TARGET_HINTS
from .table_facts import (
    are_few_whole_numbers,
    are_trials,
    count_distinct,
    counts_rows,
    is_constant_within,
    is_headless,
    split_steps,
)

MIN_SEQUENCES_PER_CLASS = 3  # whole numbers with fewer sequences per value are amounts, not classes
MIN_WIDE_STEPS = 3
MAX_CATEGORIES = 64  # text columns with more distinct values are no inputs unless asked for
WORD_NAMES = ("word", "words", "token", "form")
MAX_SHOWN = 12  # columns that an error lists
AHEAD = ("forecasting", "next_step", "language")


def find_target(draft: RoleDraft, one_row_each: bool) -> str:
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
    if len(constant) == 1 and len(usable) > 1 and _has_examples(draft, constant[0], id):
        chosen, why = constant[0], "the only column that is constant within each sequence"
    elif len(numbers) == 1 and task in (None, *AHEAD) and (draft.times() or not texts or id):
        chosen, why = numbers[0], "the only numeric column"
    elif one_row_each and not draft.times() and len(texts) == 1 and len(numbers) >= MIN_WIDE_STEPS:
        if 2 * count_distinct(draft.table, texts[0]) <= draft.table.num_rows:  # a text of its own per row is a name
            chosen, why = texts[0], "the only text column"
    elif one_row_each and task in (None, "classification") and (codes := _only_codes(draft)):
        chosen, why = codes, "the only column of few whole numbers in a file without a header"
    if chosen is None and draft.strict:
        candidates = constant or numbers or usable
        shown = ", ".join(candidates[:MAX_SHOWN]) or "none"
        more = f", and {len(candidates) - MAX_SHOWN} more" if len(candidates) > MAX_SHOWN else ""
        got = f"several possible targets ({shown}{more})"
        if not numbers and not constant:
            got = f"no column of numbers or labels among {', '.join(draft.kinds)}"
        elif len(candidates) == 1 and (beside := [name for name in texts if name not in candidates]):
            got = f"no clear target: beside {candidates[0]!r}, text that is no date ({', '.join(beside[:MAX_SHOWN])})"
        raise FormatError(draft.file, got, "one; choose it with target=")
    draft.assign(chosen, "target", why)
    return why


def words_column(draft: RoleDraft) -> str | None:
    """The column of words to tag: by its name, with many values, or text where no numbers are inputs."""
    texts, id = draft.inputs("text"), draft.one("id")
    named = first_named(WORD_NAMES, texts)
    many = (name for name in texts if count_distinct(draft.table, name) > MAX_CATEGORIES)
    numbers = [name for name in draft.inputs("number") if not counts_rows(draft.table, name, id)]
    return named or next(many, None) or (texts[0] if texts and not numbers else None)


def _has_examples(draft: RoleDraft, name: str, id: str | None) -> bool:
    """Whether a text that is constant in each sequence has two sequences per value, so that it can be learned."""
    table = draft.table
    return draft.kinds[name] != "text" or count_distinct(table, id or "") >= 2 * count_distinct(table, name)


def _only_codes(draft: RoleDraft) -> str | None:
    """The first or last column of a wide table without a header, if it alone has few whole numbers.

    The archives write a class before the decimal numbers of its sequence, without a line of names.
    """
    table, names = draft.table, draft.table.column_names
    if not is_headless(table) or draft.times() or any(kind != "number" for kind in draft.kinds.values()):
        return None
    decimal = [name for name in names if not are_few_whole_numbers(table, name, table.num_rows, 0)]
    codes = [name for name in names if name not in decimal]
    if len(decimal) < MIN_WIDE_STEPS or len(codes) != 1 or codes[0] not in (names[0], names[-1]):
        return None
    return codes[0] if are_few_whole_numbers(table, codes[0], table.num_rows, MIN_SEQUENCES_PER_CLASS) else None


def _has_steps_in_columns(draft: RoleDraft, target: str) -> bool:
    """Whether the other numbers are columns like t0, t1, …, among which a numeric target does not count."""
    if draft.times() or (is_headless(draft.table) and _only_codes(draft) != target):
        return False
    others = [name for name in draft.free("number") if name != target]
    if len(others) < MIN_WIDE_STEPS:
        return False
    return list(split_steps(others)[0]) != [""] or all(name.strip().isdigit() for name in others)


def infer_task(draft: RoleDraft, target: str, one_row_each: bool, target_reason: str) -> tuple[Task, str]:
    """The task and why, from the target's type and whether it is constant within each sequence."""
    table, id, kind = draft.table, draft.one("id"), draft.kinds[target]
    is_label = kind == "text" or target.lower() in LABEL_NAMES or draft.given.label is not None
    one_row_each = one_row_each and draft.given.id != NO_COLUMN
    if one_row_each and kind == "number" and not is_label and _has_steps_in_columns(draft, target):
        return class_or_number(draft, target, id, table.num_rows)
    if (
        one_row_each
        and not draft.times()
        and is_label
        and len(draft.free("number")) + len(draft.given.features or ()) >= MIN_WIDE_STEPS
    ):
        return class_or_number(draft, target, id, table.num_rows)
    whole = id is not None and is_constant_within(table, target, id) and count_distinct(table, id) < table.num_rows
    if whole and draft.given.label is None:
        return class_or_number(draft, target, id, count_distinct(table, id or ""))
    if whole or (id is not None and is_label and is_constant_within(table, target, id)):
        return "classification", f"{target!r} has one label per {id!r}"
    words = words_column(draft)
    if kind == "text" and id is not None and words:
        return "tagging", f"{target!r} has one text label per row, next to {words!r}"
    if kind == "number" and not is_label:
        if id is not None and draft.free("number") and are_trials(table, id, draft.times()):
            why = f"a number for every step, beside others; each {id!r} starts anew and has a length of its own"
            return "transduction", f"{target!r} has {why}; to forecast it: --task forecast"
        return "forecasting", f"{target!r} has numbers that change from row to row"
    if id is not None or draft.times() or draft.given.id == NO_COLUMN:
        return "tagging", f"{target!r} changes within {f'one {id!r}' if id else 'the series'}: a label for every step"
    if not draft.strict:
        return "tagging", f"{target!r} has one label per row"
    expected = "one label per sequence; name the column that identifies sequences with id=; or label every step with "
    expected += 'task="classify_steps"'
    got = f"a label that changes from row to row ({target_reason})"
    raise FormatError(draft.file, got, expected, column=target)


def class_or_number(draft: RoleDraft, target: str, id: str | None, sequences: int) -> tuple[Task, str]:
    each = f"per {id!r}" if id else "per row"
    if draft.kinds[target] == "text" or draft.given.label is not None:
        return "classification", f"{target!r} has one {'text ' if draft.kinds[target] == 'text' else ''}label {each}"
    if are_few_whole_numbers(draft.table, target, sequences, MIN_SEQUENCES_PER_CLASS):
        return "classification", f"{target!r} has one of few whole numbers {each}"
    if pa.types.is_integer(draft.table.schema.field(target).type):
        return "regression", f"{target!r} has one integer {each}, too many distinct values for classes"
    return "regression", f"{target!r} has one decimal number {each}"


def check_kind(draft: RoleDraft, task: Task, target: str) -> None:
    kind = draft.kinds[target]
    if task in ("forecasting", "next_step", "regression", "transduction") and kind not in ("number", "list"):
        wanted = {"forecasting": "forecast", "regression": "regress"}.get(task, "predict")
        raise FormatError(draft.file, f"values of type {kind}", f"numbers to {wanted}", column=target)


def check_one_target_each(draft: RoleDraft, task: Task, target: str, id: str | None) -> None:
    if id is None:
        raise FormatError(draft.file, "no column that identifies sequences", "one; name it with id=")
    if not is_constant_within(draft.table, target, id):
        verb = "classify" if task == "classification" else "regress"
        expected = f"one value per {id!r} to {verb} whole sequences"
        raise FormatError(draft.file, "values that change within a sequence", expected, column=target)
