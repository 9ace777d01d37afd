"""What torch does to weights (normalised, pruned, orthogonal, looked at by hooks) holds for the parts of a cell too."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_full_backward_hook
from torch.nn.utils import parametrizations, prune
from torch.utils.hooks import RemovableHandle

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.dispatch import Sequences, choose

WAYS: dict[str, Callable[[nn.Module], object]] = {
    "weight norm": lambda part: parametrizations.weight_norm(part, "W"),
    "orthogonal": lambda part: parametrizations.orthogonal(part, "U"),
    "spectral norm": lambda part: parametrizations.spectral_norm(part, "U"),
    "pruned": lambda part: prune.l1_unstructured(part, "W", 0.5),
}


def layer() -> rc.Recurrent:
    torch.manual_seed(0)
    return rc.layer("lstm", 3, 6, dtype=torch.float64)


def backend(model: rc.Recurrent, x: torch.Tensor) -> str:
    cell = model.cell_list[0]
    return choose(cell, Sequences(x, cell.initial_state(x.shape[1], x), {})).backend


@pytest.mark.parametrize("way", WAYS)
def test_outputs_and_gradients_are_those_of_the_plain_loop(way: str):
    model, x = layer(), torch.randn(5, 2, 3, dtype=torch.float64)
    before = model(x)[0]
    part = model.cell_list[0].i
    with torch.no_grad():
        part.W.mul_(1.5)
    WAYS[way](part)
    model.eval()  # the power iteration of the spectral norm moves on at each call otherwise

    def results() -> list[torch.Tensor]:
        y = model(x)[0]
        return [y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))]

    found = results()
    with set_backend("reference"):
        wanted = results()
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(found[0], before)
    with torch.no_grad():
        torch.testing.assert_close(model(x)[0], found[0])


@pytest.mark.parametrize("way", WAYS)
def test_training_goes_on(way: str):
    model, x = layer(), torch.randn(5, 2, 3, dtype=torch.float64)
    WAYS[way](model.cell_list[0].i)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(x)[0].square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_a_hook_on_a_part_is_called_at_every_step_and_costs_nothing_afterwards():
    model, x, seen = layer(), torch.randn(5, 2, 3, dtype=torch.float64), []
    expected = model(x)[0]
    assert backend(model, x) == "compiled"
    handle = model.cell_list[0].f.register_forward_hook(lambda part, given, result: seen.append(result.shape))
    for _ in range(2):
        seen.clear()
        torch.testing.assert_close(model(x)[0], expected)
        assert seen == [(2, 6)] * 5
    assert "hook" in str(rc.explain(model, x))
    handle.remove()
    seen.clear()
    assert torch.equal(model(x)[0], expected)
    assert seen == []
    assert backend(model, x) == "compiled"


KINDS_OF_HOOKS: dict[str, Callable[[nn.Module, Callable], RemovableHandle]] = {
    "forward": lambda part, call: part.register_forward_hook(call),
    "before": lambda part, call: part.register_forward_pre_hook(call),
    "backward": lambda part, call: part.register_full_backward_hook(call),
    "before backward": lambda part, call: part.register_full_backward_pre_hook(call),
    "on all": lambda part, call: register_module_forward_hook(call),
    "backward on all": lambda part, call: register_module_full_backward_hook(call),
}


@pytest.mark.parametrize("kind", KINDS_OF_HOOKS)
def test_hooks_of_every_kind_are_called_as_often_as_in_the_plain_loop(kind: str):
    model, x, calls = layer(), torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True), []
    model(x)[0].sum().backward()
    handle = KINDS_OF_HOOKS[kind](model.cell_list[0].f, lambda part, *_: calls.append(type(part).__name__))
    try:
        model(x)[0].sum().backward()
        found = list(calls)
        calls.clear()
        with set_backend("reference"):
            model(x)[0].sum().backward()
    finally:
        handle.remove()
    assert found == calls
    assert len(found) >= 5


class Counting(rc.Cell):
    """Writes into a buffer of its own at each step."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.register_buffer("count", torch.zeros(()))

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        self.count.add_(1.0)
        return torch.tanh(self.a(x, h))


def test_a_step_that_writes_into_a_buffer_does_so_at_every_step():
    model = rc.Recurrent(Counting, 3, 4)
    with pytest.warns(rc.EngineWarning, match=r"writes into a weight, a buffer, .*test_other_peoples_weights\.py"):
        model(torch.randn(7, 2, 3))
    assert float(model.cell_list[0].count) == 7
