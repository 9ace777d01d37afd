"""An estimator's options and class labels as plain JSON, for the config of its folder."""

from pathlib import Path
from typing import Any

import numpy as np

from ..cells import registry
from ..errors import ModelFileError, OptionError, UnknownNameError, nearest
from ..storage import CONFIG, cell_name


def options_to_json(options: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments as plain JSON; the cell is written by its registered name."""
    cell = options["cell"]
    written = {**options, "cell": None if cell is None else cell_name(cell)}
    if not isinstance(written.get("random_state"), int | None):
        written["random_state"] = None  # a generator does not tell its seed
    return {name: _to_json(name, value) for name, value in written.items()}


def options_from_json(stored: dict[str, Any], known: dict[str, Any], folder: str | Path) -> dict[str, Any]:
    """Constructor arguments; every name must be in `known` and the cell must be registered in this process."""
    path, name = Path(folder) / CONFIG, stored.get("cell")
    if not (name is None and known["cell"] is None) and (not isinstance(name, str) or name not in registry()):
        expected = f"a registered cell; import the module that registers it first, or {nearest(str(name), registry())}"
        raise UnknownNameError(f"{path}, cell", repr(name), expected)
    for option in stored:
        if option not in known:
            raise OptionError(f"{path}, options", option, nearest(option, known))
    return stored


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_to_json(name, one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _to_json(name, one) for key, one in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise OptionError(name, f"a {type(value).__name__}", "text and numbers, to be saved as JSON")


def labels_to_json(classes: np.ndarray) -> dict[str, Any]:
    """The labels of a classifier and their NumPy dtype."""
    return {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": classes.tolist()}


def labels_from_json(stored: Any, count: int, folder: str | Path) -> np.ndarray:
    """`count` labels in the dtype they were saved with."""
    try:
        kind = np.dtype(str(stored["dtype"]))
        if kind.kind not in "biufUO" or not isinstance(stored["values"], list) or len(stored["values"]) != count:
            raise TypeError(f"labels of {kind}, not {count} plain ones")
        return np.array(stored["values"], dtype=kind)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(Path(folder) / CONFIG, repr(error), "the labels of the classes") from error
