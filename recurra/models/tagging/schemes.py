"""Tagging schemes for entities: allowed transitions, detection of a corpus's scheme, and conversion to entities.

"bio" (IOB2): B begins an entity, I continues it. "iob1": I begins an entity too; B only after another one of its kind.
"bioes": B begins, I continues, E ends, S is an entity of one word; L and U are read as E and S.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import InputError, UnknownNameError

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class ParsedTag(NamedTuple):
    """Prefix and kind of a tag: "B-NP" is ("B", "NP"). Both are empty for "O" and outside the sentence."""

    prefix: str
    kind: str


NO_TAG = ParsedTag("", "")


class Entity(NamedTuple):
    """An entity of words first … last, inclusive."""

    kind: str
    first: int
    last: int


class SchemeError(InputError):
    """Tags that no scheme allows, or that mix two schemes."""


def parse_tag(tag: str) -> ParsedTag:
    """Split a tag into prefix and kind; "B" alone has an empty kind."""
    if not isinstance(tag, str):
        raise SchemeError("tag", repr(tag), "text")
    if tag == OUTSIDE:
        return NO_TAG
    prefix, dash, kind = tag.partition("-")
    if prefix not in PREFIXES or (dash and not kind):
        raise SchemeError("tag", repr(tag), f"{OUTSIDE!r}, or a letter of {''.join(PREFIXES)}, a dash and a kind")
    return ParsedTag(PREFIXES[prefix], kind)


# ---------------------------------------------------------------------------------------------------- transitions


def _bio(before: ParsedTag, after: ParsedTag) -> bool:
    return after.prefix != "I" or (before.prefix in ("B", "I") and before.kind == after.kind)


def _iob1(before: ParsedTag, after: ParsedTag) -> bool:
    return after.prefix != "B" or (before.prefix in ("B", "I") and before.kind == after.kind)


def _bioes(before: ParsedTag, after: ParsedTag) -> bool:
    if before.prefix in ("B", "I"):
        return after.prefix in ("I", "E") and before.kind == after.kind
    return after.prefix not in ("I", "E")


FOLLOWS = {"bio": _bio, "iob1": _iob1, "bioes": _bioes}
LETTERS = {"bio": {"", "B", "I"}, "iob1": {"", "B", "I"}, "bioes": {"", "B", "I", "E", "S"}}


class AllowedTransitions(NamedTuple):
    """Masks of a topology or scheme: true where a transition, a first or a last state is allowed."""

    transitions: Tensor  # (K, K) from → to
    start: Tensor  # (K,)
    end: Tensor  # (K,)


def check_scheme_name(scheme: str) -> str:
    if scheme not in FOLLOWS:
        raise UnknownNameError("scheme", repr(scheme), FOLLOWS)
    return scheme


def allowed_transitions(classes: Sequence[str], scheme: str) -> AllowedTransitions:
    """Which tags may follow each other, begin a sentence, and end it."""
    follows, marks = FOLLOWS[check_scheme_name(scheme)], [parse_tag(tag) for tag in classes]
    foreign = [tag for tag, each in zip(classes, marks, strict=True) if each.prefix not in LETTERS[scheme]]
    if foreign:
        raise SchemeError("classes", repr(foreign[0]), f"tags of the scheme {scheme!r}")
    return AllowedTransitions(
        torch.tensor([[follows(before, after) for after in marks] for before in marks]),
        torch.tensor([follows(NO_TAG, after) for after in marks]),
        torch.tensor([follows(before, NO_TAG) for before in marks]),
    )


# ---------------------------------------------------------------------------------------------------- detection


def looks_chunked(classes: Iterable[str]) -> bool:
    """Whether the tags mark entities, unlike part-of-speech tags."""
    parts = [tag.partition("-") for tag in classes if tag != OUTSIDE]
    return bool(parts) and all(prefix in PREFIXES and kind for prefix, _, kind in parts)


def violation(sentences: Iterable[Sequence[str]], scheme: str) -> tuple[int, int] | None:
    """The first (sentence, word) whose tag breaks the scheme; the word is past the end if the end does."""
    follows, letters, known = FOLLOWS[check_scheme_name(scheme)], LETTERS[scheme], {}
    for number, tags in enumerate(sentences):
        marks = [known.setdefault(tag, parse_tag(tag)) for tag in tags]
        for word, (before, after) in enumerate(pairwise([NO_TAG, *marks, NO_TAG])):
            if after.prefix not in letters or not follows(before, after):
                return number, word
    return None


def detect(sentences: Sequence[Sequence[str]]) -> str:
    """The scheme of all sentences, "bio" if several fit; an error names the place where none does."""
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


# ---------------------------------------------------------------------------------------------------- entities


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, by the lenient rules of the CoNLL scorer, for any scheme."""
    found: list[Entity] = []
    before, first = NO_TAG, 0
    for word, after in enumerate([*(parse_tag(tag) for tag in tags), NO_TAG]):
        if _ends(before, after):
            found.append(Entity(before.kind, first, word - 1))
        if _begins(before, after):
            first = word
        before = after
    return found


def _ends(before: ParsedTag, after: ParsedTag) -> bool:
    if not before.prefix:
        return False
    return before.prefix in ("E", "S") or after.prefix in ("", "B", "S") or before.kind != after.kind


def _begins(before: ParsedTag, after: ParsedTag) -> bool:
    if not after.prefix:
        return False
    return after.prefix in ("B", "S") or before.prefix in ("", "E", "S") or before.kind != after.kind


def entities_to_tags(found: Iterable[Entity], length: int, scheme: str = "bio") -> list[str]:
    """The tags of a sentence of `length` words with the given, non-overlapping entities."""
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
    """Tags of the same entities in another scheme."""
    return entities_to_tags(entities(tags), len(tags), scheme)
