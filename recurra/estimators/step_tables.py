"""Tables and sets with a target in every row, for estimators of steps."""

from typing import Any

import numpy as np

from ..data.sequences import SequenceSet, Task
from ..errors import InputError
from . import input_conversion


def with_step_targets(X: Any, y: Any, task: Task) -> tuple[Any, Any]:
    """Sequences and their targets, from arrays, a set, or a table whose targets are a column or beside its rows."""
    X = input_conversion.to_values(X)
    if input_conversion.column_names(X):
        table = input_conversion.arrow(X)
        named = isinstance(y, str)
        found = input_conversion.from_table(table, y, task) if named else _beside(table, y, task)
        X, y = found, None
    if isinstance(X, SequenceSet) and y is None:
        y = _set_targets(X)
    if y is None:
        raise InputError("y", "nothing", "one target for every step of every sequence")
    return X, [np.asarray(row) for row in y]


def _beside(table: Any, y: Any, task: Task) -> SequenceSet:
    ragged = input_conversion.is_ragged(y)
    found = None if y is None or ragged else input_conversion.with_row_targets(table, y, task)
    if found is None:
        raise InputError("y", type(y).__name__, "the name of the column with a target in every row, or one per row")
    return found


def _set_targets(data: SequenceSet) -> list[np.ndarray]:
    """The targets of a set with one per step; classes by name, single numbers as (T,)."""
    rows = [np.asarray(target) for target in data.targets]
    if data.task == "tagging":
        return [np.asarray(data.classes)[row] if data.classes else row for row in rows]
    return [row[:, 0] if row.ndim == 2 and row.shape[1] == 1 else row for row in rows]
