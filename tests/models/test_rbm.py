"""RBM and RNN-RBM against sums over all frames and all hidden states."""

import itertools

import pytest
import torch
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.models import RBM, RNNRBM, ContrastiveDivergence


def bits(count: int) -> Tensor:
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=count)), dtype=torch.float64)


def machine(size: int = 5, hidden: int = 4, scale: float = 1.0) -> RBM:
    made = RBM(3, size, hidden).double()
    for p in made.parameters():
        torch.nn.init.normal_(p, std=scale)
    made.mean.copy_(torch.linspace(0.1, 0.7, size))
    return made


def test_the_free_energy_sums_out_the_hidden_units() -> None:
    made, s, v = machine(), torch.randn(3, dtype=torch.float64), bits(5)
    a, b, h = made.A(s), made.B(s), bits(4) - 0.5
    energy = -(v @ a)[:, None] - h @ b - (v - made.mean) @ made.W.T @ h.T  # (frames, hidden states)
    assert_close(made.free_energy(s.expand(32, 3), v), -(-energy).logsumexp(1), 1e-12)


def test_centred_units_are_the_units_0_and_1_with_other_biases() -> None:
    made, s, v = machine(), torch.randn(3, dtype=torch.float64), bits(5)
    a, b = made.A(s) - made.W.sum(0) / 2, made.B(s) - made.W @ made.mean
    plain = -(v @ a) - torch.nn.functional.softplus(b + v @ made.W.T).sum(-1)
    found = made.free_energy(s.expand(32, 3), v)
    assert_close((-found).log_softmax(0), (-plain).log_softmax(0), 1e-12)


def test_the_start_is_independent_bits() -> None:
    made, frequencies = RBM(3, 4, 5).double(), torch.tensor([0.1, 0.5, 0.9, 0.3], dtype=torch.float64)
    made.start_at(frequencies)
    with torch.no_grad():
        made.W.zero_()
        made.A.weight.zero_()
    p = (-made.free_energy(torch.zeros(16, 3, dtype=torch.float64), bits(4))).softmax(0)
    assert_close((p[:, None] * bits(4)).sum(0).detach(), frequencies, 1e-12)
    with pytest.raises(rc.ShapeError, match="frequencies"):
        made.start_at(torch.zeros(3))


def test_annealed_importance_sampling_finds_the_sum_over_all_frames() -> None:
    torch.manual_seed(0)
    made, s = machine(), torch.randn(6, 3, dtype=torch.float64)
    exact = torch.stack([(-made.free_energy(one.expand(32, 3), bits(5))).logsumexp(0) for one in s]).detach()
    found = made.log_partition(s, chains=400, temperatures=100, generator=torch.Generator().manual_seed(1))
    assert bool(((found.value - exact).abs() < 4 * found.error).all())
    assert float(found.error.max()) < 0.1
    frames = bits(5)[[3, 9, 0, 31, 7, 16]]
    estimate = made.log_prob(s, frames, chains=400, generator=torch.Generator().manual_seed(1))
    expected = -made.free_energy(s, frames) - exact
    assert bool(((estimate.value - expected).abs() < 4 * estimate.error + 1e-3).all())


def test_without_weights_the_estimate_is_exact() -> None:
    made = machine()
    with torch.no_grad():
        made.W.zero_()
    s = torch.randn(4, 3, dtype=torch.float64)
    expected = torch.nn.functional.softplus(made.A(s)).sum(-1) + (2 * torch.cosh(made.B(s) / 2)).log().sum(-1)
    found = made.log_partition(s, chains=3, temperatures=2)
    assert_close(found.value, expected.detach(), 1e-12)
    assert_close(found.error, torch.zeros(4, dtype=torch.float64), 1e-12)


def test_gibbs_sampling_has_the_distribution() -> None:
    torch.manual_seed(0)
    made, s = machine(3, 2), torch.randn(3, dtype=torch.float64)
    exact = (-made.free_energy(s.expand(8, 3), bits(3))).softmax(0).detach()
    frames = made.sample(
        s.expand(20000, 3), torch.zeros(20000, 3, dtype=torch.float64), 60, torch.Generator().manual_seed(2)
    )
    found = torch.bincount(frames.long() @ torch.tensor([4, 2, 1]), minlength=8) / 20000
    assert bool(((found - exact).abs() < 4 * (exact * (1 - exact) / 20000).sqrt() + 1e-3).all())


def test_contrastive_divergence_follows_the_likelihood() -> None:
    """From samples of the model itself, the mean gradient is that of the log-likelihood."""
    torch.manual_seed(0)
    made, s = machine(4, 3, 0.7), torch.randn(3, dtype=torch.float64)
    data = bits(4)[5].expand(30000, 4)
    states = s.expand(30000, 3)
    other = made.sample(states, data, 60, torch.Generator().manual_seed(3))
    surrogate = (made.free_energy(states, data) - made.free_energy(states, other)).mean()
    exact = made.free_energy(s, data[0]) + (-made.free_energy(s.expand(16, 3), bits(4))).logsumexp(0)
    for one, true in zip(*(torch.autograd.grad(v, list(made.parameters())) for v in (surrogate, exact)), strict=True):
        torch.testing.assert_close(one, true, rtol=0, atol=0.03)  # four standard errors of 30,000 samples


def test_chords_whose_notes_go_together_are_learned() -> None:
    random = torch.Generator().manual_seed(0)
    pieces = [torch.randint(0, 2, (12, 1), generator=random).float().expand(12, 2).contiguous() for _ in range(24)]
    data = rc.data.SequenceSet.from_arrays([p[:-1] for p in pieces], [p[1:] for p in pieces], "forecasting")
    torch.manual_seed(0)
    model = RNNRBM(2, hidden_size=4, rbm_size=6, cell="rnn")
    with rc.set_backend("reference"):  # nothing to compile for so few steps
        rc.train.fit(model, data, loss=ContrastiveDivergence(10), epochs=60, batch_size=6, lr=0.1, progress=False)
    frames = model.generate(40, steps=40, seed=0)
    assert (frames[:, 0] == frames[:, 1]).float().mean() > 0.9
    s, _ = model.eval()(data[0].inputs[:, None])
    found = model.density.log_prob(s[:, 0], data[0].target, chains=200)
    assert float(-found.value.detach().mean()) < 0.95  # ln 2 is 0.693, independent bits need 1.386


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(rc.ShapeError, match="frames"):
        machine().free_energy(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64))
    with pytest.raises(rc.InputError, match="length"):
        RNNRBM(3).generate(0)
    with pytest.raises(rc.InputError, match="steps"):
        ContrastiveDivergence(0)
