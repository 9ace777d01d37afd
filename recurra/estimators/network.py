"""The network of the sequence estimators: recurrent layers, pooling over time, a linear readout."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..layers import Recurrent
from ..readout import Readout


def mean_of_steps(y: Tensor, lengths: Tensor) -> Tensor:
    return y.sum(dim=0) / lengths[:, None]  # outputs at padding are zero


def last_step(y: Tensor, lengths: Tensor) -> Tensor:
    return y[lengths - 1, torch.arange(y.shape[1], device=y.device)]


def max_of_steps(y: Tensor, lengths: Tensor) -> Tensor:
    steps = torch.arange(y.shape[0], device=y.device)
    return y.masked_fill((steps[:, None] >= lengths)[:, :, None], -torch.inf).amax(dim=0)


#: outputs (T, B, H) and lengths (B,) → one vector per sequence (B, H)
POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"mean": mean_of_steps, "last": last_step, "max": max_of_steps}


class SequenceNetwork(nn.Module):
    """Sequences (T, B, D) and lengths (B,) → outputs (B, outputs)."""

    def __init__(
        self,
        cell: type[Cell] | str,
        inputs: int,
        outputs: int,
        pool: str,
        dropout: float,
        layers: Mapping[str, Any],
    ):
        super().__init__()
        self.recurrent = Recurrent(cell, inputs, dropout=dropout, **layers)
        self.dropout = nn.Dropout(dropout)
        self.readout = Readout(self.recurrent, outputs)
        self.pool = POOLS[pool]

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y, _ = self.recurrent(x, lengths=lengths)  # (T, B, H)
        return self.readout(self.dropout(self.pool(y, lengths)))
