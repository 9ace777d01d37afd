"""Facts that torch.compile takes for constants of its graph, instead of tracing how they are found."""

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def graph_constant(function: _F) -> _F:
    """Decorator: torch.compile calls the function while it traces, and its result is a constant of the graph.

    This is torch.compiler.assume_constant_result without importing torch.compile. torch 2.11 accepts no module as an
    argument of such a function: pass `id(module)`, and find the module with `object_at`.
    """
    function._dynamo_marked_constant = True  # pyrefly: ignore
    return function


def object_at(identity: int) -> Any:
    """The object with this `id`, which must be alive."""
    return ctypes.cast(identity, ctypes.py_object).value
