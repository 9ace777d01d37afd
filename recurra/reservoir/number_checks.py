"""Checks of the numbers that a reservoir is made with."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InputError


def check_range(name: str, value: Any, expected: str, holds: Callable[[float], bool]) -> None:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or not holds(float(value)):
        raise InputError(name, value, expected)


MOST = 2**62  # beyond it, NumPy has no such array


def check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= MOST:
        raise InputError(name, value, f"a whole number of at least {least}")
