"""Stores of sequences: anything with a length whose item i is a tensor; and views of stores that copy nothing.

A list of tensors is a store, and so is a tensor whose first axis counts sequences. A store that can read a part of a
sequence also has a method `window(index, start, stop)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Store(Protocol):
    """Random access to sequences, (T, D) float or (T,) int64 tokens, or to targets."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Tensor: ...


def window(store: Store, index: int, start: int, stop: int) -> Tensor:
    """Steps `start` to `stop` of one sequence, by the `window` of the store if it has one."""
    fetch = getattr(store, "window", None)
    return store[index][start:stop] if fetch is None else fetch(index, start, stop)


@dataclass(frozen=True)
class Flat:
    """Ragged sequences concatenated in one tensor, which may be memory-mapped."""

    values: Tensor  # (ΣT, D) or (ΣT,)
    offsets: Tensor  # (N + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Tensor:
        return self.values[int(self.offsets[index]) : int(self.offsets[index + 1])]


def offsets(lengths: Tensor) -> Tensor:
    """(N + 1,): the start of every sequence in a concatenation, and the end of the last."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


@dataclass(frozen=True)
class Rows:
    """Some of the sequences of a store, in the order of `ids`."""

    base: Store
    ids: Tensor  # (M,) int64

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Tensor:
        return self.base[int(self.ids[index])]

    def window(self, index: int, start: int, stop: int) -> Tensor:
        return window(self.base, int(self.ids[index]), start, stop)


@dataclass(frozen=True)
class Spans:
    """Every sequence of a store cut to its own range of steps [start, stop)."""

    base: Store
    starts: Tensor  # (N,) int64
    stops: Tensor  # (N,) int64

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Tensor:
        return window(self.base, index, int(self.starts[index]), int(self.stops[index]))

    def window(self, index: int, start: int, stop: int) -> Tensor:
        first, last = int(self.starts[index]), int(self.stops[index])
        return window(self.base, index, first + start, min(first + stop, last))


@dataclass(frozen=True)
class Columns:
    """Some of the features of every sequence."""

    base: Store
    columns: Sequence[int]

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Tensor:
        return self.base[index][:, list(self.columns)]

    def window(self, index: int, start: int, stop: int) -> Tensor:
        return window(self.base, index, start, stop)[:, list(self.columns)]


@dataclass(frozen=True)
class Cast:
    """Sequences stored in a small dtype, converted on access and multiplied by `scale` if given."""

    base: Store
    dtype: torch.dtype
    scale: float | None = None

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Tensor:
        return self._widen(self.base[index])

    def window(self, index: int, start: int, stop: int) -> Tensor:
        return self._widen(window(self.base, index, start, stop))

    def _widen(self, values: Tensor) -> Tensor:
        values = values.to(self.dtype)
        return values if self.scale is None else values * self.scale


@dataclass(frozen=True)
class Permuted:
    """Every sequence with its steps in the same other order."""

    base: Store
    order: Tensor  # (T,) int64

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Tensor:
        return self.base[index][self.order]


def stored_positions(store: Store, positions: Tensor) -> tuple[Store, Tensor]:
    """The store below all views, and the numbers that its sequences `positions` have there."""
    if isinstance(store, Rows):
        return stored_positions(store.base, store.ids[positions])
    base = getattr(store, "base", None)
    return (store, positions) if base is None else stored_positions(base, positions)
