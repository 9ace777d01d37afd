"""What a cell is made of: found once, and looked over at every call, which takes far less time than finding it again.

A cell may change between two calls: a weight or a module is replaced, a bias dropped, a hook put on a part, a plain
attribute set on which the step may branch. All of that is seen; what is written into a weight is not looked for here.
"""

from collections.abc import Iterator
from operator import eq, is_
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..cell import Cell
from .trace import plain_attributes

_KNOWN: WeakKeyDictionary[Cell, "Known"] = WeakKeyDictionary()


class Known:
    """The parts of a cell, and what was found out about them."""

    def __init__(self, cell: Cell):
        self.parts = _Parts([*_modules(cell), *_tensors(cell)])
        self.attributes = len(vars(cell))
        plain = plain_attributes(cell)
        self.plain_names, self.plain_values = list(plain), list(plain.values())
        self.modifiers = cell.modifiers._modules
        self.modifiers_known = len(self.modifiers)
        self.first = next((part for part in self.parts.parts if isinstance(part, Tensor)), torch.empty(0))
        self.dtype, self.device = self.first.dtype, self.first.device
        self.hooks = [hooks for part in self.parts.parts if isinstance(part, nn.Module) for hooks in _hooks(part)]
        self.hooked = any(self.hooks)  # somebody is called whenever a part is
        found: dict[str, Tensor] = {}
        self.weights = found if _collect(cell, "", found) else None  # none where some are derived from others
        self.plans: dict[Any, str] = {}  # the key of each plan that was asked for
        self.straight: dict[Any, Any] = {}  # what runs a whole batch
        self.streams: dict[Any, Any] = {}  # prepared steps

    def holds(self, cell: Cell) -> bool:
        """Whether the cell is still made of these parts."""
        if not self.parts.are_in_place() or len(self.modifiers) != self.modifiers_known:
            return False
        own = cell.__dict__
        if len(own) != self.attributes or not all(map(eq, map(own.get, self.plain_names), self.plain_values)):
            return False
        if any(self.hooks) != self.hooked:
            return False
        return self.first.dtype is self.dtype and self.first.device == self.device  # they move together


class _Parts:
    """Modules and tensors, the dictionaries they are in and their names there, each in a list of its own: looked over
    without a loop in Python, at every call."""

    def __init__(self, found: list[tuple[dict, str, Any]]):
        self.places, self.names, self.parts = [list(column) for column in zip(*found, strict=True)] or [[], [], []]

    def are_in_place(self) -> bool:
        return all(map(is_, map(dict.get, self.places, self.names), self.parts))


def known(cell: Cell) -> Known:
    found = _KNOWN.get(cell)
    if found is None or not found.holds(cell):
        found = _KNOWN[cell] = Known(cell)
    return found


def weights_of(cell: Cell) -> dict[str, Tensor]:
    """What `cell.weights()` gives, found faster where no weight is derived from another."""
    found: dict[str, Tensor] = {}
    return found if _collect(cell, "", found) else cell.weights()


def _modules(module: nn.Module) -> Iterator[tuple[dict, str, nn.Module]]:
    """Every part of a module: the dictionary it is in, its name there, itself."""
    for name, child in module._modules.items():
        if child is not None:
            yield module._modules, name, child  # pyrefly: ignore
            yield from _modules(child)


def _hooks(module: nn.Module) -> tuple[dict, dict]:
    return module._forward_hooks, module._forward_pre_hooks


def _tensors(module: nn.Module) -> Iterator[tuple[dict, str, Tensor | None]]:
    """Every tensor of a module, likewise, and each place where there may be one."""
    for tensors in (module._parameters, module._buffers):
        yield from ((tensors, name, tensor) for name, tensor in tensors.items())
    for child in module._modules.values():
        if child is not None:
            yield from _tensors(child)


def _collect(module: nn.Module, path: str, found: dict[str, Tensor]) -> bool:
    for tensors in (module._parameters, module._buffers):
        for name, tensor in tensors.items():
            if tensor is not None:
                found[path + name] = tensor
    for name, child in module._modules.items():
        if name == "derivations" and child:
            return False
        if child is not None and not _collect(child, f"{path}{name}.", found):
            return False
    return True
