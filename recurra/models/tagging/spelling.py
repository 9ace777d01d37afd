"""Spelling features of words, for a tagger that wires them directly to its output (Huang, Xu & Yu 2015)."""

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...argument_checks import positive_int
from .features import embedding

#: what is asked of a word; each answer is a bit
QUESTIONS = (
    "starts with a capital",
    "all capitals",
    "all lower case",
    "a capital after the first letter",
    "has a digit",
    "letters and digits",
    "all digits",
    "has punctuation",
    "all punctuation",
    "letters alone",
    "ends with 's",
    "is the first of its sentence",
)
AFFIXES = (2, 3, 4, 5)  # letters of prefixes and suffixes


class SpellingFeatures(nn.Module):
    """Twelve questions about the form of a word, and its prefixes and suffixes of 2 to 5 letters.

    A `rc.models.Tagger` takes it as `extra_inputs`; with `extra_at="output"` the features pass the recurrent layers by
    and reach the CRF directly, as in Huang, Xu & Yu 2015, who found this as accurate and faster to train.

    **Arguments**

    - `affix_size`: of the vectors of prefixes and suffixes, whose sum is a feature; 0 leaves them out.
    - `buckets`: rows of the table of affixes; affixes share rows by a hash.

    **Returns** from a call with encoded words (T, B, width): (T, B, `output_size`).

    **Example**

        >>> spelling = rc.models.SpellingFeatures(affix_size=8)
        >>> encoded = spelling.encode(["Ada", "wrote", "U2"])
        >>> spelling(encoded[:, None], torch.tensor([3])).shape
        torch.Size([3, 1, 20])
        >>> tagger = rc.models.Tagger.of([["Ada", "wrote"]], [["N", "V"]], extra_inputs=spelling, extra_at="output")
    """

    def __init__(self, affix_size: int = 16, buckets: int = 4096):
        super().__init__()
        self.buckets = positive_int("buckets", buckets)
        self.affixes = embedding(buckets, positive_int("affix_size", affix_size)) if affix_size else None
        self.output_size = len(QUESTIONS) + affix_size

    def encode(self, words: Sequence[str]) -> Tensor:
        """A sentence as numbers: (T, 12 + 8) int64, the answers as 1 (yes) or 0, then rows of the affix table."""
        rows = [[*answers(word, k == 0), *self._rows(word)] for k, word in enumerate(words)]
        return torch.tensor(rows, dtype=torch.int64).view(len(words), len(QUESTIONS) + 2 * len(AFFIXES))

    def _rows(self, word: str) -> list[int]:
        """Rows from 2 on, as in other embeddings of a tagger; 0 for an affix that is longer than the word."""
        low = word.lower()
        parts = [(f"{n}<{low[:n]}", f"{n}>{low[-n:]}") if len(low) >= n else ("", "") for n in AFFIXES]
        return [2 + zlib.crc32(part.encode()) % self.buckets if part else 0 for pair in parts for part in pair]

    def forward(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        """(T, B, 20) → (T, B, output_size)."""
        yes = encoded[..., : len(QUESTIONS)]
        if self.affixes is None:
            return yes.to(torch.get_default_dtype())
        affixes = self.affixes(encoded[..., len(QUESTIONS) :]).sum(-2)
        return torch.cat([yes.to(affixes.dtype), affixes], dim=-1)


def answers(word: str, first: bool) -> list[int]:
    """The answers to `QUESTIONS`, as 0 and 1."""
    letters, digits = any(c.isalpha() for c in word), any(c.isdigit() for c in word)
    marks = [not c.isalnum() and not c.isspace() for c in word]
    found = (
        word[:1].isupper(),
        word.isupper(),
        word.islower(),
        any(c.isupper() for c in word[1:]),
        digits,
        letters and digits,
        word.isdigit(),
        any(marks),
        bool(marks) and all(marks),
        word.isalpha(),
        word.lower().endswith("'s"),
        first,
    )
    return [int(answer) for answer in found]
