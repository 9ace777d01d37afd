"""Where the rows of a batch of sequences lie, and what is read and written at each sequence's own end."""

from typing import Protocol

import torch
from torch import Tensor


class StepRows(Protocol):
    """The rows of all steps of a batch, in order of time: all sequences at each step, or those still running."""

    steps: int
    rows: int  # sequences
    total: int  # rows of all steps

    def rows_at(self, step: int) -> slice:
        """The rows of one step: those of the first sequences."""
        ...

    def ends(self) -> Tensor:
        """The length of each sequence, (B,)."""
        ...

    def row_index(self, times: Tensor) -> Tensor:
        """The row of each sequence at a time of its own, (B,) → (B,); for times before the first, any valid row."""
        ...

    def may_end_before(self, steps: int) -> bool:
        """Whether a sequence may be shorter than this."""
        ...


def spread_final(final: Tensor, rows: StepRows) -> Tensor:
    """The cotangent of each sequence's last values (B, depth, size), newest first, at the rows of their steps."""
    spread = final.new_zeros(rows.total, final.shape[2])
    if rows.total:
        for j, value in enumerate(final.unbind(1)):
            times = rows.ends() - 1 - j
            spread.index_add_(0, rows.row_index(times), torch.where((times >= 0)[:, None], value, 0.0))
    return spread


def last_values(history: Tensor, initial: Tensor, depth: int, rows: StepRows) -> Tensor:
    """Each sequence's last values (B, depth, size), newest first: of its history (rows, size), or if it is shorter than
    that of the values before it (depth, B, size)."""
    values, row = [], torch.arange(rows.rows, device=history.device)
    for j in range(depth):
        times = rows.ends() - 1 - j
        early = initial[(-1 - times).clamp(min=0), row]
        values.append(
            torch.where((times >= 0)[:, None], history[rows.row_index(times)], early) if rows.total else early
        )
    return torch.stack(values, 1)


def add_passed_through(total: Tensor, final: Tensor, rows: StepRows) -> None:
    """Add to the cotangents of initial values (depth, B, size) those of final values (B, depth, size) that are initial
    ones: of a sequence shorter than the state is deep."""
    row = torch.arange(rows.rows, device=final.device)
    for j, value in enumerate(final.unbind(1)):
        slots = j - rows.ends()
        total[slots.clamp(min=0), row] += torch.where((slots >= 0)[:, None], value, 0.0)
