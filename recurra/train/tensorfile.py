"""Nested Python values with tensors in them, in one safetensors file: nothing in it is ever executed.

The tensors are the file's tensors, the structure around them is JSON in the file's metadata. Before anything is
allocated, the header is held against the file's real size and against caps.
"""

import json
import math
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recurra.errors import InputError
from recurra.train.fit_errors import CheckpointError, MismatchError

STRUCTURE = "structure"
MARKS = {"tensor", "dict", "tuple", "float"}  # a JSON object with one of these as its only key is not a plain dict
BITS = {"F4": 4, "F8_E8M0": 8, "F8_E4M3": 8, "F8_E5M2": 8, "BOOL": 8, "I8": 8, "U8": 8, "I16": 16, "U16": 16, "F16": 16}
BITS |= {"BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64}


@dataclass(frozen=True)
class Caps:
    """The most a file may declare."""

    tensors: int = 100_000
    bytes: int = 1 << 37
    header: int = 1 << 25


CAPS = Caps()


def encode(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """`tree` as JSON; its tensors go into `tensors` and leave their key behind."""
    match tree:
        case None | bool() | int() | str():
            return tree
        case float():
            return tree if math.isfinite(tree) else {"float": repr(tree)}
        case Tensor():
            key = str(len(tensors))
            tensors[key] = tree.detach().to("cpu", copy=True).contiguous()
            return {"tensor": key}
        case dict() if all(isinstance(key, str) for key in tree) and not tree.keys() <= MARKS:
            return {key: encode(value, tensors) for key, value in tree.items()}
        case dict():
            return {"dict": [[encode(key, tensors), encode(value, tensors)] for key, value in tree.items()]}
        case tuple():
            return {"tuple": [encode(value, tensors) for value in tree]}
        case list():
            return [encode(value, tensors) for value in tree]
    raise InputError(
        "checkpoint", f"a {type(tree).__name__}", "tensors, numbers, strings, and lists, tuples and dicts of them"
    )


def decode(node: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `encode`."""
    match node:
        case {"tensor": key, **others} if not others:
            return tensors[key]
        case {"dict": items, **others} if not others:
            return {decode(key, tensors): decode(value, tensors) for key, value in items}
        case {"tuple": items, **others} if not others:
            return tuple(decode(value, tensors) for value in items)
        case {"float": text, **others} if not others:
            return float(text)
        case dict():
            return {key: decode(value, tensors) for key, value in node.items()}
        case list():
            return [decode(value, tensors) for value in node]
    return node


def save_tensors(path: Path, tensors: dict[str, Tensor], structure: Any = None) -> None:
    """Write and fsync one file; an OSError says why it could not be done."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    try:
        save_file(copies, path, metadata={STRUCTURE: json.dumps(structure)})
    except SafetensorError as error:  # the library wraps the system's error into a text
        raise OSError(str(error)) from error
    sync(path)


def save_tree(path: Path, tree: Any) -> None:
    tensors: dict[str, Tensor] = {}
    structure = encode(tree, tensors)
    save_tensors(path, tensors, structure)


def load_tree(path: Path, caps: Caps = CAPS) -> Any:
    tensors, structure = load_tensors(path, caps=caps)
    try:
        return decode(structure, tensors)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(path, f"its structure does not fit its tensors ({error!r})") from error


def load_tensors(path: Path, like: dict[str, Tensor] | None = None, caps: Caps = CAPS) -> tuple[dict[str, Tensor], Any]:
    """Tensors and structure of a file. With `like`, names and shapes must be the same, which is seen in the header."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    header = read_header(path, caps)
    structure = header.pop("__metadata__", {}).get(STRUCTURE, "null")
    if like is not None:
        _compare(path, {name: tuple(entry["shape"]) for name, entry in header.items()}, like)
    try:
        # Copied, because the library's tensors are views of the mapped file, which may be pruned while they live.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}, json.loads(structure)
    except (SafetensorError, json.JSONDecodeError, RecursionError) as error:
        raise CheckpointError(path, f"not a safetensors file of recurra ({error})") from error


def read_header(path: Path, caps: Caps = CAPS) -> dict[str, Any]:
    """What the file declares, after every number in it was held against the file's size and the caps."""
    size = regular_size(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, caps.header):
            raise CheckpointError(path, f"a header of {length} bytes in a file of {size}: not a safetensors file")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        _check_header(path, header, size - 8 - length, caps)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(path, f"its header is not that of a safetensors file ({error!r})") from error
    return header


def _check_header(path: Path, header: dict[str, Any], room: int, caps: Caps) -> None:
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    if len(entries) > caps.tensors:
        raise CheckpointError(path, f"{len(entries)} tensors, at most {caps.tensors} are read")
    if room > caps.bytes:
        raise CheckpointError(path, f"{room} bytes of tensors, at most {caps.bytes} are read")
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        declared = math.prod(entry["shape"]) * BITS[entry["dtype"]] // 8
        if min(entry["shape"], default=0) < 0 or not 0 <= begin <= end <= room or end - begin != declared:
            raise CheckpointError(path, f"tensor {name!r} declares {declared} bytes at {begin}..{end} of {room}")


def _compare(path: Path, found: dict[str, tuple[int, ...]], like: dict[str, Tensor]) -> None:
    wanted = {name: tuple(tensor.shape) for name, tensor in like.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            here, there = wanted.get(name, "absent"), found.get(name, "absent")
            raise MismatchError(path, f"another model: {name!r} is {there} in the file and {here} in the model")


def read_json(path: Path, cap: int = 1 << 26) -> Any:
    if regular_size(path) > cap:
        raise CheckpointError(path, f"larger than the {cap} bytes that are read")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(path, f"not JSON ({error})") from error


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, allow_nan=False), encoding="utf-8")
    sync(path)


def regular_size(path: Path) -> int:
    """The size of a plain file; a link would lead out of the folder and is refused."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(path, "not a plain file inside its folder")
    return status.st_size


def sync(path: Path) -> None:
    """Ask the disk, not only the system, to hold this file or folder. Windows can flush files only."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_tensors(function, tree: Any) -> Any:
    """`function` over the tensors of tuples, lists and dicts; the containers stay what they are."""
    match tree:
        case Tensor():
            return function(tree)
        case dict():
            return {key: map_tensors(function, value) for key, value in tree.items()}
        case tuple() if hasattr(tree, "_fields"):
            return type(tree)(*(map_tensors(function, value) for value in tree))
        case tuple() | list():
            return type(tree)(map_tensors(function, value) for value in tree)
    return tree


def detached(tree: Any) -> Any:
    return map_tensors(torch.Tensor.detach, tree)
