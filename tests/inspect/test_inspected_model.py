"""All forms of data give the same sample; a measurement runs on a copy of the model."""

import numpy as np
import pytest
import torch
from torch import nn

import recurra as rc
from recurra.errors import InputError, ShapeError
from recurra.inspect.inspected_model import InspectedModel, module_of
from recurra.inspect.sample import sample

X = torch.arange(24.0).view(4, 3, 2)  # (T, B, D)


@pytest.mark.parametrize(
    "data",
    [
        X,
        (X, torch.zeros(4, 3, 1)),
        (X, torch.zeros(3, dtype=torch.int64)),
        X.numpy(),
        list(X.unbind(1)),
        [row.numpy() for row in X.unbind(1)],
        (list(X.unbind(1)), torch.zeros(3, dtype=torch.int64)),
        rc.data.Batch(X, torch.zeros(3, 1), torch.full((3,), 4), torch.arange(3)),
        rc.data.SequenceSet.from_arrays(X.transpose(0, 1), [0, 1, 2], "classification"),
        rc.data.Batches(
            rc.data.SequenceSet.from_arrays(X.transpose(0, 1), [0, 1, 2], "classification"), 3, shuffle=False
        ),
    ],
    ids=["tensor", "steps", "classes", "numpy", "list", "arrays", "labelled", "batch", "set", "batches"],
)
def test_the_same_sequences_in_every_form(data):
    taken = sample(data)
    assert torch.equal(taken.inputs.float(), X)
    assert taken.lengths.tolist() == [4, 4, 4]


def test_sequences_first_where_the_model_wants_it():
    taken = sample((X.transpose(0, 1), torch.zeros(3, 4, 1)), batch_first=True)
    assert torch.equal(taken.inputs, X)
    assert taken.targets.shape == (4, 3, 1)
    assert taken.per_step


@pytest.mark.parametrize(("shape", "expected"), [((7,), (7, 1, 1)), ((7, 2), (7, 1, 2)), ((7, 3, 2), (7, 3, 2))])
def test_one_series_is_a_batch_of_one(shape, expected):
    assert sample(torch.randn(shape)).inputs.shape == expected


def test_it_is_cut_to_what_was_asked():
    taken = sample(
        rc.data.Batch(X, torch.zeros(4, 3, 1), torch.tensor([4, 2, 3]), torch.arange(3)), sequences=2, steps=3
    )
    assert taken.inputs.shape == (3, 2, 2)
    assert taken.targets.shape == (3, 2, 1)
    assert taken.lengths.tolist() == [3, 2]


@pytest.mark.parametrize("data", [None, 3, "x", [], torch.randn(0, 2, 3), torch.randn(2, 2, 2, 2), {"x": X}])
def test_unknown_data_is_refused(data):
    with pytest.raises(InputError):
        sample(data)


def test_a_models_own_vocabulary_names_its_tokens():
    model = rc.layer("rnn", 2, 3)
    model.vocabulary = type("Vocabulary", (), {"tokens": ("a", "b", "c")})()
    tokens = torch.tensor([[0, 2], [1, 1]])
    assert InspectedModel(model, tokens).sample.labels == (("a", "b"), ("c", "b"))
    assert InspectedModel(model, tokens + 1).sample.labels == ()  # one of them is no token of this vocabulary
    assert InspectedModel(model, X).sample.labels == ()


def test_a_word_spelled_by_several_numbers_is_one_token():
    spelled = torch.tensor([[[1, 2], [3, 4]], [[3, 4], [1, 2]], [[1, 3], [1, 2]]])
    assert sample(spelled).tokens.tolist() == [[0, 2], [2, 0], [1, 0]]
    assert sample(X).tokens is None


def test_a_carried_state_of_other_sequences_is_no_obstacle():
    layer = rc.layer("gru", 2, 3, initial="carried")
    layer(torch.randn(4, 7, 2))
    InspectedModel(layer, X).record()
    assert layer.carried_state[0][0].shape == (7, 3)


def test_the_network_inside_an_estimator_is_found():
    class Estimator:
        model_ = rc.layer("rnn", 2, 3)

    assert module_of(Estimator()) is Estimator.model_
    assert isinstance(module_of(nn.Sequential(nn.GRU(2, 3)))[0], rc.Recurrent)


def test_reservoirs_run_as_the_network_does():
    series = np.sin(np.arange(150) / 5)[:, None]
    network = rc.EchoStateNetwork(units=[12, 8], leak=0.6, bias=0.2, random_state=2).fit(series)
    inspected = InspectedModel(network, torch.as_tensor(series))
    output, _ = inspected.record()
    reservoir = network.members_[0].reservoir
    expected = reservoir.run(series[:, None], reservoir.initial(1))[0][:, 0, 12:]
    torch.testing.assert_close(output[:, 0].detach(), torch.as_tensor(expected), rtol=1e-7, atol=1e-7)
    with pytest.raises(InputError, match="feedback"):
        module_of(rc.EchoStateNetwork(units=12, feedback=0.5, random_state=0).fit(None, series))


def test_a_tokens_shape_that_fits_nothing_is_named():
    with pytest.raises(ShapeError, match="data: got shape"):
        sample(torch.tensor(3))
