"""Layers of a cell, one upon the other, whose outputs are all kept; and texts read in one direction or in both."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ...cell import Cell, positive_int
from ...errors import OptionError, ShapeError
from ...layers import Recurrent

Outputs = tuple[Tensor, ...]  # (T, B, d), one a layer


class Stack(nn.Module):
    """`num_layers` layers of any cell; with `residual` each layer above the first adds its input to its output.

    `dropout` acts between layers. Other options are those of `Recurrent` and of the cell.
    """

    def __init__(
        self,
        cell: str | type[Cell],
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        residual: bool = False,
        dropout: float = 0.0,
        **options: Any,
    ):
        super().__init__()
        self.residual, self.dropout = residual, dropout
        built: list[Recurrent] = []
        for _ in range(positive_int("num_layers", num_layers)):
            below = built[-1].output_size if built else input_size
            built.append(Recurrent(cell, below, hidden_size, **options))
        self.layers = nn.ModuleList(built)
        if built[0].bidirectional or built[0].num_layers > 1 or built[0].batch_first:
            raise OptionError("options", sorted(options), "layers that read in one direction, time first, one by one")
        self.input_size, self.output_size = input_size, built[-1].output_size

    @property
    def sheets(self) -> list[Recurrent]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, Recurrent)]

    def forward(
        self, x: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Outputs, tuple[Any, ...]]:
        """(T, B, D) → the outputs of every layer, and a state for each."""
        if state is not None and len(state) != len(self.layers):
            raise ShapeError("state", f"{len(state)} states", f"{len(self.layers)}, one a layer")
        outputs: list[Tensor] = []
        states = []
        below = x
        for number, layer in enumerate(self.layers):
            seen = F.dropout(below, self.dropout, self.training) if self.dropout and number else below
            y, after = layer(seen, None if state is None else state[number], lengths=lengths, resets=resets)
            below = y + below if self.residual and number else y
            outputs.append(below)
            states.append(after)
        return tuple(outputs), tuple(states)
