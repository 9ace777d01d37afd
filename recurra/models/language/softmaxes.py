"""Output layers of a language model: full, tied, adaptive and sampled softmax.

Each has `nll(h, target)` for training and `log_probs(h)` over the whole vocabulary. The adaptive and the sampled
softmax require tokens in the order of their frequency.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import InputError


class OutputLayer(nn.Module, ABC):
    """The output layer of a language model."""

    @abstractmethod
    def nll(self, h: Tensor, target: Tensor) -> Tensor:
        """States (N, d) and tokens (N,) → negative log-likelihoods (N,), for training."""

    @abstractmethod
    def log_probs(self, h: Tensor) -> Tensor:
        """States (…, d) → log-probabilities of all tokens, (…, V)."""


class FullSoftmax(OutputLayer):
    """p(k | h) ∝ exp(w_k · h + b_k)."""

    def __init__(self, input_size: int, tokens: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positive_int("tokens", tokens), positive_int("input_size", input_size)))
        self.bias = nn.Parameter(torch.zeros(tokens))
        nn.init.normal_(self.weight, std=input_size**-0.5)

    def nll(self, h: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(h, self.weight, self.bias), target, reduction="none")

    def log_probs(self, h: Tensor) -> Tensor:
        return F.log_softmax(F.linear(h, self.weight, self.bias), dim=-1)


class TiedSoftmax(OutputLayer):
    """A softmax that shares the weights of the embedding; if sizes differ, a projection comes first.

    (Press & Wolf 2017; Inan, Khosravi & Socher 2017)
    """

    def __init__(self, input_size: int, embedding: nn.Embedding):
        super().__init__()
        width = embedding.embedding_dim
        self.weight = embedding.weight
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))
        self.between = nn.Linear(input_size, width, bias=False) if input_size != width else nn.Identity()

    def nll(self, h: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(self.between(h), self.weight, self.bias), target, reduction="none")

    def log_probs(self, h: Tensor) -> Tensor:
        return F.log_softmax(F.linear(self.between(h), self.weight, self.bias), dim=-1)


class AdaptiveSoftmax(OutputLayer):
    """Frequent tokens in a head, rare tokens in clusters of decreasing width (Grave et al. 2017).

    `cutoffs`: the first token of each cluster; by default a tenth and four tenths of the vocabulary.
    """

    def __init__(self, input_size: int, tokens: int, cutoffs: Sequence[int] | None = None, shrink: float = 4.0):
        super().__init__()
        chosen = _cutoffs(positive_int("tokens", tokens), cutoffs)
        if not shrink >= 1 or input_size // shrink ** len(chosen) < 1:
            got = f"{shrink} for a state of {input_size} and {len(chosen)} clusters"
            raise InputError("shrink", got, "at least 1, and small enough for the last cluster to have a width")
        self.classes = nn.AdaptiveLogSoftmaxWithLoss(input_size, tokens, chosen, div_value=shrink, head_bias=True)

    def nll(self, h: Tensor, target: Tensor) -> Tensor:
        return -self.classes(h, target).output

    def log_probs(self, h: Tensor) -> Tensor:
        return self.classes.log_prob(h.flatten(0, -2)).unflatten(0, h.shape[:-1])


class SampledSoftmax(FullSoftmax):
    """A softmax trained against a sample of the tokens (Jean et al. 2015).

    Tokens are sampled log-uniformly by rank, P(k) = log((k + 2) / (k + 1)) / log(V + 1), without replacement, once for
    the whole batch. Each logit is corrected by the log of its token's expected count in the sample. A sampled token
    that is an item's target is masked for that item. In evaluation the softmax is full.
    """

    def __init__(self, input_size: int, tokens: int, samples: int = 8192):
        super().__init__(input_size, tokens)
        if not isinstance(samples, int) or not 1 <= samples < tokens:
            raise InputError("samples", samples, f"from 1 to {tokens - 1}, fewer than the {tokens} tokens")
        self.samples = samples

    def nll(self, h: Tensor, target: Tensor) -> Tensor:
        if not self.training:
            return super().nll(h, target)
        sampled, tries = draw_log_uniform(len(self.weight), self.samples, h.device)
        true = (h * self.weight[target]).sum(-1) + self.bias[target]
        others = F.linear(h, self.weight[sampled], self.bias[sampled])  # (N, S)
        true = true - log_expected_count(target, tries, len(self.weight)).to(h.dtype)
        others = others - log_expected_count(sampled, tries, len(self.weight)).to(h.dtype)
        others = others.masked_fill(target[:, None] == sampled, -math.inf)
        return torch.cat([true[:, None], others], dim=1).logsumexp(1) - true


def draw_log_uniform(
    tokens: int, samples: int, device: torch.device | str = "cpu", generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """`samples` distinct tokens, and the number of draws until they were found."""
    found = torch.empty(0, dtype=torch.int64, device=device)
    while True:
        uniform = torch.rand(2 * samples, device=device, dtype=torch.float64, generator=generator)
        rank = (uniform * math.log(tokens + 1)).exp().long() - 1
        found = torch.cat([found, rank.clamp_(0, tokens - 1)])
        distinct, place = torch.unique(found, return_inverse=True)
        if len(distinct) < samples:
            continue
        first = torch.full_like(distinct, len(found))
        order = torch.arange(len(found), device=device)
        first = first.scatter_reduce(0, place, order, "amin").sort().values[:samples]  # first draw of each token
        return found[first], int(first[-1]) + 1


def log_expected_count(tokens: Tensor, tries: int, size: int) -> Tensor:
    """log(1 - (1 - P(k))^tries): the probability that a token is among those drawn."""
    rank = tokens.double()
    p = torch.log1p(1 / (rank + 1)) / math.log(size + 1)
    return torch.log(-torch.expm1(tries * torch.log1p(-p)))


def _cutoffs(tokens: int, cutoffs: Sequence[int] | None) -> list[int]:
    if cutoffs is None:
        if tokens < 10:
            raise InputError("tokens", tokens, "at least 10 for an adaptive softmax; use a full one")
        return sorted({max(1, tokens // 10), max(2, 4 * tokens // 10)})
    chosen = list(cutoffs)
    if not chosen or chosen != sorted(set(chosen)) or chosen[0] < 1 or chosen[-1] >= tokens:
        raise InputError("cutoffs", chosen, f"increasing numbers between 1 and {tokens - 1}")
    return chosen
