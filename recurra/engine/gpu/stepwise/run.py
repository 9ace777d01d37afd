"""A loop over time, step by step: a library's products and one fused kernel after them, from captured graphs.

It needs nothing of a card but that it runs Triton: no program waits for another, and weights may be of any size.
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
from .stages import ROWS, Stepwise

WINDOWS = 8  # a loop keeps; they share their memory


class Steps:
    """Called as the one kernel for all steps is."""

    summed_in = torch.float64  # each step adds to what lies in memory

    def __init__(self, rendered: Stepwise, kernels: ModuleType, backward: bool, dtype: torch.dtype):
        self.rendered, self.kernels, self.backward, self.dtype = rendered, kernels, backward, dtype
        self.windows: OrderedDict[tuple[int, torch.device], Window] = OrderedDict()

    def tiles(self, batch: int) -> int:
        return -(-batch // ROWS)

    @torch.no_grad()
    def __call__(self, bound: Mapping[BufferRef, Tensor], steps: int, batch: int) -> None:
        like = bound[X]
        if not self.rendered.arguments:  # a cell whose step, or whose derivative, is nothing
            return
        if not like.is_cuda or torch.cuda.is_current_stream_capturing():
            self._pass(self._new_window(batch, like), bound, steps)
            return
        with torch.cuda.device(like.device), _turn(like.device):
            window = self._window(batch, like)
            window.memory.record_stream(torch.cuda.current_stream())
            self._pass(window, bound, steps)

    def _pass(self, window: Window, bound: Mapping[BufferRef, Tensor], steps: int) -> None:
        bound = {buffer: value.clone() if value.data_ptr() % 16 else value for buffer, value in bound.items()}
        window.begin(bound, steps)
        window.prepare()
        pieces = list(_pieces(steps, window.steps))
        for first, count in reversed(pieces) if self.backward else pieces:
            window.bring(bound, first, count, steps)
            window.run(count)
            window.pass_on(count)
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

    @torch.inference_mode(False)  # memory that later calls may write to as well
    def _new_window(self, batch: int, like: Tensor) -> Window:
        return Window(self.rendered, self.kernels, self.backward, batch, self.dtype, like)


def _pieces(steps: int, most: int) -> Iterator[tuple[int, int]]:
    """(first step, steps): as many of the most as there are, and the rest in halves, so that few graphs do for all."""
    first = 0
    while first < steps:
        while most > steps - first:
            most //= 2
        yield first, most
        first += most


_locks: dict[torch.device, threading.Lock] = {}
_done: dict[torch.device, torch.cuda.Event] = {}


@contextlib.contextmanager
def _turn(device: torch.device) -> Iterator[None]:
    """One sequence at a time on a device, whatever its thread and stream: windows share memory, and the products of
    all graphs the room a library works in."""
    with _locks.setdefault(device, threading.Lock()):
        stream = torch.cuda.current_stream()
        if device in _done:
            stream.wait_event(_done[device])
        try:
            yield
        finally:
            _done.setdefault(device, torch.cuda.Event()).record(stream)
