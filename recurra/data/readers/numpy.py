"""Reads `.npy` (memory-mapped) and `.npz` files; pickles are never loaded."""

import tokenize
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from ..data_errors import EmptyFileError, FormatError, MissingValueError, SizeError
from ..sequences import SequenceSet, Task
from ..stores import Cast, Flat, Store, offsets
from .labels import Encoder, classes_of
from .open_files import decoding, existing, open_zip

INPUT_NAMES = ("inputs", "x", "X", "data", "sequences")
TARGET_NAMES = ("targets", "y", "Y", "labels", "label")


def read_npy(path: str | Path, task: Task = "next_step") -> SequenceSet:
    """Sequences of a memory-mapped array (N, T, D), or one sequence (T, D) or (T,); the targets are the next steps.

    **Example**

        >>> import numpy as np
        >>> np.save("runs.npy", np.zeros((2, 6, 3), dtype=np.float32))
        >>> data = rc.data.read_npy("runs.npy")
        >>> data.task, data.lengths.tolist()
        ('next_step', [5, 5])
    """
    path = existing(path)
    with path.open("rb") as file:
        shape, kind = _header(file, path)
    _check(shape, kind, path.stat().st_size, path)
    with decoding(path, "NumPy array", ValueError, OSError):
        mapped = np.load(path, mmap_mode="c", allow_pickle=False)  # "c": writable pages that never reach the file
    store, lengths = _sequences(mapped, path)
    tokens = store[0].ndim == 1
    return SequenceSet.one_step_ahead(store, lengths, "language" if tokens else task, source=str(path))


def read_npz(path: str | Path, task: Task | None = None, classes=None) -> SequenceSet:
    """Several arrays: `inputs` (or x) with `targets` (or y) and `lengths` where they are ragged; one array alone is
    read as `.npy` is. Ragged sequences lie padded in (N, T, D), or end to end in (ΣT, D).

    **Example**

        >>> import numpy as np
        >>> np.savez("runs.npz", inputs=np.zeros((2, 6, 3)), targets=np.array([0, 1]), lengths=np.array([6, 4]))
        >>> data = rc.data.read_npz("runs.npz")
        >>> data.task, data.lengths.tolist()
        ('classification', [6, 4])
    """
    path = existing(path)
    arrays = _load_npz(path)
    inputs = _pick(arrays, INPUT_NAMES)
    if inputs is None:
        raise FormatError(path, f"arrays called {', '.join(arrays)}", f"one called {' or '.join(INPUT_NAMES)}")
    lengths = arrays.get("lengths")
    store, counts = _sequences(inputs, path, lengths)
    targets = _pick(arrays, TARGET_NAMES)
    if targets is None:
        tokens = store[0].ndim == 1
        return SequenceSet.one_step_ahead(
            store, counts, "language" if tokens else task or "next_step", source=str(path)
        )
    return _with_targets(store, counts, targets, task, classes, path)


def _with_targets(store, counts: Tensor, targets: np.ndarray, task: Task | None, classes, path: Path) -> SequenceSet:
    labels = targets.dtype.kind in "iubUS"
    per_step = targets.ndim >= 2 and targets.shape[1] == int(counts.max()) and len(targets) == len(counts)
    task = task or _task(labels, per_step)
    if len(targets) != len(counts):
        raise FormatError(path, f"{len(targets)} targets for {len(counts)} sequences", "as many targets as sequences")
    known: tuple[str, ...] = ()
    if labels:
        written = [_text(value) for value in targets.reshape(-1)]
        encoder = Encoder(classes or classes_of(written), path)
        known = encoder.known
        numbers = encoder.encode(written).reshape(targets.shape)
    else:
        numbers = torch.as_tensor(np.ascontiguousarray(targets)).to(torch.get_default_dtype())
        numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if task in ("tagging", "transduction"):
        numbers = [row[: int(n)] for row, n in zip(numbers, counts, strict=True)]
        numbers = [row[:, None] if task == "transduction" and row.ndim == 1 else row for row in numbers]
    return SequenceSet(store, numbers, counts, task, classes=known, source=str(path))


def _task(labels: bool, per_step: bool) -> Task:
    if labels:
        return "tagging" if per_step else "classification"
    return "transduction" if per_step else "regression"


def _sequences(array: np.ndarray, path: Path, lengths: np.ndarray | None = None):
    """A store and the lengths of its sequences."""
    if array.dtype.kind not in "iufb":
        raise FormatError(path, f"an array of {array.dtype}", "an array of numbers")
    if array.size == 0:
        raise EmptyFileError(path, f"an array of shape {array.shape}", "an array with data")
    tensor = torch.from_numpy(array)
    if tensor.is_floating_point() and any(bool(part.isnan().any()) for part in tensor.split(1 << 16)):
        raise MissingValueError(path, "NaN among the values", "numbers throughout")
    if lengths is not None:
        return _ragged(tensor, torch.as_tensor(lengths.astype(np.int64)), path)
    if tensor.ndim == 3:
        return _in_default_dtype(tensor), torch.full((len(tensor),), tensor.shape[1])
    if tensor.ndim > 3:
        raise FormatError(path, f"an array of shape {array.shape}", "(N, T, D), (T, D) or (T,)")
    if tensor.ndim == 1:
        tensor = tensor[:, None] if tensor.is_floating_point() else tensor.long()
    return _in_default_dtype([tensor]), torch.tensor([len(tensor)])


def _in_default_dtype(store: Store) -> Store:
    """Numbers converted to the default dtype on access; tokens unchanged."""
    first = store[0]
    return (
        store if first.ndim == 1 or first.dtype == torch.get_default_dtype() else Cast(store, torch.get_default_dtype())
    )


def _ragged(tensor: Tensor, lengths: Tensor, path: Path):
    if lengths.ndim != 1 or int(lengths.min()) < 1:
        raise FormatError(path, "lengths below one", "positive lengths, one per sequence", column="lengths")
    padded = tensor.ndim == 3 and len(tensor) == len(lengths) and int(lengths.max()) <= tensor.shape[1]
    if padded:
        return _in_default_dtype([row[:n] for row, n in zip(tensor, lengths.tolist(), strict=True)]), lengths
    if int(lengths.sum()) != len(tensor):
        expected = f"lengths of (N, T, D) sequences, or lengths that sum to {len(tensor)}"
        raise FormatError(path, f"{len(lengths)} lengths that sum to {int(lengths.sum())}", expected, column="lengths")
    flat = Flat(tensor[:, None] if tensor.ndim == 1 and tensor.is_floating_point() else tensor, offsets(lengths))
    return _in_default_dtype(flat), lengths


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    arrays = {}
    with open_zip(path) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".npy"):
                raise FormatError(path, f"an entry {entry.filename!r}", "entries that are .npy arrays")
            with archive.open(entry) as file:
                _check(*_header(file, path), entry.file_size, path)
            with archive.open(entry) as file, decoding(path, "NumPy array", ValueError, OSError, MemoryError):
                arrays[entry.filename.removesuffix(".npy")] = npy_format.read_array(file, allow_pickle=False)
    if not arrays:
        raise EmptyFileError(path, "no arrays", "an .npz file with data")
    return arrays


def _header(file, path: Path) -> tuple[tuple[int, ...], np.dtype]:
    with decoding(path, "NumPy array", ValueError, SyntaxError, tokenize.TokenError, TypeError, MemoryError):
        version = npy_format.read_magic(file)
        reader = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, _, kind = reader(file)
    if min(shape, default=0) < 0:
        raise FormatError(path, f"an array of shape {shape}", "an intact NumPy array")
    return shape, kind


def _check(shape: tuple[int, ...], kind: np.dtype, size: int, path: Path) -> None:
    """Check a header before reading: no objects (pickles), and no more bytes than the file has."""
    if kind.hasobject:
        raise FormatError(path, "an array of Python objects, a pickle", "an array of numbers; pickles are never loaded")
    declared = kind.itemsize
    for length in shape:
        declared *= length
    if declared > size:
        raise SizeError(
            path, f"a header that declares {declared:,} bytes", f"at most the {size:,} bytes that are there"
        )


def _pick(arrays: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray | None:
    named = next((arrays[name] for name in names if name in arrays), None)
    return next(iter(arrays.values())) if named is None and len(arrays) == 1 and names is INPUT_NAMES else named


def _text(value) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else str(value)
