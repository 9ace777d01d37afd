"""A stack of unidirectional layers that returns the outputs of every layer."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ...cell import Cell, positive_int
from ...errors import OptionError, ShapeError
from ...layers import Recurrent

LayerOutputs = tuple[Tensor, ...]  # (T, B, d) of every layer


class Stack(nn.Module):
    """`num_layers` unidirectional layers of any cell; `residual` adds a layer's input to its output above the first.

    `dropout` acts between layers. Other options are those of `rc.Recurrent` and of the cell.
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
            raise OptionError("options", sorted(options), "neither bidirectional, nor num_layers, nor batch_first")
        self.input_size, self.output_size = input_size, built[-1].output_size

    @property
    def layer_list(self) -> list[Recurrent]:
        """The layers as a list of `Recurrent`."""
        return [layer for layer in self.layers if isinstance(layer, Recurrent)]

    def forward(
        self, x: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[LayerOutputs, tuple[Any, ...]]:
        """(T, B, D) → the outputs of every layer, and the state of every layer."""
        if state is not None and len(state) != len(self.layers):
            raise ShapeError("state", f"{len(state)} states", f"{len(self.layers)}, one for each layer")
        outputs: list[Tensor] = []
        states = []
        below = x
        for number, layer in enumerate(self.layers):
            inputs = F.dropout(below, self.dropout, self.training) if self.dropout and number else below
            y, after = layer(inputs, None if state is None else state[number], lengths=lengths, resets=resets)
            below = y + below if self.residual and number else y
            outputs.append(below)
            states.append(after)
        return tuple(outputs), tuple(states)
