"""Columns as numbers: a text column with K categories becomes K columns of 0 and 1, a one-hot code.

A cell multiplies its inputs by a matrix, so that every category has a learned vector: an embedding. A narrower one in
front of it is better for a label of every step with many categories, and worse for a label of a whole sequence
(benchmarks/results/categories.md); so estimators of steps have one, and those of sequences have none.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from .table_scan import index_in, strings

Categories = Mapping[str, tuple[str, ...]]


def numbers(table: pa.Table, categories: Categories | None = None) -> Tensor:
    """(rows, columns) of the default dtype. K categories become K columns of 0 and 1; unknown values, 0."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if categories and name in categories:
            columns.append(indicators(column, categories[name]))
        else:
            columns.append(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)[:, None])
    return torch.from_numpy(np.concatenate(columns, axis=1)).to(torch.get_default_dtype())


def indicators(column: pa.ChunkedArray, known: Sequence[str]) -> np.ndarray:
    """(rows, K) float64: 1 at the category of each row."""
    positions = index_in(strings(column.combine_chunks()), pa.array(known, pa.string()))
    codes = pc.fill_null(positions, -1).to_numpy(zero_copy_only=False)
    return (codes[:, None] == np.arange(len(known))).astype(np.float64)


def one_hot_runs(features: Sequence[str], categories: Mapping[str, Sequence[str]]) -> tuple[tuple[int, int], ...]:
    """(first column, columns) of every text column among features that have the names of `indicator_names`."""
    starts = {name: f"{name}={values[0]}" for name, values in categories.items() if values}
    return tuple(
        sorted((list(features).index(start), len(categories[n])) for n, start in starts.items() if start in features)
    )


def indicator_names(columns: Iterable[str], categories: Categories) -> tuple[str, ...]:
    """The names of the columns that `numbers` returns: `colour=red` for a category."""
    each = ([f"{name}={value}" for value in categories[name]] if name in categories else [name] for name in columns)
    return tuple(name for names in each for name in names)
