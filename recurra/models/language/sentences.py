"""The check of sentences given as lists of words."""

from collections.abc import Sequence
from typing import Any

from .vocabulary import TextError


def check_sentences(sentences: Any) -> None:
    """Raise a `TextError` that names the place of a bare string, an empty sentence, or a word that is not text."""
    if isinstance(sentences, str) or not isinstance(sentences, Sequence) or not sentences:
        raise TextError("sentences", repr(sentences)[:60], "a list of sentences, each a list of words")
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str) or not isinstance(sentence, Sequence):
            raise TextError(f"sentences[{number}]", repr(sentence)[:60], "a list of words")
        if not sentence:
            raise TextError(f"sentences[{number}]", "an empty sentence", "at least one word")
        for place, word in enumerate(sentence):
            if not isinstance(word, str):
                raise TextError(f"sentences[{number}][{place}]", repr(word)[:60], "a word as a string")
