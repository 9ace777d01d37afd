"""Dilated layers against a loop in which step t reads the state of step t - d, kept in a dictionary by time."""

import pytest
import torch

import recurra as rc
from recurra.errors import InputError, OptionError, ShapeError

CELLS = ["lstm", "gru", "rnn", "delay_rnn"]


def loop(cell, x, dilation, start=None, began=None):
    """Outputs (T, F) and the states of all steps of one sequence x (T, D); `began` are the steps of resets."""
    from recurra.engine.reference import advance

    fresh = cell.initial_state(1, x)
    states = {} if start is None else {-1 - k: tuple(s[k : k + 1] for s in start) for k in range(dilation)}
    outputs, first = [], -dilation
    for t in range(len(x)):
        first = t if began is not None and bool(began[t]) else first
        before = states.get(t - dilation, fresh) if t - dilation >= first else fresh
        y, states[t], _ = advance(cell, x[t : t + 1], before, {})
        outputs.append(y[0])
    final = [states.get(len(x) - 1 - k, fresh) if len(x) - 1 - k >= first else fresh for k in range(dilation)]
    return torch.stack(outputs), [torch.cat(parts) for parts in zip(*final, strict=True)]


def as_tuple(state):
    return state if isinstance(state, tuple) else (state,)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dilation", [2, 5])
def test_values_states_and_gradients_equal_the_loop(cell, dilation):
    layer = rc.Recurrent(cell, 3, 4, dilation=dilation, dtype=torch.float64)
    x = torch.randn(11, 2, 3, dtype=torch.float64, requires_grad=True)
    y, state = layer(x)
    expected = [loop(layer.cells[0], x[:, b], dilation) for b in range(2)]
    close(y, torch.stack([one[0] for one in expected], 1))
    for k, found in enumerate(as_tuple(state)):
        close(found[0], torch.stack([one[1][k] for one in expected]))
    weights = [x, *layer.parameters()]
    push = torch.randn_like(y)
    found = torch.autograd.grad((y * push).sum() + sum(s.square().sum() for s in as_tuple(state)), weights)
    plain = sum((one[0] * push[:, b]).sum() + sum(s.square().sum() for s in one[1]) for b, one in enumerate(expected))
    for a, b in zip(found, torch.autograd.grad(plain, weights), strict=True):
        close(a, b)


@pytest.mark.parametrize("cell", ["lstm", "delay_rnn"])
def test_ragged_sequences_with_resets_and_a_state_equal_the_loop_both_ways(cell):
    layer = rc.Recurrent(cell, 3, 4, dilation=3, bidirectional=True, dtype=torch.float64)
    lengths, x = torch.tensor([9, 2, 7]), torch.randn(9, 3, 3, dtype=torch.float64)
    resets = torch.zeros(9, 3, dtype=torch.bool)
    resets[4, 0] = resets[6, 2] = True
    zero = as_tuple(layer(x)[1])
    state = tuple(torch.randn_like(s) for s in zero)
    y, final = layer(x, state if len(state) > 1 else state[0], lengths, resets)
    for b, n in enumerate(lengths.tolist()):
        onward = loop(layer.cells[0], x[:n, b], 3, [s[0, b] for s in state], resets[:n, b])
        following = torch.cat([resets[1:n, b], torch.zeros(1, dtype=torch.bool)]).flip(0)
        back = loop(layer.cells[1], x[:n, b].flip(0), 3, [s[1, b] for s in state], following)
        close(y[:n, b], torch.cat([onward[0], back[0].flip(0)], 1))
        assert not y[n:, b].any()
        for k, found in enumerate(as_tuple(final)):
            close(found[:, b], torch.stack([onward[1][k], back[1][k]]))


def test_a_stack_streams_step_by_step_and_in_pieces():
    layer = rc.Recurrent("gru", 3, 4, dilation=(1, 2, 4), depth="residual", dtype=torch.float64)
    assert layer.num_layers == 3
    x = torch.randn(13, 2, 3, dtype=torch.float64)
    y, final = layer(x)
    assert [tuple(s.shape) for s in final] == [(2, 4), (2, 2, 4), (2, 4, 4)]
    first, state = layer(x[:5])
    rest, end = layer(x[5:], state)
    close(torch.cat([first, rest]), y)
    state, steps = None, []
    for x_t in x:
        out, state = layer.step(x_t, state)
        steps.append(out)
    close(torch.stack(steps), y)
    for a, b, c in zip(final, end, state, strict=True):
        close(a, b)
        close(a, c)


def test_a_reset_forgets_what_later_calls_would_read():
    layer = rc.Recurrent("gru", 3, 4, dilation=4, dtype=torch.float64)
    x = torch.randn(12, 1, 3, dtype=torch.float64)
    resets = torch.zeros(12, 1, dtype=torch.bool)
    resets[5] = True
    whole, _ = layer(x, resets=resets)
    first, state = layer(x[:7], resets=resets[:7])
    close(torch.cat([first, layer(x[7:], state)[0]]), whole)


def test_learned_and_carried_starts_masks_traces_and_checkpoints():
    x = torch.randn(10, 2, 3, dtype=torch.float64)
    learned = rc.Recurrent("gru", 3, 4, dilation=3, initial="learned", dtype=torch.float64)
    torch.nn.init.normal_(learned.cells[0].h_0)
    y, _, trace = learned(x, return_trace=True)
    close(y[:, 1], loop(learned.cells[0], x[:, 1], 3)[0])
    close(trace["h"], y)
    carried = rc.Recurrent("gru", 3, 4, dilation=3, initial="carried", dtype=torch.float64)
    close(torch.cat([carried(x[:4])[0], carried(x[4:])[0]]), carried.reset_state() or carried(x)[0])
    again = rc.Recurrent("gru", 3, 4, dilation=3, checkpoint=True, dtype=torch.float64)
    close(again(x)[0][:, 0], loop(again.cells[0], x[:, 0], 3)[0])


def test_the_lanes_of_a_sequence_share_its_dropout_mask():
    layer = rc.Recurrent("gru", 3, 4, dilation=2, modifiers=rc.VariationalDropout(0.5), dtype=torch.float64)
    x = torch.randn(1, 5, 3, dtype=torch.float64).expand(8, 5, 3)  # equal steps, so equal lanes
    y, _ = layer(x)
    close(y[0::2], y[1::2])


def test_wrong_dilations_and_states_are_refused_by_name():
    with pytest.raises(InputError, match="dilation"):
        rc.Recurrent("gru", 3, 4, 2, dilation=(1, 2, 4))
    with pytest.raises(InputError, match="dilation"):
        rc.Recurrent("gru", 3, 4, dilation=0)
    with pytest.raises(OptionError, match="time index"):
        rc.Recurrent("clockwork", 3, 4, dilation=2)
    layer = rc.Recurrent("gru", 3, 4, dilation=2)
    with pytest.raises(ShapeError, match="state"):
        layer(torch.zeros(5, 2, 3), torch.zeros(1, 2, 4))
    with pytest.raises(OptionError, match="dilation"):
        layer.export("never.onnx")
    with pytest.raises(rc.errors.ConversionError, match="dilation"):
        layer.to_torch()
    with pytest.raises(OptionError, match="dilation"):
        rc.train.RTRL(rc.train.Predictor(layer, 1))
