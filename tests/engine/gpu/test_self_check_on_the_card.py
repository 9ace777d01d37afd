"""The self-check on a card: right plans pass, a wrong one is not used, and captured graphs are not disturbed."""

import dataclasses
import gc
from collections.abc import Iterator

import pytest
import torch

import recurra as rc
from recurra.engine import backend, dispatch
from recurra.engine.ir.nodes import TABLE

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    """The answers of all checks so far."""
    answers: list[str | None] = []
    find = dispatch.find_disagreement
    monkeypatch.setattr(dispatch, "find_disagreement", lambda *given: answers.append(find(*given)) or answers[-1])
    monkeypatch.setitem(backend._setting, "check", "1")
    monkeypatch.setattr(backend, "_warned", set())
    gc.collect()
    rc.clear_caches()
    yield answers
    gc.collect()
    rc.clear_caches()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [16, 256, 2048])
@pytest.mark.parametrize("ragged", [False, True])
def test_a_right_plan_is_used(dtype: torch.dtype, size: int, ragged: bool, checks: list):
    model = rc.layer("lstm", 8, size, dtype=dtype, device="cuda")
    x = torch.randn(6, 5, 8, dtype=dtype, device="cuda")
    model(x, lengths=[6, 2, 3, 6, 1] if ragged else None)[0].sum().backward()
    assert checks == [""]


def test_a_wrong_derivative_is_seen(monkeypatch: pytest.MonkeyPatch):
    right = TABLE["tanh"].vjp
    wrong = dataclasses.replace(TABLE["tanh"], vjp=lambda node, g: tuple(d * 1.1 for d in right(node, g)))
    monkeypatch.setitem(TABLE, "tanh", wrong)
    model, x = rc.layer("rnn", 3, 20, device="cuda"), torch.randn(6, 4, 3, device="cuda")
    with pytest.warns(backend.EngineWarning, match="plain loop"):
        found = model(x)[0]
    with rc.set_backend("reference"):
        wanted = model(x)[0]
    grads = [torch.autograd.grad(y.sum(), list(model.parameters())) for y in (found, wanted)]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_graph_that_is_being_captured_is_left_alone(checks: list):
    model, x = rc.layer("gru", 3, 20, device="cuda"), torch.randn(6, 4, 3, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        model(x)  # compiles the kernels
    checks.clear()
    for made in list(dispatch.cache_of(model.cell_list[0]).executors.values()):
        made.checked.clear()
    dispatch.cache_of(model.cell_list[0]).choices.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)[0]
    graph.replay()
    with rc.set_backend("reference"):
        torch.testing.assert_close(y, model(x)[0], rtol=1e-4, atol=1e-5)
    assert checks == [None]
