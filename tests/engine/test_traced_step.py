"""The cache of step functions: shared by equal cells, bounded, rebuilt after it was emptied, and without tensors."""

import gc

import torch
from helpers import assert_close

import recurra as rc
from recurra.engine import caches, traced_step
from recurra.engine.traced_step import bind_step, step_function

NAMES = ("lstm", "gru", "mgu", "rnn", "ugrnn")


def build_cells() -> list[rc.Cell]:
    return [rc.registry()[name](3, 4).double() for name in NAMES]


def run_step(cell: rc.Cell, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return bind_step(cell)(x, cell.initial_state(len(x), x), {})[0]


def test_cells_with_the_same_equations_share_a_function():
    lstm, wider, gru = rc.LSTM(3, 4).cells[0], rc.LSTM(3, 9).cells[0], rc.GRU(3, 4).cells[0]
    assert step_function(lstm) is step_function(wider)
    assert step_function(lstm) is not step_function(gru)


def test_the_cache_is_bounded_and_an_evicted_function_is_made_again(monkeypatch):
    monkeypatch.setattr(traced_step, "_FUNCTIONS", {})
    monkeypatch.setattr(traced_step, "MAX_FUNCTIONS", 2)
    x = torch.randn(2, 3, dtype=torch.float64)
    for _ in range(2):
        for cell in build_cells():
            expected = cell.step(x, *cell.initial_state(2, x))
            expected = expected if isinstance(expected, tuple) else (expected,)
            for value, wanted in zip(run_step(cell, x)[1:], expected, strict=True):
                assert_close(value, wanted)
            assert len(traced_step._FUNCTIONS) <= 2


def test_the_function_used_longest_ago_is_evicted(monkeypatch):
    monkeypatch.setattr(traced_step, "_FUNCTIONS", {})
    monkeypatch.setattr(traced_step, "MAX_FUNCTIONS", 2)
    first, second, third, *_ = build_cells()
    kept = step_function(first)
    step_function(second)
    step_function(first)
    step_function(third)
    assert step_function(first) is kept


def test_a_cleared_cache_is_filled_again():
    cell, x = rc.LSTM(3, 4).double().cells[0], torch.randn(2, 3, dtype=torch.float64)
    before = run_step(cell, x)
    caches.clear_caches()
    assert caches.cache_sizes()["step functions"] == 0
    for value, wanted in zip(run_step(cell, x), before, strict=True):
        assert_close(value, wanted)


def test_a_step_function_keeps_no_tensor():
    def count_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) and thing.shape == (37, 53) for thing in gc.get_objects())

    class Wide(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x")

        def step(self, x, h):
            return torch.tanh(self.a(x)) + 0.125 * h

    kept = step_function(Wide(53, 37))
    assert kept.weights == ("a.U", "a.b")
    assert count_tensors() == 0
