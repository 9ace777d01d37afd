"""The survey's slips, in numbers."""

import pytest
import torch

from recurra.train import errata
from recurra.train.errata import Network

NUMBERS = [*(f"E{k}" for k in range(1, 16)), "E24", "E25", "E27a", "E31"]


def test_every_mathematical_erratum_is_there_and_does_harm() -> None:
    found = errata()
    assert [e.number for e in found] == NUMBERS
    for erratum in found:
        assert erratum.error > 0.01, erratum.number
    assert all(number in str(found) for number in NUMBERS)


def test_numbers_that_can_be_known_beforehand() -> None:
    found = {e.number: e for e in errata(seed=3)}
    assert found["E1"].printed_value == pytest.approx(0.0900, abs=5e-5)
    assert found["E1"].right_value == pytest.approx(0.6652, abs=5e-5)
    assert found["E12"].printed_value < 1e-10
    assert found["E12"].right_value == pytest.approx(0.7, abs=0.1)
    assert found["E13"].right_value == pytest.approx(1.1**50)
    assert found["E24"].printed_value > 1 > found["E24"].right_value


def test_the_right_gradient_is_autograd_s() -> None:
    net = Network(1)
    W = net.W.clone().requires_grad_()
    y = net.run(W)[1:] @ net.V.T
    (0.5 * (y - net.d).square().sum()).backward()
    torch.testing.assert_close(net.right_W, W.grad, rtol=1e-12, atol=1e-12)


def test_the_right_form_of_one_step_s_loss_is_autograd_s() -> None:
    """E9: the loss of the last step alone."""
    net = Network(0)
    W = net.W.clone().requires_grad_()
    (0.5 * (net.run(W)[-1] @ net.V.T - net.d[-1]).square().sum()).backward()
    nine = next(e for e in errata() if e.number == "E9")
    assert nine.right_value == pytest.approx(float(W.grad.norm()), rel=1e-12)
