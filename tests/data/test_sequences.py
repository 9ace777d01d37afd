"""Sequence sets: what they say of themselves, and their parts."""

import pickle

import pytest
import torch

from recurra.data import DataError, SequenceSet
from recurra.data.data_errors import MissingColumnError
from recurra.data.stores import Flat, offsets, window
from recurra.errors import InputError, LengthsError, ShapeError, UnknownNameError

LENGTHS = (5, 3, 9, 2, 7, 4, 6, 8, 3, 5)


@pytest.fixture
def labelled() -> SequenceSet:
    inputs = [torch.randn(n, 3) for n in LENGTHS]
    return SequenceSet.from_arrays(inputs, [k % 2 for k in range(10)], "classification", names=list("abcdefghij"))


@pytest.fixture
def series() -> SequenceSet:
    unpadded_batch = [torch.arange(n + 1.0)[:, None].repeat(1, 2) * torch.tensor([1.0, 10.0]) for n in LENGTHS]
    return SequenceSet.one_step_ahead(unpadded_batch, torch.tensor(LENGTHS) + 1, columns=[1])


def test_a_set_says_what_it_holds(labelled):
    assert len(labelled) == 10
    assert (labelled.input_size, labelled.output_size, labelled.per_step) == (3, 2, False)
    assert labelled[2].inputs.shape == (9, 3)
    assert labelled[-1].target == 1
    assert labelled.name(-1) == "j"
    assert [len(example.inputs) for example in labelled] == list(LENGTHS)


@pytest.mark.parametrize("index", [10, -11])
def test_an_index_outside_is_an_index_error(labelled, index):
    with pytest.raises(IndexError):
        labelled[index]


def test_one_step_ahead_shifts_without_copying(series):
    inputs, target = series[0]
    assert torch.equal(inputs[:, 0], torch.arange(5.0))
    assert torch.equal(target[:, 0], 10 * torch.arange(1, 6.0))
    assert inputs.untyped_storage().data_ptr() == series.series[0].untyped_storage().data_ptr()
    part = series.window(0, 2, 4)
    assert part.inputs[:, 0].tolist() == [2, 3]
    assert part.target[:, 0].tolist() == [30, 40]
    over_the_end = series.window(0, 3, 99)  # the series goes on, the inputs do not
    assert over_the_end.inputs[:, 0].tolist() == [3, 4]
    assert over_the_end.target[:, 0].tolist() == [40, 50]


def test_split_is_disjoint_and_complete(labelled):
    parts = labelled.split(0.5, 0.3, 0.2, seed=3)
    assert [len(part) for part in parts] == [5, 3, 2]
    assert sorted(name for part in parts for name in part.names) == list("abcdefghij")
    again = labelled.split(0.5, 0.3, 0.2, seed=3)
    assert [part.names for part in parts] == [part.names for part in again]
    other = labelled.split(0.5, 0.3, 0.2, seed=4)
    assert [part.names for part in parts] != [part.names for part in other]
    for part in parts:
        for name, example in zip(part.names, part, strict=True):
            assert torch.equal(example.inputs, labelled[labelled.names.index(name)].inputs)


def test_split_in_time_keeps_every_step_once(series):
    past, future = series.split_time(0.5, 0.5)
    for k in range(len(series)):
        assert torch.equal(torch.cat([past[k].inputs, future[k].inputs]), series[k].inputs)
        assert torch.equal(torch.cat([past[k].target, future[k].target]), series[k].target)
        assert torch.equal(past.series[k][-1], past[k].inputs[-1] + torch.tensor([1.0, 10.0]))
    assert past.lengths.tolist() == [n // 2 for n in LENGTHS]


def test_select_takes_everything_along(series):
    chosen = series.select([3, -1])
    assert chosen.lengths.tolist() == [2, 5]
    assert torch.equal(chosen.series[1], series.series[9])
    assert torch.equal(chosen.window(1, 1, 3).target, series.window(9, 1, 3).target)


def test_flat_store_gives_its_parts_and_windows():
    lengths = torch.tensor([2, 3, 1])
    flat = Flat(torch.arange(6), offsets(lengths))
    assert [flat[k].tolist() for k in range(3)] == [[0, 1], [2, 3, 4], [5]]
    assert window(flat, 1, 1, 3).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: SequenceSet([torch.ones(2, 1)], torch.ones(1, 1), torch.tensor([2]), "guessing"),
            UnknownNameError,
            "task",
        ),
        (
            lambda: SequenceSet([torch.ones(2, 1)], torch.ones(2, 1), torch.tensor([2]), "regression"),
            ShapeError,
            "2 targets",
        ),
        (
            lambda: SequenceSet([torch.ones(0, 1)], torch.ones(1, 1), torch.tensor([0]), "regression"),
            LengthsError,
            "least one",
        ),
        (lambda: SequenceSet.one_step_ahead([torch.ones(1, 1)], torch.tensor([1])), LengthsError, "sequence 0"),
        (lambda: SequenceSet.from_arrays(torch.ones(2, 3, 4, 5), [0, 1], "classification"), ShapeError, "shape"),
    ],
)
def test_what_cannot_be_a_set_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("fractions", [(), (0.5, 0.6), (0.0, 1.0)])
def test_fractions_must_make_sense(labelled, fractions):
    with pytest.raises(InputError, match="fractions"):
        labelled.split(*fractions)


def test_one_label_a_sequence_cannot_be_cut_in_time(labelled):
    with pytest.raises(InputError, match="at every step"):
        labelled.split_time(0.5, 0.5)
    with pytest.raises(InputError, match="at every step"):
        labelled.window(0, 0, 1)


def test_data_errors_survive_a_trip_between_processes():
    error = MissingColumnError.among("table.csv", "yy", ["y", "x"])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.file, again.column, again.line) == (str(error), "table.csv", "yy", None)
    assert isinstance(again, DataError)
    assert "did you mean 'y'" in str(again)
