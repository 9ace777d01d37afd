"""Packed weights and prepared steps are kept between calls, and never one call too long."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.cpu import kernel
from recurra.engine.cpu.layout import dense
from recurra.engine.dispatch import Sequences, choose

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def compiled():
    with set_backend("compiled"):
        yield


def changed(layer: rc.Recurrent, how: str) -> None:
    """Change a weight in one of the ways people do."""
    weight = next(layer.parameters())
    with torch.no_grad():
        if how == "in place":
            weight.mul_(1.5)
        elif how == "through data":
            weight.data.mul_(1.5)
        elif how == "one number through data":
            weight.data[0, 0] += 0.5
        elif how == "through numpy":
            weight.numpy()[...] *= 1.5
        elif how == "new data":
            weight.data = weight.data * 1.5
        elif how == "a new parameter":
            layer.load_state_dict({n: 1.5 * p for n, p in layer.state_dict().items()}, assign=True)


WAYS = ["in place", "through data", "one number through data", "through numpy", "new data", "a new parameter"]


def expected(layer: rc.Recurrent, x: Tensor) -> Tensor:
    with set_backend("reference"), torch.no_grad():
        return layer(x)[0]


@pytest.mark.parametrize("how", WAYS)
def test_a_changed_weight_is_seen_at_the_next_call(how: str):
    layer, x = rc.layer("lstm", 3, 20, dtype=torch.float64), torch.randn(6, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        before = layer(x)[0]
        changed(layer, how)
        after = layer(x)[0]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, expected(layer, x), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("how", WAYS)
def test_a_changed_weight_is_seen_at_the_next_step(how: str):
    layer, x = rc.layer("gru", 3, 20, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    state = torch.randn(1, 2, 20, dtype=torch.float64)
    with torch.no_grad():
        before = layer.step(x, state)[0]
        changed(layer, how)
        after = layer.step(x, state)[0]
        with set_backend("reference"):
            wanted = layer.step(x, state)[0]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("where", [(0, slice(None)), (-1, -1), (100, slice(3, 5)), (slice(None), 7)], ids=str)
@pytest.mark.parametrize("through", ["data", "numpy"])
@torch.no_grad()
def test_a_few_numbers_written_past_the_version_are_seen_at_the_next_step(where: tuple, through: str):
    """Anywhere in a weight of tens of thousands of numbers."""
    layer, x = rc.layer("lstm", 96, 128, dtype=torch.float64), torch.randn(3, 96, dtype=torch.float64)
    _, state = layer.step(x)
    for weight in layer.parameters():
        before = layer.step(x, state)[0]
        (weight.data if through == "data" else weight.detach().numpy())[where if weight.dim() == 2 else where[0]] += 1.0
        after = layer.step(x, state)[0]
        with set_backend("reference"):
            wanted = layer.step(x, state)[0]
        assert not torch.equal(before, after)
        torch.testing.assert_close(after, wanted, rtol=1e-11, atol=1e-13)


@torch.no_grad()
def test_transposed_weights_written_past_the_version_are_seen_at_the_next_step():
    layer, x = rc.layer("rnn", 96, 128, dtype=torch.float64), torch.randn(3, 96, dtype=torch.float64)
    matrices = [weight for weight in layer.parameters() if weight.dim() == 2]
    for weight in matrices:
        weight.data = weight.data.t().contiguous().t()
    layer.step(x)
    for weight in matrices:
        weight.data[0] += 1.0
    after = layer.step(x)[0]
    with set_backend("reference"):
        torch.testing.assert_close(after, layer.step(x)[0], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("size", [8, 80])
def test_what_a_fused_optimizer_writes_is_seen_at_the_next_step(size: int):
    """It leaves the versions of the weights as they were."""
    layer, x = rc.layer("gru", 3, size), torch.randn(4, 2, 3)
    optimizer = torch.optim.Adam(layer.parameters(), 0.1, fused=True)
    with torch.no_grad():
        before = layer.step(x[0])[0]
    layer(x)[0].sum().backward()
    optimizer.step()
    with torch.no_grad():
        after = layer.step(x[0])[0]
        with set_backend("reference"):
            torch.testing.assert_close(after, layer.step(x[0])[0])
    assert not torch.allclose(before, after)


def test_vectors_put_in_place_of_the_weights_one_after_the_other():
    """Each may lie where the last but one has lain: an address says little."""
    layer, x = rc.layer("gru", 40, 40), torch.randn(2, 40)
    count = sum(p.numel() for p in layer.parameters())
    for turn in range(12):
        torch.nn.utils.vector_to_parameters(0.1 * torch.randn(count), layer.parameters())
        if turn % 2 == 0:
            with torch.no_grad():
                found = layer.step(x)[0]
                with set_backend("reference"):
                    torch.testing.assert_close(found, layer.step(x)[0])


FORK = """
import os, signal, torch, recurra as rc
torch.set_num_threads(2)
torch.set_grad_enabled(False)
layer, x = rc.layer("lstm", 256, 256), torch.randn(32, 256)
layer.step(x)
child = os.fork()
if child == 0:
    signal.alarm(300)
    layer.step(x)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_does_not_wait_for_the_threads_of_a_step_prepared_before():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=600)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_signs_that_change_past_the_version_are_seen(dtype: torch.dtype):
    layer, x = rc.layer("rnn", 64, 128, dtype=dtype), torch.randn(3, 2, 64, dtype=dtype)
    before = layer(x)[0], layer.step(x[0])[0]
    for weight in layer.parameters():
        weight.data.neg_()
    after = layer(x)[0], layer.step(x[0])[0]
    with set_backend("reference"):
        wanted = layer(x)[0], layer.step(x[0])[0]
    torch.testing.assert_close(after, wanted, rtol=1e-5, atol=1e-5)
    assert all(not torch.allclose(a, b) for a, b in zip(before, after, strict=True))


class Rated(rc.Cell):
    """A cell that reads a plain number of its own."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.rate = self.affine("x", "h"), 0.3

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return (1 - self.rate) * h + self.rate * torch.tanh(self.a(x, h))


def test_a_step_follows_the_attributes_of_its_cell():
    layer = rc.Recurrent(Rated, 3, 20, dtype=torch.float64)
    x, state = torch.randn(2, 3, dtype=torch.float64), torch.randn(1, 2, 20, dtype=torch.float64)
    with torch.no_grad():
        before = layer.step(x, state)[0]
        layer.cells[0].rate = 0.9
        after = layer.step(x, state)[0]
        with set_backend("reference"):
            wanted = layer.step(x, state)[0]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, wanted, rtol=1e-12, atol=1e-14)


def test_two_layers_of_one_shape_do_not_mix_their_weights():
    layers = [rc.layer("lstm", 3, 20, dtype=torch.float64) for _ in range(12)]
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(2):
            for layer in layers:
                torch.testing.assert_close(layer(x)[0], expected(layer, x), rtol=1e-12, atol=1e-14)


def test_steps_in_several_threads():
    layer, x = rc.layer("mgu", 3, 20, dtype=torch.float64), torch.randn(50, 4, 2, 3, dtype=torch.float64)
    found: dict[int, Tensor] = {}

    def stream(k: int) -> None:
        with torch.no_grad(), set_backend("compiled"):
            state, ys = None, []
            for t in range(50):
                y, state = layer.step(x[t, k], state)
                ys.append(y)
            found[k] = torch.stack(ys)

    threads = [threading.Thread(target=stream, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        torch.testing.assert_close(found[k], expected(layer, x[:, k]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weight_gradients_for_any_number_of_threads(threads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "threads_here", lambda: threads)
    monkeypatch.setattr("recurra.engine.cpu.weight_grads.threads_here", lambda: threads)
    monkeypatch.setattr("recurra.engine.cpu.weight_grads.WORTH_THREADS", 0)
    torch.manual_seed(0)
    layer, x = rc.layer("lstm", 50, 41, dtype=dtype), torch.randn(31, 9, 50, dtype=dtype)
    cotangent = torch.randn(31, 9, 41, dtype=dtype)
    exact = rc.layer("lstm", 50, 41, dtype=torch.float64)
    exact.load_state_dict({n: p.double() for n, p in layer.state_dict().items()})
    with set_backend("reference"):
        exact(x.double())[0].backward(cotangent.double())
    layer(x)[0].backward(cotangent)
    for ours, theirs in zip(layer.parameters(), exact.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        error = (ours.grad.double() - theirs.grad).norm() / theirs.grad.norm()
        assert error < (1e-6 if dtype is torch.float32 else 1e-13)


@pytest.mark.parametrize(
    ("size", "rows", "expected"), [(4, 1, (1, False)), (4, 3, (3, False)), (4, 8, (4, False)), (128, 1, (4, True))]
)
def test_threads_do_not_meet_at_every_step_of_a_small_cell(
    size: int, rows: int, expected: tuple[int, bool], monkeypatch: pytest.MonkeyPatch
):
    """However long the sequence: where cores are short, a meeting may take a thousand times as long as the step."""
    monkeypatch.setattr(kernel, "threads_here", lambda: 4)
    layer, x = rc.layer("gru", 2, size), torch.randn(3, rows, 2)
    with torch.no_grad():
        layer(x)
    cell = layer.cell_list[0]
    made = choose(cell, Sequences(x, cell.initial_state(rows, x), {})).executor
    assert made.forward_kernel.split(dense(100_000, rows), rows)[:2] == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_that_outgrow_the_cache_are_made_some_at_a_time(threads: int):
    layer, x = rc.layer("rnn", 3, 900, dtype=torch.float64), torch.randn(6, 2, 3, dtype=torch.float64)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        layer(x)[0].sum().backward()
    finally:
        torch.set_num_threads(before)
    found = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
    layer.zero_grad()
    with set_backend("reference"):
        layer(x)[0].sum().backward()
    for ours, theirs in zip(found, layer.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 1, 3, 5, 2])])
def test_products_with_x_may_leave_the_loop(lengths: Tensor | None, monkeypatch: pytest.MonkeyPatch):
    from recurra.engine.cpu.executor import CpuExecutor

    monkeypatch.setattr(CpuExecutor, "_worth_hoisting", lambda *_: True)
    for name in ("lstm", "gru", "scrn"):
        layer, x = rc.layer(name, 23, 20, dtype=torch.float64), torch.randn(5, 5, 23, dtype=torch.float64)
        found = layer(x, lengths=lengths)[0]
        with set_backend("reference"):
            wanted = layer(x, lengths=lengths)[0]
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)
