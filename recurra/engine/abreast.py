"""The directions of a layer side by side: run so, where a GPU has a stream for each, and put so in memory."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import workspace
from .compiled import watched
from .reference import Scanned
from .scan import transformed


def abreast(scans: Sequence[Callable[[], Scanned]], device: torch.device) -> list[Scanned]:
    """The results of scans that do not depend on each other."""
    if len(scans) == 1 or device.type != "cuda" or torch.compiler.is_compiling() or transformed():
        return [scan() for scan in scans]
    here = torch.cuda.current_stream(device)
    streams = [here, *(_stream(device, number) for number in range(1, len(scans)))]
    for stream in streams[1:]:
        stream.wait_stream(here)
    results = []
    for scan, stream in zip(scans, streams, strict=True):
        with torch.cuda.stream(stream):
            results.append(scan())
    for result, stream in zip(results[1:], streams[1:], strict=True):
        here.wait_stream(stream)
        for value in (result.y, *result.state, *(result.trace or {}).values()):
            value.record_stream(here)  # its memory is not given away before this stream is done with it
    return results


@functools.cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Side by side on the feature axis; on the CPU in memory that is mapped already, for fresh pages take longer than
    the rest of it."""
    if len(parts) == 1:
        return parts[0]
    plain = all(part.is_cpu and part.dtype == parts[0].dtype for part in parts)
    if not plain or watched(parts) or transformed():
        return torch.cat(list(parts), dim=-1)
    return _Joined.apply(*parts)


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *parts):  # pyrefly: ignore
        ctx.widths = [part.shape[-1] for part in parts]
        shape = (*parts[0].shape[:-1], sum(ctx.widths))
        return torch.cat(parts, dim=-1, out=workspace.empty(shape, parts[0].dtype))

    @staticmethod
    def backward(ctx, cotangent):  # pyrefly: ignore
        return cotangent.split(ctx.widths, dim=-1)
