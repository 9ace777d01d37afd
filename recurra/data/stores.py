"""Where sequences lie: anything with a length that gives the i-th sequence as a tensor, and views that copy nothing.

A list of tensors is a store, and so is a tensor whose first axis counts sequences. A store that can fetch a part of a
sequence without the rest has a method `window(index, start, stop)` as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Store(Protocol):
    """Random access to sequences: (T, D) float, (T,) int64 tokens, or one target each."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Tensor: ...


def window(store: Store, index: int, start: int, stop: int) -> Tensor:
    """Steps `start` to `stop` of one sequence, fetched as cheaply as the store can."""
    fetch = getattr(store, "window", None)
    return store[index][start:stop] if fetch is None else fetch(index, start, stop)


@dataclass(frozen=True)
class Flat:
    """Ragged sequences laid end to end in one tensor, which may be memory-mapped."""

    values: Tensor  # (ΣT, D) or (ΣT,)
    offsets: Tensor  # (N + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Tensor:
        return self.values[int(self.offsets[index]) : int(self.offsets[index + 1])]


def offsets(lengths: Tensor) -> Tensor:
    """Where sequences of these lengths begin when laid end to end, and where the last one ends: (N + 1,)."""
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
    """Every sequence of a store cut to the steps [start, stop) of its own."""

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
    """Sequences kept in a small dtype and widened when read, multiplied by `scale` if there is one."""

    base: Store
    dtype: torch.dtype
    scale: float | None = None

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Tensor:
        return self._widened(self.base[index])

    def window(self, index: int, start: int, stop: int) -> Tensor:
        return self._widened(window(self.base, index, start, stop))

    def _widened(self, values: Tensor) -> Tensor:
        values = values.to(self.dtype)
        return values if self.scale is None else values * self.scale


@dataclass(frozen=True)
class Permuted:
    """The steps of every sequence in another order, the same for all."""

    base: Store
    order: Tensor  # (T,) int64

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Tensor:
        return self.base[index][self.order]
