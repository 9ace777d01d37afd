"""Helpers that several models share: the shape check of a batch, and a function as a module."""

from typing import Any

from torch import Tensor, nn

from ..cells.activations import Activation
from ..errors import ShapeError


def time_major(name: str, x: Any, width: int, batch_first: bool) -> Tensor:
    """A batch of sequences as (T, B, width), from (B, T, width) with `batch_first`."""
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != width:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(name, got, f"({'B, T' if batch_first else 'T, B'}, {width})")
    return x.transpose(0, 1) if batch_first else x


class Function(nn.Module):
    """A function as a module, for `nn.Sequential` and `nn.ModuleList`."""

    def __init__(self, function: Activation):
        super().__init__()
        self.function = function

    def forward(self, a: Tensor) -> Tensor:
        return self.function(a)
