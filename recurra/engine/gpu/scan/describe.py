"""The part of `rc.explain` that describes the kernels of a scan over time."""

import torch

from .codegen import PassSpec
from .run import GpuScan
from .shape import ScanShape
from .split import ScanSplit


def describe(made: GpuScan, steps: int, batch: int, device: torch.device, source: bool) -> list[str]:
    """Lines on the kernels for a batch; `source`: with their text."""
    lines, shape = [], made.shape(steps, batch, device)
    for backward, scan in made.parts.items():
        lines.append(f"  {'backward' if backward else 'forward'}: {_chunks(shape)}")
        lines.append(f"    by torch, for all steps before: {len(scan.inputs)} values that mix units")
        lines.append(f"    by kernels: {len(scan.stores)} values of each step, {shape.units} units a program")
        if shape.chunks > 1:
            lines.append(f"    the state before each chunk first: {2 * _groups(scan)} kernels that store no step")
        if source:
            specs = [(0, 0)]
            if shape.chunks > 1:
                specs += [(n, group) for n in range(1, scan.levels + 1) for group in range(len(scan.groups(n)))]
            for level, group in specs:
                spec = PassSpec(backward, False, made.trains, made.exact, shape.units, level, group)
                lines += ["", made.step_kernel(spec).text]
    if made.trains:
        lines.append(f"  after the scan: {len(made.plan.runs)} products over all steps, the gradients of the weights")
    return lines


def _groups(scan: ScanSplit) -> int:
    return sum(len(scan.groups(level)) for level in range(1, scan.levels + 1))


def _chunks(shape: ScanShape) -> str:
    if shape.chunks == 1:
        return "a scan in one chunk of time"
    return f"a scan in {shape.chunks} chunks of {shape.chunk} steps, all at once"
