"""Checks of the arguments of a layer: its cell, widths, initialisers and options."""

import inspect
from collections.abc import Sequence
from typing import Any

from .cell import Cell, positive_int
from .cells import find
from .errors import InputError, nearest
from .init import Initialiser


def cell_class_of(cell: type[Cell] | str) -> type[Cell]:
    """The class of a cell that is given as a class or by its registered name."""
    if isinstance(cell, str):
        return find(cell)
    if not (isinstance(cell, type) and issubclass(cell, Cell)):
        raise InputError("cell", repr(cell), "a subclass of rc.Cell or the name of one")
    return cell


def widths_of(hidden_size: int | Sequence[int], num_layers: int | None) -> tuple[int, ...]:
    """The width of every layer."""
    if isinstance(hidden_size, int):
        return (positive_int("hidden_size", hidden_size),) * positive_int(
            "num_layers", 1 if num_layers is None else num_layers
        )
    if not isinstance(hidden_size, (list, tuple)):
        raise InputError("hidden_size", repr(hidden_size), "a whole number of at least 1, or a list of them")
    widths = tuple(positive_int("hidden_size", width) for width in hidden_size)
    if not widths or num_layers not in (None, len(widths)):
        layers = "every layer" if num_layers is None else f"each of the {num_layers} layers"
        raise InputError("hidden_size", list(widths), f"one width for {layers}")
    return widths


def initialisers_of(init: Initialiser | Sequence[Initialiser]) -> tuple[Initialiser, ...]:
    """One or several initialisers, as a tuple."""
    given = (init,) if callable(init) or isinstance(init, str) else tuple(init)
    for initialise in given:
        if not callable(initialise):
            raise InputError("init", repr(initialise), "an initialiser such as rc.init.orthogonal(), or several")
    return given


def one_of(argument: str, value: Any, allowed: tuple) -> Any:
    """The value, if it is one of those allowed; True is not taken for 1."""
    if not any(value is one or (value == one and type(value) is type(one)) for one in allowed):
        raise InputError(argument, repr(value), "one of " + ", ".join(map(repr, allowed)))
    return value


def probability(argument: str, value: float) -> float:
    """The value, if it lies in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise InputError(argument, value, "a probability between 0 and 1")
    return float(value)


def known_options(cell_class: type[Cell], layer_class: type, asked: str) -> str:
    """The expected part of the error for an unknown option: the nearest option of the cell or the layer."""
    own = list(inspect.signature(cell_class.__init__).parameters)[3:]
    general = [name for name in inspect.signature(layer_class.__init__).parameters if name not in ("self", "options")]
    return f"an option of {cell_class.__name__}: {nearest(asked, own + general)}"
