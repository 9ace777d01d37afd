"""The last output of every direction of a layer. A backward direction ends at the first step, not at the last."""

import torch
from torch import Tensor

from .layers import Recurrent


def last_outputs(layer: Recurrent | None, y: Tensor, lengths: Tensor) -> Tensor:
    """Of outputs (T, B, F) of a layer those (B, F) after all of each sequence. `layer`: None if all read forwards."""
    last = y[lengths - 1, torch.arange(y.shape[1], device=y.device)]
    return (
        last if layer is None or layer.directions == 1 else torch.where(_backward_columns(layer, y.device), y[0], last)
    )


def _backward_columns(layer: Recurrent, device: torch.device) -> Tensor:
    """Which columns of the outputs, (F,), are of a backward direction."""
    directions, cells = layer.directions, layer.cell_list
    parts = [[k % directions == 1] * cell.output_size for k, cell in enumerate(cells)]
    if layer.depth != "graves":  # the last layer alone is put out
        parts = parts[-directions:]
    elif layer.bidirectional == "separate":  # first all layers of one direction, then those of the other
        parts = [*parts[::2], *parts[1::2]]
    return torch.tensor([column for part in parts for column in part], device=device)
