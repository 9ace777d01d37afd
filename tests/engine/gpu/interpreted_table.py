"""The operation table in the GPU's kernels, in Triton's interpreter: values and gradients equal torch's, or an error.

    TRITON_INTERPRET=1 python tests/engine/gpu/interpreted_table.py stepwise

A program of its own, because the interpreter must be enabled before Triton is imported.
"""

import sys
import warnings

import torch
from engine.operation_table import UNSIGNED_ON_A_GPU, TableCell, cases, cotangent, differences

from recurra.engine.gpu import select
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.plan.planner import plan
from recurra.engine.traced_step import trace_in_clean_context

LEFT_OUT = ("addcmul",)  # -inf + 1e30 · 1e30: its fused multiply-add does not overflow; the interpreter has none


@torch.no_grad()
def check(cell: TableCell) -> list[str]:
    x = cell.values(torch.float32)
    state = [x.new_zeros(x.shape[1], 1)]
    made = GpuExecutor(plan(cell, trace_in_clean_context(cell), train=True, needs_x=True), torch.float32)
    given = [], [w.detach() for w in made.prologue(cell.weights())], None
    y, _, *kept = made.forward(x, state, *given)
    dy = cotangent(y)
    dx = made.backward([dy, torch.zeros_like(state[0])], x, state, *given, [y, *kept], True)[0]
    assert dx is not None
    return differences(cell, x, y, dy, dx, UNSIGNED_ON_A_GPU)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*encountered in.*")  # numpy warns of values that where() discards
    failed = []
    with select.only(sys.argv[1]):
        chosen = [case for case in cases() if case.name not in LEFT_OUT]
        for first in range(0, len(chosen), 24):
            failed += check(TableCell(chosen[first : first + 24]))
    print("\n".join(failed))
    sys.exit(bool(failed))
