"""Imports modules that register cells of the user: `--import my_cells.py`."""

import hashlib
import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError


class Source(NamedTuple):
    """A Python file as it was imported."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


#: modules that were imported, as they were named, and the source of each that is one file; model folders keep a copy
imported: dict[str, Source | None] = {}


def import_user_module(name: str) -> None:
    """Import a module by its name, also from the working directory, or a Python file by its path."""
    if name.endswith(".py"):
        _import_file(Path(name))
    else:
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise InputError("modules", f"{name!r} ({error})", "a module that can be imported") from error
    if name not in imported:
        imported[name] = _source_of(name)


def _source_of(name: str) -> Source | None:
    """The file of an imported module; None for a package, which a copy of one file would not replace."""
    module = sys.modules[Path(name).stem if name.endswith(".py") else name]
    path = Path(getattr(module, "__file__", None) or "")
    single = path.suffix == ".py" and path.stem == module.__name__
    return Source(path.name, path.read_bytes()) if single else None


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise InputError("modules", f"no such file {str(path)!r}", "a Python file that registers cells")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
        return
    if known is not None:
        raise InputError("modules", f"{str(path)!r}, but a module {name!r} is in use", "a file with another name")
    spec = spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError("modules", repr(str(path)), "a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
