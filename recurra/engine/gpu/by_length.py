"""A pass over a ragged batch whose rows are sorted by their lengths.

A tile of the batch runs as many steps as its longest row. Where tiles take turns, rows of like length share a tile.
Both passes sort by the same lengths; what forward keeps for backward stays sorted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ..restarts import as_mask
from .gather_rows import gather_rows

if TYPE_CHECKING:
    from .runner import GpuExecutor


class _Order:
    """The longest rows first. Where tiles take turns, every second turn goes from the shortest to the longest of its
    tiles: programs that had a long one then have a short one."""

    def __init__(self, executor: "GpuExecutor", lengths: Tensor):
        self.order = lengths.argsort(descending=True, stable=True)
        at_once, rows = executor.loops.turn(len(lengths), lengths.device)
        turns = len(lengths) // (at_once * rows)
        tiles = self.order[: turns * at_once * rows].view(turns, at_once, rows)
        tiles[1::2] = tiles[1::2].flip(1)
        self.lengths = lengths.index_select(0, self.order)
        self.places = self.order.argsort()

    def sort(self, value: Tensor) -> Tensor:
        """Of (B, …)."""
        return value.index_select(0, self.order)

    def put_back(self, value: Tensor) -> Tensor:
        return value.index_select(0, self.places)

    def sort_steps(self, value: Tensor) -> Tensor:
        """Of (T, B, n). Past its end a row holds finite numbers: an infinite one must not reach a gradient."""
        return gather_rows(value, self.order, self.lengths)

    def put_steps_back(self, value: Tensor) -> Tensor:
        return gather_rows(value, self.places)


def forward(
    executor: "GpuExecutor",
    x: Tensor,
    states: Sequence[Tensor],
    masks: Sequence[Tensor],
    weights: Sequence[Tensor],
    lengths: Tensor,
) -> list[Tensor]:
    """The results of a forward pass, in the order of the rows that came."""
    rows = _Order(executor, lengths.to(x.device))
    y, *found = executor.forward_in_order(
        rows.sort_steps(x),
        [rows.sort(state) for state in states],
        _sort_masks(executor, rows, masks),
        weights,
        rows.lengths,
    )
    finals, named = len(executor.plan.states), len(executor.plan.named)
    shown = [*map(rows.put_back, found[:finals]), *map(rows.put_steps_back, found[finals : finals + named])]
    return [rows.put_steps_back(y), *shown, *found[len(shown) :]]


def backward(
    executor: "GpuExecutor",
    cotangents: Sequence[Tensor | None],
    x: Tensor,
    states: Sequence[Tensor],
    masks: Sequence[Tensor],
    weights: Sequence[Tensor],
    lengths: Tensor,
    needed: Sequence[Tensor],
    wants_states: bool,
) -> list[Tensor]:
    """The results of a backward pass, in the order of the rows that came."""
    plan, rows = executor.plan, _Order(executor, lengths.to(x.device))
    kept, finals = 1 + len(plan.named), range(1, 1 + len(plan.states))
    found = executor.backward_in_order(
        [
            None if c is None else rows.sort(c) if number in finals else rows.sort_steps(c)
            for number, c in enumerate(cotangents)
        ],
        rows.sort_steps(x),
        [rows.sort(state) for state in states],
        _sort_masks(executor, rows, masks),
        weights,
        rows.lengths,
        [*map(rows.sort_steps, needed[:kept]), *needed[kept:]],
        wants_states,
    )
    dx = rows.put_steps_back(found[0]) if plan.needs_x else found[0]
    end = 1 + len(states) * wants_states
    return [dx, *map(rows.put_back, found[1:end]), *found[end:]]


def _sort_masks(executor: "GpuExecutor", rows: _Order, masks: Sequence[Tensor]) -> list[Tensor]:
    """Masks (T, B, n) or (B, n); resets (T, B)."""
    given = [as_mask(mask, executor.dtype) for mask in masks]
    return [rows.sort_steps(mask) if mask.dim() == 3 else rows.sort(mask) for mask in given]
