"""Copies of a cell with other tensors, which Python code cannot tell from the cell's own.

A step may ask what a weight is: `isinstance(self.W, nn.Parameter)`, `type(self.W)`, `self.W is self.V`, an attribute
that the user gave it. In a copy all of that has the same answer. What functions and classes refer to by themselves, a
global for example, is not copied: `self.clip is MISSING`. A weight that they refer to cannot be both.
"""

import copy
import gc
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..errors import TraceError
from .cell_cache import cache_of
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
    guards = cache_of(cell).guards
    shared = guards.read_by_code(cell)
    memo: dict[int, Any] = dict(tensors)
    copied = _copied(cell, memo)
    twice = [each for key, each in shared.items() if memo.get(key, each) is not each]  # there are two of them now
    parts = {*tensors, *map(id, cell.modules())}
    if guards.asks_identity and (other := next((each for each in twice if id(each) in parts), None)) is not None:
        code, also = type(cell).step.__code__, f"refers to self.{_name(cell, other)} by another name"
        where = f"({code.co_filename}:{code.co_firstlineno})"
        raise Untraceable(f"{type(cell).__name__}.step asks which object something is, and {also} {where}")
    whole = {id(each): each for each in twice if not _holds(each, parts)}
    return _copied(cell, {**tensors, **whole}) if whole else copied


def _copied(cell: Cell, memo: dict[int, Any]) -> Cell:
    try:
        return copy.deepcopy(cell, memo)
    except NotImplementedError as error:  # a generator of the system's random numbers
        raise Untraceable(f"{type(cell).__name__} has an attribute that cannot be copied: {error}") from error
    except RuntimeError as error:  # deepcopy takes leaves only
        raise TraceError(f"{type(cell).__name__} has a tensor that is the result of a computation: {error}") from error
    except Exception as error:  # a file, a lock, a generator
        raise Untraceable(f"{type(cell).__name__} has an attribute that cannot be copied: {error}") from error


def _holds(value: Any, parts: set[int]) -> bool:
    """Whether an object is one of these parts of the cell, or refers to one."""
    seen: set[int] = set()
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if id(one) in parts:
            return True
        if id(one) not in seen and not isinstance(one, (type, FunctionType, ModuleType)):
            seen.add(id(one))
            pending += gc.get_referents(one)
    return False


def _name(cell: Cell, part: Any) -> str:
    named: Iterable[tuple[str, Any]] = (*cell.named_parameters(), *cell.named_buffers(), *cell.named_modules())
    return next((name for name, each in named if each is part and name), "step")
