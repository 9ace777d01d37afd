"""Converts states between torch's layout, one tensor for all layers and directions, and one tuple of rows per cell.

A layer has one cell for each direction of each layer. Where the cells differ in width, a state in torch's layout is a
tuple with one tensor per cell.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cell import Cell, State
from .dilation import state_shape
from .errors import DeviceError, DtypeError, InputError, ShapeError

States = Sequence[tuple[Tensor, ...]]  # one tuple of carried states per cell


def shape_of(value: Any) -> str:
    """A value as an error message describes it."""
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested


def check_dense(argument: str, value: Tensor) -> None:
    if not is_dense(value):
        what = "a nested tensor" if value.is_nested else f"a tensor with the layout {value.layout}"
        raise InputError(argument, what, f"a dense tensor, such as {argument}.to_dense()")


def split_states(cells: Sequence[Cell], state: Any, x: Tensor, batched: bool, dilations: Sequence[int] = ()) -> States:
    """torch's layout → one tuple of carried states per cell, checked against x (T, B, D)."""
    specs: tuple[State, ...] = cells[0].carried
    given = state if len(specs) > 1 and isinstance(state, (tuple, list)) else (state,)
    if len(given) != len(specs):
        raise ShapeError("state", f"{len(given)} tensors", f"{len(specs)}: {', '.join(s.name for s in specs)}")
    columns, dilations = [], dilations or (1,) * len(cells)
    for index, value in enumerate(given):
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, Tensor):
                check_dense("state", part)
        stacked = is_stacked(cells, index, dilations)
        rows = _unstack(cells, index, value, dilations[0]) if stacked else value
        if not isinstance(rows, (tuple, list)) or len(rows) != len(cells):
            raise ShapeError("state", shape_of(value), f"{len(cells)} tensors, one per layer and direction")
        each = zip(cells, rows, dilations, strict=True)
        columns.append([_as_row(cell.carried[index], row, x, batched, dilation) for cell, row, dilation in each])
    return [tuple(column[k] for column in columns) for k in range(len(cells))]


def stack_states(cells: Sequence[Cell], states: States, batched: bool, dilations: Sequence[int] = ()) -> Any:
    """One tuple of carried states per cell → torch's layout."""
    columns = []
    for index, values in enumerate(zip(*states, strict=True)):
        values = [cell.carried[index].with_axes(value) for cell, value in zip(cells, values, strict=True)]
        rows = tuple(values) if batched else tuple(value.squeeze(0) for value in values)
        if len(rows) == 1:
            columns.append(rows[0].unsqueeze(0))
        else:
            columns.append(torch.stack(rows) if is_stacked(cells, index, dilations) else rows)
    return tuple(columns) if len(columns) > 1 else columns[0]


def is_stacked(cells: Sequence[Cell], index: int, dilations: Sequence[int] = ()) -> bool:
    """Whether state number `index` has one shape in all cells, and so is one tensor in torch's layout."""
    each = zip(cells, dilations or (1,) * len(cells), strict=True)
    return len({state_shape(cell.carried[index], 1, dilation) for cell, dilation in each}) == 1


def _unstack(cells: Sequence[Cell], index: int, value: Any, dilation: int) -> Sequence[Tensor]:
    if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[0] != len(cells):
        spec = cells[0].carried[index]
        expected = (len(cells), *state_shape(spec, -1, dilation))
        raise ShapeError("state", shape_of(value), f"{spec.name} as {str(expected).replace('-1', 'B')}")
    return value.unbind(0)


def _as_row(spec: State, value: Any, x: Tensor, batched: bool, dilation: int) -> Tensor:
    """The state of one cell as the engines carry it, with a batch axis, if its shape, device and dtype fit x."""
    expected = state_shape(spec, x.shape[1] if batched else 1, dilation)[0 if batched else 1 :]
    if not isinstance(value, Tensor) or tuple(value.shape) != expected:
        raise ShapeError("state", shape_of(value), f"{spec.name} with {expected} for each layer and direction")
    if value.device != x.device:
        raise DeviceError("state", value.device, f"x's device, {x.device}")
    if value.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise DtypeError("state", value.dtype, f"x's dtype, {x.dtype}")
    return spec.as_row(value if batched else value.unsqueeze(0))
