"""Runs the cell's own `step` and gives the values of its local variables: for a trace that hooks have to see.

The traced step (traced_step.py) says which variables there are; here the real one computes them. So the hooks that no
graph holds are called: backward hooks of the modules that the step calls, and all hooks of the cell.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FrameType
from typing import Any

from torch import Tensor
from torch.compiler import is_compiling

from ..cell import TIME, Cell
from ..errors import TraceError
from .cell_cache import cache_of
from .dropouts import GivenDropouts
from .trace import output_and_states
from .traced_step import batch_first, traced_function


def call_step(cell: Cell, x: Tensor, views: Sequence[Any], extras: dict[str, Tensor]) -> list[Tensor]:
    """`[output, *new states]` of the cell's own step; a hook of the cell sees it as the call of a module."""
    specs = [spec for spec in cell.carried if spec.name != TIME]
    shaped = [spec.with_axes(view) for spec, view in zip(specs, views, strict=True)]
    extras, run = dict(extras), cell if has_own_hooks(cell) else cell.step
    drawn = () if cell.modifiers else cell.found_dropouts  # a modified step takes all masks by name
    dropouts = [extras.pop(name) for name in drawn if name in extras]
    with GivenDropouts(dropouts) if dropouts and not is_compiling() else nullcontext():
        return output_and_states(cell, run(x, *shaped, **extras))


def must_watch(cell: Cell) -> bool:
    """Whether a trace of this cell needs its own step."""
    return has_own_hooks(cell) or (not is_compiling() and any(cache_of(cell).backward_hooks))


def has_own_hooks(cell: Cell) -> bool:
    """Whether the cell itself has a hook."""
    return bool(cell._forward_hooks or cell._forward_pre_hooks or cell._backward_hooks or cell._backward_pre_hooks)


class WatchedStep:
    """One step of a cell as `BoundStep` gives it, computed by the cell's own `step`."""

    def __init__(self, cell: Cell):
        if cell.modifiers:
            message = f"{type(cell).__name__} has a hook that only its own step calls, and modifiers that rewrite it"
            raise TraceError(f"{message}: for a trace, remove one of them")
        if is_compiling():
            raise TraceError(f"{type(cell).__name__} has a hook, so its trace cannot be taken under torch.compile")
        self.cell, self.known = cell, traced_function(cell)

    def __call__(
        self, x: Tensor, states: Sequence[Any], extras: dict[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        with _Locals(self.cell) as variables:
            results = call_step(self.cell, x, states, extras)
        return results, batch_first(self.known, {name: variables.found[name] for name in self.known.named}, x.shape[0])


class _Locals:
    """Context manager: collects the tensors among the local variables of the cell's step."""

    def __init__(self, cell: Cell):
        self.code, self.found = type(cell).step.__code__, dict[str, Tensor]()

    def __enter__(self) -> "_Locals":
        self.outer = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.outer)

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Callable | None:
        return self._on_line if frame.f_code is self.code else None

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Callable:
        self.found |= {name: value for name, value in frame.f_locals.items() if isinstance(value, Tensor)}
        return self._on_line
