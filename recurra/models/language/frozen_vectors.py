"""Contextual word vectors from frozen language models (TagLM; Peters et al. 2017)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...cell import positive_int
from ...errors import InputError, ShapeError
from .model import WAYS, LanguageModel
from .sentences import check_sentences


class LanguageModelVectors(nn.Module):
    """Contextual word vectors: the top states of frozen language models (TagLM; Peters et al. 2017).

    The forward state of a word is taken after its last token, the backward state after its first. Can be the
    `extra_inputs` of a `rc.models.Tagger`.

    **Arguments**

    - `*models`: one bidirectional language model, or several, such as a forward and a backward one.
    - `longest`: the most tokens read of a word.

    **Returns**

    `vectors(encoded, lengths)`: sentences (T, B, width), as `encode` gives them → (T, B, output_size), zero past the
    end of a sentence. `embed` takes sentences as lists of words.

    **Example**

        >>> words = rc.models.Words.from_text("the cat sat\\non the mat\\n")
        >>> vectors = rc.models.LanguageModelVectors(rc.models.LanguageModel(words, 8, direction="both"))
        >>> vectors.embed([["the", "cat"], ["mat"]]).shape
        torch.Size([2, 2, 16])
    """

    def __init__(self, *models: LanguageModel, longest: int = 32):
        super().__init__()
        if not models or not all(isinstance(model, LanguageModel) for model in models):
            raise InputError("models", [type(model).__name__ for model in models], "one or more language models")
        self.models = nn.ModuleList(models).requires_grad_(False).eval()
        self.output_size = sum(len(model.stacks) * model.state_size for model in models)
        longest = positive_int("longest", longest)
        self.widths = [1 if model.vocabulary.level == "word" else longest for model in models]

    def train(self, mode: bool = True) -> "LanguageModelVectors":
        """The models stay in evaluation mode, so that dropout does not change the vectors."""
        super().train(mode)
        self.models.eval()
        return self

    def encode(self, words: Sequence[str]) -> Tensor:
        """A sentence as numbers, (T, width): the tokens of each word plus one, for every model, padded with zeros."""
        check_sentences([words])
        columns = []
        for model, width in zip(self._language_models(), self.widths, strict=True):
            pieces = [piece[:width] for piece in model.vocabulary.pieces(words)]
            columns.append([[n + 1 for n in piece] + [0] * (width - len(piece)) for piece in pieces])
        return torch.cat([torch.tensor(column) for column in columns], dim=1)

    @torch.no_grad()
    def forward(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        """(T, B, width) and (B,) → (T, B, output_size)."""
        if encoded.dim() != 3 or encoded.shape[-1] != sum(self.widths):
            raise ShapeError("encoded", f"shape {tuple(encoded.shape)}", f"(T, B, {sum(self.widths)})")
        parts = encoded.split(self.widths, dim=-1)
        pairs = zip(self._language_models(), parts, strict=True)
        return torch.cat([_vectors(model, part, lengths) for model, part in pairs], dim=-1)

    def embed(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Sentences, lists of words → (T, B, output_size)."""
        check_sentences(sentences)
        encoded = nn.utils.rnn.pad_sequence([self.encode(words) for words in sentences])
        lengths = torch.tensor([len(words) for words in sentences])
        device = next(self.parameters()).device
        return self(encoded.to(device), lengths.to(device))

    def _language_models(self) -> list[LanguageModel]:
        return [model for model in self.models if isinstance(model, LanguageModel)]


def _vectors(model: LanguageModel, encoded: Tensor, lengths: Tensor) -> Tensor:
    """The vectors (T, B, directions · d) of one model, which reads a boundary before and after every sentence."""
    edge = encoded.new_tensor([model.vocabulary.boundary_number()])
    rows, firsts, lasts = [], [], []
    for row, length in enumerate(lengths.tolist()):
        words = encoded[:length, row]  # (T, width)
        ends = (words > 0).sum(-1).cumsum(0)
        firsts.append(torch.cat([ends.new_zeros(1), ends[:-1]]) + 1)
        lasts.append(ends)
        rows.append(torch.cat([edge, words[words > 0] - 1, edge]))
    sizes = torch.tensor([len(row) for row in rows], device=encoded.device)
    tokens = nn.utils.rnn.pad_sequence(rows)  # (tokens, B)
    vectors = next(model.parameters()).new_zeros(*encoded.shape[:2], len(model.stacks) * model.state_size)
    for number, (way, outputs) in enumerate(zip(WAYS[model.direction], model.contexts(tokens, sizes), strict=True)):
        columns = slice(number * model.state_size, (number + 1) * model.state_size)
        for row, at in enumerate(lasts if way == "forward" else firsts):
            vectors[: len(at), row, columns] = outputs[-1][at, row]
    return vectors
