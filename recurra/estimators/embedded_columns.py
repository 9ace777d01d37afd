"""Columns of codes among columns of numbers: each code becomes a learned vector."""

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
