"""Errors of the ONNX export, and the optional packages it needs."""

from typing import Any

from ...errors import MissingPackageError, RecurraError
from ...optional import require

__all__ = ["ExportError", "MissingPackageError", "package"]


class ExportError(RecurraError, ValueError):
    """A model cannot be written as an ONNX file, or the file does not compute what the model computes."""


def package(name: str) -> Any:
    """An optional package, imported when it is used."""
    return require(name, extra="onnx", what="rc.export")
