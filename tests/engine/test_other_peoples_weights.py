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


class WithModule(rc.Cell):
    """Modules of torch's in its step."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.p = self.affine("x", "h"), self.vector()
        self.out, self.drop = nn.Linear(hidden_size, hidden_size), nn.Dropout(0.3)

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        v = self.drop(torch.tanh(self.a(x, h)))
        inner = self.out(v) * torch.exp(self.p)
        return torch.tanh(inner)


def results_of(model: rc.Recurrent, x: torch.Tensor, return_trace: bool) -> list[torch.Tensor | None]:
    torch.manual_seed(5)
    y = model(x, return_trace=return_trace)[0]
    return [y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()], allow_unused=True)]


GRADIENT_HOOKS: dict[str, Callable[[rc.Cell], object]] = {
    "of a module": lambda cell: cell.out.register_full_backward_hook(lambda m, given, got: (0.1 * given[0],)),
    "before a module": lambda cell: cell.out.register_full_backward_pre_hook(lambda m, got: (0 * got[0],)),
    "of an affine part": lambda cell: cell.a.register_full_backward_pre_hook(lambda m, got: (0 * got[0],)),
    "of the cell": lambda cell: cell.register_full_backward_pre_hook(lambda m, got: (0 * got[0],)),
    "forward, of the cell": lambda cell: cell.register_forward_hook(lambda m, given, got: 2 * got),
}


@pytest.mark.parametrize("hook", GRADIENT_HOOKS)
def test_a_hook_that_changes_gradients_holds_in_calls_with_a_trace(hook: str):
    torch.manual_seed(0)
    model = rc.Recurrent(WithModule, 3, 4, dtype=torch.float64)
    x = torch.randn(5, 4, 3, dtype=torch.float64, requires_grad=True)  # as many sequences as units
    before, names = results_of(model, x, True), {n: v.shape for n, v in model(x, return_trace=True)[2].items()}
    GRADIENT_HOOKS[hook](model.cell_list[0])
    plain = results_of(model, x, False)
    torch.testing.assert_close(results_of(model, x, True), plain, rtol=1e-12, atol=1e-14)
    assert not all(a is b is None or torch.allclose(a, b) for a, b in zip(before, plain, strict=True))
    torch.manual_seed(5)
    y, _, trace = model(x, return_trace=True)
    assert {n: v.shape for n, v in trace.items()} == names
    if hook != "forward, of the cell":
        torch.testing.assert_close(torch.tanh(trace["inner"]), y)


def test_a_zeroing_hook_stops_the_gradient_with_and_without_a_trace():
    model = rc.Recurrent(WithModule, 3, 4)
    x = torch.randn(5, 2, 3, requires_grad=True)
    model.cell_list[0].a.register_full_backward_pre_hook(lambda part, got: (0 * got[0],))
    for return_trace in (False, True):
        _, of_x, *_ = results_of(model, x, return_trace)
        assert of_x is not None
        assert not of_x.any()


def test_a_hook_is_not_passed_over_where_modifiers_rewrite_the_step():
    model, x = rc.Recurrent(WithModule, 3, 4, modifiers=[rc.modifiers.Zoneout(0.2)]), torch.randn(5, 2, 3)
    handle = model.cell_list[0].out.register_full_backward_hook(lambda part, given, got: None)
    for return_trace in (False, True):
        with pytest.raises(rc.TraceError, match=r"WithModule has a .*hook"):
            model(x, return_trace=return_trace)
    handle.remove()
    torch.manual_seed(3)
    expected = model(x)[0]
    seen = []
    model.cell_list[0].register_forward_hook(lambda cell, given, got: seen.append(got))
    torch.manual_seed(3)
    torch.testing.assert_close(model(x)[0], expected)
    assert len(seen) == 5


def test_dropout_beside_a_forward_hook_is_drawn_in_calls_with_a_trace():
    model, x = rc.Recurrent(WithModule, 3, 4), torch.randn(5, 2, 3, requires_grad=True)
    before = results_of(model, x, True)
    model.cell_list[0].out.register_forward_hook(lambda part, given, got: got)
    torch.testing.assert_close(results_of(model, x, True), before)
    torch.testing.assert_close(results_of(model, x, False), before)
