"""Layouts: where the rows of a batch of sequences lie in memory.

Rows are in order of time. A step has a row for each sequence that still runs, the longest sequence first, so that work
and memory are proportional to the valid steps. With equal lengths that is (T, B).
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import caches
from ..torch_modes import hide_from_modes


@dataclass(frozen=True)
class Table:
    """The first row of each step of a buffer, and of `reach` steps before the first."""

    rows: Tensor
    reach: int

    @property
    def pointer(self) -> int:
        return self.rows.data_ptr() + 8 * self.reach


class Layout:
    """`steps` steps of at most `rows` sequences. `active`: how many of them run at each step, (T,); None: all."""

    def __init__(self, steps: int, rows: int, active: Tensor | None = None):
        self.steps, self.rows, self.active = steps, rows, active
        self.counts = torch.full((steps,), rows, dtype=torch.int64) if active is None else active.cpu()
        self.starts = torch.cumsum(self.counts, 0) - self.counts
        self.total = steps * rows if active is None else int(self.counts.sum())
        self.times = torch.arange(steps)
        self._tables: dict[tuple[RowRule, int, int], Table] = {}
        self._lagged: dict[int, Tensor] = {}
        self._ends: Tensor | None = None

    def shape(self, width: int) -> tuple[int, ...]:
        """The shape of a tensor with all rows of all steps."""
        return (self.steps, self.rows, width) if self.active is None else (self.total, width)

    def table(self, rule: "RowRule", distance: int = 0, reach: int = 0) -> Table:
        """The table that a rule gives; rules are the methods of the next two sections."""
        key = (rule, distance, reach)
        if key not in self._tables:
            rows = rule(self, distance, reach)
            self._tables[key] = Table(rows.to(torch.int64).contiguous(), reach)
        return self._tables[key]

    # ------------------------------------------------------------------------------------------ rules: forward

    def by_step(self, _: int, reach: int) -> Tensor:
        return _padded(self.starts, reach)

    def by_sequence(self, _: int, reach: int) -> Tensor:
        """The same row of a sequence at all steps."""
        return torch.zeros(self.steps + reach)

    def history(self, depth: int, reach: int) -> Tensor:
        """All steps of a state. Rows below zero are those of the initial values, the newest first."""
        return torch.cat([-1 - torch.arange(depth).flip(0) * self.rows, self.starts])

    def ring(self, depth: int, reach: int) -> Tensor:
        """The last `depth + 1` steps of a state, and its initial values."""
        return torch.cat([-1 - torch.arange(depth).flip(0) * self.rows, self.times % (depth + 1) * self.rows])

    # ------------------------------------------------------------------------------------------ rules: backward

    def by_step_backward(self, _: int, reach: int) -> Tensor:
        return _padded(self.starts.flip(0), reach)

    def history_backward(self, lag: int, reach: int) -> Tensor:
        """A state `lag` steps earlier."""
        initial = -1 - (lag - 1 - self.times) * self.rows
        at = self.times - lag
        return _padded(torch.where(at >= 0, self.starts[at.clamp(min=0)], initial).flip(0), reach)

    def carry_backward(self, lag: int, reach: int) -> Tensor:
        return torch.arange(-reach, self.steps) % (lag + 1) * self.rows

    def active_rows(self, _: int, reach: int) -> Tensor:
        return _padded(self.counts, reach)

    def active_backward(self, _: int, reach: int) -> Tensor:
        return _padded(self.counts.flip(0), reach)

    # ------------------------------------------------------------------------------------------ rows by time

    def ends(self) -> Tensor:
        """The length of each sequence, (B,)."""
        if self._ends is None:
            self._ends = (self.counts[:, None] > torch.arange(self.rows)).sum(0)
        return self._ends

    def lagged_spans(self, lag: int) -> Tensor:
        """Spans of rows and the rows `lag` steps earlier, (spans, 4): whether those are initial values, their first
        row, the first row of the span, the number of rows."""
        if lag not in self._lagged:
            at = self.times - lag
            rows = torch.where(at < 0, (-1 - at) * self.rows, self.starts[at.clamp(min=0)])
            found = torch.stack([(at < 0).to(torch.int64), rows, self.starts, self.counts], 1)
            if self.active is None and self.steps > lag:  # contiguous: one span for all steps after the first few
                rest = torch.tensor([[0, 0, lag * self.rows, self.total - lag * self.rows]])
                found = torch.cat([found[:lag], rest])
            self._lagged[lag] = found.contiguous()
        return self._lagged[lag]

    def rows_at(self, step: int) -> slice:
        """The rows of one step."""
        first = int(self.starts[step])
        return slice(first, first + int(self.counts[step]))

    def row_index(self, times: Tensor) -> Tensor:
        """The row of each sequence at a time of its own, (B,); for times before the first, some row."""
        return torch.where(times >= 0, self.starts[times.clamp(min=0)] + torch.arange(self.rows), 0)

    def may_end_before(self, steps: int) -> bool:
        """Whether a sequence is shorter than this."""
        return self.steps < steps or (self.active is not None and bool((self.ends() < steps).any()))

    def bounds(self, parts: int) -> Tensor:
        """Bounds of parts of the batch with about equal work, (parts + 1,)."""
        if self.active is None:
            return torch.arange(parts + 1) * self.rows // parts
        work = torch.cumsum(self.ends(), 0)
        shares = torch.arange(1, parts) * self.total // parts
        return torch.cat(
            [torch.zeros(1, dtype=torch.int64), torch.searchsorted(work, shares), torch.tensor([self.rows])]
        )

    def spans(self, bounds: Tensor, backward: bool) -> Tensor:
        """The first step at which each part has rows, and the step after its last, (parts, 2)."""
        lengths = [int(self.ends()[low]) if low < high else 0 for low, high in itertools.pairwise(bounds.tolist())]
        return torch.tensor([(self.steps - n, self.steps) if backward else (0, n) for n in lengths])


RowRule = Callable[[Layout, int, int], Tensor]  # (layout, distance, reach) → the first row of each step


def _padded(rows: Tensor, reach: int) -> Tensor:
    return torch.cat([rows.new_zeros(reach), rows])


@functools.lru_cache(maxsize=64)
@hide_from_modes
def dense(steps: int, rows: int) -> Layout:
    return Layout(steps, rows)


@functools.lru_cache(maxsize=64)
@hide_from_modes
def chunked(total: int, rows: int) -> Layout:
    """`total` rows that do not depend on each other, as steps of `rows` rows and one with the rest."""
    steps, rest = divmod(total, rows)
    if not steps or not rest:
        return dense(max(steps, 1), rows if steps else rest)
    return Layout(steps + 1, rows, torch.tensor([rows] * steps + [rest]))


caches.register("layouts", dense.cache_clear, lambda: dense.cache_info().currsize)
