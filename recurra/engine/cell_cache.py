"""What a cell is made of: found once, and looked over at every call, which takes far less time than finding it again.

A cell may change between two calls: a weight or a module is replaced, a bias dropped, a hook put on a part, an
attribute set on which the step may branch. All of that is seen; what is written into a weight is not looked for here.

What is known goes with the cell, so that both can be let go of together, whatever its hooks and attributes hold.
"""

import copy
from collections.abc import Iterator
from operator import getitem, is_, itemgetter
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..cell import KNOWN, Affine, Cell

_OF_EVERY_MODULE = set(vars(nn.Module())) - {"training"}
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList, nn.ParameterDict)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOOKS_ON_ALL = [getattr(torch_module, f"_global{hooks}") for hooks in _HOOKS]


class Known:
    """The parts of a cell, and what was found out about them."""

    def __init__(self, cell: Cell):
        self.owner = ref(cell)  # torch copies the attributes of a module, this among them, to replicas of it
        found = [*_modules(cell), *_tensors(cell)]
        # Modules and tensors, the dictionaries they are in and their names there: lists, to be looked over by no loop
        # in Python.
        self.places, self.names, self.parts = [list(column) for column in zip(*found, strict=True)]
        self.tensors = [part for part in self.parts if isinstance(part, Tensor)]
        self.settings, *others = [_Settings(module) for module in (cell, *_with_settings(self.parts))]
        self.others, self.attributes = others, len(vars(cell))
        self.modifiers = cell.modifiers._modules
        self.modifiers_known = len(self.modifiers)
        self.first = next(iter(self.tensors), torch.empty(0))
        self.dtype, self.device = self.first.dtype, self.first.device
        modules = [part for part in self.parts if isinstance(part, nn.Module)]
        self.hooks = [getattr(module, hooks) for module in modules for hooks in _HOOKS] + _HOOKS_ON_ALL
        self.hooked = any(self.hooks)  # somebody is called whenever a part is
        kinds = [(part.dtype, part.device, part.shape) if isinstance(part, Tensor) else part for part in self.parts]
        settings = [part.values for part in (self.settings, *self.others)]
        self.form = kinds, self.names, settings, self.hooked  # all but the tensors themselves, as they are now
        weights: dict[str, Tensor] = {}
        self.weights = weights if _collect(cell, "", weights) else None  # none where some are derived from others
        self.starts_alike = _starts_alike(cell)
        self.start: tuple[Any, Any] = None, ()  # the states before the first step, and for which batch
        self.notes: dict[Any, Any] = {}  # what the equations tell, whatever the numbers are
        self.plans: dict[Any, str] = {}  # the key of each plan that was asked for
        self.straight: dict[Any, Any] = {}  # what runs a whole batch
        self.ready: dict[Any, Any] = {}  # for batches without gradients
        self.streams: dict[Any, Any] = {}  # prepared steps

    def holds(self, cell: Cell) -> bool:
        """Whether the cell is still made of these parts."""
        own = cell.__dict__
        try:
            return (
                all(map(is_, map(getitem, self.places, self.names), self.parts))
                and len(own) == self.attributes
                and self.settings.named(own) == self.settings.values
                and (not self.others or all(part.hold() for part in self.others))
                and len(self.modifiers) == self.modifiers_known
                and any(self.hooks) is self.hooked
                and self.first.dtype is self.dtype
                and self.first.device == self.device  # they move together
            )
        except (KeyError, RuntimeError, TypeError, ValueError):  # one is gone, or cannot be compared
            return False

    def passes(self) -> bool:
        """Whether these tensors were computed for this call (torch.func.functional_call): kept, they would keep all
        that they were computed from."""
        return any(t.grad_fn is not None or torch._C._functorch.is_functorch_wrapped_tensor(t) for t in self.tensors)

    def without_tensors(self) -> "Known":
        """What others of this form can use; it holds for no cell."""
        other = copy.copy(self)
        other.parts, other.tensors, other.first, other.weights = [None] * len(self.parts), [], torch.empty(0), None
        other.straight, other.ready, other.streams = {}, {}, {}
        return other


def _starts_alike(cell: Cell) -> bool:
    """Whether the states before the first step are the same numbers at every call."""
    own = type(cell).initial_state is Cell.initial_state and type(cell)._initial is Cell._initial
    changed = vars(cell).keys() & {"initial_state", "_initial"}
    return own and not changed and not any(isinstance(start, str) for start in cell.starts.values())


class _Settings:
    """The attributes of a module on which a step may branch, as they are now."""

    def __init__(self, module: nn.Module):
        self.place = vars(module)
        names = [name for name in self.place if name not in _OF_EVERY_MODULE and name != KNOWN]
        self.named = itemgetter(*names, "training")  # two at least, so that it gives a tuple
        self.values = tuple(_as_now(self.place[name]) for name in (*names, "training"))

    def hold(self) -> bool:
        return self.named(self.place) == self.values


def _as_now(value: Any) -> Any:
    """A copy of what may be written to."""
    return value.copy() if type(value) in (list, dict, set) else value


def _with_settings(parts: list) -> Iterator[nn.Module]:
    """Modules whose attributes matter: an affine has its tensors alone, a container its modules."""
    return (p for p in parts if isinstance(p, nn.Module) and not isinstance(p, (Affine, *_CONTAINERS)))


def known(cell: Cell) -> Known:
    own = cell.__dict__
    kept = own.setdefault(KNOWN, None)
    mine = kept is not None and kept.owner() is cell
    if mine and kept.holds(cell):
        return kept
    found = Known(cell)
    alike = mine and _are_equal(found.form, kept.form)
    if alike:  # nothing but tensors was replaced, by others like them
        found.notes, found.plans = kept.notes, kept.plans
    if not found.passes():
        own[KNOWN] = found
    elif not alike:
        own[KNOWN] = found.without_tensors()
    return found


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (RuntimeError, TypeError, ValueError):  # tensors and arrays among the attributes
        return False


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
