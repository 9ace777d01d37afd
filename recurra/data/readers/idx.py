"""Reads IDX files, the format of MNIST: images as sequences of pixels, and their labels."""

import struct
from pathlib import Path

import torch
from torch import Tensor

from ..data_errors import DataError, FormatError, SizeError
from ..sequences import SequenceSet
from ..stores import Cast
from .open_files import existing, read_bytes

LIMIT = 4 << 30
UBYTE = 0x08


def read_idx(path: str | Path) -> SequenceSet:
    """The images of `path` pixel by pixel, row by row: sequences (rows · columns, 1) of numbers from 0 to 1.

    The labels are in the file of the same name with `labels-idx1` for `images-idx3`; `path` may name either file.

    **Example**

        >>> from pathlib import Path
        >>> size = [0, 0, 8, 3] + [0, 0, 0, 1] + [0, 0, 0, 2] + [0, 0, 0, 2]  # bytes; one image of 2 × 2
        >>> _ = Path("train-images-idx3-ubyte").write_bytes(bytes([*size, 0, 255, 255, 0]))
        >>> _ = Path("train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))
        >>> rc.data.read_idx("train-images-idx3-ubyte")[0].inputs.flatten().tolist()
        [0.0, 1.0, 1.0, 0.0]
    """
    path = existing(path)
    images_at = path.with_name(path.name.replace("labels-idx1", "images-idx3").replace("labels.idx1", "images.idx3"))
    labels_at = path.with_name(path.name.replace("images-idx3", "labels-idx1").replace("images.idx3", "labels.idx1"))
    if images_at == labels_at:
        raise DataError(
            path, "a name without images-idx3 or labels-idx1", "the file names of MNIST, which pair images and labels"
        )
    images, labels = array(existing(images_at)), array(existing(labels_at))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        got = f"images {tuple(images.shape)} and labels {tuple(labels.shape)}"
        raise FormatError(path, got, "(N, rows, columns) images and (N,) labels")
    pixels = Cast(images.flatten(1)[:, :, None], torch.get_default_dtype(), 1 / 255)
    lengths = torch.full((len(images),), images[0].numel())
    classes = tuple(str(k) for k in range(int(labels.max()) + 1))
    return SequenceSet(pixels, labels.long(), lengths, "classification", classes=classes, source=str(images_at))


def array(path: Path) -> Tensor:
    """The array of an IDX file; a header that does not match the size is an error."""
    content = read_bytes(path, LIMIT)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UBYTE or not 1 <= content[3] <= 4:
        raise FormatError(path, repr(content[:4]), "an IDX file of unsigned bytes")
    rank = content[3]
    start = 4 + 4 * rank
    if len(content) < start:
        raise FormatError(path, f"{len(content)} bytes", f"a header of {start}")
    shape = struct.unpack(f">{rank}I", content[4:start])
    declared = 1
    for length in shape:
        declared *= length
    if declared != len(content) - start or not declared:
        raise SizeError(
            path, f"a header that declares {declared:,} bytes", f"the {len(content) - start:,} that follow it"
        )
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).reshape(shape)
