"""Stepwise execution of a loop: cuBLAS products and one fused kernel per group, replayed from CUDA graphs.

Runs on any card that Triton supports: no program waits for another, and weights may be of any size.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from types import ModuleType

import torch
from torch import Tensor

from ...ir.buffers import BufferRef, X
from .graphs import Window
from .stages import ROWS, StepSource

WINDOWS = 8  # kept per loop; they share memory


class StepwiseLoop:
    """A loop over time with the interface of `PersistentLoop`."""

    summed_in = torch.float64  # dtype of sums over all steps, which are accumulated in memory

    def __init__(self, rendered: StepSource, kernels: ModuleType, backward: bool, dtype: torch.dtype):
        self.rendered, self.kernels, self.backward, self.dtype = rendered, kernels, backward, dtype
        self.windows: OrderedDict[tuple[int, torch.device], Window] = OrderedDict()

    def tiles(self, batch: int) -> int:
        return -(-batch // ROWS)

    def launches(self, steps: int) -> int:
        """Products and kernels of so many steps."""
        return steps * sum(1 + len(stage.products) for stage in self.rendered.stages)

    @torch.no_grad()
    def __call__(self, bound: Mapping[BufferRef, Tensor], steps: int, batch: int) -> None:
        like = bound[X]
        if not self.rendered.arguments:  # the step, or its derivative, computes nothing
            return
        if not like.is_cuda or torch.cuda.is_current_stream_capturing():
            self._run(self._new_window(batch, like), bound, steps)
            return
        with torch.cuda.device(like.device), _exclusive(like.device):
            window = self._window(batch, like)
            window.memory.record_stream(torch.cuda.current_stream())
            self._run(window, bound, steps)

    def _run(self, window: Window, bound: Mapping[BufferRef, Tensor], steps: int) -> None:
        bound = {buffer: value.clone() if value.data_ptr() % 16 else value for buffer, value in bound.items()}
        window.begin(bound, steps)
        window.prepare()
        windows = list(_split(steps, window.steps))
        for first, count in reversed(windows) if self.backward else windows:
            window.load_operands(bound, first, count, steps)
            window.run(count)
            window.copy_carried(count)
        window.end(bound)

    def _window(self, batch: int, like: Tensor) -> Window:
        key = batch, like.device
        if key not in self.windows:
            self.windows[key] = self._new_window(batch, like)
        self.windows.move_to_end(key)
        if len(self.windows) > WINDOWS:
            torch.cuda.synchronize()  # its graphs may be running
            self.windows.popitem(last=False)
        return self.windows[key]

    @torch.inference_mode(False)  # later calls outside inference mode write to this memory too
    def _new_window(self, batch: int, like: Tensor) -> Window:
        return Window(self.rendered, self.kernels, self.backward, batch, self.dtype, like)


def _split(steps: int, most: int) -> Iterator[tuple[int, int]]:
    """(first step, count): windows of `most` steps, then of powers of two, so that few graphs serve all lengths."""
    first = 0
    while first < steps:
        while most > steps - first:
            most //= 2
        yield first, most
        first += most


_locks: dict[torch.device, threading.Lock] = {}
_done: dict[torch.device, torch.cuda.Event] = {}


@contextlib.contextmanager
def _exclusive(device: torch.device) -> Iterator[None]:
    """Serialise sequences on a device across threads and streams: windows share memory, and graphs share cuBLAS
    workspaces."""
    with _locks.setdefault(device, threading.Lock()):
        stream = torch.cuda.current_stream()
        if device in _done:
            stream.wait_event(_done[device])
        try:
            yield
        finally:
            _done.setdefault(device, torch.cuda.Event()).record(stream)
