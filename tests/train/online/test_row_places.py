"""Where rows of a chunk lie, by words written by hand; and streams that forget all of their first steps."""

import copy

import torch

import recurra as rc
from recurra.engine.forward_mode.row_places import RowPlaces
from recurra.engine.forward_mode.words import CODE, NOWHERE, OPERATIONS, address
from recurra.train import RTRL, Predictor
from recurra.train.online.influence_trackers import CompiledTracker

INPUT, STATE, NEW, POOL, WEIGHT, OWN = address(1, 0), address(2, 0), address(3, 0), address(4, 0), address(9, 0), 12
NOTHING = [NOWHERE, 0]


def copied(to: int, source: int) -> list[int]:
    return [CODE["COPY"], 16, to, source, 1]


def added(to: int, a: int, b: int) -> list[int]:
    return [CODE["ELEMENTWISE"], OPERATIONS["add"], 16, to, a, 1, b, 1, *NOTHING, 0, 0, 0]


def places(words: list[list[int]], kept: list[int]) -> RowPlaces:
    return RowPlaces((words, [], []), [0, 16, 32, 48, 64], 80, kept, OWN, {4, 9})


def test_values_that_are_not_needed_at_the_same_time_share_a_place() -> None:
    found = places([added(0, INPUT, STATE), added(16, 0, 0), added(32, 16, 16), added(48, 32, 16)], [48])
    assert found.phases[0] == [added(0, INPUT, STATE), added(16, 0, 0), added(0, 16, 16), added(address(OWN, 0), 0, 16)]
    assert (found.size, found.kept_size, found(48)) == (32, 16, address(OWN, 0))


def test_copies_of_weights_and_of_new_states_are_left_out() -> None:
    found = places([copied(0, WEIGHT), added(16, 0, STATE), copied(NEW, 16), copied(32, 16)], [0, 32])
    assert found.phases[0] == [added(NEW, WEIGHT, STATE)]
    assert (found(0), found(32), found.size, found.kept_size) == (WEIGHT, NEW, 0, 0)


def test_copies_of_what_changes_stay() -> None:
    twice = [copied(0, WEIGHT), copied(0, INPUT), copied(16, STATE), added(32, 0, 16), copied(NEW, 32)]
    found = places([*twice, added(32, 32, 0)], [32])
    assert [word[0] for word in found.phases[0]] == [word[0] for word in [*twice, added(32, 32, 0)]]


def test_zeros_to_which_a_row_is_added_are_a_copy() -> None:
    zeros = [CODE["ZERO"], 16, address(6, 0)]
    found = places([added(0, INPUT, STATE), zeros, [CODE["ADD_PRODUCT"], 16, address(6, 0), 0, 1, POOL, 0]], [])
    assert found.phases[0][1:] == [copied(address(6, 0), 0)]


def test_words_of_unknown_effect_leave_all_as_it_is() -> None:
    words = [added(0, INPUT, STATE), [CODE["OUTER"], 1, 1]]
    found = places(words, [0])
    assert (found.phases[0], found.size, found(0), found.is_known) == (words, 80, 0, False)


def test_a_stream_whose_first_steps_are_forgotten(monkeypatch) -> None:
    """∂(last state)/∂(first states) vanishes within the call in half of the units, and in the others it stays."""
    torch.manual_seed(0)
    model = Predictor(rc.layer("min_gru", 3, 4), 2)
    with torch.no_grad():
        model.layer.cell_list[0].z.b[:2], model.layer.cell_list[0].z.b[2:] = 4.0, -9.0
    x, target, found = torch.randn(150, 1, 3), torch.randn(150, 1, 2), []
    for number, own in enumerate((model, copy.deepcopy(model))):
        learner = RTRL(own, "mse", "sgd", 1e-3, carry=True)
        if number:
            monkeypatch.setattr(CompiledTracker, "call_updates", lambda *_: None)
            monkeypatch.setattr(CompiledTracker, "call_gradient", lambda *_: None)
        for piece in (slice(0, 130), slice(130, 140)):
            learner.step(x[piece], target[piece])
        found.append(learner.gradients(x[140:], target[140:]))
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-4, atol=1e-6, msg=name)
