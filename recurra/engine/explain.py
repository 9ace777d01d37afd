"""`rc.explain(layer, x)`: the plan of a layer as text: backend, stages, buffers, generated code."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..errors import InputError, ShapeError
from ..extensions import implementation
from .cpu.executor import CpuExecutor
from .cpu.kernel import Kernel
from .cpu.layout import Layout, dense
from .dispatch import Choice, Sequences, choose
from .found_draws import draw_ahead
from .gpu.describe import describe
from .gpu.matrix.describe import describe as describe_matrices
from .gpu.matrix.runner import MatrixExecutor
from .gpu.runner import GpuExecutor
from .gpu.scan.describe import describe as describe_scan
from .ir.buffers import Role, X
from .ir.nodes import Node
from .plan.affine import describe_scans
from .traced_step import keep_random_state


def explain(layer: Any, x: Tensor | None = None, source: bool = False) -> str:
    """What the engine does with a layer and an input, as text for a person to read.

    **Arguments**

    - `layer`: a layer, a cell, or any module that contains cells; or an online learner (`rc.train.RTRL`, …) without
      `x`, for the structure of the derivatives that it carries, and the memory and work of a step.
    - `x`: an input as the layer takes it, `(T, B, D)`, `(B, T, D)` with batch_first, or `(T, D)`; values are read only
      for `parallel="newton"`, to compute Lyapunov exponents.
    - `source`: whether to append the generated code, C++ on a CPU and Triton on a GPU.

    **Returns**

    The text. For each cell it names the backend and the reason, the states that are affine in themselves and the term
    that makes others need a loop, the stages of a step forward and backward, what is kept for the backward pass, and
    what runs after the loop. With `parallel="newton"`, the largest Lyapunov exponent: a positive one forbids it.

    **Example**

        >>> import torch
        >>> import recurra as rc
        >>> with rc.set_backend("reference"):
        ...     print(rc.explain(rc.LSTM(3, 4), torch.zeros(5, 2, 3)))
        LSTM: 3 → 4
          backend: reference (set_backend('reference') is in force)
    """
    if x is None and not isinstance(layer, nn.Module) and hasattr(layer, "explain"):
        return layer.explain()
    cells = [part for part in layer.modules() if isinstance(part, Cell)] if isinstance(layer, nn.Module) else []
    if not cells:
        raise InputError("layer", repr(layer), "a layer, a cell, or a module that contains cells")
    if not isinstance(x, Tensor) or x.dim() not in (2, 3):
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else repr(x)
        raise ShapeError("x", got, "a tensor (T, B, D) or (T, D), as the layer takes it")
    batched = x if x.dim() == 3 else x.unsqueeze(1)
    if x.dim() == 3 and getattr(layer, "batch_first", False):
        batched = x.transpose(0, 1)
    texts = []
    for number, cell in enumerate(cells):
        title = type(cell).__name__ if len(cells) == 1 else f"{type(cell).__name__} (sheet {number})"
        texts.append(f"{title}: {cell.input_size} → {cell.hidden_size}\n{_cell(cell, batched, source)}")
    if any(cell.parallel == "newton" for cell in cells):
        texts.append(_growth(layer, batched.transpose(0, 1) if getattr(layer, "batch_first", False) else batched))
    return "\n\n".join(texts)


def _growth(layer: nn.Module, x: Tensor) -> str:
    """Whether Newton iterations can converge: not where the states of close orbits part, on this input."""
    if min(x.shape[:2]) < 1 or not x.isfinite().all():
        return "newton: x has no finite values from which to compute Lyapunov exponents"
    found = implementation("lyapunov")(layer, x, count=1).exponents
    lines = []
    for name, exponents in found.items():
        largest = float(exponents[0])
        verdict = "the iterations can converge"
        if largest > 0:
            verdict = "positive, so differences grow, the iterations cannot converge, and the loop will run"
        lines.append(f"newton, {name}: largest Lyapunov exponent {largest:+.4f} a step on this x; {verdict}")
    return "\n".join(lines)


def _cell(cell: Cell, x: Tensor, source: bool) -> str:
    steps, batch = x.shape[:2]
    given = x.new_empty(steps, batch, cell.input_size).requires_grad_(x.requires_grad)
    with keep_random_state():
        masks = draw_ahead(cell, steps, batch, given)
    choice = choose(cell, Sequences(given, cell.initial_state(batch, given), masks))
    lines = [f"  backend: {choice.backend} ({choice.why})"]
    if choice.executor is not None:
        lines += describe_scans(choice.executor.plan)
    if isinstance(choice.executor, GpuExecutor):
        lines += _on_gpu(choice.executor, steps, batch, x.device, source)
    elif isinstance(choice.executor, MatrixExecutor):
        lines += describe_matrices(choice.executor, source)
    elif choice.executor is not None:
        lines += _planned(choice.executor, choice, dense(steps, batch), source)
    return "\n".join(lines)


def _on_gpu(made: GpuExecutor, steps: int, batch: int, device: torch.device, source: bool) -> list[str]:
    if made.scan is not None and made.scans(steps):
        return describe_scan(made.scan, steps, batch, device, source)
    refused = [f"  no scan over time: the GPU's kernels do not take {made.why_no_scan}"] if made.why_no_scan else []
    return [*refused, *describe(made, batch, device, source)]


def _planned(made: CpuExecutor, choice: Choice, layout: Layout, source: bool) -> list[str]:
    plan = made.plan
    derived = made.plan.derived_weights
    lines = [f"  dtype: {str(made.dtype).removeprefix('torch.')}"]
    if derived:
        lines.append(f"  before the loop, by torch: {len(derived)} values computed from weights alone")
    if choice.backend != "compiled":
        return [*lines, "  each step: the planned operations, one by one, by torch"]
    ahead, loop, last = made.forward_kernels(layout)
    if ahead is not None:
        lines += ["  forward, for all steps before the loop:", *_stages(ahead)]
    lines += ["  forward, at each step:", *_stages(loop)]
    if last is not None:
        lines += ["  forward, for all steps after the loop:", *_stages(last)]
    if made.trains:
        kept = [plan.forward.buffers[name].width for name in plan.kept]
        states = [s.name for s in plan.states]
        lines.append(
            f"  kept for backward: the history of {', '.join(states)}"
            + (f", and {len(kept)} value{'s' * (len(kept) > 1)} a step ({sum(kept)} numbers a row)" if kept else "")
        )
        lines += ["  backward, at each step from the last:", *_stages(made.backward_kernel)]
        lines += ["  after the loop:", *_after(made)]
    if source:
        lines += ["", "  // forward", loop.rendered.body]
        lines += ["", "  // backward", made.backward_kernel.rendered.body] if made.trains else []
    return lines


def _stages(kernel: Kernel) -> list[str]:
    lines = []
    for number, level in enumerate(kernel.schedule.levels, 1):
        for group in level:
            for operands, lanes in group.classes():
                read = " and ".join(_read(operand) for operand in operands)
                lines.append(f"    {number}. one product: {read} → {len(lanes)} × {group.width}")
            work = Counter(n.op for n in group.body if n.is_elementwise and n not in group.loads)
            fused = ", ".join(f"{count} {op}" if count > 1 else op for op, count in sorted(work.items()))
            written = [out.buffer for out in group.stores]
            written += [kernel.schedule.stored[node].attr.buffer for node in group.reductions]
            stored = sorted({buffer.label for buffer in written})
            extra = f", {len(group.rowsums)} row sums" if group.rowsums else ""
            loop = f"one fused loop over {group.width} units"
            if group.axes:
                loop = f"one pass over {' × '.join(map(str, group.axes))} numbers"
                sums = len(group.reductions)
                extra = f", {sums} sum{'s' * (sums > 1)} over rows or columns" if sums else ""
            lines.append(f"    {number}. {loop}{extra}: {fused or 'nothing but copies'}")
            lines.append(f"       stores {', '.join(stored)}" if stored else "       stores nothing")
            if group.sums:
                sums = len(group.sums)
                lines.append(f"       sums {sums} gradient{'s of vectors' if sums > 1 else ' of a vector'} as it goes")
    return lines


def _read(operand: Node) -> str:
    if operand.op != "load":
        return f"a value of this step ({operand.width})"
    load = operand.attr
    is_delta = load.buffer.role is Role.DELTA
    name = "δ" if is_delta else load.buffer.label
    lag = load.lag or load.buffer.lag
    return f"{name}[t {'+' if is_delta else '-'} {lag}]" if lag else f"{name}[t]"


def _after(made: CpuExecutor) -> list[str]:
    lines = []
    for run in made.runs:
        width, deep = sum(p.delta.width for p in run), run[0].matrix.deep
        matrices = f"{len(run)} matrices" if len(run) > 1 else "1 matrix"
        lines.append(f"    one product over all steps: {width} × {deep} gradients of {matrices}")
    if made.plan.needs_x and any(p.operand.buffer == X for p in made.plan.products):
        lines.append("    one product over all steps: the gradient of x")
    return lines or ["    nothing"]
