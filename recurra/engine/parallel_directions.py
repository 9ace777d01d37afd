"""Runs the directions of a layer in parallel, one CUDA stream each, and concatenates their outputs."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..cell import Cell
from .cpu import allocator
from .reference import Scanned, Sequences
from .torch_modes import is_transformed, needs_dispatcher


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
