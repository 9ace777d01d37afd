"""What a cell is made of: found once, and looked over at every call, which takes far less time than finding it again.

A cell may change between two calls: a weight or a module is replaced, a bias dropped, a plain attribute set on which
the step may branch. All of that is seen; what is written into a weight is not looked for here.
"""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from ..cell import Cell
from .trace import plain_attributes

_KNOWN: WeakKeyDictionary[Cell, "Known"] = WeakKeyDictionary()


class Known:
    """The parts of a cell, and what was found out about them."""

    def __init__(self, cell: Cell):
        self.modules, self.tensors = list(_modules(cell)), list(_tensors(cell))
        self.attributes = len(vars(cell))
        self.plain = list(plain_attributes(cell).items())
        self.modifiers = len(cell.modifiers)
        self.device = self.tensors[0][2].device if self.tensors else None
        found: dict[str, Tensor] = {}
        self.weights = found if _collect(cell, "", found) else None  # none where some are derived from others
        self.plans: dict[Any, str] = {}  # the key of each plan that was asked for
        self.streams: dict[Any, Any] = {}  # prepared steps

    def holds(self, cell: Cell) -> bool:
        """Whether the cell is still made of these parts."""
        for place, name, part in self.modules:
            if place.get(name) is not part:
                return False
        for place, name, weight, dtype in self.tensors:
            if place.get(name) is not weight or weight.dtype is not dtype:
                return False
        own = cell.__dict__
        if len(own) != self.attributes or len(cell.modifiers) != self.modifiers:
            return False
        for name, value in self.plain:
            if own.get(name) != value:
                return False
        return self.device is None or self.tensors[0][2].device == self.device


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


def _tensors(module: nn.Module) -> Iterator[tuple[dict, str, Tensor, Any]]:
    """Every tensor of a module, likewise, and its dtype."""
    for tensors in (module._parameters, module._buffers):
        yield from ((tensors, name, tensor, tensor.dtype) for name, tensor in tensors.items() if tensor is not None)
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
