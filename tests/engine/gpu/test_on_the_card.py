"""The GPU engine with torch's features (streams, graphs, autocast, compile, DDP) on a CUDA device."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from engine.gpu.accuracy import assert_same_bits, layer, plain

import recurra as rc
from recurra.engine import parallel_directions
from recurra.engine.dispatch import Sequences, choose, scan
from recurra.engine.gpu import select

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["row_per_program", "cooperative"], autouse=True)
def mode(request: pytest.FixtureRequest):
    """Small layers run with one program per row; everything here must hold for cooperating programs too."""
    with select.only(request.param):
        yield


def test_two_runs_give_the_same_bits():
    assert_same_bits(layer().cell_list[0], runs=5)


def test_a_long_sequence_and_a_lasting_state():
    model = layer(dtype=torch.float32)
    x = torch.randn(1024, 3, 32, device="cuda")
    whole, final = model(x)
    first, state = model(x[:500])
    second, last = model(x[500:], state)
    assert torch.allclose(whole, torch.cat([first, second]), atol=1e-6)
    assert torch.allclose(whole[:100], plain(model, x[:100]), atol=5e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(final, last, strict=True))


def test_nan_in_the_input_arrives_and_ends_nothing():
    model = layer(dtype=torch.float32)
    x = torch.randn(12, 4, 32, device="cuda")
    x[5, 2, 0] = float("nan")
    y, _ = model(x)
    assert y[5:, 2].isnan().all()
    assert torch.allclose(y, plain(model, x), atol=2e-6, equal_nan=True)


def test_all_ones_in_the_initial_state_are_a_nan_like_any_other():
    model = layer(dtype=torch.float32)
    ones = torch.full((1, 4, 64), -1, dtype=torch.int32, device="cuda").view(torch.float32)
    y, _ = model(torch.randn(3, 4, 32, device="cuda"), (ones, torch.zeros_like(ones)))
    assert y.isnan().all()


def test_another_stream_and_two_kernels_at_once():
    model, x = layer(), torch.randn(200, 16, 32, device="cuda").bfloat16()
    expected = model(x)[0]
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    found = []
    for stream in streams:
        with torch.cuda.stream(stream):
            found.append(model(x)[0])
    torch.cuda.synchronize()
    assert all(torch.equal(y, expected) for y in found)


def test_inside_a_cuda_graph():
    model, x = layer(), torch.randn(30, 16, 32, device="cuda").bfloat16()
    with torch.no_grad():
        for _ in range(3):
            model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)[0]
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, model(x)[0])


@pytest.mark.parametrize("mode", ["cooperative", "stepwise"])
def test_a_cuda_graph_sees_new_weights(mode: str):
    model, x = layer(), torch.randn(30, 16, 32, device="cuda").bfloat16()
    with torch.no_grad(), select.only(mode):
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)[0]
        for weight in model.parameters():
            weight.mul_(0.5)
        graph.replay()
        assert torch.equal(y, model(x)[0])


def test_weights_changed_past_their_version_are_seen():
    model, x = layer(dtype=torch.float32), torch.randn(9, 4, 32, device="cuda")
    with torch.no_grad():
        before = model(x)[0]
        for weight in model.parameters():
            weight.data.mul_(0.5)
        after = model(x)[0]
        with rc.set_backend("reference"):
            expected = model(x)[0]
    assert not torch.allclose(before, after)
    assert torch.allclose(after, expected, atol=1e-5)


def test_autocast():
    model = layer(dtype=torch.float32)
    x = torch.randn(20, 8, 32, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        y, _ = model(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    assert torch.allclose(y.float(), model(x)[0], atol=3e-2)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # torch's own, when it makes the pool of its graphs
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"mode": "reduce-overhead"}], ids=str)
def test_torch_compile_keeps_it_whole(options: dict):
    model, x = layer(dtype=torch.float32), torch.randn(9, 4, 32, device="cuda")
    compiled = torch.compile(model, fullgraph=True, **options)
    y, _ = compiled(x)
    expected = plain(model, x)
    assert torch.allclose(y, expected, atol=2e-6)
    found, truth = (torch.autograd.grad(v.sum(), list(model.parameters())) for v in (y, expected))
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(found, truth, strict=True))


def test_second_derivatives_forward_mode_and_vmap():
    model, x = layer(dtype=torch.float32), torch.randn(4, 2, 32, device="cuda", requires_grad=True)
    many = torch.randn(3, 4, 2, 32, device="cuda")

    def transformed() -> list[torch.Tensor]:
        (first,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        tangent = torch.func.jvp(lambda v: model(v)[0], (x.detach(),), (torch.ones_like(x),))[1]
        return [first.detach(), second, tangent.detach(), torch.func.vmap(lambda v: model(v)[0])(many).detach()]

    found = transformed()
    with rc.set_backend("reference"):
        expected = transformed()
    for value, truth in zip(found, expected, strict=True):
        assert torch.allclose(value, truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_directions_layers_and_traces(name: str):
    model = layer(name, torch.float32, num_layers=2, bidirectional=True)
    x, lengths = torch.randn(11, 5, 32, device="cuda"), torch.tensor([11, 3, 7, 1, 9])
    y, _, trace = model(x, lengths=lengths, return_trace=True)
    with rc.set_backend("reference"):
        expected, _, plain = model(x, lengths=lengths, return_trace=True)
    assert torch.allclose(y, expected, atol=2e-6)
    assert sorted(trace) == sorted(plain)
    for found, truth in zip(trace.by_cell, plain.by_cell, strict=True):
        assert all(torch.allclose(found[name], truth[name], atol=2e-6) for name in truth)


def test_gradients_of_two_directions_side_by_side():
    model, x = layer(dtype=torch.float32, bidirectional=True), torch.randn(40, 16, 32, device="cuda")
    cotangent = torch.randn(40, 16, 128, device="cuda")

    def gradients() -> list[torch.Tensor]:
        given = x.clone().requires_grad_()
        return list(torch.autograd.grad(model(given)[0], [given, *model.parameters()], cotangent))

    found = [gradients() for _ in range(5)]
    with rc.set_backend("reference"):
        expected = gradients()
    for once in found:
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(once, expected, strict=True))


def test_two_directions_of_which_one_is_late():
    """Memory that backward lets go of stays untouched until the late stream has read it."""
    models = [layer(dtype=torch.float32, bidirectional=True) for _ in range(2)]
    x, weights = torch.randn(40, 16, 32, device="cuda"), [w for model in models for w in model.parameters()]

    def gradients(cycles: int) -> list[torch.Tensor]:
        total = sum(model(x)[0].square().sum() for model in models)
        with torch.cuda.stream(parallel_directions._stream(x.device, 1)):
            torch.cuda._sleep(cycles)
        return list(torch.autograd.grad(total, weights))

    expected = gradients(0)
    torch.cuda.synchronize()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(gradients(200_000_000), expected, strict=True))


BUSY = """
import time, torch
a = torch.randn(4096, 4096, device="cuda")
print("busy", flush=True)
end = time.time() + 60
while time.time() < end:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


def test_a_card_that_another_process_keeps_busy():
    model, x = layer(), torch.randn(300, 64, 32, device="cuda").bfloat16()
    expected = model(x)[0]
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "busy\n"
            for _ in range(20):
                y = model(x)[0]
                y.sum().backward()
                assert torch.equal(y, expected)
        finally:
            other.kill()


def test_data_parallel(tmp_path: Path):
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        model, x = layer(dtype=torch.float32), torch.randn(9, 4, 32, device="cuda")
        model(x)[0].sum().backward()
        expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        torch.nn.parallel.DistributedDataParallel(model)(x)[0].sum().backward()
        found = [p.grad for p in model.parameters() if p.grad is not None]
        assert len(found) == len(expected) > 0
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_resets(name: str):
    model, x = layer(name, torch.float32), torch.randn(11, 5, 32, device="cuda")
    resets = torch.rand(11, 5, device="cuda") < 0.3
    y, _ = model(x, resets=resets)
    assert torch.allclose(y, plain(model, x, resets=resets), atol=2e-6)


def test_more_numbers_than_32_bits_count():
    cell = rc.layer("rnn", 8, 1024).cell_list[0].cuda().bfloat16()
    x = torch.randn(8400, 256, 8, device="cuda").bfloat16()  # 2.2e9 numbers come out
    with torch.no_grad():
        given = Sequences(x, cell.initial_state(256, x), {})
        assert choose(cell, given).backend == "compiled"
        y = scan(cell, given).y
        last = scan(cell, Sequences(x[-40:], (y[-41],), {})).y
    assert torch.allclose(y[-1].float(), last[-1].float(), atol=2e-2)
