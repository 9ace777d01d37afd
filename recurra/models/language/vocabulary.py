"""Vocabularies of language models: text to tokens and back, by characters, words or subwords.

Tokens are ordered by frequency, which the adaptive and the sampled softmax require. The boundary token, a line break,
separates sentences.
"""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ...errors import InputError, UnknownNameError
from ...optional import require

UNKNOWN = "<unk>"
BOUNDARY = "\n"

Level = Literal["character", "word", "subword"]


class TextError(InputError):
    """A text contains something the model cannot read."""


class TokenVocabulary(ABC):
    """The interface of `Characters`, `Words` and `Subwords`."""

    level: Level
    tokens: tuple[str, ...]
    unknown: int | None
    boundary: int | None

    def __len__(self) -> int:
        return len(self.tokens)

    @abstractmethod
    def encode(self, text: str) -> Tensor:
        """The tokens of a text: (T,) int64."""

    @abstractmethod
    def decode(self, numbers: Sequence[int] | Tensor) -> str:
        """The text of a sequence of tokens."""

    @abstractmethod
    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """The tokens of each word of a sentence."""

    @abstractmethod
    def to_config(self) -> dict[str, Any]:
        """Plain JSON from which `vocabulary_from` builds the vocabulary again."""

    def line(self, sentences: Iterable[Sequence[str]]) -> Tensor:
        """Sentences as one sequence of tokens with boundaries before, between and after them: (T,) int64."""
        edge = [self.boundary_number()]
        numbers = list(edge)
        for words in sentences:
            for piece in self.pieces(words):
                numbers += piece
            numbers += edge
        return torch.tensor(numbers, dtype=torch.int64)

    def boundary_number(self) -> int:
        """The number of the boundary token; an error if there is none."""
        if self.boundary is None:
            raise TextError("vocabulary", "no token for the end of a line", "one built from text that has lines")
        return self.boundary


class TokenList(TokenVocabulary):
    """A vocabulary given by a list of tokens."""

    def __init__(self, tokens: Sequence[str]):
        if isinstance(tokens, str) or not isinstance(tokens, Iterable):
            raise InputError("tokens", repr(tokens)[:80], "a list of tokens")
        self.tokens = tuple(tokens)
        if not all(isinstance(token, str) for token in self.tokens):
            raise InputError("tokens", next(repr(t) for t in self.tokens if not isinstance(t, str)), "text")
        self.numbers = {token: number for number, token in enumerate(self.tokens)}
        if not self.tokens or len(self.numbers) < len(self.tokens):
            raise InputError("tokens", f"{len(self.tokens)}, {len(self.numbers)} of them different", "different tokens")
        self.unknown, self.boundary = self.numbers.get(UNKNOWN), self.numbers.get(BOUNDARY)

    def to_config(self) -> dict[str, Any]:
        return {"level": self.level, "tokens": list(self.tokens)}

    def _number(self, token: str, place: int) -> int:
        number = self.numbers.get(token, self.unknown)
        if number is None:
            raise TextError(
                "text", f"the unknown {self.level} {token!r} at position {place}", f"the {len(self)} of the vocabulary"
            )
        return number


class Characters(TokenList):
    """A vocabulary of characters; with `<unk>` among the tokens every text can be encoded.

    **Arguments**

    - `tokens`: different characters, most frequent first; `Characters.from_text` collects them.

    **Example**

        >>> characters = rc.models.Characters.from_text("hello")
        >>> characters.decode(characters.encode("hole"))
        'hole'
    """

    level = "character"

    @classmethod
    def from_text(cls, text: str, *, least: int = 1, unknown: bool = False) -> "Characters":
        """The characters that occur at least `least` times; `unknown` adds `<unk>` for all others."""
        return cls(_frequent(Counter(_text(text)), least, None, unknown or least > 1))

    def encode(self, text: str) -> Tensor:
        return torch.tensor([self._number(c, k) for k, c in enumerate(_text(text))], dtype=torch.int64)

    def decode(self, numbers: Sequence[int] | Tensor) -> str:
        return "".join(self.tokens[k] for k in _list(numbers))

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        return [[self._number(c, k) for k, c in enumerate(w + " ")] for w in words]


class Words(TokenList):
    """A vocabulary of words, separated by white space, and of the line break.

    **Arguments**

    - `tokens`: different words, most frequent first; `Words.from_text` and `Words.from_sentences` collect them.

    **Example**

        >>> words = rc.models.Words.from_text("a b a")
        >>> words.tokens
        ('a', '<unk>', '\\n', 'b')
        >>> words.encode("b c")
        tensor([3, 1])
    """

    level = "word"

    @classmethod
    def from_text(cls, text: str, *, least: int = 1, size: int | None = None) -> "Words":
        """The words that occur at least `least` times, at most `size` tokens; `<unk>` replaces all others."""
        return cls.from_sentences((line.split() for line in _text(text).splitlines()), least=least, size=size)

    @classmethod
    def from_sentences(
        cls, sentences: Iterable[Sequence[str]], *, least: int = 1, size: int | None = None, boundary: bool = True
    ) -> "Words":
        """The same from lists of words; without `boundary` there is no token for the line break."""
        counts: Counter[str] = Counter()
        for words in sentences:
            counts.update(words)
            counts[BOUNDARY] += boundary
        return cls(_frequent(+counts, least, size, True))

    def encode(self, text: str) -> Tensor:
        pieces = re.findall(r"\S+|\n", _text(text))
        return torch.tensor([self._number(token, k) for k, token in enumerate(pieces)], dtype=torch.int64)

    def decode(self, numbers: Sequence[int] | Tensor) -> str:
        lines = " ".join(self.tokens[k] for k in _list(numbers)).split(BOUNDARY)
        return BOUNDARY.join(line.strip() for line in lines)

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        return [[self._number(word, k)] for k, word in enumerate(words)]


class Subwords(TokenVocabulary):
    """A vocabulary of subwords, by a tokenizer of the `tokenizers` package (extra `text`).

    **Arguments**

    - `tokenizer`: a `tokenizers.Tokenizer`; `Subwords.train` and `Subwords.from_file` make one.

    **Example**

        >>> subwords = rc.models.Subwords.train(["the cat sat on the mat"] * 4, size=260)
        >>> len(subwords.encode("the cat")) < 7, subwords.decode(subwords.encode("the cat"))
        (True, 'the cat')
    """

    level = "subword"

    def __init__(self, tokenizer: Any):
        if not hasattr(tokenizer, "get_vocab"):
            raise InputError("tokenizer", repr(tokenizer), "a tokenizers.Tokenizer")
        self.tokenizer = tokenizer
        numbers: dict[str, int] = tokenizer.get_vocab()
        self.tokens = tuple(sorted(numbers, key=numbers.__getitem__))
        self.unknown = numbers.get(UNKNOWN)
        line = tokenizer.encode(BOUNDARY, add_special_tokens=False).ids
        self.boundary = line[-1] if line else None

    @classmethod
    def train(cls, texts: Iterable[str] | str, size: int = 4096) -> "Subwords":
        """Train a byte-level byte-pair encoding of `size` tokens; it encodes every text."""
        tokenizers = _tokenizers()
        if not isinstance(size, int) or size < 257:
            raise InputError("size", size, "at least 257: the bytes and one merge")
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator([_text(texts)] if isinstance(texts, str) else map(_text, texts), trainer)
        return cls(tokenizer)

    @classmethod
    def from_file(cls, path: str | Path) -> "Subwords":
        """Read a `tokenizer.json`."""
        if not Path(path).is_file():
            raise InputError("path", path, "a file tokenizer.json")
        return cls._parsed(Path(path).read_bytes(), str(path))

    @classmethod
    def _parsed(cls, content: bytes, where: str) -> "Subwords":
        try:
            parsed = json.loads(content)
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise TextError(where, str(error), "the JSON of a tokenizer") from error
        if not isinstance(parsed, dict) or not isinstance(parsed.get("model"), dict):
            raise TextError(where, "JSON without a model", "the JSON of a tokenizer")
        return cls(_tokenizers().Tokenizer.from_str(content.decode()))

    def encode(self, text: str) -> Tensor:
        return torch.tensor(self.tokenizer.encode(_text(text), add_special_tokens=False).ids, dtype=torch.int64)

    def decode(self, numbers: Sequence[int] | Tensor) -> str:
        return self.tokenizer.decode(_list(numbers), skip_special_tokens=False)

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        cut = self.tokenizer.encode_batch([" " + _text(word) for word in words], add_special_tokens=False)
        return [one.ids or [self.boundary_number()] for one in cut]

    def to_config(self) -> dict[str, Any]:
        return {"level": self.level, "tokenizer": self.tokenizer.to_str()}


def vocabulary_from(config: dict[str, Any]) -> TokenVocabulary:
    """The vocabulary that `to_config` describes."""
    levels = {"character": Characters, "word": Words}
    level = config.get("level")
    if level == "subword":
        return Subwords._parsed(str(config.get("tokenizer", "")).encode(), "vocabulary")
    if level not in levels:
        raise UnknownNameError("level", repr(level), (*levels, "subword"))
    return levels[level](config.get("tokens", ()))


def build_vocabulary(level: Level, text: str, **options: Any) -> TokenVocabulary:
    """The vocabulary of a text at a level: "character", "word" or "subword"."""
    if level == "character":
        return Characters.from_text(text, **options)
    if level == "word":
        return Words.from_text(text, **options)
    if level == "subword":
        return Subwords.train(text, **options)
    raise UnknownNameError("level", repr(level), ("character", "word", "subword"))


def _frequent(counts: Counter[str], least: int, size: int | None, unknown: bool) -> list[str]:
    """Tokens by decreasing frequency; ties in alphabetical order, so that the order of the text does not matter."""
    kept = sorted((t for t, n in counts.items() if n >= least and t != UNKNOWN), key=lambda t: (-counts[t], t))
    if unknown:
        kept.insert(min(len(kept), 1), UNKNOWN)
    if size is not None and size < 2:
        raise InputError("size", size, "at least 2 tokens")
    if not kept:
        raise TextError("text", "no token that is frequent enough", "a text with at least one")
    return kept[:size]


def _text(text: Any) -> str:
    """Check that the text is a string that UTF-8 can encode; lone surrogates cannot be."""
    if not isinstance(text, str):
        raise TextError("text", type(text).__name__, "a string; bytes are decoded first, as UTF-8")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            "text", f"half a surrogate pair, {text[error.start]!r}, at position {error.start}", "valid Unicode"
        ) from error
    return text


def _list(numbers: Sequence[int] | Tensor) -> list[int]:
    return numbers.tolist() if isinstance(numbers, Tensor) else list(numbers)


def _tokenizers() -> Any:
    return require("tokenizers", extra="text", what="a vocabulary of subwords")
