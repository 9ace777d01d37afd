"""Refuses a cell whose layer asks for a scan over time, by the state and the term that need a loop."""

from ..cell import Cell
from ..errors import OptionError, TraceError
from .ir.values import Unsupported
from .plan.affine import why_not_scanned
from .plan.planner import plan
from .traced_step import trace_in_clean_context
from .user_code import Untraceable


def require_scan(cell: Cell) -> None:
    """Raise an error unless every state of the cell is affine and elementwise in itself."""
    try:
        reasons = why_not_scanned(plan(cell, trace_in_clean_context(cell), train=False, needs_x=False))
    except (Unsupported, Untraceable, TraceError) as error:
        reasons = {"step": f"the compiled engine does not take {error}"}
    for state, why in reasons.items():
        if why:
            expected = f"a cell whose states are affine and elementwise in themselves; {state} of {type(cell).__name__}"
            raise OptionError("parallel", "'scan'", f"{expected} is not: {why}")
