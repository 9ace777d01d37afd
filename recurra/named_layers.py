"""A layer class for every cell of the zoo: `rc.LSTM(64, 128)` is `rc.Recurrent(cells.LSTM, 64, 128)`."""

from collections.abc import Sequence
from typing import Any

from . import cells
from .cell import Cell
from .layers import Recurrent


def _layer_of(cell_class: type[Cell]) -> type[Recurrent]:
    def __init__(self: Recurrent, input_size: int, hidden_size: int | Sequence[int], *args: Any, **kwargs: Any):
        Recurrent.__init__(self, cell_class, input_size, hidden_size, *args, **kwargs)

    doc = f"{cell_class.__doc__}\n\n    Arguments as in `Recurrent`, and the cell's own options."
    return type(cell_class.__name__, (Recurrent,), {"__init__": __init__, "__doc__": doc, "__module__": __name__})


globals().update({name: _layer_of(getattr(cells, name)) for name in cells.__all__})
__all__ = list(cells.__all__)  # pyrefly: ignore
