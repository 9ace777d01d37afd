"""A single step on a GPU, prepared once: one kernel, launched by address without Triton's launcher.

Launching takes most of a streamed step's time, so a call allocates the results, writes their addresses and those of its
inputs into a block of arguments, and calls the driver.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from operator import or_

import torch
from torch import Tensor

from ...errors import DtypeError
from ..ir.buffers import BufferRef, X
from ..torch_modes import hide_from_modes
from .persistent.launch import PersistentLoop
from .runner import GpuExecutor

MOST_ROWS = 256  # of a batch; the weights are read again for every sixteen
_ADDRESS = Tensor.data_ptr


def prepare_step(
    executor: GpuExecutor, x: Tensor, weights: dict[str, Tensor], start: Callable[[Tensor], Sequence[Tensor]]
) -> "GpuStepCall | None":
    """The call for x `(B, D)`, or None if a step takes more than one kernel."""
    if x.shape[0] > MOST_ROWS or executor.plan.derived_weights or not all(map(Tensor.is_contiguous, weights.values())):
        return None
    if torch.cuda.is_current_stream_capturing() or executor.obstacle(x.shape[0], x.device):
        return None
    loop = executor.loops.single_step(x.device)
    return None if loop is None else GpuStepCall(executor, loop, x, weights, start)


class GpuStepCall:
    """One step of some rows."""

    @hide_from_modes
    @torch.no_grad()
    def __init__(
        self,
        executor: GpuExecutor,
        loop: PersistentLoop,
        x: Tensor,
        weights: dict[str, Tensor],
        start: Callable[[Tensor], Sequence[Tensor]],
    ):
        plan, batch = executor.plan, x.shape[0]
        self.start, self.device, self.weights = start, x.device.index, [weights[n] for n in executor.weight_names]
        self.dtype = executor.dtype
        self.width = plan.forward.buffers[plan.output].width
        self.sizes = [state.size for state in plan.states]
        self.alike = set(self.sizes) == {self.width}
        self.output = plan.output
        given = {X: x.contiguous(), plan.output: x.new_empty(batch, self.width)}
        for state, value in zip(plan.states, start(x), strict=True):
            given[BufferRef.initial(state.name)] = value
            given[BufferRef.final(state.name)] = torch.empty_like(value)
        given |= {BufferRef.weight(n): w for n, w in zip(executor.weight_names, self.weights, strict=True)}
        loop(given, 1, batch)  # compiles the kernel
        order = loop.rendered.arguments
        inputs = [X, *(BufferRef.initial(state.name) for state in plan.states)]
        results = [plan.output, *(BufferRef.final(state.name) for state in plan.states)]
        self.launch = _Launch(loop, [given[buffer].data_ptr() for buffer in order], batch)
        self.slots = [order.index(buffer) if buffer in order else len(order) + 3 for buffer in (*inputs, *results)]
        self.weight_slots = [order.index(BufferRef.weight(n)) for n in executor.weight_names]
        self.weight_addresses = list(map(_ADDRESS, self.weights))

    def __call__(self, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        batch = x.shape[0]
        stacked = states is None or states[0].dim() == 3
        inputs = [x, *(self.start(x) if states is None else states)]
        places = list(map(_ADDRESS, inputs))
        if functools.reduce(or_, places) % 16 or not all(map(Tensor.is_contiguous, inputs)):
            inputs = [value.clone(memory_format=torch.contiguous_format) for value in inputs]
            places = list(map(_ADDRESS, inputs))
        lead = (1, batch) if stacked else (batch,)
        if self.alike:  # one allocation: several take as long as the launch
            y, *finals = x.new_empty((1 + len(self.sizes), *lead, self.width)).unbind()
            y = y.squeeze(0) if stacked else y
        else:
            y, *finals = x.new_empty((batch, self.width)), *(x.new_empty((*lead, size)) for size in self.sizes)
        words = self.launch.words
        for slot, address in zip(self.slots, (*places, *map(_ADDRESS, (y, *finals))), strict=True):
            words[slot] = address
        addresses = list(map(_ADDRESS, self.weights))
        if addresses != self.weight_addresses:
            self._move_weights(addresses)
        self.launch(self.device)
        return y, tuple(finals)

    def _move_weights(self, addresses: list[int]) -> None:
        for weight in self.weights:
            if weight.dtype is not self.dtype:
                raise DtypeError("weights", weight.dtype, f"{self.dtype}, as when the step was prepared")
        for slot, address in zip(self.weight_slots, addresses, strict=True):
            self.launch.words[slot] = address
        self.weight_addresses = addresses


class _Launch:
    """A kernel with a block of arguments, in the driver's form."""

    def __init__(self, loop: PersistentLoop, addresses: list[int], batch: int):
        tiles, code = loop.tiles(batch), loop.machine_code
        numbers = [*addresses, 1, batch, tiles, 0, 0, 0]  # two unused scratch pointers, and room for what nothing reads
        self.words = (ctypes.c_uint64 * len(numbers))(*numbers)
        first = ctypes.addressof(self.words)
        pointers = [first + 8 * i for i in range(len(addresses) + 5)]
        self.block = (ctypes.c_void_p * len(pointers))(*pointers)
        self.code = code  # keeps the kernel loaded
        grid, threads = (loop.tiling.programs, tiles, 1), 32 * code.metadata.num_warps
        self.function = ctypes.c_void_p(code.function)
        self.driver = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
        self.sizes = [ctypes.c_uint(n) for n in (*grid, threads, 1, 1, code.metadata.shared)]

    def __call__(self, device: int) -> None:
        if torch._C._cuda_getDevice() != device:
            with torch.cuda.device(device):
                self(device)
            return
        stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(device))
        status = self.driver(self.function, *self.sizes, stream, self.block, None)
        if status:
            raise RuntimeError(f"the CUDA driver refused to launch a step: error {status}")
