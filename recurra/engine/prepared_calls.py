"""Calls that run an executor on inputs as they are given: what does not depend on their numbers is settled once.

`dispatch.py` keeps these calls by the signature of the inputs.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from weakref import ref

import torch
from torch import Tensor

from ..affine import Affine
from ..cell import TIME, Cell
from . import torch_op
from .cell_cache import CellCache
from .cpu.dense_call import DenseCall, StepCall
from .cpu.executor import CpuExecutor
from .executors import Executor
from .gpu.runner import GpuExecutor
from .gpu.scan_runner import ScanExecutor
from .gpu.step_call import prepare_step
from .reference import Scanned, Sequences
from .restarts import MASK, start_again
from .torch_modes import needs_dispatcher
from .traced_step import keep_random_state

KIND = attrgetter("dtype", "device", "shape")
Call = Callable[[Tensor, Sequence[Tensor] | None], tuple[Tensor, tuple[Tensor, ...]]]


def prepare(cell: Cell, cache: CellCache, executor: Executor | None, given: Sequences) -> Call | None:
    """The call that runs these inputs as they are; None if they must be converted, or checked, first."""
    x, states, own = given.x, given.state, cache.weights
    if executor is None or x.dtype != executor.dtype:
        return None
    if own is None and (isinstance(executor, CpuExecutor) or x.dim() == 2):  # weights are derived anew at every call
        return None
    if cell.drawn_inputs() or any(s.delays or s.axes or s.name == TIME for s in cell.carried):
        return None
    if x.shape[-1] != cell.input_size or not (states is None or _fit(states, cell, x)):
        return None
    weights = _Weights(cell, cache)
    read = _read_once(executor, weights)
    if any((w.dtype, w.device) != (x.dtype, x.device) for w in read):
        return None
    if needs_dispatcher(read if own is None else own.values()):
        return None
    start = _Start(cell, cache, x)
    if own is not None and x.dim() == 2:
        return _prepare_step(executor, x, own, start)
    if own is not None and isinstance(executor, CpuExecutor) and not executor.trains:
        return DenseCall(executor, x.shape, own, read, start)
    return _TrainCall(executor, weights, start)


def _read_once(executor: Executor, weights: "_Weights") -> list[Tensor]:
    """What the executor reads of the weights, as one call finds it. Activation checkpoints count what a call saves, and
    this happens in the first one alone."""
    with keep_random_state(), torch.no_grad():
        return executor.prologue(weights())


def prepare_with_more(
    cell: Cell, cache: CellCache, executor: Executor | None, given: Sequences, restarts: bool
) -> Callable[[Sequences], Scanned] | None:
    """The call that runs masks, lengths or resets on a GPU as they are; None if they must be converted first.

    `restarts`: resets are a mask in the loop.
    """
    x, states, masks, lengths, resets = given
    if not isinstance(executor, GpuExecutor) or x.dtype != executor.dtype:
        return None
    if x.dim() != 3 or any(s.delays or s.axes or s.name == TIME for s in cell.carried):
        return None
    if x.shape[-1] != cell.input_size or not (states is None or (_fit(states, cell, x) and states[0].dim() == 2)):
        return None
    if any((mask.dtype, mask.device) != (x.dtype, x.device) for mask in masks.values()):
        return None
    if resets is not None and (lengths is not None or not restarts):
        return None
    weights = _Weights(cell, cache)
    read = _read_once(executor, weights)
    if any((w.dtype, w.device) != (x.dtype, x.device) for w in read) or needs_dispatcher(read):
        return None
    return _CallWithMore(executor, weights, _Start(cell, cache, x))


class _Weights:
    """The weights of a cell at a call: those derived from others are computed anew."""

    def __init__(self, cell: Cell, cache: CellCache):
        derived = [(p, m) for p, m in cell.named_modules() if isinstance(m, Affine)] if cache.weights is None else []
        self.derived = [(f"{path}.{name}", affine, name) for path, affine in derived for name in affine.derivations]
        self.own = cache.weights
        if self.own is None:
            with keep_random_state(), torch.no_grad():
                names = {name for name, _, _ in self.derived}
                self.own = {name: weight for name, weight in cell.weights().items() if name not in names}

    def __call__(self) -> dict[str, Tensor]:
        assert self.own is not None
        if not self.derived:
            return self.own
        return self.own | {key: getattr(affine, name) for key, affine, name in self.derived}


class _CallWithMore:
    """Sequences with masks, lengths or resets on a GPU."""

    def __init__(self, executor: "GpuExecutor", weights: _Weights, start: "_Start"):
        self.executor, self.weights, self.start = executor, weights, start

    def __call__(self, given: Sequences) -> Scanned:
        x, states, masks, lengths, resets = given
        if states is None:
            states = self.start(x)
        elif resets is not None:
            states = [start_again(resets[0], f, s) for f, s in zip(self.start(x), states, strict=True)]
        read = [resets if name == MASK and resets is not None else masks[name] for name in self.executor.plan.masks]
        ends = None if lengths is None else lengths.to(torch.int32)
        found = torch_op.scan(self.executor, x, states, read, self.executor.prologue(self.weights()), ends)
        return Scanned(found[0], tuple(found[1 : 1 + len(states)]))


def _fit(states: Sequence[Tensor], cell: Cell, x: Tensor) -> bool:
    """Whether given states have the right shapes: `(B, size)` each, or `(1, B, size)`."""
    batch = x.shape[-2]
    lead = (batch,) if states[0].dim() == 2 else (1, batch)
    return list(map(KIND, states)) == [(x.dtype, x.device, (*lead, spec.size)) for spec in cell.carried]


class _Start:
    """The states before the first step, of a call without given ones. The engines only read them, so constant ones are
    made once. On a GPU they belong to one stream, and a graph that is being captured makes its own."""

    def __init__(self, cell: Cell, cache: CellCache, x: Tensor):
        self.cell = ref(cell)  # the cell's cache refers to this
        self.constant: Sequence[Tensor] | None = None
        self.stream = _stream_of(x)
        if cache.has_constant_start and self.stream is not None:
            with torch.inference_mode(False):  # inference tensors could not be saved for a backward pass
                self.constant = cell.initial_state(x.shape[-2], x)

    def __call__(self, x: Tensor) -> Sequence[Tensor]:
        if self.constant is not None and self.stream == _stream_of(x):
            return self.constant
        cell = self.cell()
        assert cell is not None
        return cell.initial_state(x.shape[-2], x)


def _stream_of(x: Tensor) -> int | None:
    """The stream on which a call with x runs, 0 on the CPU; None while a CUDA graph is being captured."""
    if x.is_cpu:
        return 0
    return None if torch.cuda.is_current_stream_capturing() else torch._C._cuda_getCurrentRawStream(x.device.index)


def _prepare_step(executor: Executor, x: Tensor, weights: dict[str, Tensor], start: _Start) -> Call | None:
    if executor.trains:
        return None
    if isinstance(executor, GpuExecutor) and not isinstance(executor, ScanExecutor):
        return prepare_step(executor, x, weights, start)
    if not isinstance(executor, CpuExecutor) or not executor.can_step:
        return None
    return StepCall(executor, x, weights, start)


class _TrainCall:
    """A dense batch with gradients, or on a GPU."""

    def __init__(self, executor: Executor, weights: _Weights, start: _Start):
        self.executor, self.weights, self.start = executor, weights, start

    def __call__(self, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        stacked = states is None or states[0].dim() == 3
        if states is None:
            states = self.start(x)
        elif stacked:
            states = [state[0] for state in states]
        y, *finals = torch_op.scan(self.executor, x, states, (), self.executor.prologue(self.weights()), None)
        return y, tuple(final[None] if stacked else final for final in finals[: len(states)])
