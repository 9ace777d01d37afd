"""Copies of a cell with other tensors, which Python code cannot tell from the cell's own.

A step may ask what a weight is: `isinstance(self.W, nn.Parameter)`, `type(self.W)`, `self.W is self.V`, an attribute
that the user gave it. In a copy all of that has the same answer.
"""

import copy

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..errors import TraceError
from .user_code import Untraceable


def traceable_copy(cell: Cell) -> Cell:
    """A copy of the cell with plain tensors of any numbers."""
    tensors = (*cell.parameters(), *cell.buffers())
    return copy_with(cell, {id(t): torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in tensors})


def copy_with(cell: Cell, tensors: dict[int, Tensor]) -> Cell:
    """A copy of the cell in which `tensors`, by the id of the original, replace its own.

    They become parameters where the originals are, and get their attributes.
    """
    for original in (*cell.parameters(), *cell.buffers()):
        replaced = tensors[id(original)]
        if type(original) is nn.Parameter:
            replaced.__class__ = nn.Parameter  # it may be no leaf, so nn.Parameter(replaced) would not do
        vars(replaced).update(vars(original))
    try:
        return copy.deepcopy(cell, dict(tensors))  # pyrefly: ignore
    except RuntimeError as error:  # deepcopy takes leaves only
        raise TraceError(f"{type(cell).__name__} has a tensor that is the result of a computation: {error}") from error
    except Exception as error:  # a file, a lock, a generator
        raise Untraceable(f"{type(cell).__name__} has an attribute that cannot be copied: {error}") from error
