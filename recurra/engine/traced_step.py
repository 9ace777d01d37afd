"""Runs a traced step as a Python function, with the cell's modifiers applied and its named values returned.

`bind_step(cell)` gives the function for the weights of one call. The plain loop, `Cell.forward` of a modified cell,
learners and measurements all use it.

The step is traced in a clean context. Under vmap, jvp, functional_call or autocast the cell's weights are not plain
tensors, and a graph traced from them would be wrong for every later call.
"""

import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx
from torch._C import DisableTorchFunction
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.compiler import is_compiling
from torch.utils._python_dispatch import _disable_current_modes

from ..cell import Cell
from ..errors import TraceError
from . import caches
from .cell_cache import cache_of
from .cell_copies import traceable_copy
from .graph_constants import graph_constant, object_at
from .operations import BATCH_AXIS
from .trace import PATTERN, Step, trace
from .user_code import Untraceable

MAX_FUNCTIONS = 256  # step functions kept; the one used longest ago goes first


@dataclass(frozen=True)
class StepFunction:
    """A traced step as a function of its inputs, then its weights; it returns the outputs, then the named values."""

    function: Callable[..., tuple[Tensor, ...]]
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: int
    named: tuple[str, ...]
    batch_axes: dict[str, int]  # of the named values with one row per sequence; a time constant per unit has none


@dataclass(frozen=True)
class BoundStep:
    """A step function with the weights of one call."""

    step: StepFunction
    weights: dict[str, Tensor]

    def __call__(
        self, x: Tensor, states: Sequence[Any], extras: dict[str, Tensor]
    ) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """`(output, *new states)`, and every named value as `(B, …)`.

        `states` holds one tensor per state, or a tuple with one tensor per delay; `extras` the masks and the time.
        """
        views = [view for state in states for view in (state if isinstance(state, (tuple, list)) else (state,))]
        given = dict(zip(self.step.inputs, (x, *views), strict=False)) | extras
        results = self.step.function(
            *(given[name] for name in self.step.inputs), *(self.weights[name] for name in self.step.weights)
        )
        named = dict(zip(self.step.named, results[self.step.outputs :], strict=True))
        return results[: self.step.outputs], batch_first(self.step, named, x.shape[0])


def batch_first(step: StepFunction, values: dict[str, Tensor], batch: int) -> dict[str, Tensor]:
    """The named values as `(B, …)`."""
    axes = step.batch_axes
    named = {n: v.movedim(axes[n], 0) if n in axes else v.expand(batch, *v.shape) for n, v in values.items()}
    return {n: v[:, None] if v.dim() == 1 else v for n, v in named.items()}


_FUNCTIONS: dict[str, StepFunction] = {}  # graph text → function, least recently used first; equal cells share one
caches.register("step functions", _FUNCTIONS.clear, _FUNCTIONS.__len__)


def step_function(cell: Cell) -> StepFunction:
    """The cell's step, modifiers applied, to be run in its place: no hook may be passed over."""
    if is_compiling():
        return _FUNCTIONS[_constant_key(id(cell))]
    _refuse_backward_hooks(cell)
    return traced_function(cell)


def traced_function(cell: Cell) -> StepFunction:
    """The cell's step as it was traced, without the backward hooks of its parts."""
    return _FUNCTIONS[_key(cell)]


def _refuse_backward_hooks(cell: Cell) -> None:
    if any(cache_of(cell).backward_hooks):
        raise TraceError(
            f"a part of {type(cell).__name__} has a backward hook, which no graph of its step holds, and modifiers, "
            "learners and torch.compile run that graph: remove the hook"
        )


def bind_step(cell: Cell, weights: dict[str, Tensor] | None = None) -> BoundStep:
    """The cell's step, modifiers applied, with these weights (its own by default)."""
    return BoundStep(step_function(cell), cell.weights() if weights is None else weights)


def _key(cell: Cell) -> str:
    """The key of the cell's step function, which is made where there is none."""
    traced = cache_of(cell).traced
    key = traced.get("step function")
    if key not in _FUNCTIONS:
        step = trace_in_clean_context(cell)
        axes = _batch_axes(step)
        key = f"{step.inputs}{step.weights}{step.outputs}{step.named}{axes}{step.graph}"
        if key not in _FUNCTIONS:
            _FUNCTIONS[key] = StepFunction(
                step.function(), step.inputs, step.weights, len(step.outputs), step.named, axes
            )
            if len(_FUNCTIONS) > MAX_FUNCTIONS:
                del _FUNCTIONS[next(iter(_FUNCTIONS))]
        traced["step function"] = key
    _FUNCTIONS[key] = _FUNCTIONS.pop(key)
    return key


@graph_constant
def _constant_key(cell_id: int) -> str:
    cell = object_at(cell_id)
    _refuse_backward_hooks(cell)
    cache_of(cell).guards.guard_graph()
    return _key(cell)


def trace_in_clean_context(cell: Cell) -> Step:
    """Trace a copy of the cell on plain tensors, outside of active transforms, modes and autocast."""
    known = _CHANGED.get(cell)
    if known is not None and known[1] == _settings(cell, known[0].effects):
        raise known[0]
    try:
        with clean_context():
            copied = traceable_copy(cell)
            step = trace(copied)
            cell.found_dropouts = step.dropouts
            cache_of(cell).traced[PATTERN] = cache_of(copied).traced[PATTERN]
            return step
    except Untraceable as error:
        if error.effects:  # the step changes the cell at every call: it need not be traced again for that
            _CHANGED[cell] = error, _settings(cell, error.effects)
        raise


_CHANGED: WeakKeyDictionary[Cell, tuple[Untraceable, list]] = WeakKeyDictionary()
caches.register("steps with effects", _CHANGED.clear, _CHANGED.__len__)


def _settings(cell: Cell, without: Container[str]) -> list[tuple[str, Any]]:
    """The attributes of the cell and its parts on which a step may branch, but for those that the step changes."""
    named = [(f"self.{path}." if path else "self.", module) for path, module in cell.named_modules()]
    plain = (bool, int, float, str, type(None))
    every = ((prefix + name, value) for prefix, module in named for name, value in vars(module).items())
    return [(name, value) for name, value in every if isinstance(value, plain) and name not in without]


def keep_random_state() -> AbstractContextManager[None]:
    """Restore the random state at the end: for work that may draw dropout masks, but whose result does not use them."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    return torch.random.fork_rng(devices)


@contextmanager
def clean_context() -> Iterator[None]:
    """Leave active transforms, modes and autocast, and keep the random state: tracing draws dropout masks."""
    with (
        keep_random_state(),
        temporarily_clear_interpreter_stack(),
        DisableTorchFunction(),
        _disable_current_modes(),
        torch.inference_mode(False),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
        _without_compile(),
    ):
        yield


def _without_compile() -> AbstractContextManager[Any]:
    """Functions that torch.compile made run as they were written: it would compile what records them."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    try:
        return torch.compiler.set_stance("force_eager")
    except RuntimeError:  # torch.compile is at work, and leaves functions of its own alone
        return nullcontext()


def _batch_axes(step: Step) -> dict[str, int]:
    """The batch axis of each named value that has one."""
    values = zip(step.named, step.results()[len(step.outputs) :], strict=True)
    axes = {name: node.meta[BATCH_AXIS] if BATCH_AXIS in node.meta else _axis(node, step) for name, node in values}
    return {name: axis for name, axis in axes.items() if axis is not None}


def _axis(node: fx.Node, step: Step) -> int | None:
    """The batch axis of a node that a modifier added: 0 where it depends on an input, else None."""
    inputs, seen, stack = set(step.placeholders()[: len(step.inputs)]), set(), [node]
    while stack:
        current = stack.pop()
        if current in inputs:
            return 0
        stack += [source for source in current.all_input_nodes if source not in seen]
        seen.update(current.all_input_nodes)
    return None
