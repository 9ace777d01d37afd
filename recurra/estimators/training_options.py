"""Checks of options and arguments that the estimators share, and their seeds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any

from sklearn.utils import check_random_state

from ..argument_checks import positive_int, positive_number
from ..errors import InputError
from ..train.distributed import Processes


@contextmanager
def named_argument(argument: str) -> Iterator[None]:
    """An error of scikit-learn's validation as an `InputError` with its text."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(argument, error, "numbers (n, T) or (n, T, D), a list of sequences, or a table") from error


def check_training_options(estimator: Any, extras: str = "cell_options") -> None:
    """Check the options that every estimator hands to its network (`extras`) and to `fit`, whether a fit reads them or
    not."""
    for name in ("epochs", "batch_size", "patience"):
        positive_int(name, to_int(getattr(estimator, name)))
    if estimator.lr is not None:  # None where the optimizer is an object or a function, which has its own
        positive_number("lr", estimator.lr)
    if estimator.clip is not None:
        positive_number("clip", estimator.clip)
    if not isinstance(getattr(estimator, extras), Mapping | None):
        raise InputError(extras, repr(getattr(estimator, extras)), "further arguments by name, or None")


def draw_seed(random_state: Any) -> int:
    """A seed drawn from what scikit-learn takes as `random_state`; all processes of a job get that of the first."""
    try:
        seed = int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InputError(
            "random_state", repr(random_state), "a seed from 0 to 2³² - 1, a RandomState or None"
        ) from error
    return Processes().of_first(seed)


def to_int(value: Any) -> Any:
    """NumPy integers, as search grids have them, as Python integers; other values unchanged."""
    if isinstance(value, list | tuple):
        return [to_int(item) for item in value]
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
