"""Stepwise execution on a CUDA device: values, and captured graphs under streams, threads and changing weights."""

import gc
import threading
from collections.abc import Iterator

import pytest
import torch
from engine.gpu.accuracy import assert_compiled, assert_same_bits, drawn, layer, plain, results
from engine.gpu.test_cells_on_the_card import CASES, check, compare
from engine.strange_cells import STRANGE, Noisy

import recurra as rc
from recurra.cell import Cell
from recurra.engine import executors
from recurra.engine.dispatch import choose
from recurra.engine.explain import explain
from recurra.engine.gpu import loops, select
from recurra.engine.gpu.persistent import launch
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.plan.planner import plan
from recurra.engine.traced_step import trace_in_clean_context

pytestmark = pytest.mark.gpu
STEPS = 32 + 4 + 1  # windows of three sizes


@pytest.fixture(autouse=True)
def stepwise() -> Iterator[None]:
    with select.only("stepwise"):
        yield


@pytest.mark.parametrize("case", CASES)
def test_every_cell_in_float32(case: str | type[Cell]):
    check(case, torch.float32, STEPS, 19, True)


@pytest.mark.parametrize("case", ["lstm", "gru", "mgu", "scrn", "delay_rnn", "indrnn", *STRANGE, Noisy])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cells_in_sixteen_bits(case: str | type[Cell], dtype: torch.dtype):
    check(case, dtype, STEPS, 19, False)


@pytest.mark.parametrize("batch", [1, 8, 130])
@pytest.mark.parametrize("units", [1, 7, 300])
def test_sizes_that_are_no_multiple_of_anything(batch: int, units: int):
    torch.manual_seed(2)
    cell = rc.layer("gru", 3, units).cell_list[0].cuda()
    compare(cell, drawn(cell, 9, batch))


def test_the_loop_runs_stepwise():
    cell = layer().cell_list[0]
    given = drawn(cell, 3, 5)
    results(cell, given, "auto")
    made = choose(cell, given).executor
    assert {backward for backward, _ in made.loops.stepwise} == {False, True}
    assert "step by step" in explain(cell, given.x)


def test_two_runs_give_the_same_bits():
    assert_same_bits(layer().cell_list[0], runs=5)


def test_one_window_serves_every_length():
    model = layer(dtype=torch.float32)
    for steps in (70, 1, 33, 64, 31, 100):
        x = torch.randn(steps, 6, 32, device="cuda")
        assert torch.allclose(model(x)[0], plain(model, x), atol=2e-6)


def test_weights_that_change_between_calls():
    model, x = layer(dtype=torch.float32), torch.randn(40, 6, 32, device="cuda")
    first = model(x)[0].detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    second = model(x)[0]
    assert not torch.allclose(first, second, atol=1e-3)
    assert torch.allclose(second, plain(model, x), atol=2e-6)


def test_inference_mode_leaves_memory_that_training_can_use():
    model, x = layer(dtype=torch.float32), torch.randn(40, 6, 32, device="cuda")
    with torch.inference_mode():
        before = model(x)[0]
    y = model(x)[0]
    y.sum().backward()
    with torch.inference_mode():
        after = model(x)[0]
    assert torch.equal(before, y)
    assert torch.equal(before, after)


def test_inside_a_cuda_graph_of_the_callers():
    model, x = layer(), torch.randn(40, 16, 32, device="cuda").bfloat16()
    with torch.no_grad():
        for _ in range(3):
            model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)[0]
        x.copy_(torch.randn_like(x))
        between = torch.randn_like(x)  # the window is used between capture and replay
        assert torch.allclose(model(between)[0].float(), plain(model, between).float(), atol=3e-2)
        graph.replay()
        assert torch.equal(y, model(x)[0])


def test_streams_and_threads_take_turns():
    model = layer()
    inputs = [torch.randn(150, 16, 32, device="cuda").bfloat16() for _ in range(4)]
    expected = [model(x)[0] for x in inputs]
    torch.cuda.synchronize()
    found: list[list[torch.Tensor]] = [[] for _ in inputs]

    def work(number: int) -> None:
        with select.only("stepwise"), torch.cuda.stream(torch.cuda.Stream()):
            found[number].extend(model(inputs[number])[0] for _ in range(5))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    for many, truth in zip(found, expected, strict=True):
        assert len(many) == 5
        assert all(torch.equal(y, truth) for y in many)


def test_two_layers_of_different_sizes_share_their_memory():
    torch.manual_seed(0)
    small, large = rc.layer("lstm", 32, 64).cuda(), rc.layer("gru", 32, 400).cuda()
    x = torch.randn(40, 6, 32, device="cuda")
    for model in (small, large):
        assert_compiled(model, x)
    for _ in range(2):
        for model in (small, large):
            assert torch.allclose(model(x)[0], plain(model, x), atol=2e-6)


def test_memory_is_bounded_and_goes_with_the_plan():
    layer(dtype=torch.float32)(torch.randn(33, 2, 32, device="cuda"))  # what a library works in is there from now on
    cell = rc.layer("lstm", 32, 512).cell_list[0].cuda()
    gc.collect()
    before = torch.cuda.memory_allocated()
    made = GpuExecutor(plan(cell, trace_in_clean_context(cell), train=False, needs_x=False), torch.float32)
    weights = [w.detach() for w in made.prologue(cell.weights())]
    for batch in range(1, 24):
        x = torch.randn(33, batch, 32, device="cuda")
        made.forward(x, cell.initial_state(batch, x), [], weights, None)
    del x, weights
    assert torch.cuda.memory_allocated() - before < 64 << 20
    assert all(len(steps.windows) <= 8 for steps in made.loops.stepwise.values())
    del made
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 1 << 20


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_larger_than_the_chip(name: str, dtype: torch.dtype):
    with torch.device("cuda"):
        cell = rc.layer(name, 64, 4096).cell_list[0]
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.01)
    cell = cell.to(dtype)
    with select.only(""):
        compare(cell, drawn(cell, 5, 160))
        cell = cell.to(dtype)  # the comparison left it in float64
        assert "step by step" in explain(cell, torch.zeros(5, 160, 64, device="cuda", dtype=dtype))


def test_one_layer_in_both_modes_in_turn():
    """They multiply x by the same matrices in different orders."""
    model = layer("gru", dtype=torch.float32)
    x = torch.randn(9, 6, 32, device="cuda")
    for mode in ("cooperative", "stepwise", "cooperative"):
        with select.only(mode):
            assert torch.allclose(model(x)[0], plain(model, x), atol=2e-6)


def test_a_grid_that_the_card_refuses(monkeypatch: pytest.MonkeyPatch):
    """Told of more multiprocessors than there are, one kernel asks for too many programs at once."""
    monkeypatch.setattr(launch, "processors", lambda device: 100_000)
    monkeypatch.setattr(loops, "processors", lambda device: 100_000)
    with select.only("cooperative"):
        model = rc.layer("lstm", 24, 512).cuda().bfloat16()
        x = torch.randn(5, 4000, 24, device="cuda").bfloat16()
        y = model(x)[0]
        y.float().sum().backward()
        assert any(made.loops.refused for made in executors._recent.values() if isinstance(made, GpuExecutor))
        assert torch.allclose(y.float(), plain(model, x).float(), atol=3e-2)


def test_a_model_after_all_graphs_of_the_last_one_have_gone():
    """Torch frees the memory of graphs with the last of them."""
    for _ in range(3):
        model, x = layer(dtype=torch.float32), torch.randn(40, 16, 32, device="cuda")
        with torch.no_grad():
            for _ in range(2):
                found = model(x)[0]
        assert torch.allclose(found, plain(model, x), atol=5e-6)
        del model
        rc.clear_caches()
        gc.collect()
