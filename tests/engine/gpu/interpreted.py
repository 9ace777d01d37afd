"""The GPU's kernels in Triton's interpreter, for cells named on the command line: equal to the plain loop, or an error.

    TRITON_INTERPRET=1 python tests/engine/gpu/interpreted.py stepwise lstm gru Delays lstm:150 slstm/2:16 Random17 …

A program of its own, because the interpreter must be enabled before Triton is imported. The interpreter runs programs
one after another, so one program computes all columns of a persistent kernel, or those of one diagonal block
(`slstm/2:16` has two heads); the exchange between programs is tested on a card. Stepwise kernels have any number of
programs; a layer of 150 has two per row.
"""

import sys
import warnings

import torch
from engine import strange_cells
from engine.gpu import interpreted_matrix
from engine.random_cells import random_cell
from torch import Tensor

import recurra as rc
from recurra.cell import TIME, Cell
from recurra.engine import reference
from recurra.engine.executors import Request, _executor
from recurra.engine.found_draws import draw_ahead
from recurra.engine.gpu import select
from recurra.engine.gpu.matrix.runner import MatrixExecutor
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.gpu.scan_runner import ScanExecutor
from recurra.engine.gpu.stepwise import graphs
from recurra.engine.ir.lowering import Unsupported
from recurra.engine.plan.planner import Plan, plan
from recurra.engine.reference import Sequences
from recurra.engine.traced_step import trace_in_clean_context


def made(name: str, units: int) -> Cell:
    name, _, heads = name.partition("/")
    if heads:
        return rc.layer(name, 5, units, heads=int(heads)).cell_list[0]
    if name in rc.registry():
        return rc.layer(name, 5, units).cell_list[0]
    if name.startswith("Random"):
        return random_cell(int(name.removeprefix("Random"))).cell_class(5, units)
    return getattr(strange_cells, name)(5, units)


def planned(cell: Cell) -> Plan:
    """With every named value, unless one of them is a constant, which no compiled engine names, or reads numbers of a
    row in another order, which the kernels do not."""
    step = trace_in_clean_context(cell)
    try:
        found = plan(cell, step, train=True, needs_x=True, named=True)
    except Unsupported:
        found = None
    return found if found and not found.gathers else plan(cell, step, train=True, needs_x=True)


@torch.no_grad()
def without_gradients(cell: Cell, x: Tensor, states: list, masks: dict, lengths: Tensor | None) -> list[Tensor]:
    """The output and the final states, by kernels that keep nothing for a backward pass."""
    made = GpuExecutor(plan(cell, trace_in_clean_context(cell), train=False, needs_x=False), torch.float32)
    weights = [w.detach().float() for w in made.prologue(cell.weights())]
    return made.forward(x, states, [masks[n] for n in made.plan.masks], weights, lengths)


def check_rows_in_another_order(cell: Cell, ragged: bool, steps: int, batch: int) -> None:
    """A step that reads numbers of a row in another order: kernels of states that are matrices take it, or a scan over
    time, which is tested elsewhere, or kernels step by step, or none and the reason has a name."""
    request = Request(train=True, needs_x=True, named=False, dtype=torch.float32, device="cuda")
    made, reason = None, ""
    try:
        made = _executor(planned(cell), request, "")
    except Unsupported as error:
        reason = str(error)
    if made is None:
        assert "on the GPU" in reason
    elif isinstance(made, MatrixExecutor):
        interpreted_matrix.check(cell, ragged, resets=False)
    elif type(made) is GpuExecutor:
        if select.forced() == select.STEPWISE:  # the other modes are not for them
            check_loops(cell, ragged, steps, batch)
    else:
        assert isinstance(made, ScanExecutor)


def check(cell: Cell, ragged: bool, steps: int, batch: int) -> None:
    if planned(cell).gathers:
        check_rows_in_another_order(cell, ragged, steps, batch)
    else:
        check_loops(cell, ragged, steps, batch)


def check_loops(cell: Cell, ragged: bool, steps: int, batch: int) -> None:
    x = torch.randn(steps, batch, cell.input_size, requires_grad=True)
    states = [
        fresh if spec.name == TIME else (0.3 * torch.randn_like(fresh)).requires_grad_()
        for spec, fresh in zip(cell.carried, cell.initial_state(batch, x), strict=True)
    ]
    lengths = torch.tensor([steps - 1, 2, 1]).repeat(batch)[:batch] if ragged else None
    masks = draw_ahead(cell, steps, batch, x)
    expected = reference.scan(cell, Sequences(x, tuple(states), masks, lengths), keep_trace=True)
    made = GpuExecutor(planned(cell), torch.float32)
    hoisted = made.prologue(cell.weights())
    weights = [w.detach().float() for w in hoisted]
    given = [masks[n] for n in made.plan.masks], weights, lengths
    with torch.no_grad():
        y, *rest = made.forward(x, states, *given)
    count = len(states) + len(made.plan.named)
    finals, named, kept = rest[: len(states)], rest[len(states) : count], rest[count:]
    torch.testing.assert_close(without_gradients(cell, x, states, masks, lengths), [y, *finals], rtol=1e-6, atol=1e-6)
    assert expected.trace is not None
    rows = (expected.trace[name] for name in made.plan.named)
    pulled = [expected.y, *expected.state, *(v.flatten(2) if v.dim() > 3 else v for v in rows)]
    torch.testing.assert_close([y, *finals, *named], pulled, rtol=1e-5, atol=1e-5)

    cotangents = [torch.randn_like(v) if v.requires_grad else None for v in pulled]
    wanted = [x, *(s for s in states if s.requires_grad), *cell.parameters()]
    pairs = [(v, c) for v, c in zip(pulled, cotangents, strict=True) if c is not None]
    truth = torch.autograd.grad([v for v, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True)
    with torch.no_grad():
        found = made.backward(cotangents, x, states, *given, [y, *named, *kept], True)
        dx, dstates = found[0], found[1 : 1 + len(states)]
        dweights = made.gradients(found[1 + len(states) :], given[1])
    through = [(h, d) for h, d in zip(hoisted, dweights, strict=True) if h.requires_grad]
    of_parameters = torch.autograd.grad(
        [h for h, _ in through], list(cell.parameters()), [d for _, d in through], allow_unused=True
    )
    mine = [dx, *(d for d, s in zip(dstates, states, strict=True) if s.requires_grad), *of_parameters]
    for a, b in zip(mine, truth, strict=True):
        if b is not None:
            assert a is not None
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()) + 1e-6)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*encountered in.*")  # numpy warns of values that where() discards
    graphs.STEPS = 2  # so that five steps are windows of two, two and one
    mode, *cases = sys.argv[1:]
    for case in cases:
        name, _, units = case.partition(":")
        for ragged in (False, True):
            torch.manual_seed(0)
            print(case, "ragged" if ragged else "", flush=True)
            with select.only(mode):
                check(made(name, int(units or 6)), ragged, steps=5, batch=35 if units else 3)
