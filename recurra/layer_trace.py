"""The states and named intermediates of a run: what `layer(x, return_trace=True)` returns."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor


class Trace(Mapping[str, Any]):
    """Every state and every named intermediate of a run, at every step: a read-only mapping from name to values.

    The names are the states and the local variables of `Cell.step`: `h`, `c`, and the gates `i`, `f`, `o`, `g` of an
    LSTM. `layer(x, return_trace=True)` returns one.

    `trace["f"]` is `(T, B, size)`, in the layout of the output. With several layers or directions it is a tuple of
    such tensors, in the order of the state's first axis; `trace.by_cell[k]` is the mapping of one of them, with the
    variables that only this one has, too. Values past the end of a sequence are zero.

    **Example**

        >>> import torch, recurra as rc
        >>> y, state, trace = rc.LSTM(3, 4)(torch.randn(5, 2, 3), return_trace=True)
        >>> sorted(trace)
        ['c', 'f', 'g', 'h', 'i', 'o']
        >>> trace["f"].shape
        torch.Size([5, 2, 4])
    """

    def __init__(self, by_cell: Sequence[Mapping[str, Tensor]]):
        self.by_cell = tuple(dict(values) for values in by_cell)

    def __getitem__(self, name: str) -> Tensor | tuple[Tensor, ...]:
        found = tuple(values[name] for values in self.by_cell)
        return found if len(found) > 1 else found[0]

    def __iter__(self):
        return (name for name in self.by_cell[0] if all(name in values for values in self.by_cell))

    def __len__(self) -> int:
        return sum(1 for _ in self)
