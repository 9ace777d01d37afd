"""What a cell draws before a call: the masks and noise it declares, and the dropout calls that its step makes."""

from collections.abc import Mapping

from torch import Tensor
from torch.compiler import is_compiling

from ..cell import Cell
from ..draws import Draw
from ..errors import TraceError
from .cell_cache import cache_of
from .graph_constants import graph_constant, object_at
from .traced_step import trace_in_clean_context

_FOUND = "dropouts"  # key in `CellCache.traced`


def find_draws(cell: Cell) -> dict[str, Draw]:
    """All that is drawn before a call of the cell as it is now, by name."""
    if is_compiling():
        _find_in_graph(id(cell))
    else:
        _find(cell)
    return cell.drawn_inputs()


def draw_ahead(cell: Cell, steps: int, batch: int, like: Tensor) -> dict[str, Tensor]:
    """The masks and noise of one call, by name, in `like`'s dtype and on its device."""
    find_draws(cell)
    return cell.draw_masks(steps, batch, like)


def mean_draws(cell: Cell, batch: int, like: Tensor) -> dict[str, Tensor]:
    """The masks and noise of one step at their mean, by name, (B, size) each."""
    find_draws(cell)
    return cell.mean_masks(batch, like)


def _find(cell: Cell) -> None:
    """Trace the step for its dropout calls, where it may have some and was not traced since it changed."""
    cache = cache_of(cell)
    if _FOUND not in cache.traced:
        cache.traced[_FOUND] = _dropouts(cell) if cache.guards.may_drop else {}
    cell.found_dropouts = cache.traced[_FOUND]


def _dropouts(cell: Cell) -> Mapping[str, Draw]:
    try:
        return trace_in_clean_context(cell).dropouts
    except TraceError:  # on the plain loop torch draws
        return {}


@graph_constant
def _find_in_graph(cell_id: int) -> bool:
    cell = object_at(cell_id)
    cache_of(cell).guards.guard_graph()
    _find(cell)
    return True
