"""ELMo's character encoder: the bytes of a word as numbers, and the network that turns them into a vector.

Characters are numbered as in the official code, plus one, so that 0 is padding: bytes 1 … 256, then the marks for begin
and end of a sentence and of a word, then padding inside a word.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...argument_checks import positive_int, whole_number
from ...errors import InputError
from ..language.inputs import TokenEncoder
from ..language.vocabulary import TextError

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, FILL = 257, 258, 259, 260, 261
CHARACTERS = 262
#: the sentence marks as words
OPEN, CLOSE = "<S>", "</S>"
_MARKS = {OPEN: BEGIN_SENTENCE, CLOSE: END_SENTENCE}


def word_characters(word: str, longest: int = 50, where: str = "word") -> list[int]:
    """A word as `longest` numbers: begin mark, its bytes (truncated), end mark, padding."""
    try:
        spelled = [byte + 1 for byte in word.encode()]
    except UnicodeEncodeError as error:
        raise TextError(where, f"{word!r}, which holds half a surrogate pair", "valid Unicode") from error
    return _pad_word(spelled, longest)


def mark_characters(mark: str, longest: int = 50) -> list[int]:
    """The characters of a sentence mark; no word encodes to them."""
    return _pad_word([_MARKS[mark]], longest)


def _pad_word(inner: list[int], longest: int) -> list[int]:
    framed = [BEGIN_WORD, *inner[: longest - 2], END_WORD]
    return framed + [FILL] * (longest - len(framed))


def add_sentence_marks(characters: Tensor, lengths: Tensor) -> Tensor:
    """Sentences (T, B, longest) → with a begin and an end mark each, (T + 2, B, longest)."""
    longest = characters.shape[-1]
    padded = nn.functional.pad(characters, (0, 0, 0, 0, 1, 1))
    padded[0] = characters.new_tensor(mark_characters(OPEN, longest))
    rows = torch.arange(characters.shape[1], device=characters.device)
    padded[lengths + 1, rows] = characters.new_tensor(mark_characters(CLOSE, longest))
    return padded


class Highway(nn.Module):
    """x ← g ⊙ relu(W x + b) + (1 − g) ⊙ x,  g = σ(W_g x + b_g) (Srivastava et al. 2015)."""

    def __init__(self, size: int):
        super().__init__()
        self.transform, self.gate = nn.Linear(size, size), nn.Linear(size, size)
        for linear in (self.transform, self.gate):
            nn.init.normal_(linear.weight, std=size**-0.5)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, -2.0)  # initially most of x passes through

    def forward(self, x: Tensor) -> Tensor:
        g = torch.sigmoid(self.gate(x))
        return g * torch.relu(self.transform(x)) + (1 - g) * x


class CharacterEncoder(nn.Module):
    """Characters of a word → its vector: convolutions, maximum over the word, highway layers, a projection.

    `filters`: pairs (width, number of filters). There is no projection if it would not change the size.
    """

    def __init__(
        self,
        output_size: int,
        character_size: int = 16,
        filters: Sequence[tuple[int, int]] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        highways: int = 2,
        longest: int = 50,
        activation: str = "relu",
    ):
        super().__init__()
        positive_int("projection_size", output_size), whole_number("highways", highways)
        if not filters or max(width for width, _ in filters) > longest:
            raise InputError("filters", list(filters), f"at least one, none wider than the {longest} characters")
        if activation not in ("relu", "tanh"):
            raise InputError("activation", repr(activation), "'relu' or 'tanh'")
        self.longest, self.output_size, self.activation = longest, output_size, activation
        self.table = nn.Embedding(CHARACTERS, character_size, padding_idx=0)
        nn.init.uniform_(self.table.weight[1:], -1.0, 1.0)
        self.filters = nn.ModuleList(nn.Conv1d(character_size, count, width) for width, count in filters)
        for parameter in self.filters.parameters():
            nn.init.uniform_(parameter, -0.05, 0.05) if parameter.dim() > 1 else nn.init.zeros_(parameter)
        width = sum(count for _, count in filters)
        self.highways = nn.ModuleList(Highway(width) for _ in range(highways))
        self.projection = nn.Linear(width, output_size) if width != output_size else None
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=width**-0.5)
            nn.init.zeros_(self.projection.bias)

    @property
    def convolutions(self) -> list[nn.Conv1d]:
        return [one for one in self.filters if isinstance(one, nn.Conv1d)]

    @property
    def gates(self) -> list[Highway]:
        return [one for one in self.highways if isinstance(one, Highway)]

    def forward(self, characters: Tensor) -> Tensor:
        """(…, longest) → (…, output_size); equal words are computed once."""
        words, index = characters.flatten(0, -2).unique(dim=0, return_inverse=True)
        return self.encode(words)[index].unflatten(0, characters.shape[:-1])

    def encode(self, words: Tensor) -> Tensor:
        """(N, longest) → (N, output_size)."""
        x = self.table(words).transpose(1, 2)  # (N, character_size, longest)
        squash = torch.relu if self.activation == "relu" else torch.tanh
        x = torch.cat([squash(filter_(x).amax(dim=-1)) for filter_ in self.filters], dim=-1)
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x)


class WordCharacters(TokenEncoder):
    """A token encoder for a language model: token → the characters of its word → its vector.

    `words` may be longer than the model's vocabulary: the additional words can be read but not predicted.
    """

    characters: Tensor

    def __init__(self, encoder: CharacterEncoder, words: Sequence[str]):
        super().__init__(len(words), encoder.output_size)
        self.encoder = encoder
        spelled = [
            mark_characters(word, encoder.longest) if word in _MARKS else word_characters(word, encoder.longest)
            for word in words
        ]
        self.register_buffer("characters", torch.tensor(spelled, dtype=torch.int16), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        distinct, index = tokens.unique(return_inverse=True)
        return self.encoder.encode(self.characters[distinct].long())[index]
