"""What people hand over as series, checked and brought into one form: a list of (T, d) arrays of float64."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import InputError, ShapeError
from .reservoir_warnings import SeriesWarning


def is_one(X: Any) -> bool:
    """Whether X is a single series: an array (T,) or (T, d), or a list of plain numbers."""
    if isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object):
        return bool(len(X)) and np.ndim(as_array(X[0])) == 0
    return np.ndim(as_array(X)) <= 2


def series(argument: str, X: Any, width: int | None = None) -> list[np.ndarray]:
    """A list of series (T_i, d) without holes, all of one width."""
    given = [as_array(X)] if is_one(X) else [as_array(one) for one in X]
    if not given:
        raise InputError(argument, "no series", "at least one")
    checked = [_check(_name(argument, index, len(given)), one) for index, one in enumerate(given)]
    width = checked[0].shape[1] if width is None else width
    for index, one in enumerate(checked):
        if one.shape[1] != width:
            raise ShapeError(_name(argument, index, len(checked)), f"{one.shape[1]} columns", f"{width}")
    return checked


def _name(argument: str, index: int, count: int) -> str:
    return argument if count == 1 else f"{argument}[{index}]"


def as_array(value: Any) -> np.ndarray:
    """A tensor, a table or a list as an array."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    return value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)


def _check(name: str, one: np.ndarray) -> np.ndarray:
    one = one[:, None] if one.ndim == 1 else one
    if one.ndim != 2 or not len(one) or one.dtype.kind not in "fiub":
        raise ShapeError(name, f"shape {one.shape} of {one.dtype}", "numbers (T, d) with at least one step")
    one = np.ascontiguousarray(one, dtype=np.float64)
    holes = np.argwhere(~np.isfinite(one))
    if len(holes):
        row, column = holes[0]
        raise InputError(name, f"{one[row, column]} at step {row}, column {column}", "finite numbers")
    return one


def check_targets(argument: str, targets: Sequence[np.ndarray]) -> None:
    """Refuse constant targets."""
    for column in range(targets[0].shape[1]):
        values = np.concatenate([one[:, column] for one in targets])
        if np.ptp(values) == 0:
            raise InputError(argument, f"the constant {values[0]:g} in column {column}", "a series that changes")


def warn_constant_inputs(inputs: Sequence[np.ndarray]) -> None:
    first = inputs[0][0]
    if all((one == first).all() for one in inputs):
        text = ", ".join(f"{value:g}" for value in first[:5])
        warnings.warn(f"X: constant ({text}), so it does not drive the reservoir", SeriesWarning, stacklevel=4)


def check_length(argument: str, lengths: Sequence[int], washout: int) -> None:
    """Every series must be longer than the washout."""
    for index, length in enumerate(lengths):
        if length <= washout:
            name = _name(argument, index, len(lengths))
            raise InputError(name, f"{length} steps", f"more than the washout of {washout}; or a smaller washout")


def pad(inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(T, B, d) with zeros after each end, and the lengths (B,)."""
    lengths = np.array([len(one) for one in inputs])
    padded = np.zeros((lengths.max(), len(inputs), inputs[0].shape[1]))
    for index, one in enumerate(inputs):
        padded[: len(one), index] = one
    return padded, lengths


def delayed(y: np.ndarray, first: np.ndarray | None = None) -> np.ndarray:
    """y_{t-1} for every t: the feedback under teacher forcing."""
    before = np.zeros_like(y[:1]) if first is None else first.reshape(y[:1].shape)
    return np.concatenate([before, y[:-1]])
