"""Single precision: at most twice as far from the exact answer as the plain loop in the same precision."""

import copy
from collections.abc import Iterable
from statistics import geometric_mean

import pytest
import torch
from cases import REPRESENTATIVES
from engine.compare import pulled, results, sequences

import recurra as rc
from recurra.engine import reference
from recurra.engine.dispatch import choose, scan
from recurra.engine.reference import Sequences

SOME = ["lstm", "gru", "rnn", "leaky_rnn", "mgu", "projection_lstm", "scrn", "delay_rnn", "lem"]


def distances(name: str, steps: int, batch: int) -> list[tuple[float, float]]:
    """(compiled, plain loop) relative norm error against float64, for each result and each gradient."""
    cell = rc.layer(name, 7, 24).cell_list[0]
    exact_cell = copy.deepcopy(cell).double()
    given = sequences(cell, steps, batch, torch.float32)
    wide = Sequences(
        given.x.detach().double().requires_grad_(),
        tuple(s.detach().double().requires_grad_(s.requires_grad) for s in given.state),
        {n: m.double() for n, m in given.masks.items()},
    )
    assert choose(cell, given).backend == "compiled"
    found, plain, exact = scan(cell, given), reference.scan(cell, given), reference.scan(exact_cell, wide)
    pairs = zip(
        [*results(found), *pulled(cell, given, found)],
        [*results(plain), *pulled(cell, given, plain)],
        [*results(exact), *pulled(exact_cell, wide, exact)],
        strict=True,
    )
    return [
        ((f - e).norm().item() / e.norm().item(), (p - e).norm().item() / e.norm().item())
        for f, p, e in pairs
        if e.any()
    ]


def typical(draws: list[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Of each result the geometric mean over some draws: what one draw shows is as much chance as accuracy."""

    def mean(distances: Iterable[float]) -> float:
        return geometric_mean(max(d, 1e-9) for d in distances)

    results_drawn = zip(*draws, strict=True)
    return [(mean(c for c, _ in pairs), mean(p for _, p in pairs)) for pairs in results_drawn]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(("steps", "batch"), [(1, 3), (17, 3), (17, 64)])
def test_no_less_accurate_than_the_plain_loop(name: str, steps: int, batch: int):
    for compiled, plain in typical([distances(name, steps, batch) for _ in range(8)]):
        assert compiled <= 2 * plain + 1.2e-7  # one rounding: a single step has too few to compare


# Functions are right to 4 units in the last place (test_rules.py), torch's to about one: over a few steps with few rows
# that is what remains between the two engines.
FOUR_ULP = 4 * 1.2e-7


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REPRESENTATIVES - {"unitary_rnn", "slstm"}))  # slstm: see below
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (2, 64), (17, 1), (1000, 3)])
def test_no_less_accurate_for_every_cell(name: str, steps: int, batch: int):
    for compiled, plain in typical([distances(name, steps, batch) for _ in range(3)]):
        assert compiled <= 2 * plain + FOUR_ULP


@pytest.mark.parametrize(("steps", "batch"), [(2, 64), (17, 3), (17, 64)])
def test_slstm_is_as_accurate_over_many_draws(steps: int, batch: int):
    """It divides by n, and where a drawn n is near zero that one row decides the error of either engine: the quotient
    of the two is then that of two random numbers, far from one in both directions. Their geometric mean is not."""
    pairs = [pair for _ in range(12) for pair in distances("slstm", steps, batch)]
    quotients = [compiled / plain for compiled, plain in pairs if compiled > 0 and plain > 0]
    assert len(quotients) > 100
    assert geometric_mean(quotients) < 2
