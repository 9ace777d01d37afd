"""Evolino: the readout is a pseudo-inverse, evolution does what it says, and runs on alone."""

import math

import pytest
import torch
from cases import Case
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import Evolino, EvolinoCell, Predictor
from recurra.train.computed_readouts import AffineReadouts, LeastSquares
from recurra.train.evolino import batched_step
from recurra.train.searches import SubPopulations, chromosomes
from recurra.train.step_function import StepFunction


@pytest.fixture(autouse=True)
def _plain_loop():
    with set_backend("reference"):
        yield


def sines(steps: int) -> Tensor:
    t = torch.arange(steps + 1, dtype=torch.float64)
    return (torch.sin(0.2 * t) + torch.sin(0.311 * t))[:, None, None]


def predictor(width: int = 6, cell=EvolinoCell) -> Predictor:
    torch.manual_seed(0)
    return Predictor(rc.Recurrent(cell, 1, width, dtype=torch.float64), 1)


SETTINGS = {"washout": 20, "horizon": 20, "population": 6, "trials": 1, "spread": 0.5, "mutation": 0.01}


def test_the_cell_is_the_paper_s() -> None:
    cell = EvolinoCell(1, 3).double()
    x, h, c = (torch.randn(2, n, dtype=torch.float64) for n in (1, 3, 3))
    gate = lambda name: x @ getattr(cell, name).U.T + h @ getattr(cell, name).W.T  # noqa: E731
    s = torch.sigmoid(gate("f")) * c + torch.sigmoid(gate("i")) * gate("g")
    new_h, new_c = cell(x, h, c)
    assert_close(new_c, s)
    assert_close(new_h, torch.tanh(torch.sigmoid(gate("o")) * s))


def test_the_readout_is_least_squares() -> None:
    states, target = torch.randn(3, 40, 5, dtype=torch.float64), torch.randn(40, 2, dtype=torch.float64)
    readouts = LeastSquares().fit(states, target).weights
    for network, readout in zip(states, readouts, strict=True):
        phi = torch.cat([network, torch.ones(40, 1, dtype=torch.float64)], 1)
        assert_close(readout.T, torch.linalg.lstsq(phi, target).solution, 1e-10)
        ridge = torch.linalg.lstsq(
            torch.cat([phi, 0.5 * torch.eye(6, dtype=torch.float64)]),
            torch.cat([target, torch.zeros(6, 2, dtype=torch.float64)]),
        ).solution
        assert_close(LeastSquares(0.25).fit(network[None], target).weights[0].T, ridge, 1e-10)


def test_networks_side_by_side_are_the_networks_themselves() -> None:
    for cell in (EvolinoCell, "vanilla_lstm", "gru"):
        model = predictor(4, cell)
        learner = Evolino(model, **SETTINGS)
        genomes = learner.search.ask()
        x = sines(30)[:-1]
        states = learner._run(genomes, x)[0]
        for k in (0, 3):
            learner._set_weights(genomes[k], learner.readout.of(model.head), 0)
            assert_close(states[k], model.layer(x)[0].detach(), 1e-12)


def test_cells_that_do_not_fit_side_by_side_still_run() -> None:
    case = Case("unitary_rnn", input_size=1)
    model = Predictor(case.layer(), 1)
    learner = Evolino(model, **SETTINGS)
    genomes = learner.search.ask()
    assert batched_step(StepFunction(model.layer), genomes) is None
    states = learner._run(genomes, sines(3)[:-1])[0]
    learner._set_weights(genomes[1], learner.readout.of(model.head), 0)
    assert_close(states[1], model.layer(sines(3)[:-1])[0].detach(), 1e-12)


def test_generation_feeds_on_itself() -> None:
    learner = Evolino(predictor(), **SETTINGS)
    series = sines(120)
    learner.step(series[:-1], series[1:])
    made = learner.generate(series[:60], 5)
    model, x = learner.model, series[:60]
    with torch.no_grad():
        for k in range(5):
            y = model(x)[0][-1:]
            assert_close(made[k], y[0], 1e-10)
            x = torch.cat([x, y])


def test_the_error_is_of_the_free_run() -> None:
    """What evolution judges equals generating from where the fit ended."""
    learner = Evolino(predictor(), **SETTINGS)
    series = sines(120)
    best = learner.step(series[:-1], series[1:])
    made = learner.generate(series[:100], 20)
    assert best == pytest.approx(float((made - series[100:120]).square().mean()), rel=1e-6)


def test_a_chromosome_is_all_that_enters_a_cell() -> None:
    step_fn = StepFunction(rc.Recurrent("vanilla_lstm", 2, 3))
    places = chromosomes(step_fn)
    assert [len(p) for p in places] == [4 * (2 + 3 + 1) + 3] * 3
    assert sorted(torch.cat(places).tolist()) == list(range(step_fn.weight_count))


def search(**settings) -> SubPopulations:
    given = {"population": 8, "trials": 1, "mutation": 0.01, "burst": 5, "spread": 0.1} | settings
    return SubPopulations(StepFunction(rc.Recurrent(EvolinoCell, 1, 3)), seed=0, **given)


def test_every_chromosome_is_tried_and_the_better_half_stays() -> None:
    esp = search()
    before = [pool.clone() for pool in esp.pools]
    genomes = esp.ask()
    assert [sorted(drawn.tolist()) for drawn in esp.drawn] == [list(range(8))] * 3
    errors = torch.arange(8.0)
    esp.tell(genomes, errors)
    for pool, old, drawn in zip(esp.pools, before, esp.drawn, strict=True):
        assert_close(pool[:4], old[drawn[:4]])
        assert not any(torch.equal(new, kept) for new in pool[4:] for kept in old)


def test_mutation_is_cauchy() -> None:
    noise = search(mutation=0.5)._cauchy((200_000,))
    assert float(noise.median()) == pytest.approx(0.0, abs=0.01)
    assert float(noise.abs().median()) == pytest.approx(0.5, rel=0.02)  # the quartile of Cauchy(α) is α
    assert float((noise.abs() > 5).double().mean()) == pytest.approx(2 / math.pi * math.atan(0.1), rel=0.05)


def test_burst_mutation_starts_again_around_the_best() -> None:
    esp = search(burst=2)
    genomes = esp.ask()
    errors = torch.arange(8.0)
    esp.tell(genomes, errors)
    for _ in range(2):
        genomes_later = esp.ask()
        esp.tell(genomes_later, errors + 1)
    for place, pool in zip(esp.places, esp.pools, strict=True):
        assert_close(pool[0], genomes[0][place].double(), 1e-6)
        assert float((pool - pool[0]).abs().median()) < 0.02


@pytest.mark.parametrize("which", ["esp", "cma"])
def test_error_falls(which: str) -> None:
    learner = Evolino(predictor(2), search=which, closed_loop=False, **(SETTINGS | {"population": 8, "mutation": 0.1}))
    x = torch.randn(80, 1, 1, dtype=torch.float64)
    target = torch.cat([torch.zeros(2, 1, 1, dtype=torch.float64), x[:-2]])  # what came two steps before
    errors = [learner.step(x, target) for _ in range(15)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.95 * errors[0]


def test_open_loop_takes_any_target() -> None:
    learner = Evolino(predictor(), closed_loop=False, **SETTINGS)
    x = torch.randn(100, 2, 1, dtype=torch.float64)
    target = torch.cat([torch.zeros(1, 2, 1, dtype=torch.float64), x[:-1]])  # what came before
    errors = [learner.step(x, target) for _ in range(4)]
    assert errors[-1] < float(target.var())


@pytest.mark.parametrize("which", ["esp", "cma"])
def test_resume_is_exact(which: str) -> None:
    series = sines(80)
    make = lambda: Evolino(predictor(), search=which, **SETTINGS)  # noqa: E731
    straight, first, second = make(), make(), make()
    expected = [straight.step(series[:-1], series[1:]) for _ in range(4)]
    found = [first.step(series[:-1], series[1:]) for _ in range(2)]
    second.load_state_dict(first.state_dict())
    found += [second.step(series[:-1], series[1:]) for _ in range(2)]
    assert found == expected


def test_bad_input() -> None:
    with pytest.raises(rc.RecurraError, match="linear head"):
        Evolino(Predictor(rc.Recurrent(EvolinoCell, 1, 3)))
    learner = Evolino(predictor(), **SETTINGS)
    with pytest.raises(rc.RecurraError, match=r"target\[t\] = x\[t \+ 1\]"):
        learner.step(sines(80), sines(80))
    with pytest.raises(rc.RecurraError, match="T > 40"):
        learner.step(sines(30), sines(30))


def test_read_is_the_affine_readout() -> None:
    states, readouts = torch.randn(2, 4, 3), torch.randn(2, 5, 4)
    expected = torch.stack([s @ r[:, :-1].T + r[:, -1] for s, r in zip(states, readouts, strict=True)])
    torch.testing.assert_close(AffineReadouts(readouts)(states), expected)


@pytest.mark.slow
def test_two_sines_are_generated() -> None:
    model = predictor(12)
    near_linear = {"scale": 0.01, "ridge": 1e-15, "spread": 1.0}
    learner = Evolino(model, washout=100, horizon=100, population=12, trials=1, mutation=0.01, **near_linear)
    series = sines(800)
    train = series[:401]
    for _ in range(8):
        learner.step(train[:-1], train[1:])
    learner.refit(train[:-1], train[1:])
    made, step_targets = learner.generate(series[:400], 200), series[400:600]
    assert float(((made - step_targets).square().mean() / step_targets.var()).sqrt()) < 0.1
