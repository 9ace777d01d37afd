"""Threads of a call: as many as find a core, with the same bits however many they are."""

import ctypes
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from engine.strange_cells import RowNormalised, TwoChainedProducts
from waiting import wait_until

import recurra as rc
from recurra.engine.cpu import compiler
from recurra.engine.cpu.backward_call import BackwardCall
from recurra.engine.cpu.kernel import Kernel, free_cores

pytestmark = pytest.mark.skipif(compiler.find_compiler() is None, reason="needs a C++ compiler")


@contextmanager
def threads(wanted: int, limit: int) -> Iterator[None]:
    """Calls ask for `wanted` threads and get at most `limit`."""
    fixed, before = ctypes.c_int64.in_dll(free_cores(), "fixed_limit"), torch.get_num_threads()
    torch.set_num_threads(wanted)
    fixed.value = limit
    try:
        yield
    finally:
        fixed.value = 0
        torch.set_num_threads(before)


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize("cell_class", [RowNormalised, TwoChainedProducts])
def test_the_bits_do_not_depend_on_the_threads_that_find_a_core(cell_class: type[rc.Cell], batch: int):
    layer, x = rc.Recurrent(cell_class, 40, 140), torch.randn(60, batch, 40)

    def run(limit: int) -> list[torch.Tensor]:
        with threads(5, limit):
            y = layer(x)[0]
            return [y.detach(), *torch.autograd.grad(y.square().sum(), list(layer.parameters()))]

    expected = run(5)
    for limit in (1, 2, 3):
        for a, b in zip(run(limit), expected, strict=True):
            assert torch.equal(a, b), limit


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("name", "options"), [("min_gru", {}), ("indrnn", {}), ("focused_rnn", {})])
def test_columns_that_do_not_depend_on_each_other_are_shared_without_waiting(name: str, options: dict, ragged: bool):
    """Batches with fewer sequences than threads: each thread runs some units through all steps."""
    layer = rc.layer(name, 40, 300, dtype=torch.float64, **options)
    lengths = torch.tensor([150, 60]) if ragged else None
    x = torch.randn(150, 2, 40, dtype=torch.float64, requires_grad=True)
    start = torch.randn(1, 2, 300, dtype=torch.float64, requires_grad=True)

    def run() -> list[torch.Tensor]:
        y, final = layer(x, start, lengths=lengths)
        loss = y.square().sum() + final.sin().sum()
        return [y.detach(), *torch.autograd.grad(loss, [x, start, *layer.parameters()])]

    with rc.set_backend("reference"):
        expected = run()
    found = {}
    for limit in (5, 1, 3):
        with threads(5, limit):
            found[limit] = run()
    (executor,) = [e for r, e in layer.cell_list[0].__dict__["_cache"].executors.items() if r[0].train]
    assert executor.backward_kernel.schedule.has_independent_columns
    assert any(isinstance(call, BackwardCall) and call.launch.split.by_column for call in executor.calls.values())
    for values in found.values():
        for a, b, c in zip(values, expected, found[5], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
            assert torch.equal(a, c)


class Wide(rc.Cell):
    """One state of six million units beside a small one, whose product makes threads share the units."""

    states = ("s", "h")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, sizes={"h": 6_000_000})
        self.a, self.u = self.affine("x", "s"), self.vector(6_000_000)

    def step(self, x: torch.Tensor, s: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        s = torch.tanh(self.a(x, s))
        return s, torch.tanh(h * self.u + s[..., :1])


@pytest.mark.slow
def test_six_million_units():
    """More tiles than 16 bits count, shared by threads that steal from each other."""
    layer, x = rc.Recurrent(Wide, 2, 160), torch.randn(3, 2, 2)
    cell, s, h = layer.cell_list[0], torch.zeros(2, 160), torch.zeros(2, 6_000_000)
    with torch.no_grad():
        cell.u.normal_()
        with threads(3, 3):
            found = layer(x)[1][1][0]
        for t in range(3):
            s = torch.tanh(x[t] @ cell.a.U.T + s @ cell.a.W.T + cell.a.b)
            h = torch.tanh(h * cell.u + s[:, :1])
    torch.testing.assert_close(found, h, rtol=1e-4, atol=1e-5)


def test_work_stealing_ends_where_its_counters_do(monkeypatch: pytest.MonkeyPatch):
    """With more tiles than a counter holds, threads keep to their own."""
    seen, worth = [], Kernel._worth_stealing
    monkeypatch.setattr(Kernel, "_worth_stealing", lambda *given: seen.append(worth(*given)) or seen[-1])
    monkeypatch.setattr("recurra.engine.cpu.kernel.WORTH_STEALING", 10)
    for most, expected in ((1 << 24, True), (2, False)):
        monkeypatch.setattr("recurra.engine.cpu.kernel.MOST_TILES", most)
        layer = rc.Recurrent(TwoChainedProducts, 40, 140, dtype=torch.float64)
        x = torch.randn(60, 1, 40, dtype=torch.float64)
        rc.clear_caches()
        with torch.no_grad(), threads(2, 2):
            y = layer(x)[0]
            with rc.set_backend("reference"):
                torch.testing.assert_close(y, layer(x)[0])
        assert seen.pop() is expected


@pytest.mark.skipif(sys.platform != "linux", reason="the load is read from /proc")
def test_cores_that_others_use_are_not_free():
    """Two busy processes for every core leave one thread."""
    ask = free_cores().free_threads
    ask.argtypes, ask.restype = [ctypes.c_int64], ctypes.c_int64
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(2 * multiprocessing.cpu_count())]
    try:
        wait_until(lambda: ask(1000) == 1)  # the first samples reach back to before the processes started
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert ask(1) == 1
