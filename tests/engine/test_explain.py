"""What `explain` tells a person."""

import pytest
import torch

import recurra as rc
from recurra.engine.explain import explain


def test_the_plan_of_a_gru_has_two_stages_and_names_its_products():
    text = explain(rc.layer("gru", 6, 4), torch.zeros(5, 2, 6))
    assert "backend: compiled" in text
    assert "1. one product: x[t] and h[t - 1] → 1 × 4" in text
    assert "2. one product: x[t] and a value of this step (4) → 1 × 4" in text
    assert "δ[t + 1]" in text
    assert "kept for backward: the history of h" in text


def test_the_source_is_shown_when_asked_for():
    text = explain(rc.layer("rnn", 6, 4), torch.zeros(5, 2, 6), source=True)
    assert "static void group_0" in text
    assert "tanh_(" in text


def test_the_operation_that_forces_the_reference_is_named():
    text = explain(rc.layer("unitary_rnn", 3, 4), torch.zeros(5, 2, 3))
    assert "backend: reference (the compiled engine does not take aten." in text


def test_every_sheet_of_a_stack_is_explained():
    text = explain(rc.layer("lstm", 6, 4, num_layers=2, bidirectional=True), torch.zeros(5, 2, 6))
    assert text.count("backend: compiled") == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cell_without_weights_runs_in_any_precision_and_says_where(dtype: torch.dtype):
    class Leaky(rc.Cell):
        def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return 0.9 * h + 0.1 * x

    layer, x = rc.Recurrent(Leaky, 3, 3), torch.randn(4, 2, 3, dtype=dtype)
    assert layer(x)[0].dtype == dtype
    assert "the cell has no weights" in rc.explain(layer, x)
