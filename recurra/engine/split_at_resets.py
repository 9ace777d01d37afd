"""A batch with resets is a ragged batch of more sequences: each piece between two resets is one of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..cell import Cell
from .reference import Scanned, Sequences


@dataclass(frozen=True)
class Pieces:
    """Where the pieces of a batch (T, B) lie: P pieces, sequence by sequence, in the order of time."""

    shape: tuple[int, int]  # (T, B) of the whole
    sequence: Tensor  # (P,) the sequence of each piece
    lengths: Tensor  # (P,)
    continues: Tensor  # (P,) whether the piece starts from the state of its sequence instead of a fresh one
    index: Tensor  # (longest piece, P): the row of each step among the T · B rows of the whole
    last: Tensor  # (B,) the last piece of each sequence

    @classmethod
    def at_resets(cls, resets: Tensor, lengths: Tensor | None) -> "Pieces":
        """Cut before every reset, (T, B) bool; `lengths` (B,) ends the last piece of each sequence."""
        steps, batch = resets.shape
        begins = resets.clone()
        begins[0] = True
        sequence, start = begins.t().nonzero().unbind(1)
        ends_batch = torch.cat([sequence[1:] != sequence[:-1], sequence.new_ones(1, dtype=torch.bool)])
        stop = torch.where(ends_batch, steps, torch.cat([start[1:], start.new_zeros(1)]))
        if lengths is not None:
            stop = torch.minimum(stop, lengths.to(stop)[sequence])
        size = (stop - start).clamp(min=0)
        time = torch.arange(max(1, int(size.max())), device=start.device)[:, None]
        index = (start + time).clamp(max=steps - 1) * batch + sequence
        continues = (start == 0) & ~resets[0][sequence]
        return cls((steps, batch), sequence, size, continues, index, ends_batch.nonzero().squeeze(1))

    @property
    def valid(self) -> Tensor:
        """(longest piece, P): the steps inside the pieces."""
        return torch.arange(len(self.index), device=self.lengths.device)[:, None] < self.lengths

    def cut(self, value: Tensor) -> Tensor:
        """(T, B, size) → (longest piece, P, size)."""
        steps, batch = self.shape
        return value.reshape(steps * batch, -1)[self.index]

    def join(self, value: Tensor) -> Tensor:
        """(longest piece, P, …) → (T, B, …), zero where there is no piece."""
        steps, batch = self.shape
        valid, size = self.valid, value.shape[2:]
        flat = value.new_zeros(steps * batch, *size).index_copy(0, self.index[valid], value[valid])
        return flat.view(steps, batch, *size)

    def initial(self, state: Tensor, fresh: Tensor) -> Tensor:
        """The state before each piece, (P, …), from those of the sequences, (B, …)."""
        shape = (-1, *[1] * (state.dim() - 1))
        return torch.where(self.continues.view(shape), state[self.sequence], fresh[self.sequence])


@dataclass(frozen=True)
class Cut:
    """The pieces as a batch of their own, and the way back."""

    given: Sequences
    pieces: Pieces

    def join(self, scanned: Scanned) -> Scanned:
        trace = {n: self.pieces.join(v) for n, v in scanned.trace.items()} if scanned.trace is not None else None
        return Scanned(self.pieces.join(scanned.y), tuple(s[self.pieces.last] for s in scanned.state), trace)


def split_at_resets(cell: Cell, given: Sequences) -> Cut:
    assert given.resets is not None
    pieces = Pieces.at_resets(given.resets.to(given.x.device, torch.bool), given.lengths)
    fresh = cell.initial_state(given.x.shape[1], given.x)
    drawn = cell.drawn_inputs()
    each = {n: drawn[n].each for n in given.masks}
    masks = {n: pieces.cut(m) if each[n] == "step" else m[pieces.sequence] for n, m in given.masks.items()}
    states = tuple(pieces.initial(s, f) for s, f in zip(given.state, fresh, strict=True))
    return Cut(Sequences(pieces.cut(given.x), states, masks, pieces.lengths), pieces)
