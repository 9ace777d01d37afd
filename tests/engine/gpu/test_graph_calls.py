"""Calls replayed as CUDA graphs give what they give launched kernel by kernel."""

from collections.abc import Iterator

import pytest
import torch
from engine.gpu.accuracy import layer, plain
from torch import Tensor

import recurra as rc
from recurra.engine import caches, dispatch
from recurra.engine.gpu import graph_calls

pytestmark = pytest.mark.gpu
CALLS = graph_calls.CAPTURE_AT + 3


@pytest.fixture(autouse=True)
def replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every test starts without graphs, and must replay some."""
    caches.clear_caches()
    graph_calls.failures.clear()
    replay, counted = graph_calls._Graph.__call__, []
    monkeypatch.setattr(graph_calls._Graph, "__call__", lambda *args: counted.append(1) or replay(*args))
    yield counted
    assert graph_calls.failures == []
    assert counted


def gradients(model: rc.Recurrent, x: Tensor, **arguments: Tensor) -> list[Tensor]:
    """y, the final states, and every gradient."""
    x = x.detach().requires_grad_()
    y, final = model(x, **arguments)
    finals = final if isinstance(final, tuple) else (final,)
    loss = (y.float() ** 2).sum() + sum((f.float() ** 3).sum() for f in finals)
    found = torch.autograd.grad(loss, [x, *model.parameters()])
    return [y, *finals, *found]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "mgu", "slstm", "indrnn", "lstm_np"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replays_equal_direct_calls(name: str, dtype: torch.dtype):
    model = layer(name, dtype)
    x = torch.randn(CALLS, 20, 5, 32, device="cuda", dtype=dtype)
    found = [gradients(model, one) for one in x]
    for one, results in zip(x, found, strict=True):
        caches.clear_caches()
        assert_equal(gradients(model, one), results)
    for one in [x[0]] * CALLS:
        assert_equal(gradients(model, one), found[0])


def test_ragged_batches_batch_first_and_expanded_cotangents():
    model = layer(batch_first=True, dtype=torch.float32)
    lengths = torch.tensor([7, 20, 1, 12, 3])
    for _ in range(CALLS):
        x = torch.randn(5, 20, 32, device="cuda")
        x.requires_grad_()
        y, _ = model(x, lengths=lengths)
        y.sum().backward()
        assert torch.allclose(y, plain(model, x, lengths=lengths), atol=2e-6)
        lengths = lengths.roll(1)


def test_two_layers_of_one_shape_have_their_own_weights_and_follow_the_optimiser():
    torch.manual_seed(0)
    model = rc.LSTM(32, 32, num_layers=2, bidirectional=True).cuda()
    twin = rc.LSTM(32, 32, num_layers=2, bidirectional=True).cuda()
    twin.load_state_dict(model.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.3) for m in (model, twin)]
    for _ in range(CALLS):
        x = torch.randn(9, 4, 32, device="cuda")
        for m, optimizer in zip((model, twin), optimizers, strict=True):
            optimizer.zero_grad()
            with rc.set_backend("auto" if m is model else "reference"):
                m(x)[0].square().mean().backward()
            optimizer.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_directions_at_once(name: str, dtype: torch.dtype):
    torch.manual_seed(0)
    model = rc.layer(name, 32, 48, bidirectional=True).cuda()
    twin = rc.layer(name, 32, 48, bidirectional=True).cuda()
    twin.load_state_dict(model.state_dict())
    model = model.to(dtype)
    for _ in range(CALLS):
        x = torch.randn(20, 5, 32, device="cuda")
        found = gradients(model, x.to(dtype))
        with rc.set_backend("reference"):
            expected = gradients(twin, x)
        for a, b in zip(found, expected, strict=True):
            scale = b.abs().max()
            assert (a.float() - b).abs().max() <= (2e-5 if dtype == torch.float32 else 4e-2) * scale


@pytest.mark.parametrize("name", ["lstm", "gru", "slstm"])
@pytest.mark.parametrize("initial", ["zeros", "learned"])
@pytest.mark.parametrize("ragged", [False, True])
def test_resets_are_a_mask_in_the_loop(name: str, initial: str, ragged: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "split_at_resets", None)
    model = layer(name, torch.float32, initial=initial)
    lengths = {"lengths": torch.tensor([20, 3, 1, 12, 7], device="cuda")} if ragged else {}
    for _ in range(CALLS):
        given = {"resets": torch.rand(20, 5, device="cuda") < 0.2, **lengths}
        x = torch.randn(20, 5, 32, device="cuda")
        found = gradients(model, x, **given)
        with rc.set_backend("reference"):
            expected = gradients(model, x, **given)
        for a, b in zip(found, expected, strict=True):
            assert (a - b).abs().max() <= 3e-5 * (1 + b.abs().max())


def test_second_derivatives_of_both_directions():
    model = rc.GRU(16, 16, bidirectional=True).cuda()
    x = torch.randn(4, 2, 16, device="cuda", requires_grad=True)

    def norm() -> Tensor:
        (dx,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), x)[0]

    for _ in range(CALLS):
        model(x)
    found = norm()
    with rc.set_backend("reference"):
        assert torch.allclose(found, norm(), rtol=1e-4, atol=1e-4)


def test_results_of_earlier_calls_stay():
    model, x = layer(dtype=torch.float32), torch.randn(CALLS, 6, 3, 32, device="cuda")
    first = [model(one) for one in x]
    loss = sum(y.square().sum() for y, _ in first)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    with rc.set_backend("reference"):
        expected = torch.autograd.grad(sum(model(one)[0].square().sum() for one in x), list(model.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(grads, expected, strict=True))


def test_streams_have_graphs_of_their_own():
    model, x = layer(), torch.randn(50, 16, 32, device="cuda").bfloat16()
    streams = [torch.cuda.Stream() for _ in range(3)]
    with torch.no_grad():
        expected = model(x)[0]
        torch.cuda.synchronize()
        found = []
        for _ in range(CALLS):
            for stream in streams:
                with torch.cuda.stream(stream):
                    found.append(model(x)[0])
    torch.cuda.synchronize()
    assert all(torch.equal(y, expected) for y in found)


def test_inference_mode_and_training_share_no_memory():
    model, x = layer(dtype=torch.float32), torch.randn(6, 3, 32, device="cuda")
    for _ in range(CALLS):
        with torch.inference_mode():
            y, _ = model(x)
        with torch.no_grad():
            again, _ = model(x)
        assert torch.equal(y, again)
        model(x)[0].sum().backward()


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "slstm", "indrnn"])
@pytest.mark.parametrize("batch", [1, 20])
def test_single_steps(name: str, batch: int):
    model = layer(name, torch.float32)
    x = torch.randn(CALLS, batch, 32, device="cuda")
    with torch.no_grad():
        expected, final = model(x)
        state = None
        for t in range(CALLS):
            y, state = model.step(x[t], state)
            assert torch.allclose(y, expected[t], atol=2e-6)
        for a, b in zip(*(s if isinstance(s, tuple) else (s,) for s in (state, final)), strict=True):
            assert torch.allclose(a, b, atol=2e-6)
        model(x)
        for _ in range(CALLS):
            model(x)
    with torch.no_grad():
        next(model.parameters()).mul_(2.0)
        y, _ = model.step(x[0])
        assert torch.allclose(y, plain(model, x[:1])[0], atol=2e-6)


def test_new_parameters_are_read():
    model, x = layer(dtype=torch.float32), torch.randn(6, 3, 32, device="cuda")
    for _ in range(CALLS):
        model(x)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone() * 0.5
    y, _ = model(x)
    assert torch.allclose(y, plain(model, x), atol=2e-6)


def test_graphs_are_freed_with_the_least_recent_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graph_calls, "MOST_GRAPHS", 2)
    model = layer(dtype=torch.float32)
    with torch.no_grad():
        for steps in (4, 5, 6, 7):
            x = torch.randn(steps, 3, 32, device="cuda")
            for _ in range(CALLS):
                assert torch.allclose(model(x)[0], plain(model, x), atol=2e-6)
    assert caches.cache_sizes()["CUDA graphs"] == 2
