"""Where the values of an HDF5 dataset are. HDF5 can keep them in other files, which a reader would open unasked."""

from typing import Any


def is_stored_inside(file: Any, dataset: Any) -> bool:
    """Whether the values are in `file` itself: no external storage, no virtual dataset, no link to another file."""
    return not dataset.is_virtual and not dataset.external and dataset.file.filename == file.filename
