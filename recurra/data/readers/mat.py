"""Reads MATLAB files (format 5) with cell arrays of matrices, such as piano rolls, with SciPy."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import torch

from ...errors import UnknownNameError
from ...optional import optional_imports
from ..data_errors import EmptyFileError, FormatError
from ..sequences import SequenceSet
from ..stores import Cast
from .limits import check_decoded, max_bytes
from .open_files import decoding, existing

# What scipy raises over a damaged file, besides errors of its own.
DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, OSError, EOFError, MemoryError)

COMPRESSED = 15  # the type of an element that zlib has compressed
BLOCK = 1 << 20


def read_mat(path: str | Path, part: str | None = None) -> SequenceSet:
    """One sequence per matrix (T, D); the targets are the next frames.

    `part` is one variable of the file: for the polyphonic music sets "train", "valid" or "test" (`traindata` …).
    By default all variables are read; the names of the sequences contain them.

    **Example**

        >>> import scipy.io, numpy as np
        >>> scipy.io.savemat("runs.mat", {"one": np.zeros((6, 3)), "two": np.ones((4, 3))})
        >>> rc.data.read_mat("runs.mat").lengths.tolist()
        [5, 3]
    """
    path = existing(path)
    cells = _cells(path)
    if part is not None:
        chosen = part if part in cells else f"{part}data"
        if chosen not in cells:
            raise UnknownNameError("part", part, [name.removesuffix("data") for name in cells])
        cells = {chosen: cells[chosen]}
    frames = [torch.from_numpy(np.ascontiguousarray(m)) for matrices in cells.values() for m in matrices]
    names = [f"{name.removesuffix('data')}/{k}" for name, matrices in cells.items() for k in range(len(matrices))]
    lengths = torch.tensor([len(frame) for frame in frames])
    store = Cast(frames, torch.get_default_dtype())
    return SequenceSet.one_step_ahead(store, lengths, "next_step", names=names, source=str(path))


def _decompressed_size(path: Path) -> int:
    """Bytes of all elements, the compressed ones decompressed; no more than a little over the limit is counted."""
    limit, total = max_bytes(path.stat().st_size), path.stat().st_size
    with path.open("rb") as file:
        order = "<" if file.read(128)[-2:] == b"IM" else ">"
        while len(tag := file.read(8)) == 8 and total <= limit:
            kind, size = struct.unpack(f"{order}II", tag)
            if kind != COMPRESSED:
                file.seek(size, os.SEEK_CUR)
                continue
            inflate, left = zlib.decompressobj(), size
            while total <= limit and (part := inflate.unconsumed_tail or file.read(min(left, BLOCK))):
                left -= 0 if inflate.unconsumed_tail else len(part)
                total += len(inflate.decompress(part, BLOCK))
    return total


def _cells(path: Path) -> dict[str, list[np.ndarray]]:
    with optional_imports("estimators", what="reading .mat files"):
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError

    # scipy reads a variable that it has not assigned where a header names an unknown class.
    with decoding(path, "MATLAB file of format 5", MatReadError, zlib.error, UnboundLocalError, *DAMAGE):
        check_decoded(path, _decompressed_size(path))
        content = loadmat(path)
    cells = {}
    for name, value in content.items():
        if isinstance(value, np.ndarray) and not name.startswith("__"):
            matrices = [np.asarray(m) for m in value.flatten()] if value.dtype == object else [value]
            if any(m.ndim != 2 or m.dtype.kind not in "iufb" or len(m) < 2 for m in matrices):
                raise FormatError(path, "other content", "(T, D) matrices of numbers, T ≥ 2", column=name)
            cells[name] = matrices
    if not cells:
        raise EmptyFileError(path, "no variable", "at least one cell array of matrices")
    return cells
