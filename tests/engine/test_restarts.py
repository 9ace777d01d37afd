"""Resets as a mask in the loop: values and gradients of the plain loop, which looks at each reset."""

import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.engine import dispatch, restarts


def results(model: rc.Recurrent, x: Tensor, **given: Tensor) -> list[Tensor]:
    """y, the final states, and the gradients of x and all parameters; masks are drawn from one seed."""
    torch.manual_seed(1)
    y, final = model(x, **given)
    finals = final if isinstance(final, tuple) else (final,)
    loss = (y**2).sum() + sum((f**3).sum() for f in finals)
    return [y, *finals, *torch.autograd.grad(loss, [x, *model.parameters()])]


OPTIONS = {
    "zeros": {},
    "learned": {"initial": "learned"},
    "both directions": {"bidirectional": True},
    "zoneout": {"modifiers": rc.Zoneout(0.3)},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", ["gru", "slstm"])
def test_restarts_in_the_loop_equal_the_plain_loop(
    name: str, ragged: bool, options: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dispatch, "_restarts", lambda cell, given, keep: restarts.can_restart(cell))
    monkeypatch.setattr(dispatch, "split_at_resets", None)
    torch.manual_seed(0)
    model = rc.layer(name, 3, 4, **OPTIONS[options]).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(9, 5, 3, dtype=torch.float64, requires_grad=True)
    given = {"resets": torch.rand(9, 5) < 0.3} | ({"lengths": torch.tensor([9, 4, 2, 7, 1])} if ragged else {})
    found = results(model, x, **given)
    with rc.set_backend("reference"):
        expected = results(model, x, **given)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_torch_compile_takes_resets_without_a_break():
    model = rc.LSTM(3, 4, initial="learned")
    x, resets = torch.randn(7, 5, 3), torch.rand(7, 5) < 0.3
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(x, resets=resets)[0], model(x, resets=resets)[0])
    other = torch.rand(7, 5) < 0.6
    torch.testing.assert_close(compiled(x, resets=other)[0], model(x, resets=other)[0])


def test_delays_and_time_need_more_than_the_last_state():
    assert restarts.can_restart(rc.LSTM(3, 4).cell_list[0])
    assert not restarts.can_restart(rc.layer("delay_rnn", 3, 4).cell_list[0])
