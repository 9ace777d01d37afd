"""recurra: write a recurrent cell as its equations; get a fast layer with exact gradients."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from . import cells, init
from .cell import Cell, register, registry
from .errors import RecurraError
from .interop.torch import accelerate, from_torch
from .layers import Readout, Recurrent, Trace, layer
from .modifiers import LayerNorm, RecurrentDropout, VariationalDropout, WeightDrop, Zoneout
from .named import *  # noqa: F403

if TYPE_CHECKING:
    from . import data, train

__version__ = "0.1.0"

__all__ = [
    "Cell",
    "LayerNorm",
    "Readout",
    "RecurraError",
    "Recurrent",
    "RecurrentDropout",
    "Trace",
    "VariationalDropout",
    "WeightDrop",
    "Zoneout",
    "accelerate",
    "cells",
    "data",
    "from_torch",
    "init",
    "layer",
    "register",
    "registry",
    "train",
    *cells.__all__,  # a layer for every cell
]


def __getattr__(name: str) -> ModuleType:
    """Rooms that need more than torch are imported when first used."""
    if name in ("data", "train"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
