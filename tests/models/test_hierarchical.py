"""Hierarchical and clockwork networks against the equations written as a loop, and against plain networks."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.engine import reference
from recurra.errors import InputError, OptionError, ShapeError
from recurra.models import hierarchical_run

STEPS, BATCH, INPUTS = 23, 3, 2


def sequences() -> Tensor:
    return torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64)


def by_hand(model: rc.HierarchicalRNN, x: Tensor) -> Tensor:
    """The definition: every step, every level, ticking or holding."""
    count = len(model.levels)
    state = model.initial_state(x.shape[1], x)
    cells, outputs, found = [[v.squeeze(0) for v in cell] for cell in state.cells], list(state.outputs), []
    for t, x_t in enumerate(x, start=1):
        previous = list(outputs)
        for level in range(count):
            if t % model.periods[level] == 0:
                read = [(outputs if model.same_step and m < level else previous)[m] for m in model.reads[level]]
                seen = torch.cat([x_t, *read], dim=-1)
                y, cells[level], _ = reference.advance(model.levels[level], seen, cells[level], {})
                outputs[level] = y
        found.append(torch.cat(outputs, dim=-1))
    return torch.stack(found)


CASES = [
    ("adjacent", (1, 2, 4), ("rnn", "gru", "lstm")),
    ("adjacent", (2, 3, 5), "rnn"),
    ("adjacent", (1, 1, 1), "rnn"),
    ("adjacent", (1, 40), "rnn"),
    ("adjacent", (1,), "lstm"),
    ("slower", (1, 2, 4), ("lstm", "scrn", "rnn")),
    ("slower", (1, 3, 3), "gru"),
    ("faster", (1, 3, 7), "mgu"),
    ("faster", (2, 40), "rnn"),
]


@pytest.mark.parametrize("same_step", [False, True])
@pytest.mark.parametrize(("wiring", "periods", "cell"), CASES)
def test_is_its_definition(wiring: str, periods: tuple[int, ...], cell: str, same_step: bool):
    options = {"wiring": wiring, "same_step": same_step and wiring != "slower"}
    model = rc.HierarchicalRNN(INPUTS, [4, 3, 2][: len(periods)], periods, cell, **options).double()
    x = sequences().requires_grad_()
    y, state = model(x)
    expected = by_hand(model, x)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(y)
    found, wanted = (torch.autograd.grad((v * weight).sum(), x)[0] for v in (y, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(torch.cat(state.outputs, dim=-1), y[-1], rtol=0, atol=0)


@pytest.mark.parametrize("wiring", ["adjacent", "slower", "faster"])
def test_two_chunks_are_the_whole(wiring: str):
    model, x = rc.HierarchicalRNN(INPUTS, [4, 3], [2, 5], wiring=wiring).double(), sequences()
    whole, _ = model(x)
    first, state = model(x[:8])
    second, _ = model(x[8:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("wiring", ["adjacent", "slower", "faster"])
@pytest.mark.parametrize("ragged", [False, True])
def test_resets_begin_a_sequence_with_its_clock(wiring: str, ragged: bool):
    model, x = rc.HierarchicalRNN(INPUTS, [4, 3], [2, 5], ["gru", "delay_rnn"], wiring=wiring).double(), sequences()
    resets = torch.zeros(STEPS, BATCH, dtype=torch.bool)
    resets[7, 0] = resets[3, 1] = resets[14, 1] = resets[0, 2] = True
    lengths = torch.tensor([STEPS, 12, 20]) if ragged else torch.full((BATCH,), STEPS)
    _, state = model(sequences()[:4])  # in the middle of a period
    y, final, trace = model(x, state, lengths if ragged else None, resets, return_trace=True)
    cuts = {0: [0, 7, STEPS], 1: [0, 3, 14, STEPS], 2: [0, STEPS]}
    for b, edges in cuts.items():
        own = state
        for first, stop in pairwise(min(edge, int(lengths[b])) for edge in edges):
            if first == stop:
                continue
            goes_on = first == 0 and not resets[0, b]
            start = state.map(lambda value, b=b: value[b : b + 1]) if goes_on else None
            alone, own, seen = model(x[first:stop, b : b + 1], start, return_trace=True)
            torch.testing.assert_close(y[first:stop, b : b + 1], alone, rtol=1e-12, atol=1e-12)
            for whole, part in zip(trace.by_cell, seen.by_cell, strict=True):
                for name, value in part.items():
                    torch.testing.assert_close(whole[name][first:stop, b : b + 1], value, rtol=1e-12, atol=1e-12)
        final.map(
            lambda found, expected, b=b: (
                torch.testing.assert_close(found[b], expected[0], rtol=1e-12, atol=1e-12) or found
            ),
            own,
        )
        assert (y[lengths[b] :, b] == 0).all()
    more, _ = model(x, final)  # clocks differ now
    for b in range(BATCH):
        alone, _ = model(x[:, b : b + 1], final.map(lambda value, b=b: value[b : b + 1]))
        torch.testing.assert_close(more[:, b : b + 1], alone, rtol=1e-12, atol=1e-12)


def test_trace_holds_the_values_of_the_last_tick():
    model, x = rc.HierarchicalRNN(INPUTS, [4, 3, 2], [1, 4, 40], "lstm").double(), sequences()
    y, state, trace = model(x, return_trace=True)
    assert set(trace) == {"h", "c", "i", "f", "g", "o"}
    fast, slow, never = trace["h"]
    torch.testing.assert_close(torch.cat([fast, slow, never], -1), y, rtol=0, atol=0)
    gate = trace.by_cell[1]["f"]
    assert (gate[:3] == 0).all()
    assert (gate[3] != 0).all()
    torch.testing.assert_close(gate[3:7], gate[3].expand(4, -1, -1), rtol=0, atol=0)
    torch.testing.assert_close(trace.by_cell[1]["c"][-1], state.cells[1][1][0], rtol=0, atol=0)
    assert never.shape == (STEPS, BATCH, 2)


@pytest.mark.parametrize("wiring", ["adjacent", "slower", "faster"])
def test_results_do_not_depend_on_padding(wiring: str):
    model, x = rc.HierarchicalRNN(INPUTS, [4, 3], [1, 4], wiring=wiring).double(), sequences()
    lengths = torch.tensor([STEPS, 2, 9])  # the second ends before its slow level ticks
    padded = x.clone()
    for b, n in enumerate(lengths):
        padded[n:, b] = torch.nan
    y, state = model(padded, lengths=lengths)
    for b, n in enumerate(lengths):
        alone, own = model(x[:n, b : b + 1])
        torch.testing.assert_close(y[:n, b : b + 1], alone, rtol=1e-12, atol=1e-12)
        assert (y[n:, b] == 0).all()
        for level in range(2):
            torch.testing.assert_close(state.outputs[level][b], own.outputs[level][0], rtol=1e-12, atol=1e-12)


def test_one_level_of_period_one_is_the_cell():
    model, layer = rc.HierarchicalRNN(INPUTS, [4], [1]).double(), rc.RNN(INPUTS, 4).double()
    layer.cells[0].load_state_dict(model.levels[0].state_dict())
    x = sequences()
    torch.testing.assert_close(model(x)[0], layer(x)[0], rtol=1e-13, atol=1e-13)


def test_clockwork_of_period_one_is_a_block_triangular_rnn():
    model, layer = rc.ClockworkRNN(INPUTS, 6, periods=(1, 1, 1)).double(), rc.RNN(INPUTS, 6).double()
    a = layer.cells[0].a
    with torch.no_grad():
        a.W.zero_()
        for level, cell in enumerate(model.levels):
            rows = slice(2 * level, 2 * level + 2)
            a.U[rows], a.b[rows] = cell.a.U[:, :INPUTS], cell.a.b
            a.W[rows, rows] = cell.a.W
            a.W[rows, 2 * level + 2 :] = cell.a.U[:, INPUTS:]
    assert torch.equal(a.W, a.W.triu(-1))
    x = sequences()
    torch.testing.assert_close(model(x)[0], layer(x)[0], rtol=1e-12, atol=1e-12)


def test_a_slow_level_alone_is_the_cell_on_every_fourth_frame():
    model, x = rc.HierarchicalRNN(INPUTS, [5], [4]).double(), sequences()
    layer = rc.RNN(INPUTS, 5).double()
    layer.cells[0].load_state_dict(model.levels[0].state_dict())
    torch.testing.assert_close(model(x)[0][3::4], layer(x[3::4])[0], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("wiring", ["adjacent", "slower"])
def test_a_level_is_computed_at_its_ticks_alone(wiring: str, monkeypatch: pytest.MonkeyPatch):
    computed: dict[int, int] = {}
    scan = hierarchical_run.scan

    def counting(cell: rc.Cell, given: hierarchical_run.Sequences, keep_trace: bool):
        computed[cell.hidden_size] = computed.get(cell.hidden_size, 0) + len(given.x)
        return scan(cell, given, keep_trace)

    monkeypatch.setattr(hierarchical_run, "scan", counting)
    rc.HierarchicalRNN(INPUTS, [5, 4, 3], [1, 4, 9], wiring=wiring).double()(sequences())
    assert computed == {5: STEPS, 4: STEPS // 4, 3: STEPS // 9}


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="sizes: got 3, expected a list"):
        rc.HierarchicalRNN(2, 3, [1])  # pyrefly: ignore
    with pytest.raises(InputError, match="periods: got 1, expected a list"):
        rc.HierarchicalRNN(2, [3], 1)  # pyrefly: ignore
    with pytest.raises(InputError, match="fast to slow"):
        rc.HierarchicalRNN(2, [3, 3], [4, 1])
    with pytest.raises(InputError, match="one a level"):
        rc.HierarchicalRNN(2, [3], [1, 2])
    with pytest.raises(InputError, match="adjacent"):
        rc.HierarchicalRNN(2, [3], [1], wiring="adjacen")
    with pytest.raises(InputError, match="multiple of the number of periods"):
        rc.ClockworkRNN(2, 7, periods=(1, 2))
    model = rc.HierarchicalRNN(2, [3, 3], [1, 4])
    with pytest.raises(ShapeError, match="x: got shape"):
        model(torch.zeros(4, 2))
    with pytest.raises(OptionError, match="levels read faster ones"):
        rc.HierarchicalRNN(2, [3, 3], [1, 4], wiring="slower", same_step=True)
    with pytest.raises(ShapeError, match="resets"):
        model(torch.zeros(4, 2, 2), resets=torch.zeros(2, 4, dtype=torch.bool))
