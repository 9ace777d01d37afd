"""Ragged batches: a sequence gives what it gives alone, whatever stands beside it, behind it and in its padding."""

from collections.abc import Callable

import pytest
import torch
from cases import Case, draw_inputs, sampled_case, sampled_name
from engines import either_engine, on_either_engine  # noqa: F401
from helpers import assert_close
from layers.test_layers import flat
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch_twins import KINDS, twins

import recurra as rc

LENGTHS = (3, 5, 1, 4)
STEPS = max(LENGTHS)


def outcome(layer: rc.Recurrent, x: Tensor, call: Callable) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """`(outputs and final states, gradient of x, gradients of the parameters)` of one loss that reads everything."""
    x = x.detach().requires_grad_()
    y, state = call(x)
    values = [y, *flat(state)]
    loss = sum(value.square().sum() for value in values)
    x_gradient, *gradients = torch.autograd.grad(loss, [x, *(p for p in layer.parameters() if p.requires_grad)])
    return [v.detach() for v in values], x_gradient, gradients


def alone(layer: rc.Recurrent, x: Tensor) -> tuple[Tensor, list[Tensor], Tensor, list[Tensor]]:
    """Each sequence by itself, put together as a ragged batch would give it."""
    y, x_gradient = torch.zeros(STEPS, len(LENGTHS), layer.output_size, dtype=x.dtype), torch.zeros_like(x)
    states, each = [], []
    for b, n in enumerate(LENGTHS):
        values, gradient, gradients = outcome(layer, x[:n, b : b + 1], layer)
        y[:n, b], x_gradient[:n, b] = values[0][:, 0], gradient[:, 0]
        states.append(values[1:])
        each.append(gradients)
    return (
        y,
        [torch.cat(parts, 1) for parts in zip(*states, strict=True)],
        x_gradient,
        [torch.stack(g).sum(0) for g in zip(*each, strict=True)],
    )


@on_either_engine
@sampled_case
def test_every_sequence_gives_what_it_gives_alone(case: Case):
    layer, x = case.layer(bidirectional=True), draw_inputs(case, STEPS, len(LENGTHS))
    values, x_gradient, gradients = outcome(layer, x, lambda x: layer(x, lengths=torch.tensor(LENGTHS)))
    y, states, x_expected, expected = alone(layer, x)
    past_end = torch.arange(STEPS)[:, None] >= torch.tensor(LENGTHS)
    assert not values[0][past_end].any()
    assert not x_gradient[past_end].any()
    for value, wanted in zip((*values, x_gradient, *gradients), (y, *states, x_expected, *expected), strict=True):
        assert_close(value, wanted)


def padded(x: Tensor, more: int, rubbish: float) -> Tensor:
    """The same sequences, padded further and with something else."""
    x = torch.cat([x, torch.zeros(more, *x.shape[1:], dtype=x.dtype)])
    past_end = torch.arange(len(x))[:, None] >= torch.tensor(LENGTHS)
    return x.masked_fill(past_end[..., None], rubbish)


def check_padding(layer: rc.Recurrent, x: Tensor, tolerance: float) -> None:
    lengths = torch.tensor(LENGTHS)
    values, x_gradient, gradients = outcome(layer, padded(x, 0, 0.0), lambda x: layer(x, lengths=lengths))
    for more, rubbish in ((3, float("nan")), (0, float("inf")), (1, -1e30)):
        others, x_other, gradients_other = outcome(layer, padded(x, more, rubbish), lambda x: layer(x, lengths=lengths))
        assert not others[0][STEPS:].any()
        assert not x_other[STEPS:].any()
        pairs = zip(
            (others[0][:STEPS], *others[1:], x_other[:STEPS], *gradients_other),
            (*values, x_gradient, *gradients),
            strict=True,
        )
        for other, value in pairs:
            assert_close(other, value, tolerance)


@on_either_engine
@sampled_case
def test_padding_changes_nothing(case: Case):
    check_padding(case.layer(bidirectional=True), draw_inputs(case, STEPS, len(LENGTHS)), 1e-12)


@on_either_engine
@sampled_name
def test_padding_changes_nothing_in_float32(case: Case):
    x = draw_inputs(case, STEPS, len(LENGTHS)).float()
    check_padding(case.layer(bidirectional=True, dtype=torch.float32), x, 1e-6)


STACKS = [
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 2, "bidirectional": "separate", "depth": "residual"},
    {"num_layers": 3, "bidirectional": True, "depth": "graves", "initial": "learned"},
    {"hidden_size": [4, 2], "modifiers": [rc.LayerNorm()]},
]


@on_either_engine
@pytest.mark.parametrize("arguments", STACKS, ids=lambda a: "-".join(a))
@pytest.mark.parametrize("name", ["lstm", "delay_rnn", "scrn"])
def test_padding_changes_nothing_in_deep_layers(name, arguments):
    check_padding(Case(name).layer(**arguments), draw_inputs(Case(name), STEPS, len(LENGTHS)), 1e-12)


def test_full_lengths_are_no_lengths():
    layer, x = Case("gru").layer(bidirectional=True), draw_inputs(Case("gru"), STEPS, 2)
    y, state = layer(x, lengths=[STEPS, STEPS])
    assert_close(y, layer(x)[0])
    assert_close(state, layer(x)[1])


@pytest.mark.parametrize("lengths", [list(LENGTHS), LENGTHS, torch.tensor(LENGTHS, dtype=torch.int32)])
def test_lengths_come_as_a_list_or_a_tensor(lengths):
    layer, x = Case("rnn").layer(), draw_inputs(Case("rnn"), STEPS, 4)
    assert_close(layer(x, lengths=lengths)[0], layer(x, lengths=torch.tensor(LENGTHS))[0])


# ---------------------------------------------------------------------------------------------------- packed


def sequences(lengths=LENGTHS) -> list[Tensor]:
    return [torch.randn(n, 3, dtype=torch.float64) for n in lengths]


@on_either_engine
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_sequences_are_torch_nns(kind, is_sorted, batch_first):
    ours, theirs = twins(kind, 3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)
    lengths = sorted(LENGTHS, reverse=True) if is_sorted else LENGTHS
    packed = pack_sequence(sequences(lengths), enforce_sorted=is_sorted)
    start = torch.randn(2, 4, 4, 4, dtype=torch.float64)
    start = tuple(start) if kind == "LSTM" else start[0]
    (y, state), (expected_y, expected) = ours(packed, start), theirs(packed, start)
    assert isinstance(y, PackedSequence)
    assert_close(y.data, expected_y.data)
    for field in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        mine, other = getattr(y, field), getattr(expected_y, field)
        assert mine is other is None or torch.equal(mine, other)
    for value, other in zip(flat(state), flat(expected), strict=True):
        assert_close(value, other)
    assert_close(pad_packed_sequence(y)[0], pad_packed_sequence(expected_y)[0])


@on_either_engine
def test_gradients_reach_packed_data():
    ours, theirs = twins("LSTM", 3, 4, bidirectional=True)
    found = []
    for layer in (ours, theirs):
        x = torch.randn(STEPS, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        x.requires_grad_()
        layer(pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False))[0].data.square().sum().backward()
        found.append(x.grad)
    assert_close(*found)


# ---------------------------------------------------------------------------------------------------- nested


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # torch's word to whoever makes one
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_nested_tensors_give_nested_tensors(layout, batch_first, bidirectional):
    layer = Case("lstm").layer(bidirectional=bidirectional, batch_first=batch_first)
    parts = [part.requires_grad_() for part in sequences()]
    y, state = layer(torch.nested.as_nested_tensor(parts, layout=layout))
    assert y.is_nested
    assert y.layout is layout
    expected = [layer(part) for part in parts]
    for value, (wanted, _) in zip(y.unbind(), expected, strict=True):
        assert_close(value, wanted)
    for index, value in enumerate(state):
        assert_close(value, torch.stack([final[index] for _, final in expected], 1))
    (sum(value.square().sum() for value in y.unbind())).backward()
    gradients = torch.autograd.grad(sum(wanted.square().sum() for wanted, _ in expected), parts)
    for part, gradient in zip(parts, gradients, strict=True):
        assert_close(part.grad, gradient)


def test_a_jagged_tensor_with_holes_gives_each_sequence_its_own():
    layer = Case("lstm").layer()
    values = torch.randn(12, 3, dtype=torch.float64)
    offsets, lengths = torch.tensor([0, 4, 9, 12]), torch.tensor([3, 5, 1])
    nested = torch.nested.nested_tensor_from_jagged(values, offsets, lengths)
    y, _ = layer(nested)
    for b, value in enumerate(y.unbind()):
        assert_close(value, layer(values[offsets[b] : offsets[b] + lengths[b]])[0])


def test_a_nested_output_joins_others_of_the_same_raggedness():
    """Jagged tensors of one offsets tensor can be added: a residual connection around the layer."""
    layer = Case("lstm").layer(hidden_size=3)
    nested = torch.nested.as_nested_tensor(sequences(), layout=torch.jagged)
    assert_close((layer(nested)[0] + nested).values(), layer(nested)[0].values() + nested.values())


# ---------------------------------------------------------------------------------------------------- resets


def pieces(resets: Tensor, n: int) -> list[tuple[int, int]]:
    """`(begin, end)` of the sequences one stream of length n consists of."""
    begins = [0, *(t for t in range(1, n) if resets[t])]
    return list(zip(begins, [*begins[1:], n], strict=True))


def start_of(state: tuple[Tensor, ...], b: int, direction: int) -> list[Tensor]:
    return [value[direction : direction + 1, b : b + 1] for value in state]


@on_either_engine
@sampled_name
def test_resets_cut_a_stream_into_separate_sequences_in_both_directions(case: Case):
    layer = case.layer(bidirectional=True, initial="learned")
    single = case.layer(initial="learned")
    steps, lengths = 7, (7, 5, 6)
    x = draw_inputs(case, steps, 3)
    resets = torch.tensor([[0, 0, 0, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 1, 0]]).T.bool()
    given = tuple(torch.rand(2, *spec.full_shape(3), dtype=torch.float64) for spec in layer.cell_list[0].carried)
    y, state = layer(x, given if len(given) > 1 else given[0], torch.tensor(lengths), resets)
    for direction, cell in enumerate(layer.cells):
        single.cells[0].load_state_dict(cell.state_dict())
        half = y.chunk(2, -1)[direction]
        for b, n in enumerate(lengths):
            parts = pieces(resets[:, b], n)[:: -1 if direction else 1]
            start = None if resets[0, b] and direction == 0 else start_of(given, b, direction)
            final = ()
            for begin, end in parts:
                piece = x[begin:end, b : b + 1]
                start = start if start is None or len(start) > 1 else start[0]
                out, final = single(piece.flip(0) if direction else piece, start)
                assert_close(half[begin:end, b : b + 1], out.flip(0) if direction else out)
                start = None
            for value, wanted in zip(flat(state), flat(final), strict=True):
                assert_close(value[direction, b], wanted[0, 0])


@on_either_engine
def test_gradients_do_not_cross_a_reset():
    layer = Case("lstm").layer(num_layers=2)
    x = draw_inputs(Case("lstm"), 6, 2).requires_grad_()
    resets = torch.zeros(6, 2, dtype=torch.bool)
    resets[3, 0] = True
    (gradient,) = torch.autograd.grad(layer(x, resets=resets)[0][3:].sum(), x)
    assert not gradient[:3, 0].any()
    assert gradient[:3, 1].any()


@on_either_engine
def test_unbatched_resets():
    layer, x = Case("gru").layer(bidirectional=True), draw_inputs(Case("gru"), 6, 1)[:, 0]
    resets = torch.tensor([0, 0, 1, 0, 0, 0])
    assert_close(layer(x, resets=resets)[0], torch.cat([layer(x[:2])[0], layer(x[2:])[0]]))
