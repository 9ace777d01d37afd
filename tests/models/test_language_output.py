"""Softmaxes: against their definition, and the sampled one against what it stands for."""

import math

import pytest
import torch
from torch import nn

from recurra.errors import InputError
from recurra.models.language import AdaptiveSoftmax, FullSoftmax, SampledSoftmax, TiedSoftmax
from recurra.models.language.softmaxes import draw_log_uniform, log_expected_count


def outputs() -> dict[str, nn.Module]:
    return {
        "full": FullSoftmax(6, 40),
        "tied": TiedSoftmax(6, nn.Embedding(40, 6)),
        "tied through a matrix": TiedSoftmax(6, nn.Embedding(40, 3)),
        "adaptive": AdaptiveSoftmax(6, 40, shrink=2.0),
        "adaptive by hand": AdaptiveSoftmax(6, 40, cutoffs=[5, 11, 30], shrink=1.5),
        "sampled": SampledSoftmax(6, 40, 8).eval(),
    }


@pytest.mark.parametrize("name", outputs())
def test_probabilities_sum_to_one_and_the_loss_is_their_logarithm(name):
    output = outputs()[name].double()
    h, target = torch.randn(3, 5, 6, dtype=torch.float64), torch.randint(40, (3, 5))
    log_probs = output.log_probs(h)
    assert log_probs.shape == (3, 5, 40)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, 5, dtype=torch.float64))
    nll = output.nll(h.flatten(0, 1), target.flatten())
    torch.testing.assert_close(nll, -log_probs.flatten(0, 1).gather(1, target.flatten()[:, None])[:, 0])


def test_tied_weights_are_the_embedding_itself():
    table = nn.Embedding(10, 4)
    assert TiedSoftmax(4, table).weight is table.weight
    assert sum(p.numel() for p in TiedSoftmax(4, table).parameters()) == 40 + 10


def test_the_draw_has_no_repetition_and_follows_the_ranks():
    drawn, tries = draw_log_uniform(1000, 50, generator=torch.Generator().manual_seed(1))
    assert len(set(drawn.tolist())) == 50
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < 1000
    assert tries >= 50
    everything, tries = draw_log_uniform(20, 19)
    assert len(set(everything.tolist())) == 19
    assert tries >= 19


def test_a_single_draw_is_log_uniform():
    expected = log_expected_count(torch.arange(30), 1, 30).exp()
    torch.testing.assert_close(expected.sum(), torch.ones((), dtype=torch.float64))
    assert float(expected[0]) == pytest.approx(math.log(2) / math.log(31))
    random = torch.Generator().manual_seed(0)
    counts = torch.zeros(30)
    for _ in range(4_000):
        counts[draw_log_uniform(30, 1, generator=random)[0]] += 1
    error = (counts / 4_000 - expected).abs() / (expected * (1 - expected) / 4_000).sqrt()
    assert float(error.max()) < 4.0  # standard errors


def test_the_sampled_loss_by_hand():
    output = SampledSoftmax(3, 12, 4).double().requires_grad_(False)
    h, target = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 7, 2])
    torch.manual_seed(3)
    drawn, tries = draw_log_uniform(12, 4)
    torch.manual_seed(3)
    found = output.nll(h, target)
    for row in range(5):
        k = int(target[row])
        scores = {}
        for token in {k, *drawn.tolist()}:
            p = math.log((token + 2) / (token + 1)) / math.log(13)
            raw = float(output.weight[token] @ h[row] + output.bias[token])
            scores[token] = raw - math.log(1 - (1 - p) ** tries)
        total = math.log(sum(math.exp(score) for score in scores.values()))
        assert float(found[row]) == pytest.approx(total - scores[k], abs=1e-12)


def test_training_with_samples_finds_the_distribution_of_the_full_softmax():
    """Without the correction, frequent tokens, which are drawn most, would be pushed down for good."""
    wanted = torch.linspace(3.0, -1.0, 30).softmax(0)
    target = torch.repeat_interleave(torch.arange(30), (wanted * 300).round().long())
    share = torch.bincount(target, minlength=30) / len(target)
    output = SampledSoftmax(1, 30, 10)
    h = torch.zeros(len(target), 1)
    optimizer = torch.optim.Adam([output.bias], 0.1)
    averaged = torch.zeros(30)
    for step in range(400):
        optimizer.zero_grad()
        output.nll(h, target).mean().backward()
        optimizer.step()
        averaged += output.bias.detach() * (step >= 200) / 200
    found = averaged.softmax(0)
    assert float((share * (share / found).log()).sum()) < 5e-3


@pytest.mark.parametrize("samples", [0, 40, 2.5])
def test_as_many_samples_as_there_can_be(samples):
    with pytest.raises(InputError, match="samples: got"):
        SampledSoftmax(6, 40, samples)


@pytest.mark.parametrize("cutoffs", [[], [5, 5], [30, 10], [40], [0, 3]])
def test_cutoffs_that_cut_nothing(cutoffs):
    with pytest.raises(InputError, match="cutoffs: got"):
        AdaptiveSoftmax(6, 40, cutoffs)


def test_clusters_without_a_width():
    with pytest.raises(InputError, match=r"shrink: got 4.0 for a state of 6 and 2 clusters"):
        AdaptiveSoftmax(6, 40)
