"""The form of a word as numbers: questions about its letters, and its prefixes and suffixes (Huang, Xu & Yu 2015)."""

import zlib

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
BUCKETS = 4096  # rows of a table of affixes, which share rows by a hash
WIDTH = len(QUESTIONS) + 2 * len(AFFIXES)  # numbers of a word


def word_form(word: str, first: bool, buckets: int = BUCKETS) -> list[int]:
    """The answers to `QUESTIONS` as 1 (yes) or 0, then the rows of the word's affixes."""
    return [*answers(word, first), *affix_rows(word, buckets)]


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


def affix_rows(word: str, buckets: int = BUCKETS) -> list[int]:
    """Rows from 2 on, as in other embeddings of a tagger; 0 for an affix that is longer than the word."""
    low = word.lower()
    parts = [(f"{n}<{low[:n]}", f"{n}>{low[-n:]}") if len(low) >= n else ("", "") for n in AFFIXES]
    return [2 + zlib.crc32(part.encode()) % buckets if part else 0 for pair in parts for part in pair]
