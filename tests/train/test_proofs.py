"""Quick versions of what `benchmarks/learning.py` measures on many seeds."""

from typing import Any

import pytest
import torch

import recurra as rc
from benchmarks.lstm_1997 import illegal, off_by
from benchmarks.proofs import tasks_1997
from benchmarks.proofs.counting import Together, _network, largest_n
from benchmarks.proofs.evolution import evolino
from benchmarks.proofs.original_rule import original
from benchmarks.proofs.reber import Judge, fewer_symbols, reber
from recurra.data import tasks
from recurra.data.batching import generator
from recurra.engine.backend import set_backend
from recurra.train import BPTT, Predictor


@pytest.mark.slow
def test_the_original_rule_adds_over_a_hundred_steps() -> None:
    with set_backend("auto"):
        row = original("adding", seed=1, minutes=1)
    assert row["wrong"] <= 3  # of 2,560
    assert row["sequences"] <= 40_000  # 74,000 in 1997


@pytest.mark.slow
def test_the_original_rule_with_a_forget_gate_follows_an_endless_stream() -> None:
    with set_backend("auto"):
        assert reber("lstm", seed=1, minutes=2, symbols=300_000)["accuracy"] >= 0.98


@pytest.mark.slow
def test_the_filter_needs_few_symbols() -> None:
    with set_backend("auto"):
        row = fewer_symbols("dekf", seed=0, minutes=2)
    assert row["accuracy"] >= 0.98
    assert row["symbols"] <= 20_000  # the gradient rule needs more than 150,000


def test_guessing_is_right_in_half_of_the_outer_predictions() -> None:
    """The measure of the two tests above, of a network that has learned nothing."""
    torch.manual_seed(0)
    assert Judge(seed=0, length=600)(Predictor(rc.layer("lstm", 7, 8), 7)) < 0.7


def test_seeds_side_by_side_learn_as_each_would_alone() -> None:
    task, seeds = tasks.anbn(high=4), (3, 8)
    together = Together([_network(seed) for seed in seeds], rate=0.2)
    alone = [BPTT(_network(seed), "binary_cross_entropy", "adam", 0.2, clip=1.0) for seed in seeds]
    for batch in task.batches(5, 4, seed=0).epoch(0):
        given = batch.inputs.double(), task.legal(batch).double(), batch.mask
        losses = together.step(*given)
        assert losses.tolist() == pytest.approx([learner.step(*given) for learner in alone], abs=1e-12)
    for model, learner in zip(together.networks(), alone, strict=True):
        for p, q in zip(model.parameters(), learner.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("down", "expected"), [(1.0, 1000), (1.021, 24)])
def test_how_far_a_counter_made_by_hand_counts(down: float, expected: int) -> None:
    """One cell counts a up and b down, the other knows the b. Where b counts 2.1 % more, 24 are half an a ahead."""
    model, one = _network(0), 0.001
    assert largest_n(model, 0.0) == 0
    cell: Any = model.layer.cell_list[0]
    head: Any = model.head
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for gate in (cell.i, cell.o):
            gate.b.fill_(50.0)  # open
        cell.g.U.copy_(torch.tensor([[0.0, one, -down * one], [0.5, 0.0, -50.0]]))  # S, a, b
        head.V.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0], [-3.0 / one, -1.0]]))  # a, b, T
        head.b.copy_(torch.tensor([0.0, -one / 2, 0.0]))
    with set_backend("auto"):
        assert largest_n(model, 0.0) == expected


@pytest.mark.slow
def test_three_sines_are_generated() -> None:
    assert evolino("sines", seed=0, minutes=1)["nrmse"] <= 0.1


@pytest.mark.slow
def test_three_sines_are_evolved_with_the_published_settings() -> None:
    row = evolino("sines_published", seed=0, minutes=1)
    assert row["nrmse"] <= 0.01  # five seeds: at most 2e-4
    assert row["after one generation"] > 0.5  # evolution found it


def test_the_tasks_of_1997_ask_for_what_was_shown() -> None:
    random = generator(0)
    free, kept = tasks_1997.noise_free(6, random), tasks_1997.distracted(6, random)
    assert torch.equal(free.inputs[0, :, :2].argmax(-1), free.targets)
    assert torch.equal(free.inputs[1:, 0], free.inputs[1:, 5])  # only the first symbol differs
    assert torch.equal(kept.inputs[1, :, 52:].argmax(-1), kept.targets)
    assert bool((kept.inputs[kept.lengths - 1, torch.arange(6), 51] == 1).all())  # e ends a sequence
    assert int(kept.lengths.min()) >= 53
    made = tasks_1997.multiplication(6, random)
    values, marks = made.inputs.unbind(-1)
    first = torch.arange(len(marks)) == 0
    for k in range(6):  # a value at the first step, whose mark is -1, counts as 1
        found = values[(marks[:, k] > 0) & ~first, k]
        assert len(found) in (1, 2)
        torch.testing.assert_close(made.targets[k, 0], found.prod())
        assert marks[made.lengths[k] - 1, k] == marks[0, k] == -1
        assert not bool(marks[made.lengths[k] :, k].any())
    noisy = tasks_1997.two_sequences(6, random)
    assert torch.equal((noisy.inputs[2, :, 0] > 0).long(), noisy.targets)
    assert torch.equal((noisy.inputs != 0).any(-1).sum(0), noisy.lengths)


def test_the_longer_tasks_of_1997_ask_for_what_was_shown() -> None:
    random = generator(0)
    made = tasks_1997.adding(400, random)
    values, marks = made.inputs.unbind(-1)
    total = torch.where(marks > 0, values, 0.0).sum(0)
    torch.testing.assert_close(made.targets[:, 0], 0.5 + total / 4)
    shown = marks > 0
    assert not bool(shown[50:].any())  # a lag of T / 2 at least
    assert bool(shown[:10].any(0)[shown.sum(0) == 2].all())  # the first within ten steps
    lag = tasks_1997.long(tasks_1997.distracted, q=200, p=300)
    assert (lag.__doc__ or "").endswith("e, q = 200, p = 300")
    kept = lag(5, random)
    assert kept.inputs.shape[-1] == 304
    assert int(kept.lengths.min()) >= 203
    assert torch.equal(kept.inputs[1, :, 302:].argmax(-1), kept.targets)
    three = tasks_1997.three_symbols(200, random)
    symbols = three.inputs.argmax(-1)
    found = [symbols[:, k][symbols[:, k] >= 6] - 6 for k in range(200)]
    assert [int(4 * a + 2 * b + c) for a, b, c in found] == three.targets.tolist()
    free = tasks_1997.no_regularities(6, random)
    assert torch.equal(free.inputs[0, :, :2].argmax(-1), free.targets)
    assert not bool(free.inputs[1:, :, :2].any())  # nothing else tells


def test_what_counts_as_wrong_in_1997() -> None:
    batch = tasks_1997.reber(8, generator(1))
    legal = tasks.embedded_reber().legal(batch).float()
    assert not bool(illegal(legal, batch).any())
    assert bool(illegal(-legal, batch).all())
    answers = tasks_1997.adding(4, generator(2))
    outputs = torch.zeros(110, 4, 1)
    outputs[answers.lengths - 1, torch.arange(4)] = answers.targets + torch.tensor([[0.0], [0.03], [0.05], [-0.05]])
    assert off_by(0.04)(outputs, answers).tolist() == [False, False, True, True]
