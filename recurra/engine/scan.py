"""The one entry to the engines: cell + sequences → outputs. Here, and nowhere else, a backend is chosen."""

from ..cell import Cell
from . import reference
from .reference import Scanned, Sequences

__all__ = ["Scanned", "Sequences", "choose", "scan"]


def scan(cell: Cell, given: Sequences, keep_trace: bool = False) -> Scanned:
    """Run the cell over whole sequences on the backend that suits them."""
    return reference.scan(cell, given, keep_trace)


def choose(cell: Cell, given: Sequences) -> tuple[str, str]:
    """`(backend, why)` for a scan of these sequences."""
    return "reference", "the plain loop is the only backend on this machine"
