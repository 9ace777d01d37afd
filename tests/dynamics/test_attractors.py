"""Distances between attractors against closed forms and NumPy histograms."""

import math

import numpy as np
import pytest
import torch

from recurra.dynamics import henon, lorenz, power_spectrum_distance, state_space_divergence
from recurra.errors import InputError, ShapeError


def gaussian(count: int, mean: float, seed: int, size: int = 1) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return mean + torch.randn(count, size, generator=random, dtype=torch.float64)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0])
def test_shifted_gaussians_have_the_closed_form_on_a_grid(shift):
    found = state_space_divergence(gaussian(400_000, 0.0, 1), gaussian(400_000, shift, 2), bins=40)
    assert found.item() == pytest.approx(shift**2 / 2, abs=0.01)  # KL of N(0, 1) and N(m, 1) is m² / 2


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_mixtures_of_one_repeated_state_have_the_closed_form(shift):
    true = torch.zeros(5, 6, dtype=torch.float64)
    generated = true + shift / math.sqrt(6)
    found = state_space_divergence(true, generated, bins=None, variance=0.5, samples=40_000)
    error = 5 * shift / math.sqrt(0.5 * 40_000)  # the log ratio has variance |m|² / σ²
    assert found.item() == pytest.approx(shift**2 / (2 * 0.5), abs=error + 1e-12)


def test_two_orbits_of_one_attractor_are_close_and_another_attractor_is_far():
    def orbit(rho: float, seed: int) -> torch.Tensor:
        starts = 8 * gaussian(200, 0.0, seed, 3) + torch.tensor([0.0, 0.0, 25.0])
        return lorenz(rho=rho).simulate(starts, 2500)[1500:].reshape(-1, 3)

    true = orbit(28.0, 1)
    assert state_space_divergence(true, true).item() == 0.0
    assert state_space_divergence(true, orbit(28.0, 2), bins=12).item() < 0.02
    assert state_space_divergence(true, orbit(20.0, 3), bins=12).item() > 4.0  # a fixed point


def test_the_histogram_is_numpys():
    true, generated = (henon().simulate(torch.full((2,), s, dtype=torch.float64), 3000)[100:] for s in (0.0, 0.1))
    edges = [(low, high) for low, high in zip(true.amin(0).tolist(), true.amax(0).tolist(), strict=True)]
    p, q = (np.histogramdd(o.numpy(), bins=9, range=edges)[0] / len(o) + 1e-6 / 81 for o in (true, generated))
    p, q = p / (1 + 1e-6), q / (1 + 1e-6)
    found = state_space_divergence(true, generated, bins=9).item()
    assert found == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-9)


@pytest.mark.parametrize("outside", [0.5, 0.9])
def test_states_outside_the_grid_count_against_an_orbit(outside: float):
    """An orbit that is the true one, but for a share of its states, is the logarithm of the rest away."""
    true = gaussian(20_000, 0.0, 1, 2)
    strayed = true.clone()
    strayed[torch.arange(20_000) % 10 < 10 * outside] = 50.0
    found = state_space_divergence(true, strayed, bins=5).item()
    assert found == pytest.approx(-math.log(1 - outside), abs=0.02)


def test_hellinger_distance_of_two_tones_with_shared_power():
    """Powers (1, 0) and (cos² a, sin² a) on two frequencies: H² = 1 - cos a."""
    t = 2 * math.pi * torch.arange(1000, dtype=torch.float64)[:, None] / 1000
    angle = 0.7
    mixed = math.cos(angle) * torch.sin(30 * t) + math.sin(angle) * torch.sin(200 * t)
    found = power_spectrum_distance(5 * torch.sin(30 * t) + 2, mixed, smoothing=0)
    assert found.item() == pytest.approx(math.sqrt(1 - math.cos(angle)), abs=1e-9)
    smoothed = power_spectrum_distance(torch.sin(30 * t), mixed, smoothing=3)  # 170 frequencies apart: same overlap
    assert smoothed.item() == pytest.approx(math.sqrt(1 - math.cos(angle)), abs=1e-9)


def test_spectra_of_white_noise_agree_once_smoothed_and_of_a_scaled_orbit_at_once():
    a, b = gaussian(20_000, 0.0, 4, 2), gaussian(20_000, 1.0, 5, 2)
    assert power_spectrum_distance(a, 3 * a - 1).item() == pytest.approx(0.0, abs=1e-7)
    assert power_spectrum_distance(a, b, smoothing=20).item() < 0.1
    assert power_spectrum_distance(a, b, smoothing=0).item() > 0.3


def test_bad_orbits_are_named():
    orbit = torch.randn(50, 2)
    with pytest.raises(ShapeError, match="generated"):
        state_space_divergence(orbit, torch.randn(50, 3))
    with pytest.raises(InputError, match=r"generated.*finite"):
        power_spectrum_distance(orbit, orbit / 0)
    with pytest.raises(InputError, match="bins"):
        state_space_divergence(torch.randn(50, 9), torch.randn(50, 9))
