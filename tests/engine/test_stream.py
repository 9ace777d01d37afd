"""A prepared step gives what the plain loop gives, keeps its results apart, and takes nothing that does not suit it."""

from typing import Any

import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.cell_cache import cache_of
from recurra.engine.cpu import kernel
from recurra.errors import DeviceError, DtypeError, ShapeError


def flat(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else [t for part in results for t in flat(part)]


@torch.no_grad()
def test_a_cell_that_does_not_look_at_its_input():
    class Blind(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("h")

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(self.a(h) + 1)

    layer, x = rc.Recurrent(Blind, 3, 5), torch.randn(4, 2, 3)
    torch.testing.assert_close(torch.stack(stepped(layer, x)[::2]), layer(x)[0])


@pytest.mark.parametrize(
    ("name", "sizes", "options"),
    [
        ("lstm", (128, 128, 1), {}),
        ("gru", (16, 300, 1), {}),  # threads share the units
        ("lstm", (40, 48, 60), {}),  # threads share the batch
        ("lstm", (12, 36, 3), {"modifiers": rc.LayerNorm()}),  # sums over rows
        ("projection_lstm", (12, 36, 3), {}),  # an output that is a state of another width
        ("scrn", (12, 36, 3), {}),
    ],
    ids=str,
)
@torch.no_grad()
def test_prepared_steps_are_those_of_the_plain_loop(
    name: str, sizes: tuple[int, int, int], options: dict, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel, "threads_here", lambda: 2)
    inputs, units, batch = sizes
    layer = rc.layer(name, inputs, units, dtype=torch.float64, **options)
    x = torch.randn(5, batch, inputs, dtype=torch.float64)
    found = stepped(layer, x)
    with set_backend("reference"):
        wanted = stepped(layer, x)
    assert any(choice.call for choice in cache_of(layer.cell_list[0]).choices.values())
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


def stepped(layer: rc.Recurrent, x: Tensor) -> list[Tensor]:
    """Every output and every state, one step at a time."""
    state, found = None, []
    for x_t in x:
        y, state = layer.step(x_t, state)
        found += [y, *flat(state)]
    return found


@pytest.mark.parametrize("name", ["lstm", "gru"])
@torch.no_grad()
def test_nothing_a_step_gives_shares_its_memory(name: str):
    layer, x = rc.layer(name, 3, 4), torch.randn(2, 3)
    y, state = layer.step(x, layer.step(x)[1])
    before = [value.clone() for value in flat(state)]
    y.zero_()
    assert all(torch.equal(value, kept) for value, kept in zip(flat(state), before, strict=True))
    addresses = {value.untyped_storage().data_ptr() for value in (y, *flat(state))}
    assert len(addresses) == 1 + len(before)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda h: h[:, :1], ShapeError),
        (lambda h: h[0], ShapeError),
        (lambda h: h.double(), DtypeError),
        (lambda h: h.to("meta"), DeviceError),
        (lambda h: 1.0, ShapeError),
        (lambda h: None, ShapeError),
    ],
)
@torch.no_grad()
def test_a_state_that_does_not_suit_a_step_is_an_error(change: Any, error: type[Exception]):
    layer, x = rc.LSTM(3, 4), torch.randn(2, 3)
    _, (h, c) = layer.step(x)
    with pytest.raises(error, match="state"):
        layer.step(x, (h, change(c)))


@torch.no_grad()
def test_tensors_that_do_not_lie_in_one_piece_are_read_as_what_they_are():
    layer, x = rc.LSTM(3, 4), torch.randn(3, 2)
    state = tuple(torch.randn(1, 4, 2).transpose(1, 2) for _ in range(2))
    found = layer.step(x.t(), state)
    wanted = layer.step(x.t().contiguous(), tuple(s.contiguous() for s in state))
    for ours, theirs in zip(flat(found), flat(wanted), strict=True):
        assert torch.equal(ours, theirs)
