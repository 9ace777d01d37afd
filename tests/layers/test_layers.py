"""A layer's shapes and meaning are torch.nn's; its trace is the equations' own values; it travels like any module."""

import copy
import io
import itertools
import pickle

import joblib
import pytest
import torch
from cases import Case, draw_inputs, randomise, sampled_case
from engines import either_engine, on_either_engine  # noqa: F401
from helpers import assert_close, compare
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_twins import KINDS, twins

import recurra as rc
from recurra.engine import reference
from recurra.engine.reference import Sequences

STEPS, BATCH = 6, 3


def flat(state: Tensor | tuple) -> tuple[Tensor, ...]:
    """All tensors of a state, whatever its nesting."""
    return (state,) if isinstance(state, Tensor) else tuple(t for part in state for t in flat(part))


# ---------------------------------------------------------------------------------------------------- torch.nn


@on_either_engine
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("layers", "both", "batch_first", "batched"), list(itertools.product((1, 2), *[(False, True)] * 3))
)
def test_values_gradients_and_shapes_are_torch_nns(kind, layers, both, batch_first, batched):
    ours, theirs = twins(kind, 3, 4, num_layers=layers, bidirectional=both, batch_first=batch_first)
    shape = ((BATCH, STEPS) if batch_first else (STEPS, BATCH)) if batched else (STEPS,)
    cells = layers * (2 if both else 1)
    x = torch.randn(*shape, 3, dtype=torch.float64)
    start = [torch.randn(cells, *([BATCH] if batched else []), 4, dtype=torch.float64) for _ in range(2)]

    def run(layer):
        def function(x, *state):
            y, final = layer(x, state if kind == "LSTM" else state[0])
            return y, *flat(final)

        return function

    compare(run(ours), run(theirs), x, *start[: 2 if kind == "LSTM" else 1])
    y, final = ours(x)
    expected_y, expected = theirs(x)
    assert_close(y, expected_y)
    for value, other in zip(flat(final), flat(expected), strict=True):
        assert_close(value, other)


@on_either_engine
@pytest.mark.parametrize("kind", KINDS)
def test_without_bias_the_layer_is_torch_nns(kind):
    ours, theirs = twins(kind, 3, 4, bias=False, num_layers=2)
    assert not any("b" in name.split(".")[-1] for name, _ in ours.named_parameters())
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    compare(lambda x: ours(x)[0], lambda x: theirs(x)[0], x)


@pytest.mark.parametrize("both", [False, True])
def test_dropout_stands_between_layers_as_in_torch_nn(both):
    ours, theirs = twins("LSTM", 3, 4, num_layers=2, dropout=0.5, bidirectional=both)
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    torch.manual_seed(5)
    y = ours(x)[0]
    torch.manual_seed(5)
    expected = theirs(x)[0]
    assert_close(y, expected)
    assert_close(ours.eval()(x)[0], theirs.eval()(x)[0])
    assert not torch.equal(y, ours(x)[0])


def test_one_layer_drops_nothing_and_full_dropout_cuts_the_layers_apart():
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    one = rc.LSTM(3, 4, dropout=0.9, dtype=torch.float64)
    assert_close(one(x)[0], one.eval()(x)[0])
    two = rc.LSTM(3, 4, 2, dropout=1.0, dtype=torch.float64)
    assert torch.equal(two(x)[0], two(torch.randn_like(x))[0])


# ---------------------------------------------------------------------------------------------------- shapes


@sampled_case
def test_shapes_of_every_cell(case: Case):
    layer = case.layer(num_layers=2, bidirectional=True)
    y, state = layer(draw_inputs(case, STEPS, BATCH))
    assert y.shape == (STEPS, BATCH, layer.output_size) == (STEPS, BATCH, 2 * layer.cell_list[-1].output_size)
    carried = layer.cell_list[0].carried
    wanted = []
    for place, spec in enumerate(carried):  # a state whose size differs from layer to layer is a list
        shapes = [cell.carried[place].full_shape(BATCH) for cell in layer.cell_list]
        wanted += [(4, *spec.full_shape(BATCH))] if len(set(shapes)) == 1 else shapes
    assert [tuple(s.shape) for s in flat(state)] == wanted
    assert isinstance(state, Tensor) == (len(carried) == 1)


@sampled_case
def test_unbatched_is_a_batch_of_one(case: Case):
    layer, x = case.layer(num_layers=2, bidirectional=True), draw_inputs(case, STEPS, 1)
    y, state = layer(x)
    y_1, state_1 = layer(x[:, 0])
    assert_close(y_1, y[:, 0])
    for one, many in zip(flat(state_1), flat(state), strict=True):
        assert_close(one, many[0] if many.shape[0] == 1 else many[:, 0])  # of one cell, or of all four
    again, _ = layer(x[:, 0], state_1)
    assert_close(again, layer(x, state)[0][:, 0])


@pytest.mark.parametrize("name", ["lstm", "delay_rnn", "leaky_rnn"])
def test_the_trace_of_an_unbatched_sequence_has_no_batch_axis(name):
    layer, x = Case(name).layer(bidirectional=True), draw_inputs(Case(name), STEPS, 1)
    trace, trace_1 = layer(x, return_trace=True)[2], layer(x[:, 0], return_trace=True)[2]
    for batched, unbatched in zip(trace.by_cell, trace_1.by_cell, strict=True):
        assert set(batched) == set(unbatched)
        assert all(torch.equal(value[:, 0], unbatched[key]) for key, value in batched.items())


@on_either_engine
@pytest.mark.parametrize("name", ["rnn", "lstm", "delay_rnn", "projection_lstm"])
def test_layers_of_unequal_width_are_the_same_layers_one_by_one(name):
    stack = Case(name).layer(hidden_size=[5, 2, 4], bidirectional=True)
    x = draw_inputs(Case(name), STEPS, BATCH)
    y, state = stack(x)
    assert stack.hidden_size == [5, 2, 4]
    assert stack.num_layers == 3
    below, given = x, []
    for number, width in enumerate(stack.hidden_sizes):
        single = rc.layer(name, below.shape[-1], width, bidirectional=True, dtype=torch.float64)
        single.cells.load_state_dict(
            {f"{k % 2}.{n}": v for k in (2 * number, 2 * number + 1) for n, v in stack.cells[k].state_dict().items()}
        )
        below, final = single(below)
        given.append(final)
    assert_close(y, below)
    single_state = isinstance(given[0], Tensor)
    columns = [state] if single_state else state
    for index, column in enumerate(columns):
        assert isinstance(column, tuple)
        for k, row in enumerate(column):
            final = given[k // 2] if single_state else given[k // 2][index]
            assert_close(row, final[k % 2])
    assert_close(stack(x, state)[0], stack(x, state)[0])
    assert not torch.equal(stack(x, state)[0], y)


@on_either_engine
def test_batch_first_moves_x_y_trace_lengths_and_resets_but_not_the_state():
    case = Case("vanilla_lstm")
    first, second = case.layer(bidirectional=True), case.layer(bidirectional=True, batch_first=True)
    x = draw_inputs(case, STEPS, BATCH)
    lengths, resets = torch.tensor([6, 2, 4]), torch.rand(STEPS, BATCH) < 0.3
    y, state, trace = first(x, None, lengths, resets, return_trace=True)
    y_2, state_2, trace_2 = second(x.transpose(0, 1), None, lengths, resets.T, return_trace=True)
    assert_close(y_2, y.transpose(0, 1))
    assert_close(torch.stack(state_2), torch.stack(state))
    for name in trace:
        assert_close(torch.stack(trace_2[name]), torch.stack(trace[name]).transpose(1, 2))


def test_float32_in_float32_out():
    layer = rc.LSTM(3, 4, 2, bidirectional=True)
    y, state = layer(torch.randn(STEPS, BATCH, 3))
    assert {y.dtype, *(s.dtype for s in state)} == {torch.float32}


def test_names_build_the_same_layer_three_ways():
    built = rc.layer("lstm", 3, 4), rc.Recurrent(rc.registry()["lstm"], 3, 4), rc.LSTM(3, 4)
    assert len({str(layer.cells) for layer in built}) == 1
    assert {type(layer.cell_list[0]) for layer in built} == {rc.registry()["lstm"]}


# ---------------------------------------------------------------------------------------------------- the trace


@on_either_engine
def test_trace_of_an_lstm_satisfies_its_equations():
    layer = Case("lstm").layer()
    x = draw_inputs(Case("lstm"), STEPS, BATCH)
    y, (h, c), trace = layer(x, return_trace=True)
    assert set(trace) == {"i", "f", "g", "o", "c", "h"}
    cell = layer.cell_list[0]
    before = {name: torch.cat([torch.zeros_like(trace[name][:1]), trace[name][:-1]]) for name in "hc"}
    for gate, squash in zip("ifgo", (torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid), strict=True):
        assert_close(trace[gate], squash(getattr(cell, gate)(x, before["h"])))
    assert_close(trace["c"], trace["f"] * before["c"] + trace["i"] * trace["g"])
    assert_close(trace["h"], trace["o"] * torch.tanh(trace["c"]))
    assert_close(y, trace["h"])
    assert_close(torch.cat([h, c]), torch.stack([trace["h"][-1], trace["c"][-1]]))


def test_a_trace_lists_the_names_that_every_layer_has():
    layer = rc.layer("rg_lru", 3, 8, num_layers=2)  # where input and units are equal, u is x itself
    trace = layer(torch.randn(4, 2, 3), return_trace=True)[2]
    assert "u" in trace.by_cell[0]
    assert "u" not in list(trace)
    assert len(dict(trace)) == len(trace)


@on_either_engine
def test_trace_of_the_backward_direction_is_aligned_with_x_and_runs_from_the_last_valid_step():
    layer = Case("lstm").layer(bidirectional=True)
    lengths = torch.tensor([6, 2, 4])
    x = draw_inputs(Case("lstm"), STEPS, BATCH)
    _, (_, c), trace = layer(x, lengths=lengths, return_trace=True)
    back = trace.by_cell[1]
    after = {name: torch.cat([back[name][1:], torch.zeros_like(back[name][:1])]) for name in "hc"}
    valid = (torch.arange(STEPS)[:, None] < lengths)[..., None]
    assert_close(back["i"], torch.where(valid, torch.sigmoid(layer.cell_list[1].i(x, after["h"])), 0.0))
    assert_close(back["c"], back["f"] * after["c"] + back["i"] * back["g"])
    assert_close(c[1], back["c"][0])
    assert all(not value[~valid.expand_as(value)].any() for values in trace.by_cell for value in values.values())


@on_either_engine
@sampled_case
def test_trace_holds_every_state_and_changes_nothing(case: Case):
    layer = case.layer()
    x, lengths = draw_inputs(case, STEPS, BATCH), torch.tensor([4, 6, 1])
    y, state, trace = layer(x, lengths=lengths, return_trace=True)
    plain, final = layer(x, lengths=lengths)
    assert_close(y, plain)
    columns = [final] if isinstance(final, Tensor) else final
    for spec, given, traced in zip(layer.cell_list[0].carried, columns, flat(state), strict=True):
        assert_close(given, traced)
        newest = given if spec.delays is None else given[:, :, 0]
        last = torch.stack([values[spec.name][lengths - 1, torch.arange(BATCH)] for values in trace.by_cell])
        assert_close(last, newest)
    for values in trace.by_cell:
        assert all(value.shape[:2] == (STEPS, BATCH) for value in values.values())


@on_either_engine
def test_gradients_flow_through_the_trace():
    layer, x = Case("gru").layer(), draw_inputs(Case("gru"), STEPS, BATCH)
    cell = layer.cell_list[0]

    def last_gate(x):  # the update gate at the last step, from the state before it
        return torch.sigmoid(cell.z(x[-1], layer(x[:-1])[0][-1]))

    compare(lambda x: layer(x, return_trace=True)[2]["z"][-1], last_gate, x)


class Oddments(rc.Cell):
    """Intermediates of every shape: a number, a number a sequence, one a unit, a matrix, and three axes."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.k = torch.nn.Parameter(torch.tensor(0.3))
        self.v = self.vector(fill=0.5)

    def step(self, x, h):
        number = torch.sigmoid(self.k)
        total = h.sum(-1)
        unit = torch.tanh(self.v)
        matrix = self.a.W * 2
        cube = h.unsqueeze(1) * unit.unsqueeze(-1)
        return number * torch.tanh(self.a(x, h)) + unit * total.unsqueeze(-1) + (cube * matrix).sum(1)


def test_trace_takes_intermediates_of_any_shape():
    layer = randomise(rc.Recurrent(Oddments, 3, 4, dtype=torch.float64), 0.3)
    x = torch.randn(STEPS, 4, 3, dtype=torch.float64)  # as many sequences as units, so that a mix-up would show
    trace = layer(x, lengths=[6, 1, 3, 6], return_trace=True)[2]
    shapes = {"number": (1,), "total": (1,), "unit": (4,), "matrix": (4, 4), "cube": (4, 4), "h": (4,)}
    assert {name: tuple(value.shape) for name, value in trace.items()} == {n: (6, 4, *s) for n, s in shapes.items()}
    assert_close(trace["total"][1:, 0, 0], trace["h"][:-1, 0].sum(-1))
    assert_close(trace["unit"][2, 2], torch.tanh(layer.cell_list[0].v))
    assert not trace["cube"][3:, 2].any()


class Columns(rc.Cell):
    """Written in columns, as in a book; and a number that all sequences share."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.w = torch.nn.Parameter(torch.randn(hidden_size, hidden_size))

    def step(self, x, h):
        column = h.T
        shared = h.mean(0)
        return torch.tanh(self.a(x, h) + (self.w @ column).T + 0.1 * shared)


def test_trace_has_the_batch_in_front_wherever_it_was():
    layer = randomise(rc.Recurrent(Columns, 3, 4, dtype=torch.float64), 0.3)
    x = torch.randn(STEPS, 5, 3, dtype=torch.float64)
    for lengths in (None, [6, 1, 3, 6, 2]):
        trace = layer(x, lengths=lengths, return_trace=True)[2]
        assert trace["column"].shape == trace["shared"].shape == trace["h"].shape == (STEPS, 5, 4)
        assert_close(trace["column"][1:, 0], trace["h"][:-1, 0])


def test_trace_is_a_mapping():
    trace = rc.LSTM(3, 4, 2)(torch.randn(STEPS, BATCH, 3), return_trace=True)[2]
    assert len(trace) == len(list(trace)) == 6
    assert "f" in trace
    assert [value.shape for value in trace["f"]] == [(STEPS, BATCH, 4)] * 2
    with pytest.raises(KeyError):
        trace["forget"]


# ---------------------------------------------------------------------------------------------------- travelling


TRAVELLERS = {
    "plain": lambda: rc.LSTM(3, 4, 2, bidirectional=True),
    "modified": lambda: rc.GRU(3, 4, modifiers=[rc.LayerNorm(), rc.Zoneout(0.1), rc.WeightDrop(0.2)]).eval(),
    "derived": lambda: rc.layer("orthogonal_rnn", 3, 4),
    "shared gates": lambda: rc.layer("original_lstm", 3, 4, block_size=2),
    "complex": lambda: rc.layer("unitary_rnn", 3, 4),
    "learned": lambda: rc.layer("delay_rnn", 3, 4, initial="learned"),
}


@pytest.fixture(params=TRAVELLERS)
def traveller(request, either_engine) -> rc.Recurrent:  # noqa: F811 - the fixture itself
    layer = randomise(TRAVELLERS[request.param]().double())
    layer(torch.randn(2, 1, 3, dtype=torch.float64))  # what a run leaves behind must travel too
    return layer


def joblib_round_trip(layer: rc.Recurrent) -> rc.Recurrent:
    buffer = io.BytesIO()
    joblib.dump(layer, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


@pytest.mark.parametrize("send", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, joblib_round_trip])
def test_a_copy_runs_alike_and_stands_alone(traveller, send):
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    expected = traveller(x)[0].detach()
    twin = send(traveller)
    assert type(twin) is type(traveller)
    assert_close(twin(x)[0], expected)
    randomise(twin, 0.5)
    assert_close(traveller(x)[0], expected)
    assert not torch.allclose(twin(x)[0], expected)


def test_a_state_dict_makes_a_fresh_layer_the_same(traveller, request):
    fresh = TRAVELLERS[request.node.callspec.params["traveller"]]().double()
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    assert not torch.allclose(fresh(x)[0], traveller(x)[0])
    buffer = io.BytesIO()
    torch.save(traveller.state_dict(), buffer)
    buffer.seek(0)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    assert_close(fresh(x)[0], traveller(x)[0])


def test_a_layer_changes_dtype_after_it_has_run(traveller):
    x = torch.randn(STEPS, BATCH, 3, dtype=torch.float64)
    expected = traveller(x, return_trace=True)[0].detach()
    y, state, _ = traveller.float()(x.float(), return_trace=True)
    assert {y.dtype, *(s.dtype for s in flat(state))} == {torch.float32}
    torch.testing.assert_close(y, expected.float(), atol=1e-5, rtol=1e-5)


def test_reset_parameters_draws_everything_anew(traveller):
    before = {name: value.clone() for name, value in traveller.state_dict().items()}
    torch.manual_seed(3)
    traveller.reset_parameters()
    first = {name: value.clone() for name, value in traveller.state_dict().items()}
    torch.manual_seed(3)
    traveller.reset_parameters()
    assert all(torch.equal(first[name], value) for name, value in traveller.state_dict().items())
    assert any(not torch.equal(before[name], value) for name, value in first.items())


def test_reset_parameters_draws_a_fixed_orthogonal_matrix_anew():
    layer = rc.layer("orthogonal_rnn", 3, 4)
    before = layer.cell_list[0].a.W
    layer.reset_parameters()
    assert not torch.allclose(layer.cell_list[0].a.W, before)


@on_either_engine
@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "delay_rnn", "slstm"])
def test_autocast_in_bfloat16_stays_close_and_trains(name):
    layer = rc.layer(name, 8, 16, 2, bidirectional=True)
    x, lengths = torch.randn(STEPS, BATCH, 8), torch.tensor([3, 6, 1])
    expected, expected_state = layer(x, lengths=lengths)
    expected_again = layer(x, expected_state)[0]
    expected_gradients = torch.autograd.grad(expected.square().sum(), [*layer.parameters()])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = layer(x, lengths=lengths)
        again, _ = layer(x, state)
    y.float().square().sum().backward()
    assert y.dtype in (torch.bfloat16, torch.float32)
    torch.testing.assert_close(y.float(), expected, atol=0.05, rtol=0.05)
    torch.testing.assert_close(again.float(), expected_again, atol=0.05, rtol=0.05)
    for parameter, gradient in zip(layer.parameters(), expected_gradients, strict=True):
        assert parameter.grad.dtype == torch.float32
        assert (parameter.grad - gradient).norm() <= 0.05 * gradient.norm() + 1e-3


@on_either_engine
def test_a_graph_first_traced_under_autocast_is_not_a_bfloat16_graph_ever_after():
    layer, x = rc.LSTM(3, 4, modifiers=[rc.LayerNorm()]), torch.randn(STEPS, BATCH, 3)
    twin = copy.deepcopy(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x)
    assert torch.equal(layer(x)[0], twin(x)[0])


def test_a_layer_first_run_in_inference_mode_still_trains():
    layer, x = rc.LSTM(3, 4, modifiers=[rc.LayerNorm()]), torch.randn(STEPS, BATCH, 3)
    with torch.inference_mode():
        expected = layer(x)[0]
    y = layer(x)[0]
    y.sum().backward()
    torch.testing.assert_close(y, expected)


# ---------------------------------------------------------------------------------------------------- linear in T


class Elements(TorchDispatchMode):
    """Counts the numbers all operations write."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(value, Tensor):
                Elements.total += value.numel()
        return result


def work(name: str, steps: int, keep_trace: bool) -> tuple[int, int, int]:
    """Graph nodes, numbers kept for backward, and numbers written by forward and backward, on the plain loop."""
    cell = Case(name).cell()
    x = torch.randn(steps, 2, 3, dtype=torch.float64, requires_grad=True)
    given = Sequences(x, cell.initial_state(2, x), {}, torch.tensor([steps, steps // 2]), torch.rand(steps, 2) < 0.1)
    kept: list[int] = []
    Elements.total = 0
    with Elements(), torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.numel()), t)[1], lambda t: t):
        y = reference.scan(cell, given, keep_trace).y
        nodes, stack = set(), [y.grad_fn]
        while stack:
            node = stack.pop()
            if node is not None and node not in nodes:
                nodes.add(node)
                stack += [source for source, _ in node.next_functions]
        y.sum().backward()
    return len(nodes), sum(kept), Elements.total


@pytest.mark.parametrize("name", ["rnn", "lstm", "delay_rnn", "orthogonal_rnn"])
@pytest.mark.parametrize("keep_trace", [False, True])
def test_the_plain_loop_is_linear_in_time(name, keep_trace):
    work(name, 4, keep_trace)  # the first call traces
    short, middle, long = (work(name, steps, keep_trace) for steps in (16, 32, 64))
    for a, b, c in zip(short, middle, long, strict=True):
        assert c - b <= 2.05 * (b - a)  # a quadratic cost would double this increment once more


class ByPlainSizes(rc.Cell):
    """Operands that are no input and no state are named by their widths, which may be equal."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine(input_size, hidden_size)

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.a(x, h))


def test_operands_of_equal_width_have_a_weight_each():
    model = rc.Recurrent(ByPlainSizes, 5, 4, num_layers=2)
    y, _ = model(torch.randn(3, 2, 5))
    assert y.shape == (3, 2, 4)
    assert [tuple(w.shape) for n, w in model.cell_list[1].a.named_parameters() if n != "b"] == [(4, 4), (4, 4)]
