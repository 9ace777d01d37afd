"""Quick versions of the published results; `benchmarks/reservoir.py` has the full ones."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import recurra as rc
from benchmarks.reservoir import mackey_glass_error
from benchmarks.spoken_digits import BiLSTM, digit_tdnn, recordings, train_on_digits
from benchmarks.vowels import vowel_errors
from recurra.data.tasks import make


@pytest.mark.slow
def test_mackey_glass_in_closed_loop():
    assert mackey_glass_error(seed=0, trials=20) < -4.2  # log10 NRMSE_84; Jaeger & Haas 2004: -4.2


@pytest.mark.slow
def test_japanese_vowels_without_an_error():
    """With what the benchmark chooses by cross-validation on the training set."""
    settings = {"leak": 0.2, "spectral_radius": 0.2, "units": 10, "bias": 1.0, "ridge": 1.0, "support": 3}
    assert vowel_errors(settings, seed=0) == 0  # of 370; Jaeger et al. 2007: 0


def test_narma10():
    batch = make("narma10", length=2500).sequences(1, seed=0)
    u, y = (np.asarray(part[0], dtype=np.float64) for part in (batch.inputs, batch.targets))
    network = rc.EchoStateNetwork(units=200, spectral_radius=0.9, input_scaling=0.2, bias=0.2, random_state=0)
    network.fit(u[:1500], y[:1500])
    assert network.score(u[1300:], y[1300:]) > 0.9


@pytest.mark.shared_data
@pytest.mark.parametrize("build", [digit_tdnn, BiLSTM])
def test_spoken_digits_of_one_speaker(build: Callable[[], nn.Module]):
    """450 recordings of one speaker, tested on 50; the benchmark has six speakers."""
    frames, labels, test = recordings("jackson")
    assert (len(frames), int(test.sum())) == (500, 50)
    torch.manual_seed(0)
    assert train_on_digits(build(), frames, labels, test, epochs=12) >= 0.94
