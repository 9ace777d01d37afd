"""recurra: write a recurrent cell as its equations; get a fast layer with exact gradients."""

from importlib import import_module
from types import ModuleType

from . import init
from .cell import Cell, register, registry
from .errors import RecurraError
from .interop.torch import accelerate, from_torch
from .layers import *  # noqa: F403
from .layers import __all__ as _layers
from .modifiers import LayerNorm, RecurrentDropout, VariationalDropout, WeightDrop, Zoneout

__version__ = "0.1.0"

__all__ = [
    "Cell",
    "LayerNorm",
    "RecurraError",
    "RecurrentDropout",
    "VariationalDropout",
    "WeightDrop",
    "Zoneout",
    "accelerate",
    "data",
    "from_torch",
    "init",
    "register",
    "registry",
    "train",
    *_layers,
]


def __getattr__(name: str) -> ModuleType:
    """Rooms that need more than torch are imported when first used."""
    if name in ("data", "train"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
