"""An estimator as a folder: `config.json` and `model.safetensors`, no code in either.

The cell is written by its registered name, never by an import path.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from recurra.cell import Cell
from recurra.cells import registry
from recurra.errors import InputError, OptionError, UnknownNameError, nearest
from recurra.train.tensorfile import read_json, save_tensors

FORMAT = 1


class ModelFileError(InputError):
    """A stored model is not as it should be; the message names the file."""


def write(folder: str | Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Both files, each put in its place only when it is whole."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drafts = folder / ".model.safetensors", folder / ".config.json"
    text = json.dumps({"format": FORMAT, **config}, indent=1, ensure_ascii=False, allow_nan=False)
    save_tensors(drafts[0], tensors)
    drafts[1].write_text(text + "\n", encoding="utf-8")
    for draft in drafts:
        os.replace(draft, folder / draft.name[1:])


def read_config(folder: str | Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    """The content of config.json, which must be that of one of `kinds`."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ModelFileError(str(path), "no such file", "the config.json of a saved estimator")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("kind") not in kinds:
        got = content.get("kind", "no kind") if isinstance(content, dict) else type(content).__name__
        raise ModelFileError(str(path), got, f"the kind {' or '.join(kinds)}")
    if content.get("format") != FORMAT or not all(isinstance(content.get(k), dict) for k in ("options", "fitted")):
        raise ModelFileError(str(path), f"format {content.get('format')}", f"format {FORMAT}, with options and fitted")
    return content


def options_to_json(options: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments as plain JSON."""
    written = {**options, "cell": cell_name(options["cell"])}
    if not isinstance(written.get("random_state"), int | None):
        written["random_state"] = None  # a generator cannot be asked for the seed it came from
    return {name: _plain(name, value) for name, value in written.items()}


def cell_name(cell: type[Cell] | str) -> str:
    """The name under which a cell is registered."""
    if isinstance(cell, str):
        return cell
    for name, known in registry().items():
        if known is cell:
            return name
    raise OptionError(
        "cell", f"{cell.__name__}, which is not registered", 'a class under @rc.register("name"), to be saved by name'
    )


def options_from_json(stored: dict[str, Any], known: dict[str, Any], folder: str | Path) -> dict[str, Any]:
    """Constructor arguments, among those `known`; a cell that this process does not know gets a clear word."""
    path, name = Path(folder) / "config.json", stored.get("cell")
    if not isinstance(name, str) or name not in registry():
        expected = f"a registered cell; import the module that registers it first, or {nearest(str(name), registry())}"
        raise UnknownNameError(f"{path}, cell", repr(name), expected)
    for option in stored:
        if option not in known:
            raise OptionError(f"{path}, options", option, nearest(option, known))
    return stored


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_plain(name, one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(name, one) for key, one in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise OptionError(name, f"a {type(value).__name__}", "text and numbers, which alone can be saved")


def labels_to_json(classes: np.ndarray) -> dict[str, Any]:
    return {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": classes.tolist()}


def labels_from_json(stored: Any, count: int, folder: str | Path) -> np.ndarray:
    try:
        kind = np.dtype(str(stored["dtype"]))
        if kind.kind not in "biufUO" or not isinstance(stored["values"], list) or len(stored["values"]) != count:
            raise TypeError(f"labels of {kind}, not {count} plain ones")
        return np.array(stored["values"], dtype=kind)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(str(Path(folder) / "config.json"), repr(error), "the labels of the classes") from error
