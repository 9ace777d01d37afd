"""Mixtures of Gaussians: against torch's distributions, and against what they learn."""

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Independent, MixtureSameFamily, MultivariateNormal, Normal

from recurra.data import Streams
from recurra.errors import InputError, ShapeError
from recurra.models import MixtureDensity, NextFrame, SequenceDensity
from recurra.train import fit


def oracle(head: MixtureDensity, h: torch.Tensor) -> MixtureSameFamily:
    weights, means, spreads, rho, _ = head.parts(h)
    deviations = spreads.exp()
    if rho is None:
        return MixtureSameFamily(Categorical(logits=weights), Independent(Normal(means, deviations), 1))
    covariance = torch.diag_embed(deviations.square())
    covariance[..., 0, 1] = covariance[..., 1, 0] = rho * deviations.prod(-1)
    return MixtureSameFamily(Categorical(logits=weights), MultivariateNormal(means, covariance))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_density_is_that_of_torch(size):
    head = MixtureDensity(5, size, components=4).double()
    h, frames = torch.randn(7, 3, 5, dtype=torch.float64), torch.randn(7, 3, size, dtype=torch.float64)
    torch.testing.assert_close(head.log_prob(h, frames), oracle(head, h).log_prob(frames))
    torch.testing.assert_close(head.mean(h), oracle(head, h).mean)


def test_ends_of_strokes_are_bernoullis():
    head = MixtureDensity(5, 2, components=3, binary=2).double()
    h = torch.randn(6, 5, dtype=torch.float64)
    frames = torch.cat([torch.randn(6, 2, dtype=torch.float64), torch.randint(2, (6, 2)).double()], dim=1)
    strokes = Bernoulli(logits=head.parts(h)[-1]).log_prob(frames[:, 2:]).sum(-1)
    torch.testing.assert_close(head.log_prob(h, frames), oracle(head, h).log_prob(frames[:, :2]) + strokes)


def test_derivatives():
    head = MixtureDensity(3, 2, components=2, binary=1).double()
    frames = torch.tensor([[0.3, -0.2, 1.0], [1.1, 0.4, 0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda h: head.log_prob(h, frames), torch.randn(2, 3).double().requires_grad_())


def test_what_is_drawn_has_the_moments_of_the_density():
    head = MixtureDensity(4, 2, components=3, binary=1).double().requires_grad_(False)
    h = torch.randn(1, 4, dtype=torch.float64).expand(40_000, 4)
    drawn = head.sample(h, generator=torch.Generator().manual_seed(0))
    expected = oracle(head, h[:1])
    error = (drawn[:, :2].mean(0) - expected.mean[0]).abs() / (expected.variance[0] / 40_000).sqrt()
    assert float(error.max()) < 4.0  # standard errors
    torch.testing.assert_close(drawn[:, :2].var(0), expected.variance[0], rtol=0.05, atol=0.0)
    exact = _covariance(head, h[:1])
    assert float(drawn[:, :2].T.cov()[0, 1]) == pytest.approx(exact, abs=0.05)
    assert float(drawn[:, 2].mean()) == pytest.approx(float(head.mean(h[:1])[0, 2]), abs=0.01)


def _covariance(head: MixtureDensity, h: torch.Tensor) -> float:
    """Between the two numbers of a frame: Σ w (ρ σ₁ σ₂ + μ₁ μ₂) − E₁ E₂."""
    weights, means, spreads, rho, _ = (part if part is None else part[0] for part in head.parts(h))
    mixed = (weights.exp() * (rho * spreads.exp().prod(-1) + means.prod(-1))).sum()
    centre = (weights.exp()[:, None] * means).sum(0)
    return float(mixed - centre[0] * centre[1])


def test_a_bias_draws_nearer_to_the_likeliest():
    head = MixtureDensity(4, 1, components=3).requires_grad_(False)
    h = torch.randn(1, 4).expand(2000, 4)
    spreads = [head.sample(h, bias, torch.Generator().manual_seed(0)).std() for bias in (0.0, 2.0, 500.0)]
    assert spreads[0] > 2 * spreads[1] > 2 * spreads[2]
    assert float(spreads[2]) < 1e-3


def test_a_sequence_with_two_possible_futures_is_learned_as_two():
    """Steps of +1 or -1, with a little noise: no single Gaussian gives them more than -1.42 nats."""
    random = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (2000, 1), generator=random) * 2.0 - 1
    series = signs + 0.05 * torch.randn(2000, 1, generator=random)
    model = SequenceDensity(1, 8, components=2, cell="rnn")
    result = fit(model, Streams(series, 8, 25), loss=NextFrame(), lr=2e-2, epochs=12, progress=False, device="cpu")
    best = 0.5 * torch.log(torch.tensor(2 * torch.pi * torch.e * 0.05**2)) + torch.log(torch.tensor(2.0))
    assert result.history[-1]["loss"] < float(best) + 0.3
    drawn = model.generate(200, seed=1)
    assert drawn.shape == (200, 1)
    assert float((drawn.abs() - 1).abs().median()) < 0.2
    assert 40 < int((drawn > 0).sum()) < 160
    assert torch.equal(drawn, model.generate(200, seed=1))


def test_handwriting_as_in_the_paper_runs_with_skips_to_every_layer():
    model = SequenceDensity(2, 6, 3, components=4, binary=1, depth="graves")
    h, _ = model(torch.randn(5, 2, 3))
    assert model.density.log_prob(h, torch.zeros(5, 2, 3)).shape == (5, 2)
    assert set(model.generate(30, seed=0)[:, 2].tolist()) <= {0.0, 1.0}


def test_wrong_frames_and_settings_are_named():
    head = MixtureDensity(4, 2)
    with pytest.raises(ShapeError, match=r"frames: got shape \(3, 1\), expected \(3, 2\)"):
        head.log_prob(torch.randn(3, 4), torch.randn(3, 1))
    with pytest.raises(InputError, match="bias: got -1"):
        head.sample(torch.randn(3, 4), bias=-1)
    with pytest.raises(InputError, match="components: got 0"):
        MixtureDensity(4, 2, components=0)
