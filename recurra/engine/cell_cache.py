"""What the engine remembers of a cell: its parts, its traced step, its executors, its prepared calls.

A cell may change between two calls: a weight or a module is replaced, a bias dropped, a hook registered, a value set
that the step reads (guards.py). `cache_of` notices all of that, by a comparison that takes far less time than finding
the parts again. It does not look for new numbers inside a weight: the kernels do.

The cache is an attribute of the cell, so both are freed together, whatever the cell's hooks and attributes refer to.
"""

import copy
from collections import OrderedDict
from collections.abc import Iterator
from operator import getitem, is_
from typing import Any
from weakref import WeakSet, ref

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..cell import CACHE, Cell
from . import caches
from .guards import Guards

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = [getattr(torch_module, f"_global{hooks}") for hooks in _HOOKS]

CHOICES = 64  # signatures of dense calls that a cell is prepared for

_caches: WeakSet["CellCache"] = WeakSet()


def _clear() -> None:
    for cache in list(_caches):
        cache.traced.clear()
        cache.executors.clear()
        cache.choices.clear()


caches.register("cells", _clear, lambda: len(_caches))


class CellCache:
    """The parts of a cell, and what was derived from them."""

    def __init__(self, cell: Cell, before: "CellCache | None" = None):
        """`before`: the cache that is no longer valid; its guards are taken over if they still hold."""
        self.owner = ref(cell)  # torch copies the attributes of a module, this among them, to replicas of it
        found = [*_modules(cell), *_tensors(cell)]
        # Modules and tensors, the dictionaries that hold them, and their names there: as lists, so that no Python loop
        # is needed to compare them.
        places, names, parts = [list(column) for column in zip(*found, strict=True)]
        self.tensors = [part for part in parts if isinstance(part, Tensor)]
        self.modules = [part for part in parts if isinstance(part, nn.Module)]
        is_same = before is not None and before.modules == self.modules and before.guards.is_current()
        self.guards = before.guards if is_same and before is not None else Guards(cell, self.tensors)
        guards = self.guards
        self.places, self.names, self.parts = places + guards.places, names + guards.keys, parts + guards.values
        self.first = next(iter(self.tensors), torch.empty(0))
        self.dtype, self.device = self.first.dtype, self.first.device
        self.hooks = [getattr(module, hooks) for module in (cell, *self.modules) for hooks in _HOOKS] + _GLOBAL_HOOKS
        self.hooked = any(self.hooks)
        self.backward_hooks = [getattr(m, hooks) for m in self.modules for hooks in _HOOKS[2:]] + _GLOBAL_HOOKS[2:]
        kinds = [(part.dtype, part.device, part.shape) if isinstance(part, Tensor) else part for part in parts]
        if guards.asks_kinds:
            kinds += map(type, self.tensors)
        if len(set(map(id, self.tensors))) < len(self.tensors):  # one weight under several names
            kinds += map([id(tensor) for tensor in self.tensors].index, map(id, self.tensors))
        self.form = kinds, names, guards.form, self.hooked  # everything but the tensors themselves
        weights: dict[str, Tensor] = {}
        self.weights = weights if _collect(cell, "", weights, set()) else None  # None if some are derived from others
        self.has_constant_start = _has_constant_start(cell)
        self.traced: dict[str, Any] = {}  # the traced step, in the forms that were asked for
        self.executors: dict[Any, Any] = {}  # (request, compiler) → executor or refusal
        self.choices: OrderedDict[Any, Any] = OrderedDict()  # signature of a dense call → choice and its call

    def is_valid(self) -> bool:
        """Whether the cell still consists of these parts, and its step reads the same values."""
        try:
            return (
                all(map(is_, map(getitem, self.places, self.names), self.parts))
                and self.guards.rest_is_current()
                and any(self.hooks) is self.hooked
                and self.first.dtype is self.dtype
                and self.first.device == self.device  # tensors of a module move together
            )
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):  # a part is gone
            return False

    def is_for_one_call(self) -> bool:
        """Whether the tensors were computed for this call (torch.func.functional_call). Keeping them would keep the
        graph they were computed in."""
        return any(t.grad_fn is not None or torch._C._functorch.is_functorch_wrapped_tensor(t) for t in self.tensors)

    def without_tensors(self) -> "CellCache":
        """What later caches of the same form can take over. It is valid for no cell."""
        other = copy.copy(self)
        other.parts, other.tensors, other.first, other.weights = [None] * len(self.parts), [], torch.empty(0), None
        other.choices = OrderedDict()
        return other

    def remember(self, signature: Any, choice: Any) -> None:
        """Keep the choice for a signature; the least recently added one goes when there are too many."""
        self.choices[signature] = choice
        while len(self.choices) > CHOICES:
            self.choices.popitem(last=False)


def _has_constant_start(cell: Cell) -> bool:
    """Whether the states before the first step are the same numbers at every call."""
    own = type(cell).initial_state is Cell.initial_state and type(cell)._initial is Cell._initial
    changed = vars(cell).keys() & {"initial_state", "_initial"}
    return own and not changed and not any(isinstance(start, str) for start in cell.starts.values())


def cache_of(cell: Cell) -> CellCache:
    """The cell's cache, made anew if the cell has changed. Traced steps and executors depend on its form alone."""
    own = cell.__dict__
    kept = own.setdefault(CACHE, None)
    mine = kept is not None and kept.owner() is cell
    if mine and kept.is_valid():
        return kept
    found = CellCache(cell, kept if mine else None)
    same_form = mine and are_equal(found.form, kept.form)
    if same_form:  # only tensors were replaced, by others of the same kind
        found.traced, found.executors = kept.traced, kept.executors
    if not found.is_for_one_call():
        own[CACHE] = found
        _caches.add(found)
    elif not same_form:
        own[CACHE] = found.without_tensors()
        _caches.add(own[CACHE])
    return found


def are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (RuntimeError, TypeError, ValueError):  # attributes may be tensors or arrays
        return False


def weights_of(cell: Cell) -> dict[str, Tensor]:
    """What `cell.weights()` returns, found faster if no weight is derived from another."""
    found: dict[str, Tensor] = {}
    return found if _collect(cell, "", found, set()) else cell.weights()


def _modules(module: nn.Module) -> Iterator[tuple[dict, str, nn.Module]]:
    """Every part of a module: the dictionary that holds it, its name there, the part."""
    for name, child in module._modules.items():
        if child is not None:
            yield module._modules, name, child  # pyrefly: ignore
            yield from _modules(child)


def _tensors(module: nn.Module) -> Iterator[tuple[dict, str, Tensor | None]]:
    """Every tensor of a module in the same form, and every registered name without one."""
    for tensors in (module._parameters, module._buffers):
        yield from ((tensors, name, tensor) for name, tensor in tensors.items())
    for child in module._modules.values():
        if child is not None:
            yield from _tensors(child)


def _collect(module: nn.Module, path: str, found: dict[str, Tensor], seen: set[int]) -> bool:
    """Add every tensor by its dotted name, the first one of a shared module; False if one is derived from others."""
    seen.add(id(module))
    for tensors in (module._parameters, module._buffers):
        for name, tensor in tensors.items():
            if tensor is not None:
                found[path + name] = tensor
    for name, child in module._modules.items():
        if name == "derivations" and child:
            return False
        if child is not None and id(child) not in seen and not _collect(child, f"{path}{name}.", found, seen):
            return False
    return True
