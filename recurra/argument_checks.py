"""Checks of arguments that many functions share. Each returns the value, or raises an error that names the argument."""

import math
import os
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from .errors import InputError

T = TypeVar("T")
LARGEST = 2**63 - 1  # what torch counts with


def positive_int(argument: str, value: object) -> int:
    """The value, if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(argument, value, "a whole number of at least 1")
    return _countable(argument, value)


def whole_number(argument: str, value: object, least: int = 0) -> int:
    """The value, if it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(argument, repr(value), f"a whole number of at least {least}")
    return _countable(argument, value)


def _countable(argument: str, value: int) -> int:
    if value > LARGEST:
        raise InputError(argument, value, f"a whole number of at most {LARGEST}")
    return value


def finite_number(argument: str, value: Any, least: float = -math.inf) -> float:
    """The value, if it is a finite number of at least `least`."""
    number = float(value) if is_real(value) else math.nan
    if not (math.isfinite(number) and number >= least):
        expected = "a finite number" if least == -math.inf else f"a finite number of at least {least:g}"
        raise InputError(argument, repr(value), expected)
    return number


def positive_number(argument: str, value: Any) -> float:
    """The value, if it is a finite number above 0."""
    number = float(value) if is_real(value) else math.nan
    if not 0.0 < number < math.inf:
        raise InputError(argument, repr(value), "a positive number")
    return number


def is_real(value: Any) -> bool:
    """Whether the value is a number, Python's or NumPy's, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def true_or_false(argument: str, value: Any) -> bool:
    """The value, if it is a truth value; NumPy has its own, which search grids hold."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise InputError(argument, repr(value), "True or False")
    return bool(value)


def probability(argument: str, value: Any) -> float:
    """The value, if it lies in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise InputError(argument, value, "a probability between 0 and 1")
    return float(value)


def one_of(argument: str, value: Any, allowed: tuple) -> Any:
    """The value, if it is one of those allowed; True is not taken for 1."""
    if not any(value is one or (value == one and type(value) is type(one)) for one in allowed):
        raise InputError(argument, repr(value), "one of " + ", ".join(map(repr, allowed)))
    return value


def instance_of(argument: str, value: Any, kind: type[T], expected: str) -> T:
    """The value, if it is an object of this class."""
    if not isinstance(value, kind):
        raise InputError(argument, type(value).__name__, expected)
    return value


def path_of(argument: str, value: Any) -> Path:
    """The value as a path, if it is the name of a file or folder: text or a `Path`, not empty, without NUL."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(argument, repr(value), "the path of a file or folder")
    return Path(value)
