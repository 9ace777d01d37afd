"""What bounds a persistent kernel: the registers of a thread, the bytes of a step, and the time that these take."""

from dataclasses import dataclass
from typing import Any

import torch

from ..ir.buffers import INPUT_PROJECTION, ROW_SUMS, BufferRef, Role
from ..plan.program import Plan
from ..plan.schedule import Schedule
from .persistent.launch import PersistentLoop
from .persistent.tiling import estimated_cycles, exchanged_bytes

ONCE = {  # read or written once for all steps
    Role.WEIGHT,
    Role.INITIAL,
    Role.FINAL,
    Role.D_INITIAL,
    Role.D_FINAL,
    Role.LENGTHS,
    Role.SUMS,
}
FLOAT32 = {Role.SUMS, Role.ROW_SUMS, Role.CARRY}


@dataclass(frozen=True)
class StepCost:
    """Of one step for all sequences of a batch."""

    memory: int  # bytes of device memory that are read and written, each of them once
    exchanged: int  # bytes that programs read from each other, and weights that do not stay on the chip
    cycles: float  # as the choice of the tiling estimates them


def step_cost(loop: PersistentLoop, chosen: Schedule, plan: Plan, size: int, batch: int, processors: int) -> StepCost:
    """`size`: bytes of a number."""
    memory = 0
    for buffer in loop.rendered.arguments:
        if buffer.role not in ONCE:
            memory += _width(buffer, loop, chosen, plan) * batch * (4 if buffer.role in FLOAT32 else size)
    exchanged = exchanged_bytes(loop.tiling, chosen, size, batch, processors)
    return StepCost(memory, exchanged, estimated_cycles(loop.tiling, chosen, size, batch, processors))


def _width(buffer: BufferRef, loop: PersistentLoop, chosen: Schedule, plan: Plan) -> int:
    if buffer == INPUT_PROJECTION:
        return sum(lane.width for lane, _ in loop.rendered.lanes)
    if buffer == ROW_SUMS:
        return loop.rendered.row_sums
    return (chosen.buffers.get(buffer) or plan.forward.buffers[buffer]).width


def machine_code(loop: PersistentLoop, dtype: torch.dtype, device: torch.device) -> Any:
    """The compiled kernel, whether it has run or not; with `n_regs`, `n_spills` and `metadata.shared`."""
    code = loop.machine_code
    if code is None:
        with torch.cuda.device(device):
            pointers = [torch.empty(1, dtype=_dtype(b, dtype), device=device) for b in loop.rendered.arguments]
            code = loop.compile(pointers)
    code._init_handles()  # Triton counts registers when it loads a kernel
    return code


def _dtype(buffer: BufferRef, dtype: torch.dtype) -> torch.dtype:
    if buffer.role is Role.LENGTHS:
        return torch.int32
    return torch.float32 if buffer.role in FLOAT32 else dtype


def bandwidth(device: torch.device) -> float:
    """Bytes a second that the card's memory moves at most; 0 where torch does not tell."""
    card = torch.cuda.get_device_properties(device)
    kilohertz, bits = getattr(card, "memory_clock_rate", 0), getattr(card, "memory_bus_width", 0)
    return 2 * 1e3 * kilohertz * bits / 8  # two transfers a cycle


def clock(device: torch.device) -> float:
    """Cycles a second of a multiprocessor at most; 0 where torch does not tell."""
    return 1e3 * getattr(torch.cuda.get_device_properties(device), "clock_rate", 0)
