"""Checks of the arguments of a layer: its cell, widths, initialisers and options."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from .argument_checks import positive_int
from .cell import Cell
from .cells import find
from .errors import DeviceError, DtypeError, InputError, nearest
from .init import Initialiser
from .modifiers import Modifier


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
    given: tuple[Any, ...] = tuple(init) if isinstance(init, (list, tuple)) else (init,)
    for initialise in given:
        if not callable(initialise):
            raise InputError("init", repr(initialise), "an initialiser such as rc.init.orthogonal(), or several")
    return given


def modifiers_of(modifiers: Modifier | Sequence[Modifier]) -> tuple[Modifier, ...]:
    """One or several modifiers, as a tuple."""
    given: tuple[Any, ...] = tuple(modifiers) if isinstance(modifiers, (list, tuple)) else (modifiers,)
    for modifier in given:
        if not isinstance(modifier, Modifier):
            raise InputError("modifiers", repr(modifier), "modifiers, such as rc.Zoneout(0.1)")
    return given


def device_of(device: Any) -> torch.device:
    """The device, if torch knows it and this machine has it."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        found = None
    if found is None or not _is_here(found):
        raise DeviceError("device", repr(device), "a device of this machine, such as 'cpu' or 'cuda:0'")
    return found


def _is_here(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()


def dtype_of(dtype: Any) -> torch.dtype:
    """The dtype, if parameters can have it."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise DtypeError("dtype", repr(dtype), "a floating-point dtype of torch, such as torch.float32")
    return dtype


def known_options(cell_class: type[Cell], layer_class: type, asked: str) -> str:
    """The expected part of the error for an unknown option: the nearest option of the cell or the layer."""
    own = list(inspect.signature(cell_class.__init__).parameters)[3:]
    general = [name for name in inspect.signature(layer_class.__init__).parameters if name not in ("self", "options")]
    return f"an option of {cell_class.__name__}: {nearest(asked, own + general)}"
