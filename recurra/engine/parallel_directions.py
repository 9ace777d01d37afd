"""The directions of a layer side by side: run so, where a GPU has a stream for each, and put so in memory."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..cell import Cell
from .cpu import allocator
from .reference import Scanned, Sequences
from .torch_modes import is_transformed, needs_dispatcher


def abreast(scan: Callable[[Cell, Sequences], Scanned], given: Sequence[tuple[Cell, Sequences]]) -> list[Scanned]:
    """The results of scans that do not depend on each other."""
    device = given[0][1].x.device
    if len(given) == 1 or device.type != "cuda" or torch.compiler.is_compiling() or is_transformed():
        return [scan(*one) for one in given]
    here = torch.cuda.current_stream(device)
    beside = [_stream(device, number) for number in range(1, len(given))]
    results = [_beside(here, stream, scan, *one) for stream, one in zip(beside, given[1:], strict=True)]
    first = scan(*given[0])
    for stream in beside:
        here.wait_stream(stream)
    return [first, *results]


def _beside(
    here: torch.cuda.Stream,
    stream: torch.cuda.Stream,
    scan: Callable[[Cell, Sequences], Scanned],
    cell: Cell,
    given: Sequences,
) -> Scanned:
    """A scan on another stream. Backward runs there too, and lets go of tensors before the card is done with them: each
    stream is told which of the other's memory it uses."""
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        result = scan(cell, given)
    for value in (given.x, *given.state, *given.masks.values(), given.lengths, given.resets):
        if value is not None:
            value.record_stream(stream)
    for value in (result.y, *result.state, *(result.trace or {}).values()):
        value.record_stream(here)
    return result


@functools.cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Side by side on the feature axis; on the CPU in memory that is mapped already, for fresh pages take longer than
    the rest of it."""
    if len(parts) == 1:
        return parts[0]
    plain = all(part.is_cpu and part.dtype == parts[0].dtype for part in parts)
    if not plain or needs_dispatcher(parts) or is_transformed():
        return torch.cat(list(parts), dim=-1)
    return _Joined.apply(*parts)


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *parts):  # pyrefly: ignore
        ctx.widths = [part.shape[-1] for part in parts]
        shape = (*parts[0].shape[:-1], sum(ctx.widths))
        return torch.cat(parts, dim=-1, out=allocator.empty(shape, parts[0].dtype))

    @staticmethod
    def backward(ctx, cotangent):  # pyrefly: ignore
        return cotangent.split(ctx.widths, dim=-1)
