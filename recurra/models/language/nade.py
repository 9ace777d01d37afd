"""RNN-NADE: the next frame of many bits as a neural autoregressive distribution (Boulanger-Lewandowski et al. 2012).

The bits of a frame v depend on each other: p(v | s) = Π_i p(v_i | v_{<i}, s), with s the state of the recurrent layer:

    a_1 = B s + c,  h_i = σ(a_i),  p(v_i = 1 | v_{<i}, s) = σ(V_i h_i + (A s + b)_i),  a_{i+1} = a_i + W_i v_i

a_i changes only after a bit that is 1. A frame with n such bits has n + 1 different h_i, so all its conditionals are
n + 1 products instead of one per bit.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...argument_checks import positive_int
from ...cell import Cell
from ...errors import ShapeError
from .frames import FrameModel


class NADE(nn.Module):
    """A neural autoregressive distribution over bits, whose biases depend on a state (Larochelle & Murray 2011).

    **Arguments**

    - `input_size`: d, the size of a state.
    - `size`: the number of bits. `hidden`: units of the hidden layer.

    **Example**

        >>> density = rc.models.NADE(16, 5, hidden=8)
        >>> s = torch.randn(10, 3, 16)
        >>> frames = density.sample(s)
        >>> frames.shape, density.log_prob(s, frames).shape
        (torch.Size([10, 3, 5]), torch.Size([10, 3]))
    """

    def __init__(self, input_size: int, size: int, hidden: int = 64):
        super().__init__()
        self.output_size = positive_int("size", size)
        self.A = nn.Linear(positive_int("input_size", input_size), size)
        self.B = nn.Linear(input_size, positive_int("hidden", hidden))
        self.W, self.V = nn.Parameter(torch.empty(size, hidden)), nn.Parameter(torch.empty(size, hidden))
        for weight in (self.W, self.V):
            nn.init.normal_(weight, std=0.01)

    def logits(self, s: Tensor, frames: Tensor) -> Tensor:
        """The log-odds of every bit given those before it: states (N, d) and frames (N, size) → (N, size)."""
        on = frames > 0.5
        before = on.long().cumsum(1) - on.long()  # (N, size) how many bits are 1 before this one
        frame, bit = on.nonzero(as_tuple=True)
        added = self.W.new_zeros(len(s), int(on.sum(1).max()) + 1 if len(s) else 1, self.W.shape[1])
        added = added.index_put((frame, before[frame, bit] + 1), self.W[bit])  # after the n-th, W of that bit
        hidden = torch.sigmoid(self.B(s)[:, None] + added.cumsum(1))  # (N, n + 1, hidden)
        found = F.linear(hidden, self.V)  # (N, n + 1, size)
        return found.gather(1, before[:, None]).squeeze(1) + self.A(s)

    def log_prob(self, s: Tensor, frames: Tensor) -> Tensor:
        """Log-probability: states (…, d) and frames (…, size) of 0 and 1 → (…)."""
        if frames.shape != (*s.shape[:-1], self.output_size):
            raise ShapeError("frames", f"shape {tuple(frames.shape)}", f"{(*s.shape[:-1], self.output_size)}")
        flat = frames.flatten(0, -2)
        logits = self.logits(s.flatten(0, -2), flat)
        loss = F.binary_cross_entropy_with_logits(logits, flat, reduction="none").sum(-1)
        return -loss.view(frames.shape[:-1])

    def sample(self, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A sampled frame for every state, bit by bit: (…, d) → (…, size)."""
        total, odds = self.B(s), self.A(s)
        bits = []
        for i in range(self.output_size):
            p = torch.sigmoid((torch.sigmoid(total) * self.V[i]).sum(-1) + odds[..., i])
            bit = (torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device) < p).to(p.dtype)
            total = total + bit[..., None] * self.W[i]
            bits.append(bit)
        return torch.stack(bits, -1)


class RNNNADE(FrameModel):
    """A model of sequences of bits, such as chords: RNN-NADE (Boulanger-Lewandowski, Bengio & Vincent 2012).

    A recurrent layer reads the frames so far; the bits of the next frame depend on its state and on each other.

    **Arguments**

    - `size`: the number of bits in a frame.
    - `hidden_size`, `num_layers`, `cell`: of the recurrent layers. `nade_size`: hidden units of the NADE.
    - `dropout`: of the states that the NADE reads.
    - `**options`: of `rc.Recurrent` and of the cell.

    **Returns**

    `model(frames, state)`: frames (T, B, size) of 0 and 1 → states (T, B, d) for `model.density`, and the layers'
    state. Train it with `rc.models.NextFrame()`; `generate` samples sequences.

    **Example**

        >>> model = rc.models.RNNNADE(8, hidden_size=16, nade_size=12)
        >>> model.generate(20, seed=0).shape
        torch.Size([20, 8])
    """

    def __init__(
        self,
        size: int,
        hidden_size: int = 128,
        num_layers: int = 1,
        nade_size: int = 128,
        *,
        cell: str | type[Cell] = "lstm",
        dropout: float = 0.0,
        **options: Any,
    ):
        make_density = partial(NADE, size=size, hidden=nade_size)
        super().__init__(size, hidden_size, num_layers, make_density, cell, dropout, options)

    def generate(self, length: int, start: Tensor | None = None, *, seed: int | None = None) -> Tensor:
        """Sample `length` frames, (length, size), after `start` (T, size) or a frame of zeros."""
        return self.sample_frames(length, start, seed, lambda s, frame, random: self.density.sample(s, random))
