"""How a kernel is called for one layout: who shares the work, and where its buffers lie. Worked out once, used at every
call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..ir.buffers import D_X, D_Y, BufferKind, BufferRef, Role, X, Y
from ..plan.program import Plan
from .arena import Shelf
from .kernel import Binding, Kernel
from .layout import Layout, Table, dense
from .packing import Split

Shapes = dict[BufferRef, tuple[int, int]]  # buffer → (rows, width)


@dataclass(frozen=True)
class Way:
    kernel: Kernel
    split: Split
    binding: Binding
    shelf: Shelf  # what only this call uses
    widths: dict[BufferRef, int]  # of what is given out
    ahead: "Way | None" = None  # of a kernel that runs before, over the rows of all steps at once


def forward_way(
    plan: Plan, kernel: Kernel, layout: Layout, whole: Callable[[str], bool], ahead: Kernel | None = None
) -> Way:
    """`whole`: whether all values of a state are kept, or only its last."""
    time, still = layout.table(Layout.by_step), layout.table(Layout.by_sequence)
    tables = {X: time} | _mask_tables(plan, time, still)
    shapes: Shapes = {}
    for state in plan.states:
        buffer, rule = BufferRef.state(state.name), Layout.history if whole(state.name) else Layout.ring
        tables[buffer] = layout.table(rule, state.depth, state.depth)
        if rule is Layout.ring:
            shapes[buffer] = ((state.depth + 1) * layout.rows, state.size)
    outputs = (plan.output, *plan.named.values())
    _place_rest(kernel, layout, tables, shapes, (*outputs, *plan.kept), time, still)
    widths = {buffer: plan.forward.buffers[buffer].width for buffer in outputs}
    split, shelf = kernel.split(layout, layout.rows), Shelf(shapes, kernel.dtype)
    first = None if ahead is None else _way_ahead(ahead, dense(1, layout.total), split)
    return Way(kernel, split, Binding(kernel, tables), shelf, widths, first)


def _way_ahead(kernel: Kernel, layout: Layout, split: Split) -> Way:
    """`split`: of the loop. Threads that share the units there do so here: each makes what it will read."""
    binding = Binding(kernel, dict.fromkeys(kernel.schedule.buffers, layout.table(Layout.by_step)))
    own = Split(split.threads, True) if split.by_unit else kernel.split(layout, layout.rows)
    return Way(kernel, own, binding, Shelf({}, kernel.dtype), {})


def _mask_tables(plan: Plan, time: Table, still: Table) -> dict[BufferRef, Table]:
    return {BufferRef.mask(name): time if each == "step" else still for name, each in plan.masks.items()}


def backward_way(plan: Plan, kernel: Kernel, layout: Layout, missing: Sequence[BufferRef]) -> Way:
    """`missing`: cotangents that are not there, and so are zero."""
    program, reach = plan.backward, kernel.reach
    assert program is not None
    time, still = layout.table(Layout.by_step_backward, 0, reach), layout.table(Layout.by_sequence, 0, reach)
    named = [*plan.named.values(), *map(BufferRef.d_named, plan.named)]
    tables = dict.fromkeys((X, Y, D_Y, *plan.kept, *named), time) | _mask_tables(plan, time, still)
    tables |= {BufferRef.d_final(s.name): time if s.delays else still for s in plan.states}
    for buffer in program.buffers:
        if buffer.role is Role.PAST:
            tables[buffer] = layout.table(Layout.history_backward, buffer.lag, reach)
    shapes: Shapes = {}
    for carry in plan.carries:
        tables[carry] = layout.table(Layout.carry_backward, carry.lag, reach)
        shapes[carry] = ((carry.lag + 1) * layout.rows, program.buffers[carry].width)
    _place_rest(kernel, layout, tables, shapes, (D_X,), time, still)
    zeros = {buffer: torch.zeros(1, program.buffers[buffer].width, dtype=kernel.dtype) for buffer in missing}
    tables |= dict.fromkeys(zeros, still)
    widths = {D_X: kernel.schedule.buffers[D_X].width} if D_X in kernel.schedule.buffers else {}
    split = kernel.split(layout, layout.rows)
    return Way(kernel, split, Binding(kernel, tables, zeros), Shelf(shapes, kernel.dtype), widths)


def _place_rest(
    kernel: Kernel,
    layout: Layout,
    tables: dict[BufferRef, Table],
    shapes: Shapes,
    elsewhere: tuple[BufferRef, ...],
    time: Table,
    still: Table,
) -> None:
    """What the kernel reads and writes and nobody else does lies on its shelf, unless it lies `elsewhere`."""
    for buffer, spec in kernel.schedule.buffers.items():
        if buffer not in tables:
            scratch = spec.kind is BufferKind.SCRATCH
            tables[buffer] = still if scratch else time
            if buffer not in elsewhere:
                shapes[buffer] = (layout.rows if scratch else layout.total, spec.width)
