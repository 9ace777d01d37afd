"""A traced step as a function the plain loop can run: it knows the modifiers and the names, which `Cell.step` does not.

The graph is found apart from whatever surrounds the call. Under vmap, jvp, functional_call or autocast the cell's
weights are not plain tensors, or its operations not the plain ones, and a graph traced then would be wrong ever after.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._C import DisableTorchFunction
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from ..cell import Cell
from ..errors import TraceError
from .cell_cache import known
from .operations import BATCH_AXIS
from .trace import Step, trace


@dataclass(frozen=True)
class Traced:
    """A traced step as a function of its inputs and weights."""

    function: Callable[..., tuple[Tensor, ...]]
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: int
    named: tuple[str, ...]
    rows: dict[str, int]  # the named values that have a row a sequence: along which axis. A τ per unit has none


@dataclass(frozen=True)
class Graph:
    """A traced step with the weights of one call: `(output, *new states)` and every named value, row by row."""

    step: Traced
    weights: dict[str, Tensor]

    def __call__(self, x: Tensor, states: Sequence[Any], extras: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        views = [v for state in states for v in (state if isinstance(state, tuple) else (state,))]
        given = dict(zip(self.step.inputs, (x, *views), strict=False)) | extras
        results = self.step.function(
            *(given[name] for name in self.step.inputs), *(self.weights[name] for name in self.step.weights)
        )
        values = zip(self.step.named, results[self.step.outputs :], strict=True)
        rows = self.step.rows
        named = {n: v.movedim(rows[n], 0) if n in rows else v.expand(x.shape[0], *v.shape) for n, v in values}
        return results[: self.step.outputs], {n: v[:, None] if v.dim() == 1 else v for n, v in named.items()}


_TRACED: dict[str, Traced] = {}  # by the graph's own text: cells with the same equations share an entry


def traced_step(cell: Cell) -> Traced:
    """The cell's step, modifiers applied, as a function that also gives its named values."""
    return _TRACED[_text(cell)]


def _text(cell: Cell) -> str:
    """The key of the cell's traced step."""
    notes = known(cell).notes
    if "text" not in notes:
        step = _trace_apart(cell)
        notes["text"] = f"{step.inputs}{step.weights}{step.outputs}{step.named}{step.graph}"
        if notes["text"] not in _TRACED:
            _TRACED[notes["text"]] = _as_function(step)
    return notes["text"]


# What torch.compiler.assume_constant_result sets: this is a fact about the cell, and the compiler need not look into
# how it is found. Calling that would import the compiler with recurra.
_text._dynamo_marked_constant = True  # pyrefly: ignore


def _trace_apart(cell: Cell) -> Step:
    """Trace a copy on plain tensors, apart from whatever surrounds this call: transforms, modes, autocast."""
    with apart():
        plain = {
            id(tensor): torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            for tensor in (*cell.parameters(), *cell.buffers())
        }
        return trace(_copied(cell, plain))


def _copied(cell: Cell, instead: dict[int, Tensor]) -> Cell:
    """With other tensors for some of its own."""
    try:
        return copy.deepcopy(cell, instead)  # pyrefly: ignore
    except RuntimeError as error:  # a tensor that was computed from a parameter, and put where a parameter was
        raise TraceError(f"{type(cell).__name__} has a tensor that is the result of a computation: {error}") from error


@contextmanager
def apart() -> Iterator[None]:
    """Apart from transforms, modes, autocast and the random numbers: a dropped weight is drawn while tracing, too."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with (
        torch.random.fork_rng(devices),
        temporarily_clear_interpreter_stack(),
        DisableTorchFunction(),
        _disable_current_modes(),
        torch.inference_mode(False),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield


def _as_function(step: Step) -> Traced:
    named = zip(step.named, step.results()[len(step.outputs) :], strict=True)
    axes = ((name, node.meta[BATCH_AXIS] if BATCH_AXIS in node.meta else _first(node, step)) for name, node in named)
    rows = {name: axis for name, axis in axes if axis is not None}
    return Traced(step.function(), step.inputs, step.weights, len(step.outputs), step.named, rows)


def _first(node: fx.Node, step: Step) -> int | None:
    """The first axis, if what a modifier wrote is computed from something that differs between sequences."""
    return 0 if _has_rows(node, step) else None


def _has_rows(node: fx.Node, step: Step) -> bool:
    inputs, seen, stack = set(step.placeholders()[: len(step.inputs)]), set(), [node]
    while stack:
        current = stack.pop()
        if current in inputs:
            return True
        stack += [source for source in current.all_input_nodes if source not in seen]
        seen.update(current.all_input_nodes)
    return False
