"""Packages that an extra installs: imported where they are used, and named in one sentence where they are missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .errors import MissingPackageError

#: modules whose distribution has another name
DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def require(*modules: str, extra: str, what: str) -> Any:
    """Import an optional module that may need others beside it.

    **Arguments**

    - `modules`: the module to import, e.g. `"pyarrow"` or `"plotly.graph_objects"`, and others that must be installed.
    - `extra`: the extra of recurra that installs them.
    - `what`: the call or feature that needs them; it begins the sentence of the error.

    **Returns** the first module. Raises `MissingPackageError` if one of the packages is not installed. An installed
    package that fails to import raises its own error.

    **Example**

    >>> require("json", extra="data", what="this example").dumps([1])
    '[1]'
    >>> require("no_such_package", extra="data", what="reading CSV files")
    Traceback (most recent call last):
    recurra.errors.MissingPackageError: reading CSV files needs no_such_package: pip install 'recurra[data]'
    """
    missing = [root for root in dict.fromkeys(map(_root, modules)) if not is_installed(root)]
    if missing:
        raise MissingPackageError(what, [DISTRIBUTIONS.get(root, root) for root in missing], extra)
    return import_module(modules[0])


@contextmanager
def optional_imports(extra: str, what: str) -> Iterator[None]:
    """For imports at the top of a module: a package missing inside the block raises `MissingPackageError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        root = _root(error.name or "")
        if isinstance(error, MissingPackageError) or root in ("", "recurra"):
            raise
        raise MissingPackageError(what, [DISTRIBUTIONS.get(root, root)], extra) from error


def is_installed(package: str) -> bool:
    """Whether a package could be imported. Only the parents of a subpackage are imported to find out."""
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # an import hook refuses it, or `sys.modules` holds None for it
        return False


def _root(module: str) -> str:
    return module.partition(".")[0]
