"""Safetensors and JSON files: written with fsync, read without executing anything, headers checked before allocation.

A tree of Python values with tensors in it fits into one safetensors file: the tensors are the file's tensors, the
structure around them is JSON in the file's metadata.
"""

import hashlib
import json
import math
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .errors import InputError, ModelFileError, WeightsMismatchError

STRUCTURE = "structure"  # the metadata key of a tree's JSON
TAGS = {"tensor", "dict", "tuple", "float"}  # a JSON object with one of these as its only key is not a plain dict
BITS = {"F4": 4, "F8_E8M0": 8, "F8_E4M3": 8, "F8_E5M2": 8, "BOOL": 8, "I8": 8, "U8": 8, "I16": 16, "U16": 16, "F16": 16}
BITS |= {"BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64}


@dataclass(frozen=True)
class Limits:
    """The largest file that is read: number of tensors, bytes of tensors, bytes of the header."""

    tensors: int = 100_000
    bytes: int = 1 << 37
    header: int = 1 << 25


LIMITS = Limits()


def encode(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """`tree` as JSON; its tensors are moved into `tensors` and replaced by their keys."""
    match tree:
        case None | bool() | int() | str():
            return tree
        case float():
            return tree if math.isfinite(tree) else {"float": repr(tree)}
        case Tensor():
            key = str(len(tensors))
            tensors[key] = tree.detach().to("cpu", copy=True).contiguous()
            return {"tensor": key}
        case dict() if all(isinstance(key, str) for key in tree) and not tree.keys() <= TAGS:
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


def save_tensors(path: Path, tensors: Mapping[str, Tensor], structure: Any = None) -> None:
    """Write and fsync one safetensors file; raises OSError if the disk refuses."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode & 0o777  # the user's umask applied; safetensors itself creates files with mode 600
    try:
        save_file(copies, path, metadata={STRUCTURE: json.dumps(structure)})
    except SafetensorError as error:  # safetensors turns the system's error into text
        raise OSError(str(error)) from error
    path.chmod(mode)
    sync(path)


def save_tree(path: Path, tree: Any) -> None:
    """Write a tree of plain values and tensors as one safetensors file."""
    tensors: dict[str, Tensor] = {}
    structure = encode(tree, tensors)
    save_tensors(path, tensors, structure)


def load_tree(path: Path, limits: Limits = LIMITS) -> Any:
    """The tree that `save_tree` wrote."""
    tensors, structure = load_tensors(path, limits=limits)
    try:
        return decode(structure, tensors)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(path, f"a structure that does not fit the tensors ({error!r})", "a saved tree") from error


def load_tensors(
    path: Path, like: Mapping[str, Tensor] | None = None, limits: Limits = LIMITS
) -> tuple[dict[str, Tensor], Any]:
    """Tensors and structure of a file.

    With `like`, names and shapes must be the same; the header is compared before any tensor is allocated.
    """
    tensors, structure = map_file(path, like, limits)
    return {name: tensor.clone() for name, tensor in tensors.items()}, structure


def map_file(
    path: Path, like: Mapping[str, Tensor] | None = None, limits: Limits = LIMITS
) -> tuple[dict[str, Tensor], Any]:
    """Like `load_tensors`, but the tensors are views of the mapped file: clone them before the file may change."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    header = read_header(path, limits)
    structure = header.pop("__metadata__", {}).get(STRUCTURE, "null")
    if like is not None:
        check_shapes(path, {name: tuple(entry["shape"]) for name, entry in header.items()}, like)
    try:
        return load_file(path), json.loads(structure)
    # RuntimeError: torch cannot map the file, for instance because another process replaced it meanwhile
    except (SafetensorError, OSError, RuntimeError, json.JSONDecodeError, RecursionError) as error:
        raise ModelFileError(path, str(error), "a safetensors file") from error


def check_shapes(path: Path, found: Mapping[str, tuple[int, ...]], like: Mapping[str, Tensor]) -> None:
    """Raise `WeightsMismatchError` for the first name whose shape in the file is not that of the model."""
    for name in sorted(like.keys() | found.keys()):
        if name not in found:
            raise WeightsMismatchError(path, f"no tensor {name!r}", "all tensors of the model")
        if name not in like:
            raise WeightsMismatchError(path, f"a tensor {name!r}", "none of this name, as in the model")
        if found[name] != tuple(like[name].shape):
            expected = f"{tuple(like[name].shape)}, as in the model"
            raise WeightsMismatchError(path, f"{name!r} of shape {found[name]}", expected)


def read_header(path: Path, limits: Limits = LIMITS) -> dict[str, Any]:
    """The header of a safetensors file, checked against the file's real size and `limits`."""
    size = regular_size(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, limits.header):
            raise ModelFileError(path, f"a header of {length} bytes in a file of {size}", "a safetensors file")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        _check_header(path, header, size - 8 - length, limits)
    except ModelFileError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelFileError(path, f"a header of another format ({error!r})", "a safetensors file") from error
    return header


def _check_header(path: Path, header: dict[str, Any], body: int, limits: Limits) -> None:
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    if len(entries) > limits.tensors:
        raise ModelFileError(path, f"{len(entries)} tensors", f"at most {limits.tensors}")
    if body > limits.bytes:
        raise ModelFileError(path, f"{body} bytes of tensors", f"at most {limits.bytes}")
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        declared = math.prod(entry["shape"]) * BITS[entry["dtype"]] // 8
        if min(entry["shape"], default=0) < 0 or not 0 <= begin <= end <= body or end - begin != declared:
            got = f"tensor {name!r} of {declared} bytes at offsets {begin} to {end}"
            raise ModelFileError(path, got, f"offsets of that size within the {body} bytes of the file")


def read_json(path: Path, limit: int = 1 << 26) -> Any:
    """The content of a JSON file of at most `limit` bytes."""
    try:
        return json.loads(read_text(path, limit))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(path, f"text that is not JSON ({error})", "JSON in UTF-8") from error


def write_json(path: Path, value: Any) -> None:
    """Write and fsync one JSON file."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_text(path: Path, limit: int = 1 << 26) -> str:
    """The content of a UTF-8 file of at most `limit` bytes."""
    size = regular_size(path)
    if size > limit:
        raise ModelFileError(path, f"{size} bytes", f"at most {limit}")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(path, f"text that is not UTF-8 ({error})", "UTF-8") from error
    except OSError as error:
        raise ModelFileError(path, error.strerror or str(error), "a file that can be read") from error


def write_text(path: Path, text: str) -> None:
    """Write and fsync one UTF-8 file."""
    path.write_bytes(text.encode("utf-8"))
    sync(path)


def regular_size(path: Path) -> int:
    """The size of a regular file; a symbolic link is refused, because it may point out of the folder."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise ModelFileError(path, (error.strerror or str(error)).lower(), "a file that can be read") from error
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(path, "a link or a folder", "a regular file")
    return status.st_size


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal text."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Force a file or folder to disk; Windows cannot open folders, and skips them."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
