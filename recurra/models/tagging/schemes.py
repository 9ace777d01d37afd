"""Entities as tags on words: what may follow what, which scheme a corpus keeps to, and which entities its tags say.

"bio" (IOB2): B begins an entity, I goes on. "iob1": I begins one too, B only where it touches another of its kind.
"bioes": B begins, I goes on, E ends, S is an entity of one word; L and U are read as other letters for E and S.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import InputError, UnknownNameError

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Mark(NamedTuple):
    """A tag taken apart: "B-NP" is B of NP. Outside, and before and after the sentence, both are empty."""

    prefix: str
    kind: str


NOTHING = Mark("", "")


class Entity(NamedTuple):
    """Words first … last of a sentence, both included."""

    kind: str
    first: int
    last: int


class SchemeError(InputError):
    """Tags that no scheme allows, or that keep to two of them."""


def mark(tag: str) -> Mark:
    """A tag taken apart; "B" alone is B of the nameless kind."""
    if tag == OUTSIDE:
        return NOTHING
    prefix, dash, kind = tag.partition("-")
    if prefix not in PREFIXES or (dash and not kind):
        raise SchemeError("tag", repr(tag), f"{OUTSIDE!r}, or a letter of {''.join(PREFIXES)}, a dash and a kind")
    return Mark(PREFIXES[prefix], kind)


# ---------------------------------------------------------------------------------------------------- what may follow


def _bio(before: Mark, after: Mark) -> bool:
    return after.prefix != "I" or (before.prefix in ("B", "I") and before.kind == after.kind)


def _iob1(before: Mark, after: Mark) -> bool:
    return after.prefix != "B" or (before.prefix in ("B", "I") and before.kind == after.kind)


def _bioes(before: Mark, after: Mark) -> bool:
    if before.prefix in ("B", "I"):
        return after.prefix in ("I", "E") and before.kind == after.kind
    return after.prefix not in ("I", "E")


FOLLOWS = {"bio": _bio, "iob1": _iob1, "bioes": _bioes}
LETTERS = {"bio": {"", "B", "I"}, "iob1": {"", "B", "I"}, "bioes": {"", "B", "I", "E", "S"}}


class Rules(NamedTuple):
    """True where a step is allowed."""

    transitions: Tensor  # (K, K) from → to
    start: Tensor  # (K,)
    end: Tensor  # (K,)


def check_scheme_name(scheme: str) -> str:
    if scheme not in FOLLOWS:
        raise UnknownNameError("scheme", repr(scheme), FOLLOWS)
    return scheme


def rules(classes: Sequence[str], scheme: str) -> Rules:
    """Which tag may follow which, begin a sentence and end it."""
    follows, marks = FOLLOWS[check_scheme_name(scheme)], [mark(tag) for tag in classes]
    strange = [tag for tag, each in zip(classes, marks, strict=True) if each.prefix not in LETTERS[scheme]]
    if strange:
        raise SchemeError("classes", repr(strange[0]), f"tags of the scheme {scheme!r}")
    return Rules(
        torch.tensor([[follows(before, after) for after in marks] for before in marks]),
        torch.tensor([follows(NOTHING, after) for after in marks]),
        torch.tensor([follows(before, NOTHING) for before in marks]),
    )


# ---------------------------------------------------------------------------------------------------- which scheme


def looks_chunked(classes: Iterable[str]) -> bool:
    """Whether these are tags of entities, rather than parts of speech and the like."""
    parts = [tag.partition("-") for tag in classes if tag != OUTSIDE]
    return bool(parts) and all(prefix in PREFIXES and kind for prefix, _, kind in parts)


def violation(sentences: Iterable[Sequence[str]], scheme: str) -> tuple[int, int] | None:
    """The first (sentence, word) whose tag breaks the scheme; a word past the end where the end does."""
    follows, letters, known = FOLLOWS[check_scheme_name(scheme)], LETTERS[scheme], {}
    for number, tags in enumerate(sentences):
        marks = [known.setdefault(tag, mark(tag)) for tag in tags]
        for word, (before, after) in enumerate(pairwise([NOTHING, *marks, NOTHING])):
            if after.prefix not in letters or not follows(before, after):
                return number, word
    return None


def detect(sentences: Sequence[Sequence[str]]) -> str:
    """The scheme all sentences keep to, "bio" where several would do; mixed ones are an error that shows the place."""
    broken = {scheme: violation(sentences, scheme) for scheme in FOLLOWS}
    for scheme, place in broken.items():
        if place is None:
            return scheme
    scheme, place = max(broken.items(), key=lambda item: item[1] or (0, 0))
    number, word = place or (0, 0)
    seen = " ".join(sentences[number][max(0, word - 1) : word + 2]) or "the end of the sentence"
    raise SchemeError(
        f"tags of sentence {number}, word {word}", repr(seen), f"one scheme throughout; up to here it was {scheme!r}"
    )


# ---------------------------------------------------------------------------------------------------- the entities


def entities(tags: Sequence[str]) -> list[Entity]:
    """What a sentence's tags say, read as generously as the shared tasks' own scorer does, whatever the scheme."""
    found: list[Entity] = []
    before, first = NOTHING, 0
    for word, after in enumerate([*(mark(tag) for tag in tags), NOTHING]):
        if _ends(before, after):
            found.append(Entity(before.kind, first, word - 1))
        if _begins(before, after):
            first = word
        before = after
    return found


def _ends(before: Mark, after: Mark) -> bool:
    if not before.prefix:
        return False
    return before.prefix in ("E", "S") or after.prefix in ("", "B", "S") or before.kind != after.kind


def _begins(before: Mark, after: Mark) -> bool:
    if not after.prefix:
        return False
    return after.prefix in ("B", "S") or before.prefix in ("", "E", "S") or before.kind != after.kind


def write(found: Iterable[Entity], length: int, scheme: str = "bio") -> list[str]:
    """The tags of a sentence of `length` words with these entities, which do not overlap."""
    check_scheme_name(scheme)
    tags, touched = [OUTSIDE] * length, {}
    for kind, first, last in sorted(found, key=lambda entity: entity.first):
        letters = ["I"] * (last - first + 1)
        if scheme != "iob1" or touched.get(first) == kind:
            letters[0] = "B"
        if scheme == "bioes":
            letters[-1] = "E" if last > first else "S"
        tags[first : last + 1] = [f"{letter}-{kind}" for letter in letters]
        touched[last + 1] = kind
    return tags


def convert(tags: Sequence[str], scheme: str) -> list[str]:
    """The same entities in another scheme."""
    return write(entities(tags), len(tags), scheme)
