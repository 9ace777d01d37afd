"""Two directions: joined after every layer, in separate stacks, and in the survey's output form."""

import numpy as np
import pytest
import torch
from cases import Case, draw_inputs, randomise, sampled_case
from engines import either_engine, on_either_engine  # noqa: F401
from helpers import assert_close, compare
from layers.test_layers import flat
from torch import Tensor
from torch_twins import twins

import recurra as rc

STEPS, BATCH = 6, 3


@on_either_engine
@sampled_case
def test_the_backward_direction_is_the_forward_one_on_reversed_time(case: Case):
    both, one = case.layer(bidirectional=True), case.layer()
    x = draw_inputs(case, STEPS, BATCH)
    y, state = both(x)
    for direction, half in enumerate(y.chunk(2, -1)):
        one.cells[0].load_state_dict(both.cells[direction].state_dict())
        expected, final = one(x.flip(0) if direction else x)
        assert_close(half, expected.flip(0) if direction else expected)
        for value, wanted in zip(flat(state), flat(final), strict=True):
            assert_close(value[direction], wanted[0])


@pytest.mark.parametrize("name", ["rnn", "vanilla_lstm", "gru"])
def test_reversing_time_and_swapping_the_directions_reverses_the_output(name):
    layer, x = Case(name).layer(num_layers=1, bidirectional=True), draw_inputs(Case(name), STEPS, BATCH)
    forward, backward = layer(x)[0].chunk(2, -1)
    layer.cells[0], layer.cells[1] = layer.cells[1], layer.cells[0]
    assert_close(layer(x.flip(0))[0].flip(0), torch.cat([backward, forward], -1))


def test_the_first_output_depends_on_the_last_input_only_through_the_backward_direction():
    layer = Case("lstm").layer(bidirectional=True)
    x = draw_inputs(Case("lstm"), STEPS, BATCH).requires_grad_()
    halves = layer(x)[0].chunk(2, -1)
    forward, backward = (torch.autograd.grad(half[0].sum(), x, retain_graph=True)[0] for half in halves)
    assert not forward[1:].any()
    assert backward[-1].abs().min() > 0


@pytest.mark.parametrize("name", ["rnn", "lstm", "delay_rnn", "projection_lstm"])
def test_separate_stacks_never_see_each_other(name):
    case = Case(name)
    both, x = case.layer(num_layers=3, bidirectional="separate"), draw_inputs(case, STEPS, BATCH)
    lengths = torch.tensor([4, 6, 2])
    y, state = both(x, lengths=lengths)
    assert y.shape[-1] == both.output_size
    width = both.cell_list[0].output_size
    assert [cell.input_size for cell in both.cell_list] == [3, 3, width, width, width, width]
    for direction, half in enumerate(y.chunk(2, -1)):
        stack = case.layer(num_layers=3)
        for number in range(3):
            stack.cells[number].load_state_dict(both.cells[2 * number + direction].state_dict())
        for b, n in enumerate(lengths.tolist()):
            sequence = x[:n, b : b + 1]
            expected, final = stack(sequence.flip(0) if direction else sequence)
            assert_close(half[:n, b : b + 1], expected.flip(0) if direction else expected)
            for value, wanted in zip(flat(state), flat(final), strict=True):
                assert_close(value[direction::2, b], wanted[:, 0])


def test_one_layer_is_the_same_joined_or_separate():
    joined, separate = (Case("gru").layer(bidirectional=how) for how in (True, "separate"))
    x = draw_inputs(Case("gru"), STEPS, BATCH)
    assert_close(joined(x)[0], separate(x)[0])


def test_a_given_state_starts_each_direction_at_its_own_end():
    ours, theirs = twins("GRU", 3, 4, bidirectional=True)
    start = torch.randn(2, BATCH, 4, dtype=torch.float64)
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    compare(lambda x, h: ours(x, h)[0], lambda x, h: theirs(x, h)[0], x, start)


# ---------------------------------------------------------------------------------------------------- the output layer


def survey_output(x: Tensor, weights: dict[str, np.ndarray]) -> np.ndarray:
    """y_t = V→ h→_t + V← h←_t + b_y, both directions from zero, in NumPy (survey section 5)."""
    steps, batch, _ = x.shape
    states = {}
    for direction, order in ((0, range(steps)), (1, reversed(range(steps)))):
        U, W, b = (weights[f"cells.{direction}.a.{name}"] for name in ("U", "W", "b"))
        h = np.zeros((batch, W.shape[0]))
        for t in order:
            h = np.tanh(h @ W.T + x[t].numpy() @ U.T + b)
            states[t, direction] = h
    V_forward, V_backward = np.split(weights["V"], 2, axis=1)
    return np.stack([states[t, 0] @ V_forward.T + states[t, 1] @ V_backward.T + weights["b"] for t in range(steps)])


def test_a_readout_on_both_directions_is_the_surveys_output_form():
    layer = Case("rnn").layer(bidirectional=True)
    readout = randomise(rc.Readout(layer, 5).double())
    x = draw_inputs(Case("rnn"), STEPS, BATCH)
    weights = {n: p.detach().numpy() for n, p in (*layer.named_parameters(), *readout.named_parameters())}
    assert_close(readout(layer(x)[0]), torch.from_numpy(survey_output(x, weights)))


def test_softmax_and_bias_of_a_readout():
    h = torch.randn(STEPS, BATCH, 4, dtype=torch.float64)
    readout = randomise(rc.Readout(4, 5, softmax=True).double())
    exponential = torch.exp(h @ readout.V.T + readout.b)
    assert_close(readout(h), exponential / exponential.sum(-1, keepdim=True))
    without = rc.Readout(4, 5, bias=False).double()
    assert without.b is None
    assert_close(without(h), h @ without.V.T)
    start = rc.Readout(4, 5)
    assert not start.b.any()
    assert start.V.abs().max() <= (6 / 9) ** 0.5


def test_directions_joined_in_used_memory_have_exact_derivatives_of_both_orders():
    layer = rc.layer("gru", 2, 3, bidirectional=True, dtype=torch.float64)
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
    with rc.set_backend("compiled"):
        assert torch.autograd.gradcheck(lambda v: layer(v)[0], x)
        assert torch.autograd.gradgradcheck(lambda v: layer(v)[0], x)


def test_the_outputs_of_two_calls_do_not_share_memory():
    layer, x = rc.layer("rnn", 8, 256, bidirectional=True), torch.randn(100, 16, 8)
    with rc.set_backend("compiled"), torch.no_grad():
        first = layer(x)[0]
        kept = first.clone()
        layer(-x)
        assert torch.equal(first, kept)
        first.add_(1.0)
