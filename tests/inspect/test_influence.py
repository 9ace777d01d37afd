"""The influence matrix: against autograd, and zero errors where an approximation is exact."""

import pytest
import torch
from cases import Case, draw_inputs

import recurra as rc
from recurra.train import CostError


def test_norms_are_those_of_autograd() -> None:
    layer, x = Case("gru").layer(), draw_inputs(Case("gru"), batch=1)
    found = rc.inspect.influence(layer, x)
    h = layer(x)[0][-1, 0]
    parameters = dict(layer.cell_list[0].named_parameters())
    rows = [torch.autograd.grad(unit, list(parameters.values()), retain_graph=True) for unit in h]
    for name, *by_unit in zip(parameters, *rows, strict=True):
        expected = torch.stack([g.norm() for g in by_unit]).norm()
        torch.testing.assert_close(found.norms[f"0.{name}"][-1], expected, rtol=1e-10, atol=1e-12)
    assert found.matrix.shape == (4, len(found.norms))
    assert float(found.left_out["SnAp(1)"][-1]) > 0.01


def test_nothing_is_left_out_of_elementwise_cells() -> None:
    found = rc.inspect.influence(Case("min_gru").layer(), draw_inputs(Case("min_gru"), batch=1))
    assert all(float(found.left_out[name].max()) < 1e-12 for name in ("SnAp(1)", "e-prop, RFLO"))
    assert "SnAp(1)" in found.summary()
    assert len(found.figure().data) == 3
    assert found.matrix_figure().data[0].type == "heatmap"


def test_a_refusal_says_why() -> None:
    with pytest.raises(rc.InputError, match="complex"):
        rc.inspect.influence(Case("unitary_rnn").layer(), draw_inputs(Case("unitary_rnn")))
    with pytest.raises(CostError, match="GiB"):
        rc.inspect.influence(rc.LSTM(64, 512), torch.zeros(2, 1, 64))
