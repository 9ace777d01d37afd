"""A pass over a ragged batch whose rows are sorted by their lengths.

A tile of the batch runs as many steps as its longest row. Where tiles take turns, rows of like length share a tile.
Both passes sort by the same lengths; what forward keeps for backward stays sorted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ..restarts import as_mask

if TYPE_CHECKING:
    from .runner import GpuExecutor


class _Order:
    """The longest row first."""

    def __init__(self, lengths: Tensor):
        self.order = lengths.argsort(descending=True, stable=True)
        self.places = self.order.argsort()

    def sort(self, value: Tensor, axis: int) -> Tensor:
        return value.index_select(axis, self.order)

    def put_back(self, value: Tensor, axis: int) -> Tensor:
        return value.index_select(axis, self.places)


def forward(
    executor: "GpuExecutor",
    x: Tensor,
    states: Sequence[Tensor],
    masks: Sequence[Tensor],
    weights: Sequence[Tensor],
    lengths: Tensor,
) -> list[Tensor]:
    """The results of a forward pass, in the order of the rows that came."""
    lengths = lengths.to(x.device)
    rows = _Order(lengths)
    found = executor.forward_in_order(
        rows.sort(x, 1),
        [rows.sort(state, 0) for state in states],
        _sort_masks(executor, rows, masks),
        weights,
        rows.sort(lengths, 0),
    )
    axes = _axes(executor)
    return [*map(rows.put_back, found, axes), *found[len(axes) :]]


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
    plan, lengths = executor.plan, lengths.to(x.device)
    rows, kept = _Order(lengths), 1 + len(plan.named)
    found = executor.backward_in_order(
        [None if c is None else rows.sort(c, axis) for c, axis in zip(cotangents, _axes(executor), strict=True)],
        rows.sort(x, 1),
        [rows.sort(state, 0) for state in states],
        _sort_masks(executor, rows, masks),
        weights,
        rows.sort(lengths, 0),
        [*(rows.sort(value, 1) for value in needed[:kept]), *needed[kept:]],
        wants_states,
    )
    dx = rows.put_back(found[0], 1) if plan.needs_x else found[0]
    end = 1 + len(states) * wants_states
    return [dx, *(rows.put_back(d, 0) for d in found[1:end]), *found[end:]]


def _sort_masks(executor: "GpuExecutor", rows: _Order, masks: Sequence[Tensor]) -> list[Tensor]:
    """Masks (T, B, n) or (B, n); resets (T, B)."""
    return [rows.sort(as_mask(mask, executor.dtype), -2) for mask in masks]


def _axes(executor: "GpuExecutor") -> list[int]:
    """The axis of the rows: of y, of each final state, of each named value."""
    return [1, *[0] * len(executor.plan.states), *[1] * len(executor.plan.named)]
