"""Cells of the user's own in model folders: imported again if the same user imported the same file before.

`--import my_cells.py` keeps a copy in the private cache folder, under the file's SHA-256. A model folder keeps the
name, the hash and, for people, the source. A command that loads the model imports the copy in the cache, never the one
in the folder: who sends a model cannot send code that runs.
"""

import contextlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from recurra.cells import registry
from recurra.cells.user_modules import import_user_module, imported
from recurra.errors import ModelFileError
from recurra.tensor_files import sha256

HEX = frozenset("0123456789abcdef")


def import_named(name: str) -> None:
    """Import a module that the user names, and remember its source as one that this user ran."""
    import_user_module(name)
    if (source := imported[name]) is not None:
        copy = _trusted(source.sha256, source.name)
        if not copy.is_file():
            _write(copy, source.content)


def _write(path: Path, content: bytes) -> None:
    """Write a file beside and rename it. A cache that cannot be written costs only the convenience."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
            draft.write(content)
        os.replace(draft.name, path)


def import_kept_cells(folder: Path, config: dict[str, Any]) -> None:
    """Import the module of a model's own cell from the cache, or raise with the flag that imports it."""
    name = _cell_of(config)
    if name is None or name in registry():
        return
    needed = _needed(config)
    for module in needed:
        copy = _trusted(module["sha256"], module["name"]) if "sha256" in module else None
        if copy is not None and copy.is_file() and sha256(copy) == module["sha256"]:
            import_user_module(str(copy))
    if name in registry() or not needed:
        return
    flags = " ".join(f"--import {shlex.quote(_shown(folder, module))}" for module in needed)
    expected = f"its module; if you trust it: {flags}"
    raise ModelFileError(folder, f"the cell {name!r}, which recurra does not have", expected)


def _cell_of(config: dict[str, Any]) -> str | None:
    options = config.get("options")
    name = options.get("cell") if isinstance(options, dict) else None
    return name if isinstance(name, str) else None


def _needed(config: dict[str, Any]) -> list[dict[str, str]]:
    """The well-formed entries of the config: a name, and for a file its SHA-256."""
    found = config.get("imports")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return [entry for entry in entries if all(isinstance(value, str) for value in entry.values()) and _is_plain(entry)]


def _is_plain(entry: dict[str, str]) -> bool:
    """Whether name and hash are no paths to elsewhere."""
    name, digest = entry.get("name", ""), entry.get("sha256", "0" * 64)
    return bool(name) and Path(name).name == name and len(digest) == 64 and set(digest) <= HEX


def _shown(folder: Path, module: dict[str, str]) -> str:
    return str(folder / module["name"]) if "sha256" in module else module["name"]


def _trusted(digest: str, name: str) -> Path:
    from recurra.engine.cpu.compiler import folder as cache_folder

    return cache_folder() / "imported" / digest / name
