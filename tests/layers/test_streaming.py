"""Time in pieces: chunks, single steps, and where a layer starts from."""

import pytest
import torch
from cases import Case, draw_inputs, draw_states, sampled_case
from engines import either_engine, on_either_engine  # noqa: F401
from helpers import assert_close, compare
from layers.test_layers import flat
from torch import Tensor, nn

import recurra as rc
from recurra.cell import TIME
from recurra.errors import OptionError, ShapeError

STEPS, BATCH = 7, 2


@on_either_engine
@sampled_case
def test_chunks_with_a_carried_state_are_one_run(case: Case):
    layer, x = case.layer(num_layers=2), draw_inputs(case, STEPS, BATCH)
    y, state = layer(x)
    first, middle = layer(x[:3])
    second, final = layer(x[3:], middle)
    assert_close(torch.cat([first, second]), y)
    for value, wanted in zip(flat(final), flat(state), strict=True):
        assert_close(value, wanted)


@on_either_engine
@sampled_case
def test_single_steps_are_one_run(case: Case):
    layer, x = case.layer(num_layers=2), draw_inputs(case, STEPS, BATCH)
    y, state = layer(x)
    now, outputs = None, []
    for x_t in x:
        y_t, now = layer.step(x_t, now)
        outputs.append(y_t)
    assert_close(torch.stack(outputs), y)
    for value, wanted in zip(flat(now), flat(state), strict=True):
        assert_close(value, wanted)


@on_either_engine
@sampled_case
def test_a_given_state_is_where_the_layer_starts(case: Case):
    """One step from a given state, layer against cell; and the gradient with respect to that state."""
    layer, x = case.layer(), draw_inputs(case, 1, BATCH)
    cell = layer.cell_list[0]
    start = draw_states(cell, BATCH)

    def through_layer(*state: Tensor):
        given = tuple(spec.with_axes(value)[None] for spec, value in zip(cell.carried, state, strict=True))
        y, final = layer(x, given if len(given) > 1 else given[0])
        return y[0], *(value[0] for value in flat(final))

    def through_cell(*state: Tensor):
        views = [
            spec.with_axes(value if spec.delays is None else tuple(value[:, k - 1] for k in spec.delays))
            for spec, value in zip(cell.carried, state, strict=True)
        ]
        clock = {TIME: views.pop()} if cell.carried[-1].name == TIME else {}
        returned = cell.step(x[0], *views, **clock)
        values = list(returned) if isinstance(returned, tuple) else [returned]
        y, *new = values if len(values) > len(views) else [values[0], *values]
        new += [value + 1 for value in clock.values()]
        pushed = [
            value if spec.delays is None else torch.cat([value[:, None], old[:, :-1]], 1)
            for spec, value, old in zip(cell.carried, new, state, strict=True)
        ]
        return y, *pushed

    compare(through_layer, through_cell, *start)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_step_takes_a_batch_or_a_single_vector(batch_first):
    layer = Case("lstm").layer(batch_first=batch_first)
    x = torch.randn(BATCH, 3, dtype=torch.float64)
    y, (h, c) = layer.step(x)
    assert y.shape == (BATCH, 4)
    assert h.shape == c.shape == (1, BATCH, 4)
    alone, (h_1, c_1) = layer.step(x[0])
    assert alone.shape == (4,)
    assert h_1.shape == c_1.shape == (1, 4)
    assert_close(alone, y[0])
    assert_close(layer.step(x[0], (h_1, c_1))[0], layer.step(x, (h, c))[0][0])


@pytest.mark.parametrize("how", [True, "separate"])
def test_a_layer_that_reads_both_ways_cannot_stream(how):
    with pytest.raises(OptionError, match="bidirectional"):
        rc.LSTM(3, 4, bidirectional=how).step(torch.zeros(2, 3))


@pytest.mark.parametrize("shape", [(), (1, 2, 3)])
def test_a_step_is_one_step(shape):
    with pytest.raises(ShapeError, match="x: got shape"):
        rc.LSTM(3, 4).step(torch.zeros(shape))


def test_unequal_layers_stream_too():
    layer, x = Case("delay_rnn").layer(hidden_size=[4, 2]), draw_inputs(Case("delay_rnn"), STEPS, BATCH)
    y, state = layer(x[:4])
    assert_close(torch.cat([y, layer(x[4:], state)[0]]), layer(x)[0])


# ---------------------------------------------------------------------------------------------------- time and masks


class Clock(rc.Cell):
    """A cell that reads the time and a mask drawn once a sequence."""

    def __init__(self, input_size: int, hidden_size: int, rate: float = 0.0):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.mask("m", "h", rate)

    def step(self, x, h, *, t, m):
        return torch.tanh(self.a(x, m * h) + torch.sin(t))


@on_either_engine
def test_the_time_index_counts_from_the_start_of_each_sequence():
    layer = rc.Recurrent(Clock, 3, 4, dtype=torch.float64, bidirectional=True)
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    resets = torch.zeros(STEPS, BATCH, dtype=torch.bool)
    resets[4, 0] = True
    _, (_, t), trace = layer(x, lengths=[7, 5], resets=resets, return_trace=True)
    assert trace["t"][0][:, :, 0].T.tolist() == [[1, 2, 3, 4, 1, 2, 3], [1, 2, 3, 4, 5, 0, 0]]
    assert trace["t"][1][:, :, 0].T.tolist() == [[4, 3, 2, 1, 3, 2, 1], [5, 4, 3, 2, 1, 0, 0]]
    assert t[:, :, 0].tolist() == [[3, 5], [4, 5]]


@on_either_engine
def test_the_time_index_is_carried_between_chunks():
    layer = rc.Recurrent(Clock, 3, 4, dtype=torch.float64)
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    y, state = layer(x[:3])
    assert_close(torch.cat([y, layer(x[3:], state)[0]]), layer(x)[0])


@on_either_engine
def test_a_cells_own_mask_is_drawn_once_a_sequence_and_only_in_training():
    layer = rc.Recurrent(Clock, 3, 4, dtype=torch.float64, rate=0.5)
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    torch.manual_seed(2)
    y, _ = layer(x)
    torch.manual_seed(2)
    mask = layer.cell_list[0].draw_masks(STEPS, BATCH, x)["m"]
    h = torch.zeros(BATCH, 4, dtype=torch.float64)
    for t in range(STEPS):
        h = layer.cell_list[0].step(x[t], h, t=torch.full((BATCH, 1), float(t), dtype=torch.float64), m=mask)
        assert_close(y[t], h)
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    plain = rc.Recurrent(Clock, 3, 4, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    assert_close(layer.eval()(x)[0], plain(x)[0])


# ---------------------------------------------------------------------------------------------------- initial states


def test_zeros_are_the_default():
    layer, x = Case("lstm").layer(num_layers=2), draw_inputs(Case("lstm"), STEPS, BATCH)
    zeros = torch.zeros(2, BATCH, 4, dtype=torch.float64)
    assert_close(layer(x)[0], layer(x, (zeros, zeros))[0])


@on_either_engine
@pytest.mark.parametrize("name", ["lstm", "delay_rnn", "scrn", "unitary_rnn"])
def test_a_learned_start_is_a_parameter_of_every_state(name):
    layer, x = Case(name).layer(num_layers=2, initial="learned"), draw_inputs(Case(name), STEPS, BATCH)
    names = [f"{state}_0" for state in layer.cell_list[0].states]
    learned = {name: p for name, p in layer.named_parameters() if name.split(".")[-1] in names}
    assert len(learned) == 2 * len(names)
    rows = [
        torch.stack([getattr(cell, name).expand(BATCH, *getattr(cell, name).shape) for cell in layer.cell_list])
        for name in names
    ]
    given = Case(name).layer(num_layers=2)
    given.load_state_dict(layer.state_dict(), strict=False)
    expected = given(x, tuple(rows) if len(rows) > 1 else rows[0])[0]
    y = layer(x)[0]
    assert_close(y, expected)
    for gradient, wanted in zip(
        torch.autograd.grad(y.square().sum(), [*learned.values()]),
        torch.autograd.grad(expected.square().sum(), [*learned.values()]),
        strict=True,
    ):
        assert gradient.any()
        assert_close(gradient, wanted)


def test_a_learned_start_begins_where_the_cell_began():
    layer = rc.layer("scrn", 3, 4, initial="learned", start=0.1)
    assert torch.equal(layer.cell_list[0].h_0, torch.full((4,), 0.1))


@on_either_engine
def test_a_carried_state_goes_on_from_the_previous_call_without_its_gradient():
    case = Case("lstm")
    carried, plain = case.layer(num_layers=2, initial="carried"), case.layer(num_layers=2)
    x = draw_inputs(case, STEPS, BATCH).requires_grad_()
    first, _ = carried(x[:3])
    second, state = carried(x[3:])
    assert_close(torch.cat([first, second]), plain(x)[0])
    assert all(value.requires_grad for value in state)
    (gradient,) = torch.autograd.grad(second.sum(), x)
    assert not gradient[:3].any()
    assert gradient[3:].any()
    carried.reset_state()
    assert_close(carried(x[:3])[0], first)


@on_either_engine
def test_truncated_gradients_are_those_of_chunks_started_from_detached_states():
    """Truncated BPTT: the forward pass sees the whole past, each chunk's gradient only itself."""
    case, chunks = Case("gru"), 3
    carried, plain = case.layer(initial="carried"), case.layer()
    x = draw_inputs(case, 3 * chunks, BATCH)
    state = None
    for chunk in x.split(chunks):
        y = carried(chunk)[0]
        expected, state = plain(chunk, state)
        gradients = torch.autograd.grad(y.square().sum(), [*carried.parameters()])
        wanted = torch.autograd.grad(expected.square().sum(), [*plain.parameters()])
        for gradient, other in zip(gradients, wanted, strict=True):
            assert_close(gradient, other)
        state = state.detach()


def test_a_given_state_takes_the_place_of_the_carried_one():
    case = Case("rnn")
    layer, x = case.layer(initial="carried"), draw_inputs(case, STEPS, BATCH)
    layer(x)
    start = torch.randn(1, BATCH, 4, dtype=torch.float64)
    assert_close(layer(x, start)[0], case.layer()(x, start)[0])


def test_another_batch_size_cannot_carry_on():
    layer = rc.LSTM(3, 4, initial="carried")
    layer(torch.zeros(STEPS, 2, 3))
    with pytest.raises(ShapeError, match=r"x: got a batch of 5, expected the batch carried over, 2; reset_state"):
        layer(torch.zeros(STEPS, 5, 3))
    layer.reset_state()
    assert layer(torch.zeros(STEPS, 5, 3))[0].shape == (STEPS, 5, 4)


def test_a_carried_state_follows_the_layer_into_another_dtype():
    layer, x = rc.LSTM(3, 4, initial="carried"), torch.randn(STEPS, BATCH, 3)
    layer(x)
    assert layer.double()(x.double())[0].dtype == torch.float64


def test_a_carried_state_takes_unbatched_streams_and_starts_from_no_layer_but_its_own():
    case = Case("gru")
    layer, x = case.layer(initial="carried"), draw_inputs(case, STEPS, 1)[:, 0]
    parts = [layer(x[:2])[0], *(layer.step(x_t)[0][None] for x_t in x[2:])]
    assert_close(torch.cat(parts), case.layer()(x)[0])
    assert not [name for name in layer.state_dict() if "remembered" in name]


def test_code_written_for_torch_finds_flatten_parameters():
    for module in nn.Sequential(rc.LSTM(3, 4)).modules():
        if isinstance(module, rc.Recurrent):
            assert module.flatten_parameters() is None
