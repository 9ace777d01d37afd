"""`rc.explain(learner)`: the structure found, and the memory that the influence then has."""

import re

import pytest
import torch

import recurra as rc
from recurra.train import RTRL, UORO, Predictor, SnAp


def test_structure_of_a_gru() -> None:
    text = rc.explain(RTRL(Predictor(rc.GRU(8, 64), 2)))
    assert "step: compiled" in text
    assert "0.h by 0.h: a matrix 64 × 64" in text
    assert re.search(r"RTRL +3\.4 MiB +57,", text)  # 64 × 14,016 float32; 64² × 14,016 multiply-adds


def test_structure_of_an_elementwise_cell_and_of_snap() -> None:
    assert "0.h by 0.h: unit by unit" in rc.explain(RTRL(Predictor(rc.layer("indrnn", 8, 64), 2)))
    assert "0.h: own unit" in rc.explain(SnAp(Predictor(rc.layer("gru", 8, 64, reset_after=True), 2)))


def test_memory_is_what_is_allocated() -> None:
    learner = SnAp(Predictor(rc.LSTM(3, 5), 2))
    kept = learner.tracker.influence.kept
    assert learner.tracker.influence.plan.numbers == kept.numel()
    gate = 5 * (5 + 3 + 1)  # weights of one gate
    assert kept.numel() == 3 * gate * 2 + gate  # in one step, those of the output gate reach h alone


def test_what_is_not_compiled_says_why() -> None:
    assert "not compiled (aten.complex" in rc.explain(UORO(Predictor(rc.layer("unitary_rnn", 3, 4), 2)))
    with pytest.raises(rc.ShapeError, match="x: got None"):
        rc.explain(rc.GRU(2, 3))
    assert rc.explain(rc.GRU(2, 3), torch.zeros(1, 1, 2))
