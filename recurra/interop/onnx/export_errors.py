"""What can go wrong on the way to an ONNX file, and the packages it needs."""

from importlib import import_module
from typing import Any

from ...errors import RecurraError


class ExportError(RecurraError, ValueError):
    """A model cannot be written as an ONNX file, or the file does not compute what the model computes."""


class MissingPackageError(RecurraError, ImportError):
    """An optional package is not installed."""


def package(name: str) -> Any:
    """An optional package, imported when it is used."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(f"export needs {name}: pip install 'recurra[onnx]'", name=name) from error
