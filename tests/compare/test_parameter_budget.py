"""Hidden sizes that match the parameters of the reference cell."""

import pytest
import torch
from compare.data import tagged, turns, waves

from recurra.compare.parameter_budget import NetworkFactory, count_parameters, matched_hidden_size, nearest_size
from recurra.compare.plan import RunConfig, resolve_cells
from recurra.errors import InputError
from recurra.problem import infer_problem

CLOSE = 0.04  # the number of blocks of block_gru follows from its size, so its parameters jump


@pytest.mark.parametrize("wanted", [1, 7, 100, 5000, 123_457])
def test_nearest_size(wanted):
    def count(size: int) -> int:
        return 4 * size * size + 3 * size + 5

    found = nearest_size(count, wanted)
    assert abs(count(found) - wanted) == min(abs(count(size) - wanted) for size in range(1, 400))


def test_a_cell_with_even_sizes_only():
    def count(size: int) -> int:
        if size % 2:
            raise InputError("hidden_size", size, "an even number")
        return size * size

    assert nearest_size(count, 15 * 15) in (14, 16)


def test_all_cells_match_the_reference():
    problem, config = infer_problem("japanese_vowels"), RunConfig({"source": "japanese_vowels"}, hidden_size=32)
    networks = NetworkFactory(problem, {})
    wanted = networks.parameters("lstm", 32)
    before = torch.get_rng_state()
    for cell in resolve_cells("all"):
        size = matched_hidden_size(networks, config, cell)
        assert abs(networks.parameters(cell, size) / wanted - 1) < CLOSE, cell
    assert torch.equal(before, torch.get_rng_state())


def test_the_count_equals_that_of_the_trained_network(tmp_path):
    problem = infer_problem(str(turns(tmp_path / "turns.csv")))
    made = problem.estimator("gru", hidden_size=9, num_layers=2, epochs=1, random_state=0).fit(*problem.train)
    assert NetworkFactory(problem, {}).parameters("gru", 9, num_layers=2) == count_parameters(made.network_)
    assert NetworkFactory(problem, {"num_layers": 2}).parameters("gru", 9) == count_parameters(made.network_)


def test_other_tasks(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 20)
    for path in (waves(tmp_path / "waves.csv"), tagged(tmp_path / "tags.conll"), text):
        problem, config = infer_problem(str(path)), RunConfig({"source": str(path)}, hidden_size=16)
        networks = NetworkFactory(problem, {})
        wanted = networks.parameters("lstm", 16)
        assert abs(networks.parameters("rnn", matched_hidden_size(networks, config, "rnn")) / wanted - 1) < CLOSE, path
