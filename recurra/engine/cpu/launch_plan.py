"""Launch plans: how a kernel is called for one layout. Threads, row tables and memory, computed once per layout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..ir.buffers import D_X, D_Y, BufferKind, BufferRef, Role, X, Y
from ..plan.program import Plan
from .arena import Arena
from .kernel import CACHE, Binding, Kernel, threads_here
from .layout import Layout, Table, chunked, dense
from .packing import Split

ROWS_PER_THREAD = 32  # of independent rows, at least: to read a weight for fewer takes longer than to multiply by it
Shapes = dict[BufferRef, tuple[int, int]]  # buffer → (rows, width)


@dataclass(frozen=True)
class LaunchPlan:
    kernel: Kernel
    layout: Layout
    split: Split
    binding: Binding
    arena: Arena  # buffers that only this call uses
    widths: dict[BufferRef, int]  # of the results, which are tensors of their own
    ahead: "LaunchPlan | None" = None  # of what is computed for all steps before the loop
    after: "LaunchPlan | None" = None  # and after it
    rings: frozenset[BufferRef] = frozenset()  # states of which only the last steps stay in memory


def plan_forward(
    plan: Plan,
    kernel: Kernel,
    layout: Layout,
    keeps_history: Callable[[str], bool],
    ahead: Kernel | None = None,
    after: Kernel | None = None,
) -> LaunchPlan:
    """`keeps_history`: whether all values of a state stay in memory, or its last ones only. What comes `after` the
    loop reads all of them."""
    by_step, by_sequence = layout.table(Layout.by_step), layout.table(Layout.by_sequence)
    tables = {X: by_step} | _mask_tables(plan, by_step, by_sequence)
    shapes: Shapes = {}
    for state in plan.states:
        buffer, is_kept = BufferRef.state(state.name), keeps_history(state.name)
        rule = Layout.history if is_kept or after is not None else Layout.ring
        tables[buffer] = layout.table(rule, state.depth, state.depth)
        if not is_kept:
            rows = (state.depth + 1) * layout.rows if rule is Layout.ring else layout.total
            shapes[buffer] = rows, state.size
    results = (plan.output, *plan.named.values())
    _place_rest(kernel, layout, tables, shapes, (*results, *plan.kept), by_step, by_sequence)
    widths = {buffer: plan.forward.buffers[buffer].width for buffer in results}
    split, arena = kernel.split(layout, layout.rows), Arena(shapes, kernel.dtype)
    first = None if ahead is None else plan_rows(ahead, layout.total, split)
    last = None if after is None else plan_rows(after, layout.total)
    rings = frozenset() if after is not None else frozenset(map(BufferRef.state, (s.name for s in plan.states)))
    return LaunchPlan(kernel, layout, split, Binding(kernel, tables), arena, widths, first, last, rings & {*shapes})


def plan_rows(kernel: Kernel, total: int, loop_split: Split | None = None) -> LaunchPlan:
    """How a program over rows that do not depend on each other is called. Threads that share the units of the loop
    share them here too: each makes the products that it will read."""
    if loop_split is not None and loop_split.by_unit:
        layout = dense(1, total)
        split = Split(loop_split.threads, True)
    else:
        layout = chunked(total, _rows_in_cache(kernel, total))
        split = kernel.split(layout, layout.rows)
    by_step, by_sequence = layout.table(Layout.by_step), layout.table(Layout.by_sequence)
    buffers = kernel.schedule.buffers.items()
    scratch = {buffer: (layout.rows, spec.width) for buffer, spec in buffers if spec.kind is BufferKind.SCRATCH}
    tables = {buffer: by_sequence if buffer in scratch else by_step for buffer, _ in buffers}
    return LaunchPlan(kernel, layout, split, Binding(kernel, tables), Arena(scratch, kernel.dtype), {})


def _rows_in_cache(kernel: Kernel, total: int) -> int:
    """Rows that stay in the caches of all threads while tile after tile reads them. Weights that exceed the cache are
    read once for all rows instead."""
    if kernel.weight_bytes > CACHE:
        return total
    numbers = sum(kernel.schedule.buffers[buffer].width for buffer in kernel.tables.buffers)
    return min(total, threads_here() * max(ROWS_PER_THREAD, CACHE // 2 // (numbers * kernel.dtype.itemsize)))


def plan_backward(plan: Plan, kernel: Kernel, layout: Layout, missing: Sequence[BufferRef]) -> LaunchPlan:
    """`missing`: cotangents that are None, and read as zeros."""
    program, reach = plan.backward, kernel.reach
    assert program is not None
    by_step, by_sequence = layout.table(Layout.by_step_backward, 0, reach), layout.table(Layout.by_sequence, 0, reach)
    named = [*plan.named.values(), *map(BufferRef.d_named, plan.named)]
    tables = dict.fromkeys((X, Y, D_Y, *plan.kept, *named), by_step) | _mask_tables(plan, by_step, by_sequence)
    tables |= {BufferRef.d_final(s.name): by_step if s.delays else by_sequence for s in plan.states}
    for buffer in program.buffers:
        if buffer.role is Role.PAST:
            tables[buffer] = layout.table(Layout.history_backward, buffer.lag, reach)
    shapes: Shapes = {}
    for carry in plan.carries:
        tables[carry] = layout.table(Layout.carry_backward, carry.lag, reach)
        shapes[carry] = ((carry.lag + 1) * layout.rows, program.buffers[carry].width)
    _place_rest(kernel, layout, tables, shapes, (D_X,), by_step, by_sequence)
    zeros = {buffer: torch.zeros(1, program.buffers[buffer].width, dtype=kernel.dtype) for buffer in missing}
    tables |= dict.fromkeys(zeros, by_sequence)
    widths = {D_X: kernel.schedule.buffers[D_X].width} if D_X in kernel.schedule.buffers else {}
    split = kernel.split(layout, layout.rows)
    return LaunchPlan(kernel, layout, split, Binding(kernel, tables, zeros), Arena(shapes, kernel.dtype), widths)


def _mask_tables(plan: Plan, by_step: Table, by_sequence: Table) -> dict[BufferRef, Table]:
    return {BufferRef.mask(name): by_step if each == "step" else by_sequence for name, each in plan.masks.items()}


def _place_rest(
    kernel: Kernel,
    layout: Layout,
    tables: dict[BufferRef, Table],
    shapes: Shapes,
    elsewhere: tuple[BufferRef, ...],
    by_step: Table,
    by_sequence: Table,
) -> None:
    """Tables for the kernel's other buffers, and places in its arena, except for those that lie `elsewhere`."""
    for buffer, spec in kernel.schedule.buffers.items():
        if buffer not in tables:
            scratch = spec.kind is BufferKind.SCRATCH
            tables[buffer] = by_sequence if scratch else by_step
            if buffer not in elsewhere:
                shapes[buffer] = (layout.rows if scratch else layout.total, spec.width)
