"""Bad input raises one typed error, before torch runs, that names the argument, the value and what was expected."""

import pickle

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import recurra as rc
from recurra.errors import (
    DeviceError,
    DtypeError,
    InputError,
    LengthsError,
    OptionError,
    RecurraError,
    ShapeError,
    UnknownNameError,
)

T, B, D, H = 5, 2, 3, 4


def check(error: type[InputError], argument: str, got: str, expected: str, call) -> None:
    """The message is exactly `argument: got …, expected …`, and the error carries its three parts."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert isinstance(caught.value, (RecurraError, ValueError))
    message = str(caught.value)
    assert message == f"{argument}: got {caught.value.got}, expected {caught.value.expected}"
    assert caught.value.argument == argument
    assert got in str(caught.value.got), message
    assert expected in caught.value.expected, message


def lstm(**arguments) -> rc.Recurrent:
    return rc.LSTM(D, H, **arguments)


def x(*shape: int, **options) -> torch.Tensor:
    return torch.zeros(*(shape or (T, B, D)), **options)


# ---------------------------------------------------------------------------------------------------- x


BAD_X = {
    "rank 1": (ShapeError, (D,), "shape (3,)", "(T, B, 3) or (T, 3)"),
    "rank 4": (ShapeError, (1, T, B, D), "shape (1, 5, 2, 3)", "(T, B, 3) or (T, 3)"),
    "rank 0": (ShapeError, None, "shape ()", "(T, B, 3) or (T, 3)"),
    "features": (ShapeError, (T, B, D + 1), "shape (5, 2, 4)", "(T, B, 3) or (T, 3)"),
    "features unbatched": (ShapeError, (T, D - 1), "shape (5, 2)", "(T, B, 3) or (T, 3)"),
}


@pytest.mark.parametrize(("error", "shape", "got", "expected"), BAD_X.values(), ids=BAD_X)
def test_x_has_the_right_shape(error, shape, got, expected):
    value = torch.zeros(()) if shape is None else x(*shape)
    check(error, "x", got, expected, lambda: lstm()(value))


def test_the_expected_layout_follows_batch_first():
    check(ShapeError, "x", "(2, 5, 9)", "(B, T, 3) or (T, 3)", lambda: lstm(batch_first=True)(x(B, T, 9)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_x_has_the_layers_dtype(dtype):
    check(DtypeError, "x", str(dtype), "the layer's dtype, torch.float32", lambda: lstm()(x(dtype=dtype)))


def test_autocast_does_not_accept_integers():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(DtypeError, "x", "torch.int64", "the layer's dtype", lambda: lstm()(x(dtype=torch.int64)))


def test_x_is_on_the_device_of_the_layer():
    check(DeviceError, "x", "meta", "the layer's device, cpu", lambda: lstm()(x(device="meta")))
    check(DeviceError, "x", "cpu", "the layer's device, meta", lambda: lstm(device="meta")(x()))


@pytest.mark.parametrize("value", [None, [[1.0, 2.0, 3.0]], "abc", 1.0])
def test_x_is_a_tensor(value):
    check(InputError, "x", type(value).__name__, "a PackedSequence or a nested tensor", lambda: lstm()(value))


def test_packed_and_nested_inputs_have_the_right_features_and_exclude_lengths():
    packed = pack_sequence([x(3, 7), x(2, 7)])
    check(ShapeError, "x", "(3, 2, 7)", "(T, B, 3)", lambda: lstm()(packed))
    packed = pack_sequence([x(3, D), x(2, D)])
    check(OptionError, "lengths", "beside a packed", "one of the two", lambda: lstm()(packed, lengths=[3, 2]))
    nested = torch.nested.as_nested_tensor([x(3, 7), x(2, 7)], layout=torch.jagged)
    check(ShapeError, "x", "(3, 2, 7)", "(T, B, 3)", lambda: lstm()(nested))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_sequences_have_one_number_of_features():
    ragged = torch.nested.as_nested_tensor([x(4, D), x(2, D + 1)], layout=torch.strided)
    check(ShapeError, "x", "[(4, 3), (2, 4)]", "sequences that differ in length alone", lambda: lstm()(ragged))


# ---------------------------------------------------------------------------------------------------- lengths


BAD_LENGTHS = {
    "zero": (LengthsError, [5, 0], "0", "values from 1 to T = 5"),
    "negative": (LengthsError, [-2, 5], "-2", "values from 1 to T = 5"),
    "too long": (LengthsError, [6, 5], "6", "values from 1 to T = 5"),
    "too many": (LengthsError, [5, 5, 5], "shape (3,)", "one length per sequence, shape (2,)"),
    "too few": (LengthsError, [5], "shape (1,)", "one length per sequence, shape (2,)"),
    "a matrix": (LengthsError, [[5, 5]], "shape (1, 2)", "one length per sequence, shape (2,)"),
    "a number": (LengthsError, torch.tensor(5), "shape ()", "one length per sequence, shape (2,)"),
    "fractions": (DtypeError, [5.0, 2.0], "torch.float32", "whole numbers"),
    "truths": (DtypeError, [True, True], "torch.bool", "whole numbers"),
    "words": (LengthsError, ["a", "b"], "['a', 'b']", "whole numbers, one per sequence"),
    "nothing": (LengthsError, [None, 5], "[None, 5]", "whole numbers, one per sequence"),
    "a bare number": (LengthsError, 5, "5", "whole numbers, one per sequence"),
    "no data": (DeviceError, torch.empty(2, dtype=torch.int64, device="meta"), "meta", "x's device, cpu"),
}


@pytest.mark.parametrize(("error", "lengths", "got", "expected"), BAD_LENGTHS.values(), ids=BAD_LENGTHS)
def test_lengths_fit_the_batch(error, lengths, got, expected):
    check(error, "lengths", got, expected, lambda: lstm()(x(), lengths=lengths))


def test_an_unbatched_sequence_has_no_lengths():
    check(OptionError, "lengths", "unbatched", "a batch (T, B, D)", lambda: lstm()(x(T, D), lengths=[3]))


def test_a_nested_batch_with_an_empty_sequence():
    nested = torch.nested.as_nested_tensor([x(3, D), x(0, D)], layout=torch.jagged)
    check(LengthsError, "lengths", "0", "values from 1 to T = 3", lambda: lstm()(nested))


# ---------------------------------------------------------------------------------------------------- resets


def test_resets_fit_the_batch():
    wrong = torch.zeros(B, T, dtype=torch.bool)
    check(ShapeError, "resets", "shape (2, 5)", "a tensor (5, 2)", lambda: lstm()(x(), resets=wrong))
    check(
        ShapeError,
        "resets",
        "shape (5, 2)",
        "a tensor (2, 5)",
        lambda: lstm(batch_first=True)(x(B, T, D), resets=wrong.T),
    )
    check(ShapeError, "resets", "shape (2, 5)", "a tensor (5,)", lambda: lstm()(x(T, D), resets=wrong))
    check(ShapeError, "resets", "list", "a tensor (5, 2)", lambda: lstm()(x(), resets=[[True]]))
    check(DtypeError, "resets", "torch.float32", "true or false", lambda: lstm()(x(), resets=x(T, B)))
    nowhere = torch.zeros(T, B, dtype=torch.bool, device="meta")
    check(DeviceError, "resets", "meta", "x's device, cpu", lambda: lstm()(x(), resets=nowhere))


# ---------------------------------------------------------------------------------------------------- states


def h(*shape: int, **options) -> torch.Tensor:
    return torch.zeros(*(shape or (1, B, H)), **options)


BAD_STATES = {
    "one tensor for two": (ShapeError, lambda: h(), "1 tensors", "2: h, c"),
    "three": (ShapeError, lambda: (h(), h(), h()), "3 tensors", "2: h, c"),
    "batch": (ShapeError, lambda: (h(1, B + 1, H), h()), "shape (3, 4)", "h with (2, 4)"),
    "width": (ShapeError, lambda: (h(), h(1, B, H + 1)), "shape (2, 5)", "c with (2, 4)"),
    "layers": (ShapeError, lambda: (h(2, B, H), h(2, B, H)), "shape (2, 2, 4)", "h as (1, B, 4)"),
    "rank": (ShapeError, lambda: (h(1, H), h()), "shape (4,)", "h with (2, 4)"),
    "a number": (ShapeError, lambda: (torch.zeros(()), h()), "shape ()", "h as (1, B, 4)"),
    "no tensor": (ShapeError, lambda: (None, h()), "NoneType", "h as (1, B, 4)"),
    "dtype": (DtypeError, lambda: (h(dtype=torch.float64), h()), "torch.float64", "x's dtype, torch.float32"),
    "device": (DeviceError, lambda: (h(), h(device="meta")), "meta", "x's device, cpu"),
}


@pytest.mark.parametrize(("error", "state", "got", "expected"), BAD_STATES.values(), ids=BAD_STATES)
def test_states_fit_the_layer(error, state, got, expected):
    check(error, "state", got, expected, lambda: lstm()(x(), state()))


def test_unbatched_states_fit_an_unbatched_input():
    check(ShapeError, "state", "shape (1, 4)", "h with (4,)", lambda: lstm()(x(T, D), (h(1, 1, H), h(1, 1, H))))


def test_states_of_a_cell_with_one_state():
    layer = rc.GRU(D, H, 2)
    check(ShapeError, "state", "shape (1, 2, 4)", "h as (2, B, 4)", lambda: layer(x(), h()))
    check(ShapeError, "state", "tuple", "h as (2, B, 4)", lambda: layer(x(), (h(2, B, H),)))


def test_states_of_layers_of_unequal_width():
    layer = rc.GRU(D, [H, 2])
    check(ShapeError, "state", "shape (2, 2, 4)", "2 tensors, one per layer", lambda: layer(x(), h(2, B, H)))
    check(ShapeError, "state", "shape (2, 4)", "h with (2, 2)", lambda: layer(x(), (h(B, H), h(B, H))))


def test_states_with_delays():
    layer = rc.layer("delay_rnn", D, H, delays=(1, 3))
    check(ShapeError, "state", "shape (2, 4)", "h with (2, 3, 4)", lambda: layer(x(), h()))


# ---------------------------------------------------------------------------------------------------- building


def test_an_unknown_cell_gets_a_suggestion():
    check(UnknownNameError, "cell", "'lstn'", "did you mean 'lstm'?", lambda: rc.layer("lstn", D, H))
    check(UnknownNameError, "cell", "'mingru'", "did you mean 'min_gru'?", lambda: rc.Recurrent("mingru", D, H))
    check(UnknownNameError, "cell", "'zzz'", "one of adaptive_lif, ", lambda: rc.layer("zzz", D, H))
    with pytest.raises(LookupError):
        rc.layer("zzz", D, H)


@pytest.mark.parametrize("cell", [torch.nn.LSTM, rc.LSTM, 3, None])
def test_the_cell_is_a_cell_class_or_a_name(cell):
    check(InputError, "cell", repr(cell), "a subclass of rc.Cell or the name of one", lambda: rc.Recurrent(cell, D, H))


def test_an_unknown_option_gets_a_suggestion():
    check(OptionError, "dropuot", "0.1", "did you mean 'dropout'?", lambda: lstm(dropuot=0.1))
    check(
        OptionError,
        "reset_afer",
        "True",
        "; did you mean 'reset_after'?",
        lambda: rc.GRU(D, H, reset_afer=True),
    )
    check(OptionError, "reset_after", "True", "an option of LSTM", lambda: lstm(reset_after=True))
    with pytest.raises(TypeError):
        lstm(peepholes=True)


BAD_OPTIONS = {
    "no input": ("input_size", lambda: rc.LSTM(0, H), "0", "a whole number of at least 1"),
    "input of floats": ("input_size", lambda: rc.LSTM(3.0, H), "3.0", "a whole number of at least 1"),
    "no units": ("hidden_size", lambda: rc.LSTM(D, 0), "0", "a whole number of at least 1"),
    "negative units": ("hidden_size", lambda: rc.LSTM(D, -4), "-4", "a whole number of at least 1"),
    "units of floats": ("hidden_size", lambda: rc.LSTM(D, 4.0), "4.0", "or a list of them"),
    "units of nothing": ("hidden_size", lambda: rc.LSTM(D, None), "None", "or a list of them"),
    "units of words": ("hidden_size", lambda: rc.LSTM(D, "12"), "'12'", "or a list of them"),
    "true units": ("hidden_size", lambda: rc.LSTM(D, True), "True", "a whole number of at least 1"),
    "a bad width": ("hidden_size", lambda: rc.LSTM(D, [4, 0]), "0", "a whole number of at least 1"),
    "no widths": ("hidden_size", lambda: rc.LSTM(D, []), "[]", "one width for every layer"),
    "widths and layers": ("hidden_size", lambda: rc.LSTM(D, [4, 2], 3), "[4, 2]", "each of the 3 layers"),
    "no layers": ("num_layers", lambda: lstm(num_layers=0), "0", "a whole number of at least 1"),
    "half layers": ("num_layers", lambda: lstm(num_layers=1.5), "1.5", "a whole number of at least 1"),
    "dropout above": ("dropout", lambda: lstm(dropout=1.1), "1.1", "a probability between 0 and 1"),
    "dropout below": ("dropout", lambda: lstm(dropout=-0.1), "-0.1", "a probability between 0 and 1"),
    "dropout NaN": ("dropout", lambda: lstm(dropout=float("nan")), "nan", "a probability between 0 and 1"),
    "dropout true": ("dropout", lambda: lstm(dropout=True), "True", "a probability between 0 and 1"),
    "dropout words": ("dropout", lambda: lstm(dropout="0.5"), "0.5", "a probability between 0 and 1"),
    "directions": ("bidirectional", lambda: lstm(bidirectional="both"), "'both'", "one of False, True, 'separate'"),
    "one direction": ("bidirectional", lambda: lstm(bidirectional=1), "1", "one of False, True, 'separate'"),
    "depth": ("depth", lambda: lstm(depth="dense"), "'dense'", "one of 'stack', 'residual', 'graves'"),
    "initial": ("initial", lambda: lstm(initial="random"), "'random'", "one of 'zeros', 'learned', 'carried'"),
    "init": ("init", lambda: lstm(init="orthogonal"), "'orthogonal'", "an initialiser such as"),
    "some init": ("init", lambda: lstm(init=[rc.init.orthogonal(), 3]), "3", "an initialiser such as"),
    "outputs": ("outputs", lambda: rc.Readout(H, 0), "0", "a whole number of at least 1"),
    "source": ("source", lambda: rc.Readout(-1, 2), "-1", "a whole number of at least 1"),
}


@pytest.mark.parametrize(("argument", "build", "got", "expected"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_options_have_valid_values(argument, build, got, expected):
    check(InputError, argument, got, expected, build)


def test_residual_layers_have_one_width():
    check(OptionError, "depth", "'residual'", "layer 1 has 2", lambda: rc.LSTM(D, [4, 2], depth="residual"))


def test_errors_can_be_pickled():
    with pytest.raises(LengthsError) as caught:
        lstm()(x(), lengths=[9, 9])
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is LengthsError
    assert str(again) == str(caught.value)
    with pytest.raises(UnknownNameError) as unknown:
        rc.layer("lstn", D, H)
    assert str(pickle.loads(pickle.dumps(unknown.value))) == str(unknown.value)


def test_a_failed_call_carries_no_state():
    layer = lstm(initial="carried")
    with pytest.raises(LengthsError):
        layer(x(), lengths=[0, 1])
    assert layer.carried_state is None


# ---------------------------------------------------------------------------------------------------- empty inputs


@pytest.mark.parametrize("both", [False, True, "separate"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(("steps", "batch"), [(0, B), (T, 0), (0, 0)])
def test_empty_batches_and_sequences_give_empty_results(steps, batch, batch_first, both):
    layer = rc.LSTM(D, H, 2, bidirectional=both, batch_first=batch_first)
    shape = (batch, steps) if batch_first else (steps, batch)
    start = torch.randn(2 * layer.directions, batch, H), torch.randn(2 * layer.directions, batch, H)
    y, state, trace = layer(torch.zeros(*shape, D, requires_grad=True), start, return_trace=True)
    assert y.shape == (*shape, H * layer.directions)
    assert all(value.shape == s.shape for value, s in zip(state, start, strict=True))
    if steps == 0:
        assert all(torch.equal(value, s) for value, s in zip(state, start, strict=True))
    assert {name: tuple(v.shape) for name, v in trace.by_cell[-1].items()} == dict.fromkeys("ifgoch", (*shape, H))
    if steps:
        y.sum().backward()


@pytest.mark.parametrize("name", ["rnn", "delay_rnn", "scrn", "unitary_rnn"])
def test_no_steps_leave_the_initial_state(name):
    layer = rc.layer(name, D, H, initial="learned")
    y, state = layer(torch.zeros(0, B, D))
    starts = layer.cell_list[0].initial_state(B, y)
    states = state if isinstance(state, tuple) else (state,)
    assert y.shape == (0, B, layer.output_size)
    assert all(torch.equal(value[0], start) for value, start in zip(states, starts, strict=True))


def test_empty_unbatched_and_ragged_inputs():
    y, (h_n, _) = lstm()(torch.zeros(0, D))
    assert y.shape == (0, H)
    assert h_n.shape == (1, H)
    for lengths in ([], torch.zeros(0, dtype=torch.int64)):
        assert lstm(bidirectional=True)(torch.zeros(T, 0, D), lengths=lengths)[0].shape == (T, 0, 2 * H)
    resets = torch.zeros(0, B, dtype=torch.bool)
    assert lstm(bidirectional=True)(torch.zeros(0, B, D), resets=resets)[0].shape == (0, B, 2 * H)


def test_empty_inputs_to_modified_layers():
    layer = lstm(modifiers=[rc.LayerNorm(), rc.Zoneout(0.1), rc.VariationalDropout(0.1)])
    assert layer(torch.zeros(0, B, D))[0].shape == (0, B, H)
    assert layer(torch.zeros(T, 0, D), return_trace=True)[2]["c"].shape == (T, 0, H)


# ---------------------------------------------------------------------------------------------------- unusual cells


def test_a_cell_without_parameters_runs():
    class Sum(rc.Cell):
        def step(self, x, h):
            return h + x

    value = torch.randn(T, B, D, dtype=torch.float32)
    torch.testing.assert_close(rc.Recurrent(Sum, D, D)(value)[0], value.cumsum(0))


def test_messages_do_not_hold_whole_arrays():
    array = np.arange(1000.0)
    assert str(InputError("h", array, "a number")) == "h: got ndarray of shape (1000,), expected a number"
    assert len(str(InputError("h", repr(array.tolist()), "a number"))) < 500
    assert InputError("h", array, "a number").got is array
