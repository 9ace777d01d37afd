"""What a cell is made of: found once, and looked over at every call, which takes far less time than finding it again.

A cell may change between two calls: a weight or a module is replaced, a bias dropped, a hook put on a part, a plain
attribute set on which the step may branch. All of that is seen; what is written into a weight is not looked for here.
"""

from collections.abc import Iterator
from operator import getitem, is_, itemgetter
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from ..cell import Cell
from .trace import plain_attributes

_KNOWN: dict[ref[Cell], "Known"] = {}  # of cells that are alive; asked sooner than a WeakKeyDictionary


class Known:
    """The parts of a cell, and what was found out about them."""

    def __init__(self, cell: Cell):
        found = [*_modules(cell), *_tensors(cell)]
        # Modules and tensors, the dictionaries they are in and their names there: lists, to be looked over by no loop
        # in Python.
        self.places, self.names, self.parts = [list(column) for column in zip(*found, strict=True)]
        plain = plain_attributes(cell)
        self.plain_of, self.plain, self.attributes = itemgetter(*plain), tuple(plain.values()), len(vars(cell))
        self.modifiers = cell.modifiers._modules
        self.modifiers_known = len(self.modifiers)
        self.first = next((part for part in self.parts if isinstance(part, Tensor)), torch.empty(0))
        self.dtype, self.device = self.first.dtype, self.first.device
        self.hooks = [hooks for part in self.parts if isinstance(part, nn.Module) for hooks in _hooks(part)]
        self.hooked = any(self.hooks)  # somebody is called whenever a part is
        weights: dict[str, Tensor] = {}
        self.weights = weights if _collect(cell, "", weights) else None  # none where some are derived from others
        self.plans: dict[Any, str] = {}  # the key of each plan that was asked for
        self.straight: dict[Any, Any] = {}  # what runs a whole batch
        self.streams: dict[Any, Any] = {}  # prepared steps

    def holds(self, cell: Cell) -> bool:
        """Whether the cell is still made of these parts."""
        own = cell.__dict__
        try:
            return (
                all(map(is_, map(getitem, self.places, self.names), self.parts))
                and len(own) == self.attributes
                and self.plain_of(own) == self.plain
                and len(self.modifiers) == self.modifiers_known
                and any(self.hooks) is self.hooked
                and self.first.dtype is self.dtype
                and self.first.device == self.device  # they move together
            )
        except KeyError:  # one is gone
            return False


def known(cell: Cell) -> Known:
    found = _KNOWN.get(ref(cell))
    if found is None or not found.holds(cell):
        found = _KNOWN[ref(cell, _KNOWN.pop)] = Known(cell)
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
