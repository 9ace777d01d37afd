"""States as torch.nn lays them out, all layers and directions in one tensor, and as sheets carry them: a tuple each.

Where the layers differ in width, a state is a tuple of tensors, one a sheet, in place of one tensor.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cell import Cell, State
from .errors import DeviceError, DtypeError, ShapeError

States = Sequence[tuple[Tensor, ...]]  # one tuple of carried states a sheet; a sheet is one direction of one layer


def shape_of(value: Any) -> str:
    """What came, in an error."""
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def unpacked(sheets: Sequence[Cell], state: Any, x: Tensor, batched: bool) -> States:
    """torch's layout → one tuple of carried states a sheet."""
    specs: tuple[State, ...] = sheets[0].carried
    given = state if len(specs) > 1 and isinstance(state, (tuple, list)) else (state,)
    if len(given) != len(specs):
        raise ShapeError("state", f"{len(given)} tensors", f"{len(specs)}: {', '.join(s.name for s in specs)}")
    columns = []
    for index, value in enumerate(given):
        rows = _rows(sheets, index, value) if is_one_tensor(sheets, index) else value
        if not isinstance(rows, (tuple, list)) or len(rows) != len(sheets):
            raise ShapeError("state", shape_of(value), f"{len(sheets)} tensors, one a layer and direction")
        columns.append([_checked(cell.carried[index], row, x, batched) for cell, row in zip(sheets, rows, strict=True)])
    return [tuple(column[k] for column in columns) for k in range(len(sheets))]


def packed(sheets: Sequence[Cell], states: States, batched: bool) -> Any:
    """One tuple of carried states a sheet → torch's layout."""
    columns = []
    for index, values in enumerate(zip(*states, strict=True)):
        rows = values if batched else tuple(value.squeeze(0) for value in values)
        if len(rows) == 1:
            columns.append(rows[0].unsqueeze(0))
        else:
            columns.append(torch.stack(rows) if is_one_tensor(sheets, index) else rows)
    return tuple(columns) if len(columns) > 1 else columns[0]


def is_one_tensor(sheets: Sequence[Cell], index: int) -> bool:
    """Whether a state has one shape in all layers."""
    return len({cell.carried[index].shape(1) for cell in sheets}) == 1


def _rows(sheets: Sequence[Cell], index: int, value: Any) -> Sequence[Tensor]:
    if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[0] != len(sheets):
        spec = sheets[0].carried[index]
        expected = (len(sheets), *spec.shape(-1))
        raise ShapeError("state", shape_of(value), f"{spec.name} as {str(expected).replace('-1', 'B')}")
    return value.unbind(0)


def _checked(spec: State, value: Any, x: Tensor, batched: bool) -> Tensor:
    expected = spec.shape(x.shape[1]) if batched else spec.shape(1)[1:]
    if not isinstance(value, Tensor) or tuple(value.shape) != expected:
        raise ShapeError("state", shape_of(value), f"{spec.name} with {expected} for each layer and direction")
    if value.device != x.device:
        raise DeviceError("state", value.device, f"x's device, {x.device}")
    if value.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise DtypeError("state", value.dtype, f"x's dtype, {x.dtype}")
    return value if batched else value.unsqueeze(0)
