"""Facts about the columns of a table, from which roles follow: repeated, contiguous, constant, counting."""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .dates import is_date

#: names of columns that number the rows of a file; "" is the index that pandas writes without a name
ROW_NUMBER_NAMES = ("", "index", "row", "rows", "rownames", "row_number", "row_id", "level_0", "__index_level_0__", "#")
ROW_NUMBER_NAMES += ("obs", "no", "nr")
MIN_TRIALS = 4  # sequences of different lengths, which are then no series that end together
UNNAMED = re.compile(r"unnamed: ?\d+", re.IGNORECASE)
STEP_NAME = re.compile(r"(?P<channel>.*?)[ _.\-\[(]*(?P<step>\d+)[\])]?")


def count_distinct(table: pa.Table, column: str) -> int:
    """The number of distinct values, nulls not counted."""
    return len(table.column(column).drop_null().unique())


def codes_of(table: pa.Table, column: str) -> np.ndarray:
    """(rows,) int64: equal numbers for equal values; -1 for nulls."""
    encoded = table.column(column).combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    return pc.fill_null(pc.cast(encoded.indices, pa.int64()), -1).to_numpy(zero_copy_only=False)


def is_contiguous(table: pa.Table, column: str) -> bool:
    """Whether equal values follow each other without nulls, on average at least two rows per value."""
    if table.column(column).null_count or not table.num_rows:
        return False
    codes = codes_of(table, column)
    runs = 1 + int(np.count_nonzero(codes[1:] != codes[:-1]))
    return runs == count_distinct(table, column) and 2 * runs <= table.num_rows


def is_constant_within(table: pa.Table, column: str, id: str) -> bool:
    """Whether a column has one value per id."""
    pairs = np.stack([codes_of(table, id), codes_of(table, column)])
    return len(np.unique(pairs, axis=1).T) == len(np.unique(pairs[0]))


def is_unique_within(table: pa.Table, columns: Sequence[str], id: str | None) -> bool:
    """Whether no two rows (of one id) have the same values in `columns`."""
    keys = [codes_of(table, name) for name in (*([id] if id else []), *columns)]
    return len(np.unique(np.stack(keys), axis=1).T) == table.num_rows


def counts_rows(table: pa.Table, column: str, id: str | None = None) -> bool:
    """Whether an integer column increases by one from row to row (within each id), from 0 or 1 without an id."""
    values = table.column(column)
    if not pa.types.is_integer(values.type) or values.null_count or not len(values):
        return False
    numbers = values.to_numpy()
    if id is None:
        return int(numbers[0]) in (0, 1) and len(numbers) > 1 and bool(np.all(np.diff(numbers) == 1))
    codes = codes_of(table, id)
    return is_contiguous(table, id) and bool(np.all(np.diff(numbers)[codes[1:] == codes[:-1]] == 1))


def is_permutation(table: pa.Table, column: str) -> bool:
    """Whether an integer column numbers the rows in another order, from 0 or 1."""
    values = table.column(column)
    if not pa.types.is_integer(values.type) or values.null_count or len(values) < 2:
        return False
    ordered = np.sort(values.to_numpy())
    return int(ordered[0]) in (0, 1) and bool(np.all(np.diff(ordered) == 1))


def counts_up(table: pa.Table, column: str) -> bool:
    """Whether an integer column increases by one from row to row."""
    values = table.column(column)
    return not values.null_count and len(values) > 1 and bool(np.all(np.diff(values.to_numpy()) == 1))


def start_together(table: pa.Table, column: str, id: str) -> bool:
    """Whether a column has the same value in the first row of each contiguous run of an id."""
    codes, values = codes_of(table, id), table.column(column).to_numpy()
    first = np.concatenate([[True], codes[1:] != codes[:-1]])
    return bool((values[first] == values[0]).all())


def are_trials(table: pa.Table, id: str, times: Sequence[str]) -> bool:
    """Whether sequences are trials, runs, machines: their clock starts anew in each, and most lengths differ.

    Series to forecast go on together: they have dates, or end together.
    """
    if not is_contiguous(table, id):
        return False
    lengths = np.bincount(codes_of(table, id))
    kinds = [table.schema.field(name).type for name in times]
    if any(not (pa.types.is_integer(kind) or pa.types.is_floating(kind)) for kind in kinds):
        return False
    is_varied = len(lengths) >= MIN_TRIALS and 2 * np.bincount(lengths).max() <= len(lengths)
    return is_varied and all(start_together(table, name, id) for name in times)


def grows_evenly(table: pa.Table, column: str, id: str) -> bool:
    """Whether a column starts with the same value in each contiguous run of an id, and grows by equal steps."""
    values = table.column(column)
    if values.null_count or pa.types.is_boolean(values.type) or not is_contiguous(table, id):
        return False
    codes, numbers = codes_of(table, id), pc.cast(values, pa.float64(), safe=False).to_numpy()
    steps = np.diff(numbers)[codes[1:] == codes[:-1]]
    return bool(len(steps) and steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-3)) and start_together(
        table, column, id
    )


def is_row_number(name: str) -> bool:
    """Whether a column is named like the index that a program writes."""
    return name.strip().lower() in ROW_NUMBER_NAMES or UNNAMED.fullmatch(name.strip()) is not None


def is_headless(table: pa.Table) -> bool:
    """Whether the columns have the names f0, f1, … of a file without a header."""
    return table.column_names == [f"f{k}" for k in range(table.num_columns)]


def are_few_whole_numbers(table: pa.Table, column: str, sequences: int, least: int) -> bool:
    """Whether all values are whole numbers, each with at least `least` of the sequences on average."""
    values = pc.cast(table.column(column).drop_null(), pa.float64(), safe=False).to_numpy()
    distinct = np.unique(values)
    return bool(np.all(distinct == np.round(distinct))) and sequences >= least * len(distinct)


def split_steps(columns: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Channel → its columns in the order of their numbers, and the columns that are no steps.

    Names like t0, t1, … are one channel; x_1, y_1, x_2, y_2, … are two. Without such names, or with dates as names, all
    columns are the steps of one channel, in the order of the file.
    """
    if all(is_date(name) for name in columns):
        return {"": list(columns)}, []
    found: dict[str, dict[int, str]] = {}
    for name in columns:
        if (match := STEP_NAME.fullmatch(name.strip())) is not None:
            found.setdefault(match["channel"], {})[int(match["step"])] = name
    largest = max(found.values(), key=len, default={})
    if len(largest) < 3:
        return {"": list(columns)}, []
    channels = {
        channel: [steps[k] for k in sorted(steps)] for channel, steps in found.items() if steps.keys() == largest.keys()
    }
    taken = {name for steps in channels.values() for name in steps}
    return channels, [name for name in columns if name not in taken]
