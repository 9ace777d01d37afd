"""Rates and latencies of spikes against the values they stand for."""

import pytest
import torch

import recurra as rc
from recurra.errors import InputError


def test_rates_are_the_values():
    values = torch.linspace(0, 1, 11, dtype=torch.float64)
    spikes = rc.data.rate_code(values, 20_000, torch.Generator().manual_seed(0))
    assert spikes.shape == (20_000, 11)
    assert set(spikes.unique().tolist()) == {0.0, 1.0}
    error = (values * (1 - values) / 20_000).sqrt()
    assert ((spikes.mean(0) - values).abs() <= 5 * error).all()


def test_larger_values_spike_earlier_and_once():
    values = torch.rand(4, 5)
    spikes = rc.data.latency_code(values, 100)
    assert spikes.shape == (100, 4, 5)
    assert torch.equal(spikes.sum(0), (values > 0.01).float())
    when = spikes.argmax(0)[values > 0.01].double()
    assert ((1 - when / 99) - values[values > 0.01]).abs().max() <= 0.5 / 99 + 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_changes_neither_rates_nor_times(dtype: torch.dtype):
    values = torch.tensor([0.0, 0.001, 0.3, 1.0]).to(dtype)
    spikes = rc.data.rate_code(values, 100_000, torch.Generator().manual_seed(0))
    assert spikes.dtype == dtype
    rates = spikes.double().mean(0)
    assert ((rates - values.double()).abs() <= 0.1 * values.double()).all()
    early = rc.data.latency_code(values, 3000, threshold=0.0)
    assert early.dtype == dtype
    assert torch.equal(early.double().sum(0), torch.tensor([0.0, 1.0, 1.0, 1.0]).double())
    assert early.float().argmax(0).tolist()[1:] == [round((1 - v) * 2999) for v in values[1:].tolist()]


@pytest.mark.parametrize(
    ("values", "steps"), [(torch.tensor([1.5]), 3), (torch.tensor([1]), 3), (torch.tensor([0.5]), 0)]
)
def test_bad_values_are_named(values: torch.Tensor, steps: int):
    for code in (rc.data.rate_code, rc.data.latency_code):
        with pytest.raises(InputError, match=r"^(values|steps): got "):
            code(values, steps)
