"""Covariates of series: which columns they are, and text among them as codes, which a network embeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from .scaling import Scaling

Role = Literal["known", "static", "observed"]
ROLES: tuple[Role, ...] = ("known", "static", "observed")


@dataclass(frozen=True)
class Covariates:
    """The columns beside the targets, and the values of those that are text.

    The code of a value is its place in `categories` from 1 on; 0 is a value that training did not have.
    """

    known: tuple[str, ...] = ()  # known in advance
    static: tuple[str, ...] = ()  # constant in each series
    observed: tuple[str, ...] = ()  # known until the forecast is made
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.known, *self.static, *self.observed)

    def sizes(self, role: Role) -> tuple[int, ...]:
        """The number of categories of every column; 0 for a column of numbers."""
        return tuple(len(self.categories.get(name, ())) for name in getattr(self, role))


def embedding_size(categories: int) -> int:
    """How many numbers a category is embedded in."""
    return min(16, 1 + round(categories**0.5))


def one_hot(values: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Columns (…, F), in which each code of K categories becomes K columns of 0 and 1; numbers stay."""
    parts = [
        (values[..., [k]] == np.arange(1, size + 1)).astype(np.float64) if size else values[..., [k]]
        for k, size in enumerate(sizes)
    ]
    return np.concatenate(parts, axis=-1) if parts else values


def one_hot_width(sizes: tuple[int, ...]) -> int:
    """The number of columns that `one_hot` gives."""
    return sum(max(1, size) for size in sizes)


def numbers_scaled(series: list[np.ndarray], sizes: tuple[int, ...]) -> Scaling:
    """The scaling of columns (T, F): of numbers over all steps; codes stay as they are."""
    found, is_code = Scaling.of(series), np.array(sizes, dtype=bool)
    return Scaling(np.where(is_code, 0.0, found.mean), np.where(is_code, 1.0, found.scale))


def codes(values: np.ndarray, columns: tuple[str, ...], categories: Mapping[str, tuple[str, ...]]) -> np.ndarray:
    """(T, columns): the indicators that a reader makes of a text column as one column of codes."""
    found, at = [], 0
    for name in columns:
        size = len(categories.get(name, ()))
        piece = values[:, at : at + max(1, size)]
        found.append(piece @ np.arange(1.0, size + 1) if size else piece[:, 0])
        at += max(1, size)
    return np.stack(found, axis=1) if found else np.zeros((len(values), 0))
