"""Every cell with as many parameters as the reference."""

import pytest
import torch
from compare.data import tagged, turns, waves

from recurra.compare.plan import Rules, chosen_cells
from recurra.compare.sizes import Blank, equal_size, matching_size, parameters
from recurra.errors import InputError
from recurra.problem import ask

CLOSE = 0.03


@pytest.mark.parametrize("wanted", [1, 7, 100, 5000, 123_457])
def test_the_nearest_of_all_sizes(wanted):
    def count(size: int) -> int:
        return 4 * size * size + 3 * size + 5

    found = matching_size(count, wanted)
    assert abs(count(found) - wanted) == min(abs(count(size) - wanted) for size in range(1, 400))


def test_a_cell_that_takes_even_sizes_only():
    def count(size: int) -> int:
        if size % 2:
            raise InputError("hidden_size", size, "an even number")
        return size * size

    assert matching_size(count, 15 * 15) in (14, 16)


def test_all_cells_come_near_the_reference():
    question, rules = ask("japanese_vowels"), Rules({"source": "japanese_vowels"}, hidden_size=32)
    blank = Blank(question, {})
    wanted = blank.parameters("lstm", 32)
    before = torch.get_rng_state()
    for cell in chosen_cells("all"):
        size = equal_size(blank, rules, cell)
        assert abs(blank.parameters(cell, size) / wanted - 1) < CLOSE, cell
    assert torch.equal(before, torch.get_rng_state())


def test_the_count_is_that_of_the_trained_network(tmp_path):
    question = ask(str(turns(tmp_path / "turns.csv")))
    made = question.estimator("gru", hidden_size=9, num_layers=2, epochs=1, random_state=0).fit(*question.train)
    assert Blank(question, {}).parameters("gru", 9, num_layers=2) == parameters(made.network_)
    assert Blank(question, {"num_layers": 2}).parameters("gru", 9) == parameters(made.network_)


def test_other_tasks(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 20)
    for path in (waves(tmp_path / "waves.csv"), tagged(tmp_path / "tags.conll"), text):
        question, rules = ask(str(path)), Rules({"source": str(path)}, hidden_size=16)
        blank = Blank(question, {})
        wanted = blank.parameters("lstm", 16)
        assert abs(blank.parameters("rnn", equal_size(blank, rules, "rnn")) / wanted - 1) < CLOSE, path
