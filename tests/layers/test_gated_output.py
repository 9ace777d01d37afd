"""The gate of GTrXL against its paper's equations, and where it starts."""

import numpy as np
import pytest
import torch
from helpers import assert_close

import recurra as rc


def test_by_its_equations() -> None:
    gate = rc.GatedOutput(4, bias=1.5).double()
    x, y = (torch.randn(5, 3, 4, dtype=torch.float64) for _ in range(2))
    w = {name: p.detach().numpy() for name, p in gate.gru.named_parameters()}
    a, b = x.numpy(), y.numpy()

    def sigma(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    r = sigma(b @ w["r.U"].T + a @ w["r.W"].T)
    z = sigma(b @ w["z.U"].T + a @ w["z.W"].T - 1.5)
    g = np.tanh(b @ w["c.U"].T + (r * a) @ w["c.W"].T)
    assert_close(gate(x, y).detach(), torch.from_numpy((1 - z) * a + z * g), 1e-12)
    assert_close(gate(x[0, 0], y[0, 0]), gate(x, y)[0, 0], 1e-12)


def test_a_large_bias_passes_the_input() -> None:
    x, y = torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    assert_close(rc.GatedOutput(8, bias=40.0)(x, y), x, 1e-6)


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(rc.ShapeError, match="one shape"):
        rc.GatedOutput(4)(torch.zeros(2, 4), torch.zeros(3, 4))
