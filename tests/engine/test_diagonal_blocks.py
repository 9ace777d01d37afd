"""Weights that are zero outside blocks on their diagonal: products skip the zeros."""

import pytest
import torch
from torch import nn

import recurra as rc
from recurra.engine.ir.diagonal_blocks import diagonal_blocks
from recurra.engine.plan.planner import plan
from recurra.engine.plan.schedule import schedule
from recurra.engine.trace import trace


def cell_of(layer: rc.Recurrent) -> rc.Cell:
    (cell,) = (module for module in layer.modules() if isinstance(module, rc.Cell))
    return cell


@pytest.mark.parametrize(("hidden_size", "heads"), [(12, 3), (14, 2), (40, 8), (96, 6), (256, 16)])
@pytest.mark.parametrize("batch", [1, 2, 7, 33])
def test_heads_agree_with_the_plain_loop(hidden_size, heads, batch):
    layer = rc.layer("slstm", 5, hidden_size, heads=heads).double()
    x = torch.randn(4, batch, 5, dtype=torch.float64, requires_grad=True)
    found = []
    for engine in ("compiled", "reference"):
        with rc.set_backend(engine):
            y, _ = layer(x)
            gradients = torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
            with torch.no_grad():
                found.append([y, layer(x)[0], *gradients])
    for compiled, plain in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 5])
def test_no_head_reads_another(batch):
    """A dense product would multiply infinity by zero, which is NaN."""
    layer = rc.layer("slstm", 3, 64, heads=4)
    x = torch.randn(2, batch, 3)
    with torch.no_grad():
        _, (h, *others) = layer(x)
        h[..., -16:] = torch.inf
        y, _ = layer(x[:1], (h, *others))
    assert torch.isfinite(y[..., :48]).all()
    assert not torch.isfinite(y[..., 48:]).all()


def test_sixteen_heads_are_a_sixteenth_of_the_work():
    counts = {}
    for heads in (1, 16):
        cell = cell_of(rc.layer("slstm", 32, 256, heads=heads))
        counts[heads] = schedule(plan(cell, trace(cell), train=False, needs_x=False).forward).multiplications()
    inputs = 4 * 256 * 32
    assert counts[16] - inputs == (counts[1] - inputs) / 16


class Fill(nn.Module):
    def forward(self, W: torch.Tensor) -> torch.Tensor:
        return W + 0.01


def test_a_derivation_that_may_fill_the_zeros_is_dense():
    layer = rc.layer("slstm", 3, 8, heads=2).double()
    cell = cell_of(layer)
    assert diagonal_blocks(cell)["z.W"] == (4, 4)
    cell.z.derive("W", Fill())
    assert "z.W" not in diagonal_blocks(cell)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    compiled, _ = layer(x)
    with rc.set_backend("reference"):
        plain, _ = layer(x)
    torch.testing.assert_close(compiled, plain, rtol=1e-12, atol=1e-12)
