"""Missing values in sequences: padding at the end is cut, gaps are bridged by straight lines."""

import numpy as np


def fill_missing(x: np.ndarray) -> np.ndarray:
    """A sequence (T, D) without NaN.

    Steps at the end that have no value are cut: they pad short sequences. A gap is interpolated between its
    neighbours, or takes the nearest value; a column without any value is 0.
    """
    is_known = ~np.isnan(x)
    if is_known.all():
        return x
    steps = np.flatnonzero(is_known.any(axis=1))
    if not len(steps):
        return np.zeros((1, x.shape[1]))
    x, is_known = x[: steps[-1] + 1].copy(), is_known[: steps[-1] + 1]
    at = np.arange(len(x))
    for column, known in zip(x.T, is_known.T, strict=True):
        column[~known] = np.interp(at[~known], at[known], column[known]) if known.any() else 0.0
    return x
