"""Reads HDF5 files with one dataset per sequence, such as embeddings."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...interop.hdf5_storage import is_stored_inside
from ...optional import require
from ..data_errors import EmptyFileError, FormatError
from ..sequences import SequenceSet
from .limits import check_decoded
from .open_files import decoding, existing

DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError)  # what h5py raises over a damaged file


@dataclass(frozen=True)
class Hdf5Datasets:
    """Datasets of one file as sequences (T, D), read on access; (K, T, D) layers are concatenated to (T, K·D)."""

    path: Path
    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Tensor:
        h5py = _h5py()
        with decoding(self.path, "HDF5 file", *DAMAGE), h5py.File(self.path, "r") as file:
            values = torch.from_numpy(file[self.names[index]][()]).to(torch.get_default_dtype())
        return values if values.ndim == 2 else values.movedim(0, 1).flatten(1)


def read_hdf5(path: str | Path) -> SequenceSet:
    """One sequence per dataset, (T, D) or (K, T, D); the targets are the next steps.

    **Example**

        >>> import h5py, numpy as np
        >>> with h5py.File("runs.h5", "w") as file:
        ...     file["one"], file["two"] = np.zeros((6, 3)), np.ones((4, 3))
        >>> data = rc.data.read_hdf5("runs.h5")
        >>> data.names, data.lengths.tolist()
        (['one', 'two'], [5, 3])
    """
    path = existing(path)
    shapes = _shapes(path)
    if not shapes:
        raise EmptyFileError(path, "no dataset", "one for each sequence")
    check_decoded(path, sum(8 * math.prod(shape) for shape in shapes.values()))
    widths = set()
    for name, shape in shapes.items():
        if len(shape) not in (2, 3) or shape[-2] < 2:
            raise FormatError(path, f"a dataset of shape {shape}", "(T, D) or (K, T, D) sequences, T ≥ 2", column=name)
        widths.add((len(shape), shape[0] if len(shape) == 3 else 1, shape[-1]))
    if len(widths) > 1:
        raise FormatError(path, f"sequences of {len(widths)} different widths", "as many features in each")
    lengths = torch.tensor([shape[-2] for shape in shapes.values()])
    names = list(shapes)
    return SequenceSet.one_step_ahead(Hdf5Datasets(path, names), lengths, "next_step", names=names, source=str(path))


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    h5py = _h5py()
    found: dict[str, tuple[tuple[int, ...], bool]] = {}
    with decoding(path, "HDF5 file", *DAMAGE), h5py.File(path, "r") as file:

        def visit(name: str | bytes, item: Any) -> None:
            if isinstance(name, bytes):  # not UTF-8
                raise FormatError(path, f"the name {name!r}", "an intact HDF5 file")
            if isinstance(item, h5py.Dataset):
                found[name] = item.shape, is_stored_inside(file, item)

        file.visititems(visit)
    for name in (name for name, (_, inside) in found.items() if not inside):
        raise FormatError(path, "a dataset whose values are in another file", "values in this file", column=name)
    shapes = {name: shape for name, (shape, _) in found.items()}
    return dict(sorted(shapes.items(), key=lambda item: (len(item[0]), item[0])))


def _h5py() -> Any:
    return require("h5py", extra="elmo", what="reading HDF5 files")
