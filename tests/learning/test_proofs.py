"""Quick versions of what `benchmarks/learning.py` measures on many seeds."""

import pytest
import torch

import recurra as rc
from benchmarks.proofs.evolution import evolino
from benchmarks.proofs.original_rule import original
from benchmarks.proofs.reber import Judge, fewer_symbols, reber
from recurra.engine.scan import set_backend
from recurra.train import Predictor


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
        row = fewer_symbols("dekf", seed=1, minutes=2)
    assert row["accuracy"] >= 0.98
    assert row["symbols"] <= 30_000


def test_guessing_is_right_in_half_of_the_outer_predictions() -> None:
    """The measure of the two tests above, of a network that has learned nothing."""
    torch.manual_seed(0)
    assert Judge(seed=0, length=600)(Predictor(rc.layer("lstm", 7, 8), 7)) < 0.7


@pytest.mark.slow
def test_three_sines_are_generated() -> None:
    assert evolino("sines", seed=0, minutes=1)["nrmse"] <= 0.1
