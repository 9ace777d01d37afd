"""Attention: scores of encoder outputs for each decoder state, and their weighted mean."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Attention(nn.Module, ABC):
    """Weights over the steps of a memory for each query. Subclasses define the scores."""

    @abstractmethod
    def scores(self, query: Tensor, memory: Tensor) -> Tensor:
        """Queries (T, B, P) and memory (S, B, F) → scores (T, B, S)."""

    def forward(self, query: Tensor, memory: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of the memory for each query, (T, B, F), and its weights, (T, B, S).

        `valid` (S, B) is true at real steps of the memory; the others get weight 0.
        """
        scores = self.scores(query, memory).masked_fill(~valid.T, -torch.inf)
        weights = scores.softmax(-1)
        return torch.einsum("tbs,sbf->tbf", weights, memory), weights


class DotAttention(Attention):
    """qᵀ W m: the general form of Luong et al. 2015."""

    def __init__(self, query_size: int, memory_size: int):
        super().__init__()
        self.W = nn.Linear(memory_size, query_size, bias=False)

    def scores(self, query: Tensor, memory: Tensor) -> Tensor:
        return torch.einsum("tbp,sbp->tbs", query, self.W(memory))


class AdditiveAttention(Attention):
    """vᵀ tanh(W q + U m): Bahdanau, Cho & Bengio 2015."""

    def __init__(self, query_size: int, memory_size: int):
        super().__init__()
        self.W = nn.Linear(query_size, query_size, bias=False)
        self.U = nn.Linear(memory_size, query_size)
        self.v = nn.Linear(query_size, 1, bias=False)

    def scores(self, query: Tensor, memory: Tensor) -> Tensor:
        pairs = self.W(query).unsqueeze(2) + self.U(memory).transpose(0, 1).unsqueeze(0)  # (T, B, S, P)
        return self.v(pairs.tanh()).squeeze(-1)


ATTENTIONS: dict[str, type[Attention]] = {"additive": AdditiveAttention, "dot": DotAttention}
