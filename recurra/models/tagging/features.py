"""The input features of a tagger: word embedding, further columns, spelling, and form."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...cell import Cell
from ...layers import Recurrent
from .tagger_vocabulary import PADDING, RESERVED, UNKNOWN, Vocabulary


class TokenVectors(Protocol):
    """The interface of a module that gives every word of a sentence a vector, such as a language model or ELMo.

    **Example**

        >>> class Lengths:
        ...     output_size = 1
        ...     def encode(self, words):
        ...         return torch.tensor([[len(word)] for word in words])
        ...     def __call__(self, encoded, lengths):
        ...         return encoded.float()
        >>> Lengths().encode(["the", "cat", "sleeps"]).flatten().tolist()
        [3, 3, 6]
    """

    output_size: int

    def encode(self, words: Sequence[str]) -> Tensor:
        """A sentence as numbers for the call: (T, width) int64, with a constant width."""
        ...

    def __call__(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        """(T, B, width), zero in padding → (T, B, output_size)."""
        ...


def embedding(count: int, size: int) -> nn.Embedding:
    """An embedding initialised as U(±√(3 / size)), about unit length (Ma & Hovy 2016); padding is zero."""
    table = nn.Embedding(RESERVED + count, size, padding_idx=PADDING)
    bound = (3.0 / size) ** 0.5
    with torch.no_grad():
        table.weight.uniform_(-bound, bound)
        table.weight[PADDING] = 0.0
    return table


class CharCNN(nn.Module):
    """Convolution over the characters of a word, and the maximum over the word (Ma & Hovy 2016)."""

    def __init__(self, characters: int, char_size: int, output_size: int, width: int = 3):
        super().__init__()
        self.embedding, self.output_size = embedding(characters, char_size), output_size
        self.convolution = nn.Conv1d(char_size, output_size, width, padding="same")

    def forward(self, letters: Tensor) -> Tensor:
        """(N, C) → (N, output_size). Padding is zero in the convolution and excluded from the maximum."""
        seen = self.convolution(self.embedding(letters).transpose(1, 2))  # (N, features, C)
        return seen.masked_fill((letters == PADDING)[:, None], float("-inf")).amax(dim=2)


class CharRNN(nn.Module):
    """A bidirectional layer over the characters of a word: the final states (Lample et al. 2016)."""

    def __init__(
        self, characters: int, char_size: int, output_size: int, cell: str | type[Cell] = "lstm", **options: Any
    ):
        super().__init__()
        self.embedding = embedding(characters, char_size)
        self.recurrent = Recurrent(cell, char_size, (output_size + 1) // 2, bidirectional=True, **options)
        self.output_size = self.recurrent.output_size

    def forward(self, letters: Tensor) -> Tensor:
        lengths = (letters != PADDING).sum(dim=1)
        y = self.recurrent(self.embedding(letters).transpose(0, 1), lengths=lengths)[0]  # (C, N, F)
        half = y.shape[-1] // 2
        rows = torch.arange(len(letters), device=letters.device)
        return torch.cat([y[lengths - 1, rows, :half], y[0, :, half:]], dim=-1)


class WordFeatures(nn.Module):
    """[word; columns; spelling; form] of every word of a batch, (T, B, width) → (T, B, output_size).

    In training, words that occur once are replaced by the unknown word with probability 0.5, so that it is trained.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        word_size: int,
        column_size: int,
        spelling: CharCNN | CharRNN | None,
        form: nn.Module | None = None,
    ):
        super().__init__()
        self.columns = len(vocabulary.columns)
        self.first_letter = vocabulary.width - vocabulary.word_length
        self.word = embedding(len(vocabulary.words), word_size)
        tables = [embedding(len(values), min(column_size, len(values))) for values in vocabulary.columns.values()]
        self.column = nn.ModuleList(tables)
        self.spelling, self.form = spelling, form
        self.first_rare = RESERVED + len(vocabulary.words) - vocabulary.once
        sizes = [word_size, *(table.embedding_dim for table in tables)]
        more: list[Any] = [part for part in (spelling, form) if part is not None]
        self.output_size = sum(sizes) + sum(part.output_size for part in more)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        words = x[..., 0]
        if self.training:
            dropped = (words >= self.first_rare) & (torch.rand(words.shape, device=x.device) < 0.5)
            words = words.masked_fill(dropped, UNKNOWN)
        parts = [self.word(words), *(table(x[..., 1 + k]) for k, table in enumerate(self.column))]
        if self.spelling is not None:
            parts.append(self._encode_spelling(x[..., self.first_letter :], inside))
        if self.form is not None:
            parts.append(self.form(x[..., 1 + self.columns : self.first_letter]))
        return torch.cat(parts, dim=-1)

    def _encode_spelling(self, letters: Tensor, inside: Tensor) -> Tensor:
        """The spelling of all words, zero in padding; equal words are computed once."""
        assert self.spelling is not None
        words = letters[inside]  # (N, C)
        longest = int((words != PADDING).any(dim=0).sum())
        distinct, index = torch.unique(words[:, :longest], dim=0, return_inverse=True)
        found = self.spelling(distinct)[index]
        return found.new_zeros(*inside.shape, found.shape[-1]).masked_scatter(inside[..., None], found)
