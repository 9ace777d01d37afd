"""The directions of a layer side by side: on a GPU each has a stream of its own, so that small kernels run at once."""

import functools
from collections.abc import Callable, Sequence

import torch

from .reference import Scanned
from .scan import _transformed


def abreast(scans: Sequence[Callable[[], Scanned]], device: torch.device) -> list[Scanned]:
    """The results of scans that do not depend on each other."""
    if len(scans) == 1 or device.type != "cuda" or torch.compiler.is_compiling() or _transformed():
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
