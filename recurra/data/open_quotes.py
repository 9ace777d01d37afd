"""The data set in the package that needs memory: does a line of Python code, cut at some place, end inside a string?

The answer depends on every quotation mark since the beginning of the line: an even number of them, and the string is
closed. Source and licence: `builtin/ATTRIBUTION.md`; `scripts/build_open_quotes.py` writes the file.
"""

import gzip
from functools import cache
from importlib.resources import files
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from ..errors import UnknownNameError
from .japanese_vowels import Split

#: all letters become a or A, all digits 0; the other characters stand for themselves
SYMBOLS = " !\"#$%&'()*+,-./0:;<=>?@A[\\]^_`a{|}~"


class OpenQuotes(NamedTuple):
    """One split: `sequences[i]` is (T_i, 36) float32, one-hot; `labels[i]` is 1 inside a string; `lines`: the texts."""

    sequences: list[Tensor]
    labels: Tensor
    lines: list[str]


def open_quotes(split: Split = "train") -> OpenQuotes:
    """1,500 beginnings of lines of code to train, or 1,000 from other files to test, and whether a string is open.

    **Arguments**

    - `split`: "train" or "test".

    **Returns** a triple: `sequences`, a list of one-hot symbols (T, 36) float32; `labels` (N,), 1 where the line ends
    inside a string; `lines`, the texts. The symbols are `recurra.data.open_quotes.SYMBOLS`: letters become a or A,
    digits 0.

    **Example**

        >>> import recurra as rc
        >>> sequences, labels, lines = rc.data.open_quotes("train")
        >>> lines[0], int(labels[0]), sequences[0].shape
        ('key = saved.schema.get("id") or ("text" if saved.task == "la', 1, torch.Size([60, 36]))
    """
    if not isinstance(split, str) or split not in get_args(Split):
        raise UnknownNameError("split", repr(split), get_args(Split))
    rows = [row for row in _rows() if row[0] == split]
    eye = torch.eye(len(SYMBOLS))
    sequences = [eye[[SYMBOLS.index(symbol(letter)) for letter in text]] for _, _, text in rows]
    return OpenQuotes(sequences, torch.tensor([int(label) for _, label, _ in rows]), [text for *_, text in rows])


def symbol(letter: str) -> str:
    """The symbol that stands for a character."""
    return ("A" if letter.isupper() else "a") if letter.isalpha() else "0" if letter.isdigit() else letter


@cache
def _rows() -> tuple[tuple[str, ...], ...]:
    """(split, label, text) of every line."""
    raw = gzip.decompress((files("recurra.data") / "builtin" / "open_quotes.tsv.gz").read_bytes())
    return tuple(tuple(line.split("\t", 2)) for line in raw.decode().splitlines())
