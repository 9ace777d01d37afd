"""The part of `rc.explain` that describes the GPU kernels of a plan."""

import torch

from ..plan.schedule import Schedule
from .cost import StepCost, bandwidth, clock, machine_code, step_cost
from .persistent.launch import PersistentLoop, processors
from .persistent.tiling import Tiling, is_x
from .runner import GpuExecutor
from .stepwise.graphs import STEPS
from .stepwise.run import StepwiseLoop

WEIGHTS = {
    "registers": "its weights stay in registers",
    "shared": "its weights stay in shared memory",
    "memory": "its weights are read from memory at each step: they are too many for the chip",
}


def describe(made: GpuExecutor, batch: int, device: torch.device, source: bool) -> list[str]:
    """Lines on the kernels for a batch on a device; `source`: with the generated kernels."""
    lines = ["  before the loop: one product of x with the weights of all gates, for all steps"]
    for backward, chosen in _schedules(made):
        direction, reason = "backward" if backward else "forward", made.loops.why_stepwise(backward, batch, device)
        loop = made.loops.find(backward, batch, False, device)
        if isinstance(loop, StepwiseLoop):
            lines += [f"  {direction}, step by step: {reason}", *_step(loop)]
        else:
            lines += [f"  {direction}, one kernel for all steps:", *_grid(loop.tiling, batch)]
            lines += _stages(chosen, loop.tiling)
            lines += _limits(made, loop, chosen, batch, device) if device.type == "cuda" else []
        if source:
            lines += ["", loop.rendered.text]
    if made.trains:
        lines.append(f"  after the loop: {len(made.runs)} products over all steps, the gradients of the weights")
    return lines


def _limits(made: GpuExecutor, loop: PersistentLoop, chosen: Schedule, batch: int, device: torch.device) -> list[str]:
    code = machine_code(loop, made.dtype, device)
    spilled = f"{code.n_spills} of them spilled to memory" if code.n_spills else "none spilled"
    cost = step_cost(loop, chosen, made.plan, made.dtype.itemsize, batch, processors(device))
    return [
        f"    {code.n_regs} registers of 255 per thread, {spilled}; {code.metadata.shared:,} bytes of shared memory",
        *limits_of_a_step(cost, bandwidth(device), clock(device)),
    ]


def limits_of_a_step(cost: StepCost, bandwidth: float, clock: float) -> list[str]:
    """Bytes of a step, and which share of its estimated time the card's memory needs for them."""
    moved = f"    a step moves {cost.memory:,} bytes of device memory"
    if bandwidth and clock:
        least, estimated = 1e6 * cost.memory / bandwidth, 1e6 * cost.cycles / clock
        moved += f": at least {least:.2f} µs, {least / max(estimated, least):.0%} of the {estimated:.2f} µs estimated"
    if not cost.exchanged:
        return [moved]
    return [
        moved,
        f"    programs read {cost.exchanged:,} bytes a step that others wrote, or of weights, from the L2 cache",
    ]


def _step(loop: StepwiseLoop) -> list[str]:
    lines = [f"    CUDA graphs of up to {STEPS} steps, captured once, over memory of their own"]
    for number, stage in enumerate(loop.rendered.stages, 1):
        lines += [f"    {number}. one product: {p.deep} → {p.wide} columns" for p in stage.products]
        lines.append(f"    {number}. one kernel over {stage.width} columns")
    return lines


def _schedules(made: GpuExecutor) -> list[tuple[bool, Schedule]]:
    return [(False, made.loops.forward_schedule), *([(True, made.loops.backward_schedule)] if made.trains else [])]


def _grid(shape: Tiling, batch: int) -> list[str]:
    if shape.row_per_program:
        return [
            f"    one program for all columns of each of {batch} rows, {shape.warps} warps each, independent of the"
            f" others; {WEIGHTS[shape.weights]}"
        ]
    return [
        f"    {shape.programs} programs of {shape.columns} columns for each of {shape.tiles(batch)} tiles of"
        f" {shape.rows} rows, {shape.warps} warps each; {WEIGHTS[shape.weights]}"
    ]


def _stages(schedule: Schedule, shape: Tiling) -> list[str]:
    lines, wait = [], "" if shape.row_per_program else "wait for the other programs' values, "
    for number, level in enumerate(schedule.levels, 1):
        for group in level:
            looped = [lane for lane in group.lanes if any(not is_x(a) for a in lane.args)]
            if looped:
                lines.append(f"    {number}. {wait}{len(looped)} products → {group.width} columns")
            fused = sum(node.is_elementwise for node in group.body if node not in group.loads)
            lines.append(f"    {number}. {fused} operations on each element of {group.width} columns")
    return lines
