"""Models of sequences of frames of many bits: recurrent layers, and a density of the next frame given their state."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...argument_checks import positive_int
from ...cell import Cell
from ...errors import InputError
from ...layers import Recurrent
from .generate import make_generator

Draw = Callable[
    [Tensor, Tensor, torch.Generator | None], Tensor
]  # state (1, d), frame (1, size), generator → (1, size)


class FrameModel(nn.Module):
    """Recurrent layers that read the frames so far, and the density of the next one.

    `make_density` gets the size d of the layers' state and returns the density.
    """

    def __init__(
        self,
        size: int,
        hidden_size: int,
        num_layers: int,
        make_density: Callable[[int], Any],
        cell: str | type[Cell],
        dropout: float,
        options: dict[str, Any],
    ):
        super().__init__()
        self.layers = Recurrent(cell, positive_int("size", size), hidden_size, num_layers, **options)
        self.density = make_density(self.layers.output_size)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, frames: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """(T, B, size) → states (T, B, d) for `density`, and the state of the layers."""
        s, state = self.layers(frames, state, lengths=lengths, resets=resets)
        return self.dropout(s), state

    @torch.no_grad()
    def sample_frames(self, length: int, start: Tensor | None, seed: int | None, draw: Draw) -> Tensor:
        """`length` frames, (length, size), after `start` (T, size) or a frame of zeros; `draw` samples each."""
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise InputError("length", length, "a positive whole number of frames")
        weight = self.density.W
        random = make_generator(seed, weight.device)
        frame = weight.new_zeros(1, self.density.output_size) if start is None else start
        training, sampled = self.training, []
        self.eval()
        try:
            s, state = self(frame[:, None])
            for _ in range(length):
                frame = draw(s[-1], frame[-1:], random)
                sampled.append(frame)
                s, state = self(frame[None], state)
        finally:
            self.train(training)
        return torch.cat(sampled)
