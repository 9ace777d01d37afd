"""The network of the sequence estimators: recurrent layers, pooling over time, a linear readout."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..last_outputs import last_outputs
from ..layers import Recurrent
from ..readout import Readout


def mean_of_steps(y: Tensor, lengths: Tensor) -> Tensor:
    return y.sum(dim=0) / lengths[:, None]  # outputs at padding are zero


def max_of_steps(y: Tensor, lengths: Tensor) -> Tensor:
    steps = torch.arange(y.shape[0], device=y.device)
    return y.masked_fill((steps[:, None] >= lengths)[:, :, None], -torch.inf).amax(dim=0)


#: a layer (None if it reads forwards), its outputs (T, B, H) and lengths (B,) → one vector per sequence (B, H)
POOLS: dict[str, Callable[[Recurrent | None, Tensor, Tensor], Tensor]] = {
    "mean": lambda _, y, lengths: mean_of_steps(y, lengths),
    "last": last_outputs,
    "max": lambda _, y, lengths: max_of_steps(y, lengths),
}


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
        return self.readout(self.dropout(self.pool(self.recurrent, y, lengths)))
