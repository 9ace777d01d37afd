"""Vectors of the form of words, as a tagger reads them beside the words (Huang, Xu & Yu 2015)."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from ...argument_checks import positive_int, whole_number
from .features import embedding
from .word_form import BUCKETS, QUESTIONS, WIDTH, affix_rows, word_form


class SpellingFeatures(nn.Module):
    """Twelve questions about the form of a word, and its prefixes and suffixes of 2 to 5 letters.

    A `rc.models.Tagger` reads these features with its words (`affix_size`). As its `extra_inputs`, with
    `extra_at="output"`, they pass the recurrent layers by and reach the CRF directly, as in Huang, Xu & Yu 2015, who
    found this as accurate and faster to train.

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

    def __init__(self, affix_size: int = 16, buckets: int = BUCKETS):
        super().__init__()
        self.buckets = positive_int("buckets", buckets)
        self.affixes = embedding(buckets, affix_size) if whole_number("affix_size", affix_size) else None
        self.output_size = len(QUESTIONS) + affix_size

    @torch.no_grad()
    def clear_unseen(self, words: Iterable[str]) -> None:
        """Set the affixes that none of these words has to zero: training would leave them at random values."""
        if self.affixes is not None:
            seen = torch.tensor(sorted({row for word in words for row in affix_rows(word, self.buckets)}))
            kept = torch.zeros(len(self.affixes.weight), 1).index_fill_(0, seen, 1.0)
            self.affixes.weight.mul_(kept)

    def encode(self, words: Sequence[str]) -> Tensor:
        """A sentence as numbers: (T, 12 + 8) int64, the answers as 1 (yes) or 0, then rows of the affix table."""
        rows = [word_form(word, k == 0, self.buckets) for k, word in enumerate(words)]
        return torch.tensor(rows, dtype=torch.int64).view(len(words), WIDTH)

    def forward(self, encoded: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(T, B, 20) → (T, B, output_size)."""
        yes = encoded[..., : len(QUESTIONS)]
        if self.affixes is None:
            return yes.to(torch.get_default_dtype())
        affixes = self.affixes(encoded[..., len(QUESTIONS) :]).sum(-2)
        return torch.cat([yes.to(affixes.dtype), affixes], dim=-1)
