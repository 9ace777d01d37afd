"""Repeated calls with masks, lengths, resets or derived weights on a card: equal to the plain loop every time."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.engine.cell_cache import cache_of

pytestmark = pytest.mark.gpu
T, B, D, H = 12, 16, 32, 64


def resets() -> dict[str, Tensor]:
    given = torch.rand(T, B, device="cuda") < 0.2
    given[0, ::2] = True
    return {"resets": given}


def lengths() -> dict[str, Tensor]:
    return {"lengths": torch.randint(1, T + 1, (B,)).cuda()}


KINDS: dict[str, tuple[Callable[[], rc.Recurrent], Callable[[], dict[str, Tensor]]]] = {
    "resets": (lambda: rc.GRU(D, H), resets),
    "resets, learned start": (lambda: rc.LSTM(D, H, initial="learned"), resets),
    "resets, batch first": (lambda: rc.GRU(D, H, batch_first=True), lambda: {"resets": resets()["resets"].t()}),
    "lengths": (lambda: rc.LSTM(D, H), lengths),
    "zoneout": (lambda: rc.LSTM(D, H, modifiers=rc.Zoneout(0.2)), dict),
    "zoneout and lengths": (lambda: rc.LSTM(D, H, modifiers=rc.Zoneout(0.2)), lengths),
    "variational dropout": (lambda: rc.LSTM(D, H, modifiers=rc.VariationalDropout(0.3)), dict),
    "recurrent dropout": (lambda: rc.LSTM(D, H, modifiers=rc.RecurrentDropout(0.3)), dict),
    "weight drop": (lambda: rc.LSTM(D, H, modifiers=rc.WeightDrop(0.5)), dict),
    "weight drop and resets": (lambda: rc.LSTM(D, H, modifiers=rc.WeightDrop(0.5)), resets),
}


def run(layer: rc.Recurrent, x: Tensor, given: dict[str, Tensor]) -> list[Tensor]:
    torch.manual_seed(7)
    x = x.detach().requires_grad_()
    y, state = layer(x, **given)
    finals = state if isinstance(state, tuple) else (state,)
    weights = [weight for weight in layer.parameters() if weight.requires_grad]
    total = sum((v.float() * torch.linspace(-1, 1, v.shape[-1], device="cuda")).sum() for v in (y, *finals))
    assert isinstance(total, Tensor)
    return [y.detach(), *(v.detach() for v in finals), *torch.autograd.grad(total, [x, *weights])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_plain_loop_at_every_call(kind: str, dtype: torch.dtype):
    torch.manual_seed(0)
    make, give = KINDS[kind]
    layer = make().cuda().to(dtype)
    x = torch.randn(*((B, T, D) if layer.batch_first else (T, B, D)), device="cuda", dtype=dtype)
    for number in range(6):
        given = give()
        with rc.set_backend("reference"):
            plain = run(layer, x, given)
        found = run(layer, x, given)
        for a, b in zip(found, plain, strict=True):
            scale = float(b.abs().max())
            assert (
                float((a.float() - b.float()).abs().max()) <= (1e-4 if dtype == torch.float32 else 0.05) * scale + 1e-5
            )
        choices = cache_of(layer.cell_list[0]).choices.values()
        assert number == 0 or any(choice.run or choice.call for choice in choices)
        x = x + 0.1


def test_given_states_restart_too():
    layer, x = rc.GRU(D, H).cuda(), torch.randn(T, B, D, device="cuda")
    given, h = resets(), torch.randn(1, B, H, device="cuda")
    for _ in range(5):
        y = layer(x, h, **given)[0]
    with rc.set_backend("reference"):
        torch.testing.assert_close(y, layer(x, h, **given)[0], rtol=1e-4, atol=1e-5)


def test_new_weights_and_modes_are_seen():
    layer, x = rc.LSTM(D, H, modifiers=rc.WeightDrop(0.5)).cuda().eval(), torch.randn(T, B, D, device="cuda")
    with torch.no_grad():
        for scale in (1.0, 0.5, 2.0):
            for weight in layer.parameters():
                weight.mul_(scale)
            for _ in range(4):
                y = layer(x)[0]
            with rc.set_backend("reference"):
                torch.testing.assert_close(y, layer(x)[0], rtol=1e-4, atol=1e-5)
