"""Reads and writes ELMo's official files: `options.json` and an HDF5 file of weights, as in bilm-tf and AllenNLP.

This module knows names and shapes; `models/elmo/weights.py` maps the arrays to parameters.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..optional import require
from .hdf5_storage import is_stored_inside

#: rows of the character table in a file: 256 bytes and five marks; the row of padding is not stored
CHARACTERS = 261
#: the most numbers of one array; a small file could declare any size
LIMIT = 1 << 31


class ElmoFileError(InputError):
    """An ELMo file is missing or malformed; the message names the file and the key."""


@dataclass(frozen=True)
class ElmoOptions:
    """The content of `options.json`."""

    projection_size: int
    hidden_size: int
    num_layers: int
    character_size: int
    filters: tuple[tuple[int, int], ...]  # (width, number of filters)
    highways: int
    longest: int  # characters per token
    activation: str = "relu"
    cell_clip: float | None = 3.0
    proj_clip: float | None = 3.0
    residual: bool = True

    @property
    def filter_count(self) -> int:
        return sum(count for _, count in self.filters)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays in the HDF5 file, for x @ W; the gates are columns in the order i, j, f, o."""
        n, p, c = self.filter_count, self.projection_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"char_embed": (CHARACTERS, self.character_size)}
        for k, (width, count) in enumerate(self.filters):
            shapes |= {f"CNN/W_cnn_{k}": (1, width, self.character_size, count), f"CNN/b_cnn_{k}": (count,)}
        for k in range(self.highways):
            for gate in ("carry", "transform"):
                shapes |= {f"CNN_high_{k}/W_{gate}": (n, n), f"CNN_high_{k}/b_{gate}": (n,)}
        if self.projected:
            shapes |= {"CNN_proj/W_proj": (n, p), "CNN_proj/b_proj": (p,)}
        for direction in range(2):
            for layer in range(self.num_layers):
                name = cell_name(direction, layer)
                shapes |= {f"{name}/W_0": (2 * p, 4 * c), f"{name}/B": (4 * c,), f"{name}/W_P_0": (c, p)}
        return shapes

    @property
    def projected(self) -> bool:
        """Whether there is a projection: bilm-tf omits it if it would not change the size."""
        return self.filter_count != self.projection_size

    def to_json(self) -> dict[str, Any]:
        """The content of `options.json` for these options."""
        return {
            "lstm": {
                "cell_clip": self.cell_clip,
                "use_skip_connections": self.residual,
                "n_layers": self.num_layers,
                "proj_clip": self.proj_clip,
                "projection_dim": self.projection_size,
                "dim": self.hidden_size,
            },
            "char_cnn": {
                "embedding": {"dim": self.character_size},
                "filters": [list(pair) for pair in self.filters],
                "n_highway": self.highways,
                "n_characters": CHARACTERS + 1,
                "max_characters_per_token": self.longest,
                "activation": self.activation,
            },
        }


def cell_name(direction: int, layer: int) -> str:
    """The group of a layer's arrays in the file; direction 0 is forward."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def read_options(path: str | Path) -> ElmoOptions:
    """Read and check `options.json`; entries that do not describe the network are ignored."""
    path = Path(path)
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ElmoFileError(str(path), error.strerror or str(error), "a readable options.json") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ElmoFileError(str(path), str(error), "JSON, in UTF-8") from error
    lstm, cnn = _section(path, content, "lstm"), _section(path, content, "char_cnn")
    embedding = _section(path, cnn, "embedding", "char_cnn/")
    return ElmoOptions(
        projection_size=_whole_number(path, lstm, "projection_dim"),
        hidden_size=_whole_number(path, lstm, "dim"),
        num_layers=_whole_number(path, lstm, "n_layers"),
        character_size=_whole_number(path, embedding, "dim"),
        filters=_filters(path, cnn.get("filters")),
        highways=_whole_number(path, cnn, "n_highway", least=0, default=0),
        longest=_whole_number(path, cnn, "max_characters_per_token", least=3),
        activation=_activation(path, cnn.get("activation", "relu")),
        cell_clip=_clip(path, lstm, "cell_clip"),
        proj_clip=_clip(path, lstm, "proj_clip"),
        residual=bool(lstm.get("use_skip_connections", False)),
    )


def read_weights(path: str | Path, options: ElmoOptions) -> dict[str, Tensor]:
    """The arrays for these options, as float32; an error names a missing, misshapen or non-finite one."""
    h5py, path, found = _h5py(), Path(path), {}
    if not path.is_file():
        raise ElmoFileError(str(path), "no such file", "an HDF5 file of weights")
    try:
        with h5py.File(path, "r") as file:
            for key, shape in options.shapes().items():
                found[key] = _array(h5py, path, file, key, shape)
    except OSError as error:
        raise ElmoFileError(str(path), str(error), "an HDF5 file of weights") from error
    return found


def write_files(
    options_path: str | Path, weights_path: str | Path, options: ElmoOptions, weights: Mapping[str, Tensor]
) -> None:
    """Write both files; each is renamed into place when it is complete."""
    h5py, shapes = _h5py(), options.shapes()

    def write_weights(draft: Path) -> None:
        with h5py.File(draft, "w") as file:
            for key, shape in shapes.items():
                array = weights[key].detach().to("cpu", torch.float32).contiguous()
                if tuple(array.shape) != shape:
                    raise ElmoFileError(key, f"shape {tuple(array.shape)}", f"shape {shape}")
                file.create_dataset(key, data=array.numpy())

    _replace(Path(weights_path), write_weights)
    text = json.dumps(options.to_json(), indent=2) + "\n"
    _replace(Path(options_path), lambda draft: draft.write_text(text, encoding="utf-8"))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".elmo-") as folder:
            draft = Path(folder) / path.name
            write(draft)
            os.replace(draft, path)
    except OSError as error:
        raise ElmoFileError(str(path), error.strerror or str(error), "a path that can be written") from error


def _array(h5py: Any, path: Path, file: Any, key: str, shape: tuple[int, ...]) -> Tensor:
    array = file.get(key)
    if not isinstance(array, h5py.Dataset):
        raise ElmoFileError(f"{path}, {key}", "no such array", f"an array of shape {shape}")
    if not is_stored_inside(file, array):
        raise ElmoFileError(f"{path}, {key}", "an array whose values are in another file", "values in this file")
    if tuple(array.shape) != shape or math.prod(shape) > LIMIT:
        raise ElmoFileError(f"{path}, {key}", f"shape {tuple(array.shape)}", f"shape {shape}")
    if array.dtype.kind != "f":
        raise ElmoFileError(f"{path}, {key}", f"dtype {array.dtype}", "floating-point numbers")
    values = torch.from_numpy(array[()].astype("float32"))
    if not bool(values.isfinite().all()):
        raise ElmoFileError(f"{path}, {key}", "numbers that are not finite", "finite numbers")
    return values


def _section(path: Path, content: Any, key: str, above: str = "") -> dict[str, Any]:
    part = content.get(key) if isinstance(content, dict) else None
    if not isinstance(part, dict):
        raise ElmoFileError(f"{path}, {above}{key}", "nothing" if part is None else type(part).__name__, "an object")
    return part


def _whole_number(path: Path, part: dict[str, Any], key: str, least: int = 1, default: int | None = None) -> int:
    value = part.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ElmoFileError(f"{path}, {key}", repr(value), f"a whole number of at least {least}")
    return value


def _clip(path: Path, part: dict[str, Any], key: str) -> float | None:
    value = part.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ElmoFileError(f"{path}, {key}", repr(value), "a positive number, or null")
    return None if value is None else float(value)


def _filters(path: Path, value: Any) -> tuple[tuple[int, int], ...]:
    good = isinstance(value, list) and value and all(_is_filter(pair) for pair in value)
    if not good:
        raise ElmoFileError(f"{path}, filters", repr(value), "a list of [width, number of filters]")
    return tuple((pair[0], pair[1]) for pair in value)


def _is_filter(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and n > 0 for n in pair)


def _activation(path: Path, value: Any) -> str:
    if value not in ("relu", "tanh"):
        raise ElmoFileError(f"{path}, activation", repr(value), "'relu' or 'tanh'")
    return value


def _h5py() -> Any:
    return require("h5py", extra="elmo", what="reading ELMo's weights")
