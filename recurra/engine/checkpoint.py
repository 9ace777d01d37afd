"""Less memory for more arithmetic: √T pieces of the sequence, each run again when its derivative is asked for.

Between pieces only the carried states are kept, and within one, while its turn lasts, what a scan keeps of √T steps.
"""

import functools
from math import isqrt

import torch
from torch import Tensor

from ..cell import Cell
from .backend import backend, set_backend
from .dispatch import scan
from .reference import Scanned, Sequences


def scan_in_pieces(cell: Cell, given: Sequences) -> Scanned:
    """`scan`, with gradients, in O(√T) memory beside its input and output."""
    steps = given.x.shape[0]
    if not torch.is_grad_enabled() or steps < 4:
        return scan(cell, given)
    from torch.utils.checkpoint import checkpoint

    piece = isqrt(steps - 1) + 1
    run = functools.partial(_piece, cell, given, backend())  # it may run again in a thread of autograd
    state, outputs = given.state, []
    for first in range(0, steps, piece):
        # The state of the generators is put back for the second run: on the plain loop a step may draw by itself.
        y, *state = checkpoint(run, first, min(first + piece, steps), *state, use_reentrant=False)  # pyrefly: ignore
        outputs.append(y)
    return Scanned(torch.cat(outputs), tuple(state))


def _piece(cell: Cell, given: Sequences, chosen: str, first: int, last: int, *state: Tensor) -> tuple[Tensor, ...]:
    each_step = {name for name, mask in cell.drawn_inputs().items() if mask.each == "step"}
    masks = {name: m[first:last] if name in each_step else m for name, m in given.masks.items()}
    lengths = None if given.lengths is None else (given.lengths - first).clamp(0, last - first)
    resets = None if given.resets is None else given.resets[first:last]
    with set_backend(chosen):
        scanned = scan(cell, Sequences(given.x[first:last], state, masks, lengths, resets))
    return scanned.y, *scanned.state
