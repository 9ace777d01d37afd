"""NADE and RNN-NADE: against the recursion written as a loop, and against the sum over all frames."""

import itertools

import pytest
import torch
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.models import NADE, RNNNADE, NextFrame


def bit_by_bit(density: NADE, s: Tensor, v: Tensor) -> Tensor:
    """log p(v | s) of one frame, as the paper writes it."""
    a, odds, total = density.B(s), density.A(s), torch.zeros((), dtype=torch.float64)
    for i in range(len(v)):
        p = torch.sigmoid(density.V[i] @ torch.sigmoid(a) + odds[i])
        total = total + (p.log() if v[i] else (1 - p).log())
        a = a + density.W[i] * v[i]
    return total


def density(size: int = 6) -> NADE:
    made = NADE(3, size, hidden=4).double()
    for p in made.parameters():
        torch.nn.init.normal_(p)
    return made


def test_is_the_recursion_value_and_gradient() -> None:
    made, s = density(), torch.randn(7, 2, 3, dtype=torch.float64)
    frames = (torch.rand(7, 2, 6) < 0.4).double()
    frames[0, 0], frames[1, 0] = 0.0, 1.0  # no bit, and all of them
    found = made.log_prob(s, frames)
    expected = torch.stack([bit_by_bit(made, a, v) for a, v in zip(s.flatten(0, 1), frames.flatten(0, 1), strict=True)])
    assert_close(found.flatten(), expected, 1e-12)
    pairs = zip(*(torch.autograd.grad(v.sum(), list(made.parameters())) for v in (found, expected)), strict=True)
    for one, other in pairs:
        assert_close(one, other, 1e-11)


def test_all_frames_together_have_probability_one() -> None:
    made = density(5)
    frames = torch.tensor(list(itertools.product([0.0, 1.0], repeat=5)), dtype=torch.float64)
    s = torch.randn(3, dtype=torch.float64).expand(32, 3)
    assert float(made.log_prob(s, frames).detach().exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_samples_have_the_probabilities() -> None:
    torch.manual_seed(0)
    made = density(3)
    s = torch.randn(3, dtype=torch.float64).expand(20000, 3)
    counts = made.sample(s, torch.Generator().manual_seed(1)).long() @ torch.tensor([4, 2, 1])
    frames = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=torch.float64)
    expected = made.log_prob(s[:8], frames).exp()
    found = torch.bincount(counts, minlength=8) / 20000
    error = 4 * (expected * (1 - expected) / 20000).sqrt()
    assert bool(((found - expected).abs() < error + 1e-3).all())


def test_chords_whose_notes_go_together_are_learned() -> None:
    """Two bits that are always equal and random: independent bits need 2 ln 2 a frame, the truth is ln 2."""
    random = torch.Generator().manual_seed(0)
    pieces = [torch.randint(0, 2, (12, 1), generator=random).float().expand(12, 2).contiguous() for _ in range(24)]
    data = rc.data.SequenceSet.from_arrays([p[:-1] for p in pieces], [p[1:] for p in pieces], "forecasting")
    torch.manual_seed(0)
    model = RNNNADE(2, hidden_size=4, nade_size=4, cell="rnn")
    rc.train.fit(model, data, loss=NextFrame(), epochs=40, batch_size=24, lr=0.1, progress=False)
    found = rc.train.evaluate(model, data, loss=NextFrame())["loss"]
    assert found < 0.72  # ln 2 is 0.693
    frames = model.generate(30, seed=0)
    assert (frames[:, 0] == frames[:, 1]).float().mean() > 0.95


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(rc.ShapeError, match="frames"):
        density().log_prob(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.float64))
    with pytest.raises(rc.InputError, match="length"):
        RNNNADE(3).generate(0)
