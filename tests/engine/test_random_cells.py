"""Random cells in random layers: the engines agree with the plain loop, or report why they do not run.

Whatever fails prints the cell; `python tests/engine/random_cases.py --seeds 17` runs one again.
"""

import random
import re

import pytest
import torch
from engine import random_cases
from engine.compare import sequences
from engine.evaluated import evaluate
from engine.random_cases import Case, Outcome, apart, run
from engine.random_cells import RandomCell, random_cell

import recurra as rc
from recurra.engine import reference
from recurra.engine.backend import backend
from recurra.engine.ir import nodes
from recurra.engine.ir.nodes import Rule
from recurra.engine.ir.values import Unsupported

EXACT = 1e-9


def check_compiled(seed: int, count: int) -> None:
    outcome = Outcome()
    run(seed, count, "cpu", outcome)
    assert not outcome.failures, str(outcome.failures[0])


@pytest.mark.parametrize("seed", range(1, 19))
def test_compiled(seed: int):
    check_compiled(seed, 2)


def test_a_wrong_gradient_in_float32_is_no_rounding(monkeypatch: pytest.MonkeyPatch):
    def called(layer: rc.Recurrent, case: Case, asked: random_cases.Given) -> tuple[dict, dict]:
        values, gradients = correct(layer, case, asked)
        if backend() == "compiled":
            gradients = {name: 1.01 * gradient for name, gradient in gradients.items()}
        return values, gradients

    correct = random_cases.called
    monkeypatch.setattr(random_cases, "called", called)
    wrong, _ = random_cases.check(random_cell(1), Case(D=3, H=4, T=3, B=5, dtype=torch.float32))
    assert "d cells.0.b11: 1.0e-02" in wrong


@pytest.mark.slow
def test_a_row_of_equal_numbers_normalised_in_float32():
    check_compiled(430000937, 2)  # torch's gradient is what rounding left of zero, times 1 / sqrt(eps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_more_of_them_compiled(seed: int):
    check_compiled(seed, 4)


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_programs_as_scheduled(first: int):
    check_programs(range(first, first + 30))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1600, 100))
def test_more_programs_as_scheduled(first: int):
    check_programs(range(first, first + 100))


def check_programs(seeds: range) -> None:
    taken = 0
    for seed in seeds:
        cell = random_cell(seed)
        try:
            far = programs_apart(cell)
        except Unsupported:
            continue
        taken += 1
        wrong = {name: v for name, v in far.items() if not v <= max(EXACT, cell.tolerance)}
        assert not wrong, f"random cell {seed}: {wrong}\n\n{cell.source}"
    assert taken > 0.7 * len(seeds)


def programs_apart(cell: RandomCell) -> dict[str, float]:
    """How far forward and backward programs are from the plain loop, evaluated by torch."""
    torch.manual_seed(cell.seed)
    rng = random.Random(cell.seed)
    made = cell.cell_class(rng.choice([1, 2, 3, 5, 7]), rng.choice([4, 5, 7, 9])).double()
    if not list(made.parameters()):
        return {}
    given = sequences(made, rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 3]), torch.float64)
    expected = reference.scan(made, given)
    dy, dfinals = torch.randn_like(expected.y), [torch.randn_like(v) for v in expected.state]
    pairs = [(v, d) for v, d in zip((expected.y, *expected.state), (dy, *dfinals), strict=True) if v.requires_grad]
    wanted = [given.x, *(s for s in given.state if s.requires_grad), *made.parameters()]
    truth = torch.autograd.grad([v for v, _ in pairs], wanted, [d for _, d in pairs], allow_unused=True)
    found = evaluate(made, given, dy, dfinals)
    values = apart(_named(found.y, *found.state), _named(expected.y, *expected.state))
    return values | {f"d {n}": v for n, v in apart(_named(*found.gradients), _named(*truth)).items()}


def _named(*values: torch.Tensor | None) -> dict[str, torch.Tensor]:
    return {str(i): value for i, value in enumerate(values) if value is not None}


def test_a_wrong_derivative_is_found(monkeypatch: pytest.MonkeyPatch):
    """A test that cannot fail is none."""
    right = nodes.TABLE["tanh"]
    wrong = Rule(right.cpp, right.torch, lambda node, g: (g * (1.0 - node * node) * 1.001,), right.costly)
    monkeypatch.setitem(nodes.TABLE, "tanh", wrong)
    with pytest.raises(AssertionError, match="random cell"):
        check_programs(range(10))


def test_a_cell_is_the_same_whenever_it_is_made_and_can_be_read():
    one, again = random_cell(3), random_cell(3)
    assert one.source == again.source
    assert re.search(r"def step\(self, x, h.*\):\n", one.source)
    assert len({random_cell(seed).source.partition("\n\n    def __init__")[2] for seed in range(50)}) == 50
