"""Where the rows of a batch of sequences lie in memory.

Rows are in order of time, and within a step the sequences still running come first, the longest in front: whatever is
computed or stored is in proportion to the valid steps. With equal lengths that is simply (T, B).
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..torch_modes import hide_from_modes


@dataclass(frozen=True)
class Table:
    """The first row of each step; a step before the first may be asked for as far back as `reach`."""

    rows: Tensor
    reach: int

    @property
    def pointer(self) -> int:
        return self.rows.data_ptr() + 8 * self.reach


class Layout:
    """`steps` steps of at most `rows` sequences; `active` of them run at each step, all of them if it is None."""

    def __init__(self, steps: int, rows: int, active: Tensor | None = None):
        self.steps, self.rows, self.active = steps, rows, active
        self.counts = torch.full((steps,), rows, dtype=torch.int64) if active is None else active.cpu()
        self.starts = torch.cumsum(self.counts, 0) - self.counts
        self.total = steps * rows if active is None else int(self.counts.sum())
        self.times = torch.arange(steps)
        self.known: dict[tuple[RowRule, int, int], Table] = {}
        self.calls: dict[Any, Any] = {}  # what a kernel has worked out for this layout

    def shape(self, width: int) -> tuple[int, ...]:
        """Of a tensor that has all rows of all steps."""
        return (self.steps, self.rows, width) if self.active is None else (self.total, width)

    def table(self, rule: "RowRule", distance: int = 0, reach: int = 0) -> Table:
        """`rule`: one of the methods below that give the rows of a kind of buffer."""
        key = (rule, distance, reach)
        if key not in self.known:
            rows = rule(self, distance, reach)
            self.known[key] = Table(rows.to(torch.int64).contiguous(), reach)
        return self.known[key]

    # ------------------------------------------------------------------------------------------ forward

    def by_step(self, _: int, reach: int) -> Tensor:
        return _padded(self.starts, reach)

    def by_sequence(self, _: int, reach: int) -> Tensor:
        """One row a sequence at all steps."""
        return torch.zeros(self.steps + reach)

    def history(self, depth: int, reach: int) -> Tensor:
        """All steps of a state; what came before the first is elsewhere, the newest first."""
        return torch.cat([-1 - torch.arange(depth).flip(0) * self.rows, self.starts])

    def ring(self, depth: int, reach: int) -> Tensor:
        """The last steps of a state."""
        return torch.cat([-1 - torch.arange(depth).flip(0) * self.rows, self.times % (depth + 1) * self.rows])

    # ------------------------------------------------------------------------------------------ backward

    def by_step_backward(self, _: int, reach: int) -> Tensor:
        return _padded(self.starts.flip(0), reach)

    def history_backward(self, lag: int, reach: int) -> Tensor:
        """A state as it was `lag` steps before."""
        before = -1 - (lag - 1 - self.times) * self.rows
        at = self.times - lag
        return _padded(torch.where(at >= 0, self.starts[at.clamp(min=0)], before).flip(0), reach)

    def carry_backward(self, lag: int, reach: int) -> Tensor:
        return torch.arange(-reach, self.steps) % (lag + 1) * self.rows

    def active_rows(self, _: int, reach: int) -> Tensor:
        return _padded(self.counts, reach)

    def active_backward(self, _: int, reach: int) -> Tensor:
        return _padded(self.counts.flip(0), reach)

    # ------------------------------------------------------------------------------------------ rows by time

    def ends(self) -> Tensor:
        """The length of each sequence."""
        if "ends" not in self.calls:
            self.calls["ends"] = (self.counts[:, None] > torch.arange(self.rows)).sum(0)
        return self.calls["ends"]

    def last(self, ring: int) -> Tensor:
        """Where the last row of each sequence lies: among all of them, or in a ring of so many steps. No sequence is
        empty."""
        if ("last", ring) not in self.calls:
            newest = self.ends() - 1
            first = newest % ring * self.rows if ring else self.starts[newest]
            self.calls["last", ring] = first + torch.arange(self.rows)
        return self.calls["last", ring]

    def stretches(self, lag: int) -> Tensor:
        """Where the rows lie that came `lag` steps before the rows from `first` on: (whether before the first step,
        there from which row on, `first`, rows)."""
        if ("stretches", lag) not in self.calls:
            at = self.times - lag
            rows = torch.where(at < 0, (-1 - at) * self.rows, self.starts[at.clamp(min=0)])
            found = torch.stack([(at < 0).to(torch.int64), rows, self.starts, self.counts], 1)
            if self.active is None and self.steps > lag:  # one after the other
                rest = torch.tensor([[0, 0, lag * self.rows, self.total - lag * self.rows]])
                found = torch.cat([found[:lag], rest])
            self.calls["stretches", lag] = found.contiguous()
        return self.calls["stretches", lag]

    def rows_at(self, step: int) -> slice:
        first = int(self.starts[step])
        return slice(first, first + int(self.counts[step]))

    def row_index(self, times: Tensor) -> Tensor:
        """The row of each sequence at a time of its own, (B,); for times before the first, some row."""
        return torch.where(times >= 0, self.starts[times.clamp(min=0)] + torch.arange(self.rows), 0)

    def may_end_before(self, steps: int) -> bool:
        """Whether a sequence is shorter than this."""
        return self.steps < steps or (self.active is not None and bool((self.ends() < steps).any()))

    def bounds(self, parts: int) -> Tensor:
        """Cut the sequences into parts of about equal work."""
        if self.active is None:
            return torch.arange(parts + 1) * self.rows // parts
        work = torch.cumsum(self.ends(), 0)
        shares = torch.arange(1, parts) * self.total // parts
        return torch.cat(
            [torch.zeros(1, dtype=torch.int64), torch.searchsorted(work, shares), torch.tensor([self.rows])]
        )

    def spans(self, bounds: Tensor, backward: bool) -> Tensor:
        """Of each part, the first step at which it has rows, and the one after the last."""
        lengths = [int(self.ends()[low]) if low < high else 0 for low, high in itertools.pairwise(bounds.tolist())]
        return torch.tensor([(self.steps - n, self.steps) if backward else (0, n) for n in lengths])


RowRule = Callable[[Layout, int, int], Tensor]  # (layout, distance, reach) → the first row of each step


def _padded(rows: Tensor, reach: int) -> Tensor:
    return torch.cat([rows.new_zeros(reach), rows])


@functools.lru_cache(maxsize=64)
@hide_from_modes
def dense(steps: int, rows: int) -> Layout:
    return Layout(steps, rows)
