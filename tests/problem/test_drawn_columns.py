"""What the page of a model draws of its inputs."""

import numpy as np

from recurra.problem.answers import _numbers_only


def test_columns_of_categories_are_not_drawn_beside_numbers():
    X = [np.arange(6.0).reshape(2, 3)]
    drawn, names = _numbers_only(X, ["colour=red", "x", "colour=blue"])
    assert (drawn[0].tolist(), list(names)) == ([[1.0], [4.0]], ["x"])
    assert _numbers_only(X, ["c=a", "c=b", "c=d"])[0] is X
    assert _numbers_only(X, [])[0] is X
