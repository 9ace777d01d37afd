"""Model folders: `config.json` and `model.safetensors`, written and read here for every kind of model.

    model/
      config.json         format, kind, recurra's version, SHA-256 of the weights, and the kind's; a checksum
      model.safetensors   the tensors
      my_cells.py         the source of the user's own cell, if it was imported from a file; for people to read

Nothing in the folder is executed: a kind names a class of recurra, a cell is written by its registered name.

A save is one transaction. Both files are written beside under hidden names, the new config as `.config-SHA.json`. The
rename of `model.safetensors` commits; the rename of the config follows. A reader that finds a staged config with the
SHA-256 of the weights takes it instead of `config.json`, so a process killed at any point leaves the old model or the
new one. Other files in the folder are not touched. Writers wait for each other at a lock (`.lock`, there while a
process saves); any number of processes may read meanwhile.
"""

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .argument_checks import path_of
from .cell import Cell
from .cells import registry
from .cells.user_modules import imported
from .errors import ModelFileError, OptionError, RecurraError, WeightsMismatchError
from .file_lock import owned_lock
from .tensor_files import check_shapes, map_file, read_json, save_tensors, sha256, sync, write_json

FORMAT = 2
CONFIG, WEIGHTS, LOCK = "config.json", "model.safetensors", ".lock"
DRAFTS = (".config.json", ".model.safetensors", ".config-*.json")
ATTEMPTS = 100  # reads of a folder that another process keeps replacing
Result = TypeVar("Result")
FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye, torch.arange}
SPARE_FACTOR, SPARE_ELEMENTS = 16, 1 << 22  # elements of a build besides the weights: initialisation, buffers


class _TooManyElements(Exception):
    """The tensors of a module are larger than the weights that it is built for."""


class _AllocationLimit(TorchFunctionMode):
    """Counts the elements of new tensors before they are allocated."""

    def __init__(self, limit: int):
        super().__init__()
        self.left = limit

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in FACTORIES:
            size = kwargs.get("size", args[:1] if func is torch.full else args)
            size = size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size
            self.left -= (count := math.prod(size)) * (count if func is torch.eye and len(size) == 1 else 1)
            if self.left < 0:
                raise _TooManyElements(f"a tensor of shape {tuple(size)}")
        return func(*args, **kwargs)


@dataclass(frozen=True)
class FolderContents:
    """What a model puts into its folder: the name of its class, its config as plain JSON, its tensors by name."""

    kind: str
    config: dict[str, Any]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class StoredModel:
    """What a folder holds. `weights` are views of the mapped file; `tensors` gives checked copies."""

    folder: Path
    kind: str
    config: dict[str, Any]
    weights: dict[str, Tensor] = field(repr=False)

    @property
    def config_path(self) -> Path:
        """The path of config.json, for messages."""
        return self.folder / CONFIG

    def section(self, name: str) -> dict[str, Any]:
        """The JSON object under `name` in the config."""
        found = self.config.get(name)
        if not isinstance(found, dict):
            got = "nothing" if found is None else f"a {type(found).__name__}"
            raise ModelFileError(f"{self.config_path}, {name}", got, f"the {name} of a {self.kind}")
        return found

    def tensors(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the weights, whose names and shapes must be those of `like`."""
        found = {name: tuple(tensor.shape) for name, tensor in self.weights.items()}
        check_shapes(self.folder / WEIGHTS, found, like)
        return {name: tensor.clone() for name, tensor in self.weights.items()}

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Refuse, in the block, tensors that are much larger than the file: a config can name any size."""
        self._check_layer_counts(self.config)
        elements = sum(tensor.numel() for tensor in self.weights.values())
        try:
            with _AllocationLimit(SPARE_FACTOR * elements + SPARE_ELEMENTS):
                yield
        except (_TooManyElements, OverflowError) as error:
            raise WeightsMismatchError(self.config_path, str(error), f"the {elements} weights of the file") from error

    def _check_layer_counts(self, section: Mapping[str, Any]) -> None:
        """A layer has at least one tensor: more layers than tensors would be built one by one, for ever."""
        for name, value in section.items():
            if isinstance(value, Mapping):
                self._check_layer_counts(value)
            elif name == "num_layers" and isinstance(value, int | float) and value > len(self.weights):
                raise ModelFileError(f"{self.config_path}, {name}", value, f"at most {len(self.weights)}, as tensors")

    @contextlib.contextmanager
    def expecting(self, what: str) -> Iterator[None]:
        """Turn an error that a malformed config causes in the block into a `ModelFileError`."""
        try:
            yield
        except RecurraError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(self.config_path, repr(error), what) from error


# ---------------------------------------------------------------------------------------------------- writing


def write_folder(folder: str | Path, contents: FolderContents) -> None:
    """Save a model in `folder`, which is created if needed; a model that is there is replaced in one transaction."""
    folder = path_of("folder", folder)
    folder.mkdir(parents=True, exist_ok=True)
    with owned_lock(folder / LOCK, wait=True):
        _finish_interrupted_save(folder)
        _write(folder, contents)


def _write(folder: Path, contents: FolderContents) -> None:
    config_draft, weights_draft = folder / ".config.json", folder / ".model.safetensors"
    try:
        save_tensors(weights_draft, contents.tensors)
        digest = sha256(weights_draft)
        imports = _keep_sources(folder) if _has_own_cell(contents.config) else {}
        config = _header(contents.kind, digest) | imports | contents.config
        write_json(config_draft, {"checksum": _checksum(config)} | config)
        staged = folder / _staged_name(digest)
        os.replace(config_draft, staged)
        sync(folder)
    except BaseException:
        _remove_drafts(folder)
        raise
    os.replace(weights_draft, folder / WEIGHTS)  # commits
    os.replace(staged, folder / CONFIG)
    sync(folder)


def _header(kind: str, digest: str) -> dict[str, Any]:
    from . import __version__

    return {"format": FORMAT, "kind": kind, "recurra": __version__, "sha256": digest}


def _checksum(config: Mapping[str, Any]) -> str:
    """Of all values of a config but the checksum, however they are laid out."""
    content = {name: value for name, value in config.items() if name != "checksum"}
    text = json.dumps(json.loads(json.dumps(content)), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _has_own_cell(section: Mapping[str, Any]) -> bool:
    """Whether a config names a cell that is none of recurra's."""
    for name, value in section.items():
        if isinstance(value, Mapping) and _has_own_cell(value):
            return True
        kind = registry().get(value) if name == "cell" and isinstance(value, str) else None
        if kind is not None and not kind.__module__.startswith("recurra."):
            return True
    return False


def _keep_sources(folder: Path) -> dict[str, Any]:
    """Write the files that registered cells, and note the name and SHA-256 of each."""
    kept = []
    for name, source in imported.items():
        if source is not None:
            (draft := folder / f".{source.name}").write_bytes(source.content)
            os.replace(draft, folder / source.name)
            kept.append({"name": source.name, "sha256": source.sha256})
        else:
            kept.append({"name": name})
    return {"imports": kept} if kept else {}


def _staged_name(digest: str) -> str:
    return f".config-{digest[:16]}.json"


def _finish_interrupted_save(folder: Path) -> None:
    """Rename the config of a committed save into place and delete the drafts of one that was not committed."""
    committed = _current_config(folder)
    if committed.name != CONFIG:
        os.replace(committed, folder / CONFIG)
    _remove_drafts(folder)


def _remove_drafts(folder: Path) -> None:
    for pattern in DRAFTS:
        for draft in folder.glob(pattern):
            draft.unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------- reading


def read_folder(folder: str | Path, *kinds: str) -> StoredModel:
    """The model in `folder`, which must be of one of `kinds`; folders of recurra 0.1.0 are read too."""
    return _read_unchanged(path_of("folder", folder), lambda path: _read_once(path, kinds))


def read_config(folder: str | Path, *kinds: str) -> dict[str, Any]:
    """The content of `config.json` alone, which must be of one of `kinds`."""
    return _read_unchanged(path_of("folder", folder), lambda path: _checked_config(path, kinds))


def _read_once(folder: Path, kinds: tuple[str, ...]) -> StoredModel:
    config, path = _checked_config(folder, kinds), folder / WEIGHTS
    tensors, _ = map_file(path)
    if "sha256" in config and (digest := sha256(path)) != config["sha256"]:
        raise ModelFileError(path, f"SHA-256 {digest}", f"{config['sha256']}, as {CONFIG} says: a file was changed")
    return StoredModel(folder, config["kind"], config, tensors)


def _read_unchanged(folder: Path, read: Callable[[Path], Result]) -> Result:
    """`read(folder)`, again whenever a writer replaced a file meanwhile: an error counts if nothing had changed."""
    for attempt in range(ATTEMPTS):
        before = _file_identities(folder)
        try:
            result = read(folder)
        except (ModelFileError, OSError):
            if _file_identities(folder) == before:
                raise
        else:
            if _file_identities(folder) == before:
                return result
        time.sleep(0.001 * attempt)
    raise ModelFileError(folder, "files that change while they are read", "a folder that no process is writing")


def _file_identities(folder: Path) -> list[tuple[int, ...] | None]:
    found: list[tuple[int, ...] | None] = []
    for name in (CONFIG, WEIGHTS):
        try:
            status = os.stat(folder / name)
            found.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return found


def _current_config(folder: Path) -> Path:
    """config.json, or the staged config of a save that was committed and then interrupted."""
    if any(folder.glob(".config-*.json")) and (folder / WEIGHTS).is_file():
        staged = folder / _staged_name(sha256(folder / WEIGHTS))
        if staged.is_file():
            return staged
    return folder / CONFIG


def _checked_config(folder: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    path = _current_config(folder)
    if not path.exists():
        raise ModelFileError(folder / CONFIG, "no such file", f"the {CONFIG} of a saved model")
    content = read_json(path)
    config = _from_0_1_0(content) if isinstance(content, dict) else {}
    if config.get("kind") not in kinds:
        got = repr(config["kind"]) if "kind" in config else "JSON without a kind"
        raise ModelFileError(folder / CONFIG, got, f"a model of the kind {' or '.join(kinds)}")
    if config.get("format") not in (1, FORMAT):
        got = f"format {config.get('format')!r}, written by recurra {config.get('recurra', 'of an unknown version')}"
        raise ModelFileError(folder / CONFIG, got, f"format 1 or {FORMAT}; load it with that version of recurra")
    if content.get("checksum", found := _checksum(content)) != found:
        got = f"values whose checksum is {found}, not {content['checksum']}: the file was changed after it was saved"
        raise ModelFileError(folder / CONFIG, got, 'the file as it was saved; of one edited by hand, delete "checksum"')
    return config


def _from_0_1_0(config: dict[str, Any]) -> dict[str, Any]:
    """The config of format 1: estimators had today's keys, `Tagger` and `LanguageModel` each had their own."""
    if config.get("model") == "Tagger":
        return {**config, "kind": "Tagger"}
    if config.get("kind") == "language_model":
        return {"format": 1, **config, "kind": "LanguageModel"}
    return config


# ------------------------------------------------------------------------------------------ contents of a folder


def distinct_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The state dict of a module without the second names of tied tensors; the alphabetically first name is kept."""
    state = module.state_dict(keep_vars=True)
    first = {id(state[name]): name for name in sorted(state, reverse=True)}
    return {name: tensor.detach() for name, tensor in state.items() if first[id(tensor)] == name}


def cell_name(cell: type[Cell] | str) -> str:
    """The name under which a cell is registered, by which alone a file can refer to it."""
    if isinstance(cell, str):
        return cell
    for name, known in registry().items():
        if known is cell:
            return name
    raise OptionError(
        "cell", f"{cell.__name__}, which is not registered", 'a class under @rc.register("name"), to be saved by name'
    )


def is_plain(value: Any) -> bool:
    """Whether a value is text, a number, a truth value, None, or a list of such, which JSON can hold."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
