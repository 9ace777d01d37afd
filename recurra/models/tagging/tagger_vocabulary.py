"""The vocabulary of a tagger: words, characters, further columns and tags as numbers; and checks of sentences.

A word becomes a row of numbers: the word, its columns, its form, its characters. 0 is padding, 1 is unknown.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError, UnknownNameError, nearest
from .schemes import detect, looks_chunked
from .word_form import WIDTH as FORM_WIDTH
from .word_form import word_form

Sentences = Sequence[Sequence[str]]
Columns = Mapping[str, Sentences]

PADDING, UNKNOWN = 0, 1
RESERVED = 2
_DIGIT = re.compile(r"\d")


class LabelError(UnknownNameError):
    """A tag that was not seen in training."""


def normalize_word(word: str) -> str:
    """The form in which a word is looked up: lower case, every digit a 0."""
    return _DIGIT.sub("0", word.lower())


@dataclass(frozen=True)
class Vocabulary:
    """Words, characters, columns and tags that a tagger knows, most frequent first.

    **Example**

        >>> known = rc.models.Vocabulary.of([["Ada", "lives"], ["Paul"]], [["PER", "O"], ["PER"]])
        >>> known.words, known.classes
        (('ada', 'lives', 'paul'), ('O', 'PER'))
    """

    words: tuple[str, ...]
    characters: tuple[str, ...]
    classes: tuple[str, ...]
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    scheme: str | None = None
    once: int = 0  # number of words, the last ones, that occur once
    word_length: int = 20  # characters read of a word; of a longer one, the first and the last
    forms: bool = False  # whether the form of a word is read, see `word_form`
    _numbers: list[dict[str, int]] = field(init=False, repr=False, compare=False)  # of words, characters, columns
    _tags: dict[str, int] = field(init=False, repr=False, compare=False)
    _spelled: dict[str, list[int]] = field(init=False, repr=False, compare=False)  # cache: word → characters

    def __post_init__(self):
        for name in ("words", "characters", "classes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "columns", {name: tuple(values) for name, values in self.columns.items()})
        lists = (self.words, self.characters, *self.columns.values())
        numbers = [{name: RESERVED + k for k, name in enumerate(names)} for names in lists]
        object.__setattr__(self, "_numbers", numbers)
        object.__setattr__(self, "_tags", {name: k for k, name in enumerate(self.classes)})
        object.__setattr__(self, "_spelled", {})

    @classmethod
    def of(
        cls,
        sentences: Sentences,
        tags: Sentences,
        columns: Columns | None = None,
        least: int = 1,
        word_length: int = 20,
        forms: bool = True,
    ) -> "Vocabulary":
        """The vocabulary of a corpus; words that occur fewer than `least` times are left out."""
        columns = columns or {}
        check_sentences(sentences, {**columns, "tags": tags})
        counts = Counter(normalize_word(word) for sentence in sentences for word in sentence)
        words = [word for word, count in _most_frequent_first(counts) if count >= least]
        characters = Counter(letter for sentence in sentences for word in sentence for letter in word)
        classes = tuple(sorted({tag for sentence in tags for tag in sentence}))
        more = {name: Counter(v for row in values for v in row) for name, values in columns.items()}
        return cls(
            tuple(words),
            tuple(letter for letter, _ in _most_frequent_first(characters)),
            classes,
            {name: tuple(value for value, _ in _most_frequent_first(counted)) for name, counted in more.items()},
            detect(tags) if looks_chunked(classes) else None,
            sum(counts[word] == 1 for word in words),
            word_length,
            forms,
        )

    def to_json(self) -> dict[str, Any]:
        """The constructor arguments."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    # ------------------------------------------------------------------------------------------ numbers

    @property
    def width(self) -> int:
        """The number of integers that encode a word."""
        return 1 + len(self.columns) + self.word_length + (FORM_WIDTH if self.forms else 0)

    def rows(self, sentence: Sequence[str], columns: Sequence[Sequence[str]] = ()) -> Tensor:
        """A sentence as (T, width) int64."""
        words, _, *others = self._numbers
        named = [[numbers.get(v, UNKNOWN) for v in values] for numbers, values in zip(others, columns, strict=True)]
        return torch.tensor(
            [
                [
                    words.get(normalize_word(word), UNKNOWN),
                    *(values[t] for values in named),
                    *(word_form(word, t == 0) if self.forms else ()),
                    *self._letters(word),
                ]
                for t, word in enumerate(sentence)
            ],
            dtype=torch.int64,
        )

    def _letters(self, word: str) -> list[int]:
        if word not in self._spelled:
            numbers, size = self._numbers[1], self.word_length
            seen = word if len(word) <= size else word[: size // 2] + word[len(word) - (size - size // 2) :]
            self._spelled[word] = [numbers.get(letter, UNKNOWN) for letter in seen] + [PADDING] * (size - len(seen))
        return self._spelled[word]

    def tag_numbers(self, tags: Sequence[str], place: str = "tags") -> Tensor:
        """Tags as (T,) int64; a tag not seen in training is an error."""
        for word, tag in enumerate(tags):
            if tag not in self._tags:
                raise LabelError(
                    f"{place}, word {word}", f"{tag!r}, which was not seen in training", nearest(tag, self.classes)
                )
        return torch.tensor([self._tags[tag] for tag in tags], dtype=torch.int64)


def _most_frequent_first(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


# ---------------------------------------------------------------------------------------------------- checks


def check_sentences(sentences: Sentences, parallel: Columns, limit: int | None = None) -> None:
    """Check that sentences are non-empty lists of strings, at most `limit` long, and `parallel` has their shape."""
    if isinstance(sentences, str) or not len(sentences):
        raise InputError("sentences", repr(sentences)[:40], "a list of sentences, each a list of words")
    for name, rows in parallel.items():
        if len(rows) != len(sentences):
            raise InputError(name, f"{len(rows)} sentences", f"{len(sentences)}, as there are sentences of words")
    for number, sentence in enumerate(sentences):
        _check_sentence(number, sentence, limit)
        for name, rows in parallel.items():
            if isinstance(rows[number], str) or len(rows[number]) != len(sentence):
                got = f"{len(rows[number])} values"
                raise InputError(f"{name}, sentence {number}", got, f"{len(sentence)}, one a word")


def _check_sentence(number: int, sentence: Sequence[str], limit: int | None) -> None:
    place = f"sentence {number}"
    if isinstance(sentence, str | bytes):
        raise InputError(place, repr(sentence)[:60], "a list of words; split the text first")
    if not len(sentence):
        raise InputError(place, "no words", "at least one word")
    if limit is not None and len(sentence) > limit:
        raise InputError(place, f"{len(sentence)} words", f"at most {limit} (max_length); split it, or raise the limit")
    for position, word in enumerate(sentence):
        if not isinstance(word, str) or not word:
            raise InputError(f"{place}, word {position}", repr(word), "a string that is not empty")
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise InputError(f"{place}, word {position}", ascii(word), "text; this was decoded from invalid UTF-8")
