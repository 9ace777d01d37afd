"""The survey's slips, in numbers."""

import pytest
import torch

import recurra as rc
from recurra.train import errata
from recurra.train.errata_mathematical import Network

NUMBERS = [*(f"E{k}" for k in range(1, 16)), "E24", "E25", "E27a", "E31"]


def test_every_mathematical_erratum_is_there_and_does_harm() -> None:
    found = errata(kind="mathematical")
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


def test_right_forms_agree_with_a_forward_pass_and_with_autograd() -> None:
    """Printed forms of gradients and of the unfolded state are off, right ones are not but for rounding."""
    for erratum in errata(seed=2):
        if "relative" in erratum.measured:
            assert erratum.right_value < 1e-14 < 0.01 < erratum.printed_value, erratum.number
    ten = Network(2)
    innermost = torch.tanh(ten.W @ ten.h[4] + ten.U @ ten.x[2])  # h_T is the fourth state, x_{T+1} the third input
    expected = float((innermost - ten.h[3]).norm() / ten.h[3].norm())
    assert errata(seed=2)["E10"].printed_value == pytest.approx(expected, rel=1e-12)


def test_every_mathematical_erratum_has_a_reason_that_is_printed() -> None:
    found = errata(kind="mathematical")
    assert all(e.why and not e.why.endswith(".") for e in found)
    assert all(e.why in str(found) for e in found)


SHOWN = {"E16", "E18", "E19", "E26", "E27b"}


def test_all_thirty_seven_are_there() -> None:
    found = errata()
    assert len({e.number for e in found}) == len(found) == 37
    kinds = {kind: len(errata(kind=kind)) for kind in ("mathematical", "attribution", "presentation")}
    assert kinds == {"mathematical": 19, "attribution": 12, "presentation": 6}
    others = [e for e in found if e.kind != "mathematical"]
    assert {e.number for e in others if e.measured} == SHOWN
    assert all(e.printed and e.right and e.lines for e in found)
    assert all(e.error > 0.01 for e in others if e.measured)
    with pytest.raises(rc.UnknownNameError, match="E7"):
        found["E77"]
    with pytest.raises(rc.UnknownNameError, match="kind"):
        errata(kind="typo")


def test_the_cut_of_the_third_is_computed() -> None:
    """The recursion over all steps is autograd; over two it stops before the input."""
    net = Network(0)
    x = net.x.clone().requires_grad_()
    net.last_loss(x).backward()
    torch.testing.assert_close(net.last_loss_by_inputs(net.T), x.grad, rtol=1e-12, atol=1e-12)
    assert (net.last_loss_by_inputs(2)[:4] == 0).all()
    three = errata()["E3"]
    assert three.printed_value == 0
    assert three.right_value == pytest.approx(float(x.grad[2].norm()), rel=1e-6)


def test_numbers_of_attribution_that_can_be_known_beforehand() -> None:
    found = errata(seed=4)
    assert 1.05 < found["E16"].right_value < 1.2  # the eigenvalues of N fill the unit disc
    assert found["E19"].right_value == pytest.approx(0.8**20, rel=1e-9)
    assert found["E27b"].right_value == 0.0
    assert 0 < found["E18"].right_value < 0.5
    assert 0 < found["E26"].right_value < 1
