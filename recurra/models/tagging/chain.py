"""Linear chains as plain loops over time: the reference implementation.

A path y_1 … y_L scores start[y_1] + Σ_t f[t, y_t] + Σ_{t>1} A[y_{t-1}, y_t] + end[y_L]. A conditional random field and
a hidden Markov model are both this chain; they differ in where the scores come from. These functions run on any device
and under any transform, and are differentiable to any order.
"""

from typing import NamedTuple

import torch
from torch import Tensor

IGNORE = -100  # the tag of padding, as in torch's cross-entropy


class Chain(NamedTuple):
    """A batch of chains that share their transitions."""

    emissions: Tensor  # (T, B, K)
    transitions: Tensor  # (K, K) from → to
    start: Tensor  # (K,)
    end: Tensor  # (K,)
    lengths: Tensor  # (B,) int64

    @property
    def mask(self) -> Tensor:
        """True within a sequence: (T, B)."""
        return torch.arange(len(self.emissions), device=self.lengths.device)[:, None] < self.lengths


def forward_scores(chain: Chain) -> Tensor:
    """α_t(k), the log-sum over all prefixes y_1 … y_t = k; constant past the end of a sequence: (T, B, K)."""
    alpha = chain.start + chain.emissions[0]
    alphas = [alpha]
    for emission, inside in zip(chain.emissions[1:], chain.mask[1:], strict=True):
        summed = torch.logsumexp(alpha[:, :, None] + chain.transitions, dim=1) + emission
        alpha = torch.where(inside[:, None], summed, alpha)
        alphas.append(alpha)
    return torch.stack(alphas)


def log_partition(chain: Chain) -> Tensor:
    """The log-sum over all paths: (B,)."""
    return torch.logsumexp(forward_scores(chain)[-1] + chain.end, dim=-1)


def path_score(chain: Chain, tags: Tensor) -> Tensor:
    """The score of one path (T, B) per sequence: (B,)."""
    mask = chain.mask
    tags = tags.masked_fill(~mask, 0)
    emitted = chain.emissions.gather(2, tags[..., None]).squeeze(2)
    moved = chain.transitions[tags[:-1], tags[1:]]
    last = tags.gather(0, chain.lengths[None] - 1).squeeze(0)
    inner = emitted.masked_fill(~mask, 0.0).sum(dim=0) + moved.masked_fill(~mask[1:], 0.0).sum(dim=0)
    return chain.start[tags[0]] + inner + chain.end[last]


def best_path(chain: Chain) -> tuple[Tensor, Tensor]:
    """Viterbi: the best path of every sequence, `IGNORE` past its end, and its score: (T, B), (B,)."""
    delta, mask = chain.start + chain.emissions[0], chain.mask
    origins = []
    stay = torch.arange(delta.shape[-1], device=delta.device)
    for emission, inside in zip(chain.emissions[1:], mask[1:], strict=True):
        best, origin = (delta[:, :, None] + chain.transitions).max(dim=1)
        delta = torch.where(inside[:, None], best + emission, delta)
        origins.append(torch.where(inside[:, None], origin, stay))
    score, state = (delta + chain.end).max(dim=-1)
    states = [state]
    for origin in reversed(origins):
        states.append(origin.gather(1, states[-1][:, None]).squeeze(1))
    return torch.stack(states[::-1]).masked_fill(~mask, IGNORE), score


def draw_paths(chain: Chain, alphas: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One sample per sequence from the distribution over paths, `IGNORE` past its end: (T, B).

    Sampled backwards: given y_{t+1}, the score of y_t is α_t(y_t) + A[y_t, y_{t+1}].
    """

    def draw(scores: Tensor) -> Tensor:
        return torch.multinomial(scores.softmax(dim=-1), 1, generator=generator).squeeze(1)

    mask = chain.mask
    rows = torch.arange(alphas.shape[1], device=alphas.device)
    last = draw(alphas[chain.lengths - 1, rows] + chain.end)
    states = [last]
    for t in range(len(alphas) - 2, -1, -1):
        following = states[-1]
        drawn = draw(alphas[t] + chain.transitions[:, following].T)
        states.append(torch.where(mask[t + 1], drawn, last))
    return torch.stack(states[::-1]).masked_fill(~mask, IGNORE)
