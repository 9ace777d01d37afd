"""The GPU's kernels in Triton's interpreter on the CPU: forward and backward equal the plain loop.

One program computes all columns here, for the interpreter runs programs one after another; that programs find each
other is tested on a card (tests/gpu).
"""

import os
from collections.abc import Iterator

import pytest
import torch
from engine.strange_cells import STRANGE
from torch import Tensor

import recurra as rc
from recurra.cell import TIME, Cell
from recurra.engine import reference
from recurra.engine.gpu.elementary import EXPRESSIONS
from recurra.engine.gpu.run import OnGpu
from recurra.engine.nodes import TABLE
from recurra.engine.plan import plan
from recurra.engine.reference import Sequences
from recurra.engine.traced import _trace_apart

QUICK = ["lstm", "gru", "delay_rnn", "scrn", "indrnn"]
REST = [n for n in sorted(rc.registry()) if n not in (*QUICK, "unitary_rnn")]


class Competing(Cell):
    """Units that share one of a row between them: its largest, a sum over it."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b = self.affine("x", "h"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return h + torch.softmax(self.a(x, h), -1) * torch.tanh(self.b(x, h))


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    os.environ["TRITON_INTERPRET"] = "1"
    yield
    del os.environ["TRITON_INTERPRET"]


def test_every_operation_of_the_table_can_be_written():
    assert set(EXPRESSIONS) | {"pow", "clamp"} == set(TABLE)


def check(cell: Cell, ragged: bool, steps: int = 4, batch: int = 3) -> None:
    x = torch.randn(steps, batch, cell.input_size, requires_grad=True)
    states = [
        fresh if spec.name == TIME else (0.3 * torch.randn_like(fresh)).requires_grad_()
        for spec, fresh in zip(cell.carried, cell.initial_state(batch, x), strict=True)
    ]
    lengths = torch.tensor([steps, 2, 1]) if ragged else None
    masks = cell.draw_masks(steps, batch, x)
    expected = reference.scan(cell, Sequences(x, tuple(states), masks, lengths))
    made = OnGpu(plan(cell, _trace_apart(cell), train=True, needs_x=True), torch.float32)
    hoisted = made.prologue(cell.weights())
    given = [masks[n] for n in made.plan.masks], [w.detach() for w in hoisted], lengths
    with torch.no_grad():
        y, *rest = made.forward(x, states, *given)
    finals, kept = rest[: len(states)], rest[len(states) :]
    torch.testing.assert_close(y, expected.y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(finals, list(expected.state), rtol=1e-5, atol=1e-5)

    pulled = [expected.y, *(s for s in expected.state if s.requires_grad)]
    cotangents = [torch.randn_like(v) for v in pulled]
    wanted = [x, *(s for s in states if s.requires_grad), *cell.parameters()]
    truth = torch.autograd.grad(pulled, wanted, cotangents, allow_unused=True)
    of_states = iter(cotangents[1:])
    dfinals = [next(of_states) if s.requires_grad else None for s in expected.state]
    with torch.no_grad():
        found = made.backward((cotangents[0], dfinals, []), x, states, *given, (y, [], kept), True)
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


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # numpy's word for what where() drops
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", QUICK)
def test_cells(name: str, ragged: bool):
    torch.manual_seed(0)
    check(rc.layer(name, 5, 6).sheets[0], ragged)


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("ragged", [False, True])
def test_row_maxima(ragged: bool):
    torch.manual_seed(0)
    check(Competing(5, 6), ragged)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("case", [*REST, *STRANGE])
def test_every_other_cell(case: str | type[Cell], ragged: bool):
    torch.manual_seed(0)
    check(case(5, 6) if isinstance(case, type) else rc.layer(case, 5, 6).sheets[0], ragged)
