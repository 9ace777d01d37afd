"""Errors and notes of tables that estimators read: advice names what to do with the table, not options of a reader."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..data.data_errors import DataError

#: option of a reader → what a caller of an estimator does instead; "" where nothing needs to be said
INSTEAD = {
    "sort=": "sort the rows by sequence and time",
    "fill=": "fill the gaps in the table",
    "missing=": "fill the gaps in the table",
    "irregular=": "",
    "dates=": "convert the column to dates",
    "decimal=": "convert the column to numbers",
    "ignore=": "drop the column if it is no input",
    "id=": "call the column of sequences id",
}


@contextmanager
def advice_for_tables() -> Iterator[None]:
    """Errors inside advise what can be done with a table in memory."""
    try:
        yield
    except DataError as error:
        expected, *clauses = error.expected.split("; ")
        advice = dict.fromkeys(_instead(clause) for clause in clauses)
        kept = "; ".join([expected, *(clause for clause in advice if clause)])
        if kept == error.expected:
            raise
        raise type(error)(error.file, error.got, kept, error.line, error.column) from error


def _instead(clause: str) -> str:
    return next((words for option, words in INSTEAD.items() if option in clause), clause)


def warn_of_odd_values(notes: Iterable[str]) -> None:
    """Warn of numbers that may mean missing values, and of texts that training did not have."""
    for note in notes:
        said, sentinel, _ = note.partition("; if it means a missing value")
        if sentinel:
            warnings.warn(f"{said}{sentinel}, make it NaN and fill it", UserWarning, stacklevel=4)
        elif "which training did not have" in note:
            warnings.warn(note, UserWarning, stacklevel=4)
