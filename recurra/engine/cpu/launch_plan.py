"""How a kernel is called for one layout: who shares the work, and where its buffers lie. Worked out once, used at every
call."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..plan.planner import Plan
from ..plan.program import D_OUTPUT, D_X
from ..trace import OUTPUT
from .arena import Shelf
from .kernel import Binding, Kernel
from .layout import Layout, Table, dense
from .packing import Split

Shapes = dict[str, tuple[int, int]]  # buffer → (rows, width)


@dataclass(frozen=True)
class Way:
    kernel: Kernel
    split: Split
    binding: Binding
    shelf: Shelf  # what only this call uses
    widths: dict[str, int]  # of what is given out
    ahead: "Way | None" = None  # of a kernel that runs before, over the rows of all steps at once


def forward_way(
    plan: Plan, kernel: Kernel, layout: Layout, whole: Callable[[str], bool], ahead: Kernel | None = None
) -> Way:
    """`whole`: whether all values of a state are kept, or only its last."""
    time, still = layout.table("time"), layout.table("still")
    tables = {"x": time} | {name: time if each == "step" else still for name, each in plan.masks.items()}
    shapes: Shapes = {}
    for state in plan.states:
        kind = "history" if whole(state.name) else "ring"
        tables[state.name] = layout.table(kind, state.depth, state.depth)
        if kind == "ring":
            shapes[state.name] = ((state.depth + 1) * layout.rows, state.size)
    outputs = (plan.output, *plan.named.values())
    _place_rest(kernel, layout, tables, shapes, (*outputs, *plan.kept), time, still)
    widths = {name: plan.forward.buffers[name].width for name in outputs}
    split, shelf = kernel.split(layout, layout.rows), Shelf(shapes, kernel.dtype)
    first = None if ahead is None else _way_ahead(ahead, dense(1, layout.total), split)
    return Way(kernel, split, Binding(kernel, tables), shelf, widths, first)


def _way_ahead(kernel: Kernel, layout: Layout, split: Split) -> Way:
    """`split`: of the loop. Threads that share the units there do so here: each makes what it will read."""
    binding = Binding(kernel, dict.fromkeys(kernel.schedule.buffers, layout.table("time")))
    own = Split(split.threads, True) if split.by_unit else kernel.split(layout, layout.rows)
    return Way(kernel, own, binding, Shelf({}, kernel.dtype), {})


def backward_way(plan: Plan, kernel: Kernel, layout: Layout, missing: tuple[str, ...]) -> Way:
    """`missing`: cotangents that are not there, and so are zero."""
    program, reach = plan.backward, kernel.reach
    assert program is not None
    time, still = layout.table("time_back", 0, reach), layout.table("still", 0, reach)
    named = [*plan.named.values(), *(f"d{name}" for name in plan.named.values())]
    tables = dict.fromkeys(("x", OUTPUT, D_OUTPUT, *plan.kept, *named), time)
    tables |= {name: time if each == "step" else still for name, each in plan.masks.items()}
    tables |= {f"dfinal:{s.name}": time if s.delays else still for s in plan.states}
    tables |= {
        name: layout.table("history_back", buffer.lag, reach)
        for name, buffer in program.buffers.items()
        if buffer.source
    }
    shapes: Shapes = {}
    sizes = {state.name: state.size for state in plan.states}
    for (state, lag), name in plan.carries.items():
        tables[name] = layout.table("carry_back", lag, reach)
        shapes[name] = ((lag + 1) * layout.rows, sizes[state])
    _place_rest(kernel, layout, tables, shapes, (D_X,), time, still)
    zeros = {name: torch.zeros(1, program.buffers[name].width, dtype=kernel.dtype) for name in missing}
    tables |= dict.fromkeys(zeros, still)
    widths = {D_X: kernel.schedule.buffers[D_X].width} if D_X in kernel.schedule.buffers else {}
    split = kernel.split(layout, layout.rows)
    return Way(kernel, split, Binding(kernel, tables, zeros), Shelf(shapes, kernel.dtype), widths)


def _place_rest(
    kernel: Kernel,
    layout: Layout,
    tables: dict[str, Table],
    shapes: Shapes,
    elsewhere: tuple[str, ...],
    time: Table,
    still: Table,
) -> None:
    """What the kernel reads and writes and nobody else does lies on its shelf, unless it lies `elsewhere`."""
    for name, buffer in kernel.schedule.buffers.items():
        if name not in tables:
            scratch = buffer.kind == "scratch"
            tables[name] = still if scratch else time
            if name not in elsewhere:
                shapes[name] = (layout.rows if scratch else layout.total, buffer.width)
