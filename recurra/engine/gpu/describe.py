"""What a kernel on the card does, for a person to read."""

import torch

from ..schedule import Schedule
from .run import OnGpu
from .tiling import Tiling, is_x

PLACES = {
    "registers": "its weights stay in registers",
    "shared": "its weights stay in shared memory",
    "memory": "its weights come from memory at each step: they are too many for the chip",
}


def described(made: OnGpu, batch: int, device: torch.device, source: bool) -> list[str]:
    lines = ["  before the loop: one product of x with the weights of all gates, for all steps"]
    for backward, chosen in _programs(made):
        shape = made.tiling(backward, batch, device)
        assert shape is not None
        lines += [f"  {'backward' if backward else 'forward'}, one kernel for all steps:", *_shape(shape, batch)]
        lines += _stages(chosen)
        if source:
            lines += ["", made.loop(backward, batch, False, device).rendered.text]
    if made.trains:
        lines.append(f"  after the loop: {len(made.runs)} products over all steps, the gradients of the weights")
    return lines


def _programs(made: OnGpu) -> list[tuple[bool, Schedule]]:
    return [(False, made.forward_schedule), *([(True, made.backward_schedule)] if made.trains else [])]


def _shape(shape: Tiling, batch: int) -> list[str]:
    return [
        f"    {shape.programs} programs of {shape.columns} columns for each of {shape.tiles(batch)} tiles of"
        f" {shape.rows} rows, {shape.warps} warps each; {PLACES[shape.weights]}"
    ]


def _stages(schedule: Schedule) -> list[str]:
    lines = []
    for number, level in enumerate(schedule.levels, 1):
        for group in level:
            looped = [lane for lane in group.lanes if any(not is_x(a) for a in lane.args)]
            if looped:
                lines.append(
                    f"    {number}. wait for what the others wrote, {len(looped)} products → {group.width} columns"
                )
            fused = sum(node.is_elementwise for node in group.body if node not in group.loads)
            lines.append(f"    {number}. {fused} operations on each number of {group.width} columns")
    return lines
