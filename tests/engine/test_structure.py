"""Structural operations of a row: the plan of each agrees with the plain loop, and all of them run compiled."""

import pytest
import torch
from engine.compare import compare, sequences
from engine.evaluated import evaluate
from engine.structural_operations import STRUCTURAL, UNITS, Structured

from recurra.engine import reference
from recurra.engine.backend import set_backend

EACH = [(kind, name) for kind, table in STRUCTURAL.items() for name in table]


@pytest.mark.parametrize(("kind", "name"), EACH, ids=[name for _, name in EACH])
def test_the_plan_is_what_the_plain_loop_computes(kind: str, name: str):
    torch.manual_seed(1)
    cell = Structured(5, UNITS, [STRUCTURAL[kind][name]]).double()
    given = sequences(cell, 4, 3, torch.float64)
    expected = reference.scan(cell, given)
    dy, dfinals = torch.randn_like(expected.y), [torch.randn_like(v) for v in expected.state]
    wanted = [given.x, *given.state, *cell.parameters()]
    truth = torch.autograd.grad([expected.y, *expected.state], wanted, [dy, *dfinals], allow_unused=True)
    found = evaluate(cell, given, dy, dfinals)
    torch.testing.assert_close([found.y, *found.state], [expected.y, *expected.state], rtol=1e-12, atol=1e-13)
    for ours, theirs, like in zip(found.gradients, truth, wanted, strict=True):
        zeros = torch.zeros_like(like)
        pair = [zeros if gradient is None else gradient for gradient in (ours, theirs)]
        torch.testing.assert_close(*pair, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", STRUCTURAL)
def test_they_run_compiled(kind: str):
    torch.manual_seed(2)
    cell = Structured(5, UNITS, list(STRUCTURAL[kind].values())).double()
    given = sequences(cell, 5, 4, torch.float64, lengths=torch.tensor([5, 2, 4, 5]))
    with set_backend("compiled"):
        found = compare(cell, given)
    assert found.backend == "compiled"
    assert found.values < 1e-12
    assert found.gradients < 1e-10
