"""Quick versions of the published results; `benchmarks/reservoir.py` has the full ones."""

import numpy as np
import pytest

import recurra as rc
from benchmarks.reservoir import mackey_glass_error, vowel_errors
from recurra.data.tasks import make


@pytest.mark.slow
def test_mackey_glass_in_closed_loop():
    assert mackey_glass_error(seed=0, trials=20) < -4.2  # log10 NRMSE_84; Jaeger & Haas 2004: -4.2


@pytest.mark.slow
def test_japanese_vowels_without_an_error():
    assert vowel_errors(seed=0) == 0  # of 370; Jaeger et al. 2007: 0


def test_narma10():
    batch = make("narma10", length=2500).sequences(1, seed=0)
    u, y = (np.asarray(part[0], dtype=np.float64) for part in (batch.inputs, batch.targets))
    network = rc.EchoStateNetwork(units=200, spectral_radius=0.9, input_scaling=0.2, bias=0.2, random_state=0)
    network.fit(u[:1500], y[:1500])
    assert network.score(u[1300:], y[1300:]) > 0.9
