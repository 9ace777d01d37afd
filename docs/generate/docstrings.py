"""Docstrings as text of a table."""

import inspect
from typing import Any


def summary(thing: Any) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split()).replace("|", "\\|")
