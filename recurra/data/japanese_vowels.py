"""The data set in the package: Japanese Vowels, nine speakers to classify from 7 to 29 frames of speech.

Source, licence (CC BY 4.0) and citation: `builtin/ATTRIBUTION.md`, beside the file this module reads.

The file is gzip over one line of JSON (the header: lengths and labels of each split), then little-endian int32 numbers:
the values in millionths, split after split, sequence after sequence, frame after frame. The published values have at
most six decimals, so the integers are exact, and reading them needs neither pickle nor another package.
"""

import gzip
import json
import struct
from importlib.resources import files
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ..errors import UnknownNameError

Split = Literal["train", "test"]


class JapaneseVowels(NamedTuple):
    """One split: `sequences[i]` is (T_i, 12) float32, `labels[i]` its speaker, 0 to 8, as int64."""

    sequences: list[Tensor]
    labels: Tensor


def japanese_vowels(split: Split = "train") -> JapaneseVowels:
    """The 270 training or the 370 test utterances, in the published order.

    **Arguments**

    - `split`: "train" or "test".

    **Returns** a pair: `sequences`, a list of (T, 12) float32, and `labels` (N,), the speakers 0 to 8.

    **Example**

        >>> import recurra as rc
        >>> sequences, labels = rc.data.japanese_vowels("train")
        >>> sequences[0].shape, labels.shape
        (torch.Size([20, 12]), torch.Size([270]))
    """
    if not isinstance(split, str) or split not in get_args(Split):
        raise UnknownNameError("split", repr(split), get_args(Split))
    raw = gzip.decompress((files("recurra.data") / "builtin" / "japanese_vowels.bin.gz").read_bytes())
    line, _, body = raw.partition(b"\n")
    header = json.loads(line)
    frames = _frames(body, header["features"], header["scale"])  # (every frame of both splits, 12)
    start = 0 if split == "train" else sum(header["splits"]["train"]["lengths"])
    lengths = header["splits"][split]["lengths"]
    sequences = frames[start : start + sum(lengths)].split(lengths)
    # Cloned, so that the sequences do not share memory.
    return JapaneseVowels([s.clone() for s in sequences], torch.tensor(header["splits"][split]["labels"]))


def _frames(body: bytes, features: int, scale: int) -> Tensor:
    millionths = torch.tensor(struct.unpack(f"<{len(body) // 4}i", body), dtype=torch.float64)
    # The quotient in float64 is the number a parser of the decimal text would give; one rounding to float32 remains.
    return (millionths / scale).float().view(-1, features)  # (N, 12)
