"""Local projections take noise from deterministic series, leave what is clean, and name bad arguments."""

import numpy as np
import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.dynamics import lorenz, reduce_noise


def series(steps: int = 1500) -> Tensor:
    start = torch.tensor([1.0, 1.0, 20.0], dtype=torch.float64)
    return lorenz(dt=0.02).simulate(start, steps + 200)[200:, 0]


def test_noise_falls_to_less_than_half():
    clean = series()
    noise = 0.05 * clean.std() * torch.randn(len(clean), generator=torch.Generator().manual_seed(0)).double()
    found = reduce_noise(clean + noise)
    assert found.dtype == clean.dtype
    assert (found - clean)[20:-20].std() < 0.45 * noise.std()


def test_a_clean_series_stays_as_it_is():
    clean = series(1000)
    assert (reduce_noise(clean, rounds=1) - clean).std() < 0.01 * clean.std()


def test_one_round_is_the_projection_on_the_plane_of_the_neighbours():
    """Against a loop over windows with NumPy's singular value decomposition."""
    x = torch.randn(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    window, dimensions, neighbours = 5, 2, 8
    V = np.lib.stride_tricks.sliding_window_view(x.numpy(), window)
    held = np.array([30.0, 1.0, 1.0, 1.0, 30.0])
    total, count = np.zeros(40), np.zeros(40)
    for n, v in enumerate(V):
        near = V[np.argsort(((V - v) ** 2).sum(1))[:neighbours]] * held
        axes = np.linalg.svd(near - near.mean(0))[2][:dimensions]
        away = v * held - near.mean(0)
        off = (away - axes.T @ (axes @ away)) / held
        total[n + 1 : n + window - 1] += off[1:-1]
        count[n + 1 : n + window - 1] += 1
    expected = torch.from_numpy(x.numpy() - total / np.maximum(count, 1))
    found = reduce_noise(x, window, dimensions=dimensions, neighbours=neighbours, rounds=1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("series", {"series": torch.zeros(10, 2)}),
        ("series", {"series": torch.full((100,), float("nan"))}),
        ("dimensions", {"dimensions": 41}),
        ("neighbours", {"neighbours": 1000}),
        ("rounds", {"rounds": 0}),
    ],
)
def test_bad_arguments_are_named(argument: str, options: dict):
    with pytest.raises(rc.RecurraError, match=rf"^{argument}: got"):
        reduce_noise(**({"series": torch.randn(100)} | options))
