"""Columns of codes among columns of numbers: each code becomes a learned vector."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .covariates import embedding_size


class EmbeddedColumns(nn.Module):
    """Inputs (…, columns) → (…, width): codes 1 … K of a column become vectors, numbers stay.

    The vector of code 0, a category that training did not have, is zero. `sizes` has K for every column, 0 for numbers.
    """

    def __init__(self, sizes: tuple[int, ...]):
        super().__init__()
        self.codes = [k for k, size in enumerate(sizes) if size]
        self.numbers = [k for k, size in enumerate(sizes) if not size]
        self.tables = nn.ModuleList(
            nn.Embedding(sizes[k] + 1, embedding_size(sizes[k]), padding_idx=0) for k in self.codes
        )
        self.width = len(self.numbers) + sum(embedding_size(sizes[k]) for k in self.codes)

    def forward(self, x: Tensor) -> Tensor:
        if not self.codes:
            return x
        vectors = [table(x[..., k].long()) for k, table in zip(self.codes, self.tables, strict=True)]
        return torch.cat([x[..., self.numbers], *vectors], dim=-1)


class EmbeddedOneHot(nn.Module):
    """Inputs (…, columns) → (…, width): runs of one-hot columns become learned vectors, other columns stay.

    `runs` has (first column, columns) of every run. A row of zeros, a category that training did not have, becomes a
    vector of zeros.
    """

    def __init__(self, columns: int, runs: Sequence[tuple[int, int]]):
        super().__init__()
        taken = {column for first, count in runs for column in range(first, first + count)}
        self.runs = [(int(first), int(count)) for first, count in runs]
        self.numbers = [column for column in range(columns) if column not in taken]
        sizes = [(count, embedding_size(count)) for _, count in self.runs]
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(size)) for size in sizes)
        self.width = len(self.numbers) + sum(width for _, width in sizes)

    def forward(self, x: Tensor) -> Tensor:
        if not self.runs:
            return x
        vectors = [x[..., a : a + count] @ table for (a, count), table in zip(self.runs, self.tables, strict=True)]
        return torch.cat([x[..., self.numbers], *vectors], dim=-1)
