"""Property tests of layers: random cells, depths, directions, lengths, dtypes and strides, on both engines."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import assert_close
from hypothesis import given
from hypothesis import strategies as st
from layers.test_layers import flat
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.layer_states import is_stacked

# A random layer on the default engine compiles kernels for its cell, dtype and options: minutes with an empty cache.
ENGINES = ["reference", pytest.param("auto", marks=pytest.mark.slow)]
NAMES = ["rnn", "lstm", "gru", "vanilla_lstm", "delay_rnn", "scrn", "projection_lstm", "indrnn", "leaky_rnn"]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6}

dtypes = st.sampled_from(sorted(TOLERANCE, key=str))
seeds = st.integers(0, 2**31 - 1)
widths = st.sampled_from([1, 4])  # few, because each is a kernel to compile where kernels are compiled


@st.composite
def layers(draw: st.DrawFn) -> rc.Recurrent:
    """A random layer, with the parameters that the cell's initialisation gives it."""
    depth = draw(st.sampled_from(["stack", "residual", "graves"]))
    hidden = draw(widths if depth == "residual" else st.lists(widths, min_size=1, max_size=3))
    torch.manual_seed(draw(seeds))
    return rc.layer(
        draw(st.sampled_from(NAMES)),
        draw(st.sampled_from([1, 3])),
        hidden,
        draw(st.integers(1, 3)) if isinstance(hidden, int) else None,
        bias=draw(st.booleans()),
        batch_first=draw(st.booleans()),
        bidirectional=draw(st.sampled_from([False, True, "separate"])),
        depth=depth,
        initial=draw(st.sampled_from(["zeros", "learned"])),
        dtype=draw(dtypes),
    )


@st.composite
def batches(draw: st.DrawFn, layer: rc.Recurrent) -> tuple[Tensor, Tensor]:
    """`(x, lengths)`; x has random strides."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    steps, batch = max(lengths) + draw(st.integers(0, 2)), len(lengths)
    shape = (batch, steps) if layer.batch_first else (steps, batch)
    torch.manual_seed(draw(seeds))
    x = torch.randn(*shape, layer.input_size, dtype=next(layer.parameters()).dtype)
    return strided(x, draw(st.sampled_from(STRIDES))), torch.tensor(lengths)


STRIDES = ("plain", "transposed", "sliced", "last axis first", "expanded")


def strided(x: Tensor, how: str) -> Tensor:
    """x with the same shape and other strides; "expanded" repeats the first sequence or step and changes the values."""
    if how == "transposed":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if how == "sliced":
        return torch.stack([x, x + 1], -1).flatten(-2)[..., ::2]
    if how == "last axis first":
        return x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    return x[:, :1].expand(x.shape) if how == "expanded" else x


def on_either_engine(check: Callable[[st.DataObject], None]) -> Callable:
    """Run a property on random cases. The engine is set inside: Hypothesis runs a fixture once for all cases."""

    @pytest.mark.parametrize("engine", ENGINES)
    @given(data=st.data())
    def run(data: st.DataObject, engine: str) -> None:
        with set_backend(engine):
            check(data)

    return run


def tolerance(x: Tensor) -> float:
    return TOLERANCE[x.dtype]


def time_axis(layer: rc.Recurrent) -> int:
    return 1 if layer.batch_first else 0


def each(layer: rc.Recurrent, state: Any) -> list[list[Tensor]]:
    """A state as tensors `(B, …)`: one list for each named state, one entry for each cell of the layer."""
    columns = state if len(layer.cell_list[0].carried) > 1 else (state,)
    return [list(column) for column in columns]


@on_either_engine
def test_a_ragged_batch_equals_its_sequences_run_one_by_one(data):
    layer = data.draw(layers())
    x, lengths = data.draw(batches(layer))
    y, state = layer(x, lengths=lengths)
    for b, n in enumerate(lengths.tolist()):
        sequence = x[b, :n] if layer.batch_first else x[:n, b]
        expected, final = layer(sequence)
        row = y[b] if layer.batch_first else y[:, b]
        assert_close(row[:n], expected, tolerance(x))
        assert not row[n:].any()
        for many, one in zip(each(layer, state), each(layer, final), strict=True):
            for value, wanted in zip(many, one, strict=True):
                assert_close(value[b], wanted, tolerance(x))


@on_either_engine
def test_strides_and_padding_values_do_not_matter(data):
    layer = data.draw(layers())
    x, lengths = data.draw(batches(layer))
    steps = torch.arange(x.shape[time_axis(layer)])
    past_end = steps >= lengths[:, None] if layer.batch_first else steps[:, None] >= lengths
    padding = data.draw(st.sampled_from([float("nan"), float("inf"), -1e30, 0.0]))
    outcomes = []
    for value in (x, x.contiguous().masked_fill(past_end[..., None], padding)):
        leaf = value.detach().requires_grad_()
        y, state = layer(leaf, lengths=lengths)
        loss = y.square().sum() + sum(s.square().sum() for s in flat(state))
        gradients = torch.autograd.grad(loss, [leaf, *layer.parameters()], materialize_grads=True)
        outcomes.append([y, *flat(state), *gradients])
    for value, expected in zip(*outcomes, strict=True):
        assert_close(value.detach(), expected.detach(), tolerance(x))


@on_either_engine
def test_a_sequence_can_be_split_at_any_step(data):
    layer = data.draw(layers().filter(lambda layer: not layer.bidirectional))
    x, _ = data.draw(batches(layer))
    axis, steps = time_axis(layer), x.shape[time_axis(layer)]
    cut = data.draw(st.integers(0, steps))
    y, state = layer(x)
    first, middle = layer(x.narrow(axis, 0, cut))
    second, final = layer(x.narrow(axis, cut, steps - cut), middle)
    assert_close(torch.cat([first, second], axis), y, tolerance(x))
    for value, wanted in zip(flat(final), flat(state), strict=True):
        assert_close(value, wanted, tolerance(x))


@on_either_engine
def test_a_given_state_can_be_expanded_and_is_not_modified(data):
    layer = data.draw(layers())
    x, lengths = data.draw(batches(layer))
    batch = len(lengths)
    small = each(layer, layer(x, lengths=lengths)[1])
    rows = [[value[:1].detach().expand_as(value) for value in column] for column in small]
    copies = [[value.clone() for value in column] for column in rows]
    packed = [pack(layer, index, column) for index, column in enumerate(rows)]
    y, _ = layer(x, tuple(packed) if len(packed) > 1 else packed[0], lengths)
    dense = [pack(layer, index, column) for index, column in enumerate(copies)]
    expected, _ = layer(x, tuple(dense) if len(dense) > 1 else dense[0], lengths)
    assert torch.equal(y, expected)
    assert all(
        torch.equal(a, b) for left, right in zip(rows, copies, strict=True) for a, b in zip(left, right, strict=True)
    )
    assert batch == y.shape[0 if layer.batch_first else 1]


def pack(layer: rc.Recurrent, index: int, column: list[Tensor]) -> Any:
    """One named state of all cells as a caller passes it: stacked where all have one width, expanded where possible."""
    if not is_stacked(layer.cell_list, index):
        return tuple(column)
    first = column[0]
    return first.expand(len(column), *first.shape) if len(column) == 1 else torch.stack(column)


@on_either_engine
def test_resets_equal_separate_sequences(data):
    layer = data.draw(layers().filter(lambda layer: layer.num_layers == 1))
    x, _ = data.draw(batches(layer))
    steps = x.shape[time_axis(layer)]
    flags = data.draw(st.lists(st.booleans(), min_size=steps, max_size=steps))
    sequence = x[0] if layer.batch_first else x[:, 0]
    begins = [0, *(t for t in range(1, steps) if flags[t])]
    expected = [layer(sequence[a:b])[0] for a, b in zip(begins, [*begins[1:], steps], strict=True)]
    assert_close(layer(sequence, resets=torch.tensor(flags))[0], torch.cat(expected), tolerance(x))


@on_either_engine
def test_the_order_of_a_batch_does_not_matter(data):
    layer = data.draw(layers())
    x, lengths = data.draw(batches(layer))
    order = torch.tensor(data.draw(st.permutations(range(len(lengths)))))
    axis = 1 - time_axis(layer)
    y, _ = layer(x, lengths=lengths)
    shuffled, _ = layer(x.index_select(axis, order), lengths=lengths[order])
    assert_close(shuffled, y.index_select(axis, order), tolerance(x))
