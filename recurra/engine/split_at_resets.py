"""A batch with resets is a ragged batch of more sequences: each piece between two resets is one of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..cell import Cell
from .reference import Scanned, Sequences


@dataclass(frozen=True)
class Cut:
    """The pieces as a batch of their own, and the way back."""

    given: Sequences
    shape: tuple[int, int]  # (T, B) of the whole
    rows: Tensor  # of the whole, flattened: where each valid step of each piece belongs
    valid: Tensor  # (longest piece, pieces)
    last: Tensor  # of each sequence, its last piece

    def join(self, scanned: Scanned) -> Scanned:
        trace = {n: self._whole(v) for n, v in scanned.trace.items()} if scanned.trace is not None else None
        return Scanned(self._whole(scanned.y), tuple(s[self.last] for s in scanned.state), trace)

    def _whole(self, value: Tensor) -> Tensor:
        steps, batch = self.shape
        flat = value.new_zeros(steps * batch, value.shape[-1]).index_copy(0, self.rows, value[self.valid])
        return flat.view(steps, batch, -1)


def split_at_resets(cell: Cell, given: Sequences) -> Cut:
    assert given.resets is not None
    steps, batch = given.x.shape[:2]
    resets = given.resets.to(given.x.device, torch.bool)
    begins = resets.clone()
    begins[0] = True
    who, start = begins.t().nonzero().unbind(1)
    ends_batch = torch.cat([who[1:] != who[:-1], who.new_ones(1, dtype=torch.bool)])
    stop = torch.where(ends_batch, steps, torch.cat([start[1:], start.new_zeros(1)]))
    if given.lengths is not None:
        stop = torch.minimum(stop, given.lengths.to(stop)[who])
    lengths = (stop - start).clamp(min=0)
    longest = max(1, int(lengths.max()))
    time = torch.arange(longest, device=start.device)[:, None]
    index = (start + time).clamp(max=steps - 1) * batch + who
    valid = time < lengths
    goes_on = (start == 0) & ~resets[0][who]

    def pieces(value: Tensor) -> Tensor:
        return value.reshape(steps * batch, -1)[index]

    def initial(state: Tensor, fresh: Tensor) -> Tensor:
        shape = (-1, *[1] * (state.dim() - 1))
        return torch.where(goes_on.view(shape), state[who], fresh[who])

    fresh = cell.initial_state(batch, given.x)
    masks = {n: pieces(m) if cell.masks[n].each == "step" else m[who] for n, m in given.masks.items()}
    states = tuple(initial(s, f) for s, f in zip(given.state, fresh, strict=True))
    cut = Sequences(pieces(given.x), states, masks, lengths)
    return Cut(cut, (steps, batch), index[valid], valid, ends_batch.nonzero().squeeze(1))
