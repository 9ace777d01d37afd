"""A layer class for every built-in cell: `rc.LSTM(64, 128)` is `rc.Recurrent(cells.LSTM, 64, 128)`.

Type checkers read the same signatures from `named_layers.pyi`, which `scripts/write_stubs.py` writes.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any

from . import cells
from .cell import Cell
from .cells.options import meaning
from .layers import Recurrent

_DOCSTRING = """{summary}

{paper}A layer of `rc.cells.{name}`. The arguments are those of `rc.Recurrent`, and the cell's own options.

**Arguments**

{arguments}

**Returns**

A layer. `y, state = layer(x)` maps x `(T, B, input_size)` to outputs `(T, B, output_size)` and the final state;
`rc.Recurrent` describes the call.

**Example**

    >>> import torch
    >>> import recurra as rc
    >>> layer = rc.{name}(3, 4)
    >>> y, state = layer(torch.zeros(5, 2, 3))
    >>> y.shape == (5, 2, layer.output_size)
    True
"""


def cell_options(cell_class: type[Cell]) -> list[inspect.Parameter]:
    """What a cell takes beyond `input_size` and `hidden_size`, as keyword-only parameters."""
    own = list(inspect.signature(cell_class).parameters.values())[2:]
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]


def layer_signature(cell_class: type[Cell]) -> inspect.Signature:
    """The parameters of `Recurrent.__init__` without `cell` and `**options`, then those of `cell_options`."""
    parameters = inspect.signature(Recurrent.__init__).parameters.values()
    common = [p for p in parameters if p.name != "cell" and p.kind is not p.VAR_KEYWORD]
    return inspect.Signature([*common, *cell_options(cell_class)])


def _layer_class(cell_class: type[Cell]) -> type[Recurrent]:
    def __init__(self: Recurrent, input_size: int, hidden_size: int | Sequence[int], *args: Any, **kwargs: Any):
        Recurrent.__init__(self, cell_class, input_size, hidden_size, *args, **kwargs)

    # The function carries the signature: a class attribute would be inherited by subclasses with another __init__.
    __init__.__signature__ = layer_signature(cell_class)  # pyrefly: ignore
    __init__.__qualname__ = f"{cell_class.__name__}.__init__"
    contents = {"__init__": __init__, "__doc__": _docstring(cell_class), "__module__": __name__}
    return type(cell_class.__name__, (Recurrent,), contents)


def _docstring(cell_class: type[Cell]) -> str:
    options = [
        f"- `{p.name}`: {meaning(cell_class, p.name) or 'an option of the cell'}. Default `{p.default!r}`."
        for p in cell_options(cell_class)
    ]
    return _DOCSTRING.format(
        summary=inspect.cleandoc(cell_class.__doc__ or ""),
        paper=f"{cell_class.paper} ({cell_class.year}).\n\n" if cell_class.paper else "",
        name=cell_class.__name__,
        arguments="\n".join([*_common_arguments(), *options]),
    )


def _common_arguments() -> list[str]:
    """The entries of the Arguments section of `Recurrent`, without `cell` and the options of the cell."""
    text = inspect.cleandoc(Recurrent.__doc__ or "")
    section = re.search(r"\*\*Arguments:?\*\*\n(.*?)(?=\n\*\*|\Z)", text, re.DOTALL)
    entries = re.split(r"\n(?=- `)", section[1].strip() if section else "")
    return [entry for entry in entries if not re.match(r"- `(cell|\*\*options)`", entry)]


globals().update({name: _layer_class(getattr(cells, name)) for name in cells.__all__})
__all__ = list(cells.__all__)  # pyrefly: ignore
