"""Methods of a class that a later room implements: `Cell.equations`, `Recurrent.export`, ….

A room imports only from rooms above it. The class keeps the method with its signature and docstring, and calls
`implementation(name)`; `recurra/__init__.py`, which knows all rooms, fills `PROVIDERS`.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

PROVIDERS: dict[str, str] = {}  # name of a function → the module that defines it


@cache
def implementation(name: str) -> Callable[..., Any]:
    """The function registered under `name`; its module is imported on the first call."""
    return getattr(import_module(PROVIDERS[name]), name)
