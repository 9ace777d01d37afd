"""recurra: write a recurrent cell as its equations; get a fast layer with exact gradients."""

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
    "from_torch",
    "init",
    "register",
    "registry",
    *_layers,
]
