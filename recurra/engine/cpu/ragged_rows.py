"""A padded batch with lengths as the rows kernels run: valid steps alone, the longest sequence first in each."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from .. import caches
from . import allocator
from .layout import Layout, dense

CACHED_ROWS = 1 << 20  # the row order of a ragged batch with more rows is not kept: it takes memory


class Rows:
    """The rows of a batch: all of them, or those within the lengths, the longest sequence first in each step."""

    def __init__(self, steps: int, batch: int, lengths: Sequence[int] | None = None):
        self.steps, self.batch, self.ragged = steps, batch, lengths is not None
        if lengths is None:
            self.layout = dense(steps, batch)
            return
        ends, self.order = torch.sort(torch.tensor(lengths), descending=True, stable=True)
        self.back = torch.argsort(self.order)
        active = (ends > torch.arange(steps)[:, None]).sum(1)
        self.layout = Layout(max(1, int(ends[0])), batch, active[: max(1, int(ends[0]))])
        step = torch.repeat_interleave(self.layout.times, self.layout.counts)
        rank = torch.arange(self.layout.total) - self.layout.starts[step]
        self.index = step * batch + self.order[rank]

    def gather(self, value: Tensor) -> Tensor:
        """(T, B, n), or of a ragged batch (rows, n)."""
        if not self.ragged:
            return value.contiguous().resolve_neg()
        return value.reshape(-1, value.shape[-1]).index_select(0, self.index)

    def scatter(self, rows: Tensor) -> Tensor:
        """(rows, n) → (T, B, n), zero past the ends."""
        if not self.ragged:
            return rows
        full = allocator.zeros((self.steps, self.batch, rows.shape[-1]), rows.dtype)
        full.view(-1, rows.shape[-1]).index_copy_(0, self.index, rows)
        return full

    def sort(self, values: Sequence[Tensor]) -> list[Tensor]:
        return [v[self.order] if self.ragged else v.contiguous().resolve_neg() for v in values]

    def unsort(self, values: Sequence[Tensor]) -> list[Tensor]:
        return [v[self.back] for v in values] if self.ragged else list(values)

    def pad(self, rows: Tensor) -> Tensor:
        """As many rows as the padded batch has: shapes of a registered operation must not depend on the lengths."""
        if not self.ragged or rows.shape[0] == self.steps * self.batch:
            return rows
        full = rows.new_empty(self.steps * self.batch, rows.shape[-1])
        full[: rows.shape[0]] = rows
        full[rows.shape[0] :] = 0
        return full


def rows_of(x: Tensor, lengths: Tensor | None) -> Rows:
    steps, batch = x.shape[:2]
    ends = None if lengths is None else tuple(lengths.tolist())
    if ends is None or min(ends, default=steps) >= steps:
        return Rows(steps, batch)
    return _ragged(steps, batch, ends) if steps * batch < CACHED_ROWS else Rows(steps, batch, ends)


@functools.lru_cache(maxsize=16)
def _ragged(steps: int, batch: int, ends: tuple[int, ...]) -> Rows:
    """Kept, since backward has the lengths of forward, and an epoch those of the one before."""
    return Rows(steps, batch, ends)


caches.register("ragged rows", _ragged.cache_clear, lambda: _ragged.cache_info().currsize)
