"""Runs the directions of a layer in parallel, one CUDA stream each, and concatenates their outputs."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..cell import Cell
from .cell_cache import cache_of
from .cpu import allocator
from .dispatch import choose
from .gpu import both_directions
from .gpu.both_directions import Direction
from .gpu.runner import GpuExecutor
from .reference import Scanned, Sequences
from .torch_modes import hide_from_modes, is_transformed, needs_dispatcher
from .torch_op import is_batched, replayed_cotangents


def run_parallel(scan: Callable[[Cell, Sequences], Scanned], given: Sequence[tuple[Cell, Sequences]]) -> list[Scanned]:
    """The results of independent scans. On a GPU, each but the first runs on a stream of its own."""
    device = given[0][1].x.device
    if len(given) == 1 or device.type != "cuda" or torch.compiler.is_compiling() or is_transformed():
        return [scan(*one) for one in given]
    current = torch.cuda.current_stream(device)
    streams = [_stream(device, number) for number in range(1, len(given))]
    results = [_run_on(stream, current, scan, *one) for stream, one in zip(streams, given[1:], strict=True)]
    first = scan(*given[0])
    for stream in streams:
        current.wait_stream(stream)
    return [first, *results]


def _run_on(
    stream: torch.cuda.Stream,
    current: torch.cuda.Stream,
    scan: Callable[[Cell, Sequences], Scanned],
    cell: Cell,
    given: Sequences,
) -> Scanned:
    """A scan on another stream, where its backward runs, too.

    Tensors may be freed before the GPU has finished with them, so each stream records its use of the other's memory.
    """
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        result = scan(cell, given)
    for value in (given.x, *given.state, *given.masks.values(), given.lengths, given.resets):
        if value is not None:
            value.record_stream(stream)
    for value in (result.y, *result.state, *(result.trace or {}).values()):
        value.record_stream(current)
    return result


def run_both(cells: Sequence[Cell], x: Tensor, states: Sequence[Sequence[Tensor]]) -> list[Scanned] | None:
    """Both directions of a dense batch on a GPU as one operation; every result has the output of both. None if the
    directions must run one by one."""
    if not x.is_cuda or torch.compiler.is_compiling():
        return None
    choices = [choose(cell, Sequences(x, state)) for cell, state in zip(cells, states, strict=True)]
    executor = choices[0].executor
    if executor is not choices[1].executor or any(choice.call is None for choice in choices):
        return None
    if not isinstance(executor, GpuExecutor) or not both_directions.can_run(executor, x):
        return None
    weights = [executor.prologue(cache_of(cell).weights or {}) for cell in cells]
    if needs_dispatcher((x, *weights[0], *weights[1])):
        return None
    tensors = [x, *states[0], *weights[0], *states[1], *weights[1]]
    if executor.trains:
        y, *finals = _apply_both(executor, *tensors)
    else:
        y, *finals = both_directions.forward(executor, x, _directions(executor, tensors))
    count = len(states[0])
    return [Scanned(y, tuple(finals[:count])), Scanned(y, tuple(finals[count : 2 * count]))]


def _directions(executor: GpuExecutor, tensors: Sequence[Tensor]) -> list[Direction]:
    count, each = len(executor.plan.states), (len(tensors) - 1) // 2
    halves = tensors[1 : 1 + each], tensors[1 + each :]
    return [Direction(half[:count], half[count:]) for half in halves]


class _ScanBoth(torch.autograd.Function):
    """Both directions of a layer, (T, B, D) → (T, B, 2 H)."""

    @staticmethod
    @hide_from_modes
    def forward(ctx, executor, *tensors):  # pyrefly: ignore
        directions = _directions(executor, tensors)
        results = both_directions.forward(executor, tensors[0], directions)
        ctx.executor, ctx.given = executor, len(tensors)
        ctx.wants_states = any(state.requires_grad for one in directions for state in one.states)
        ctx.set_materialize_grads(False)
        count = 1 + 2 * len(directions[0].states)
        ctx.save_for_backward(*tensors, results[0], *results[count:])
        return tuple(results[:count])

    @staticmethod
    def backward(ctx, *cotangents):
        tensors, needed = ctx.saved_tensors[: ctx.given], ctx.saved_tensors[ctx.given :]
        executor, directions = ctx.executor, _directions(ctx.executor, tensors)
        if torch.is_grad_enabled() or is_batched(cotangents):
            return None, *_replay_both(executor, cotangents, tensors[0], directions)
        return None, *_cotangents_of_both(executor, cotangents, tensors[0], directions, needed, ctx.wants_states)


@hide_from_modes
def _cotangents_of_both(executor, cotangents, x, directions, needed, wants_states) -> list[Tensor | None]:
    found = both_directions.backward(executor, cotangents, x, directions, needed, wants_states)
    states = 2 * len(directions[0].states)
    count = 1 + states * wants_states
    dstates = found[1:count] if wants_states else [None] * states
    dx, dweights, each = found[0] if executor.plan.needs_x else None, found[count:], len(directions[0].weights)
    half = states // 2
    return [dx, *dstates[:half], *dweights[:each], *dstates[half:], *dweights[each:]]


def _replay_both(executor, cotangents, x, directions) -> list[Tensor | None]:
    """The same as torch operations, which can be differentiated and transformed."""
    dy, finals, count = cotangents[0], cotangents[1:], len(directions[0].states)
    halves = (None, None) if dy is None else dy.chunk(2, -1)
    found, total = [], None
    for number, (direction, own) in enumerate(zip(directions, halves, strict=True)):
        sequence = x.flip(0) if number else x
        given = [own.flip(0) if number and own is not None else own, *finals[number * count : (number + 1) * count]]
        dx, dstates, dweights = replayed_cotangents(
            executor, given, sequence, direction.states, (), direction.weights, None
        )
        dx = dx.flip(0) if number and dx is not None else dx
        total = dx if total is None else total if dx is None else total + dx
        found += [*dstates, *dweights]
    return [total, *found]


_apply_both = super(torch.autograd.Function, _ScanBoth).apply  # pyrefly: ignore


@functools.cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def concat_features(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate on the last axis. On the CPU the result reuses mapped memory: page faults would dominate."""
    if len(parts) == 1:
        return parts[0]
    plain = all(part.is_cpu and part.dtype == parts[0].dtype for part in parts)
    if not plain or needs_dispatcher(parts) or is_transformed():
        return torch.cat(list(parts), dim=-1)
    return _ConcatFeatures.apply(*parts)


class _ConcatFeatures(torch.autograd.Function):
    """torch.cat into memory of the allocator."""

    @staticmethod
    def forward(ctx, *parts):  # pyrefly: ignore
        ctx.widths = [part.shape[-1] for part in parts]
        shape = (*parts[0].shape[:-1], sum(ctx.widths))
        return torch.cat(parts, dim=-1, out=allocator.empty(shape, parts[0].dtype))

    @staticmethod
    def backward(ctx, cotangent):  # pyrefly: ignore
        return cotangent.split(ctx.widths, dim=-1)
