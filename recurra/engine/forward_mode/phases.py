"""Which words of a step's program need no state, and which ones no state needs: they run for many steps at once.

A word is taken for all that it may touch: the parts of the scratch, and whole regions besides.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from .words import CODE, NOWHERE, REGION

STATE, NEW = 2, 3  # regions, as in row_program.py
# code → places of what the word writes, and of what it reads, among its arguments
TOUCHES = {
    "ELEMENTWISE": ((2,), (3, 5, 7)),
    "COPY": ((1,), (2,)),
    "PRODUCT": ((0,), (1, 2)),
    "ROWSUM": ((1,), (2,)),
    "ROWMAX": ((1,), (2,)),
    "GATHER": ((1,), (4, 7)),
    "ZERO": ((1,), ()),
    "ADD_PRODUCT": ((1,), (1, 2, 4)),
    "ADD_DIAGONAL": ((1,), (1, 3)),
}
BY_CODE = {CODE[name]: places for name, places in TOUCHES.items()}


@dataclass(eq=False)
class Word:
    words: list[int]
    writes: set[int]
    reads: set[int]


def phases_of(words: list[int], starts: list[int], rooms: list[int]) -> tuple[list[list[int]], ...]:
    """The words before the loop over steps, in it, and after it. `rooms`: where each part of the scratch begins."""
    if any(words[start] not in BY_CODE for start in starts):
        return [], [words[a:b] for a, b in zip(starts, [*starts[1:], len(words)], strict=True)], []
    found = [_word(words[a:b], rooms) for a, b in zip(starts, [*starts[1:], len(words)], strict=True)]
    stateful = _closure(found, {_region(STATE)}, lambda word: (word.reads | word.writes, word.writes))
    needed = _closure(found, {_region(NEW)}, lambda word: (word.writes, word.reads | word.writes))
    before = [word for word in found if not (word.reads | word.writes) & stateful and not word.writes & {_region(NEW)}]
    during = [word for word in found if word.writes & needed and word not in before]
    after = [word for word in found if word not in before and word not in during]
    return tuple([word.words for word in part] for part in (before, during, after))


def _region(number: int) -> int:
    return -1 - number


def _word(words: list[int], rooms: list[int]) -> Word:
    writes, reads = BY_CODE[words[0]]
    return Word(words, *({_place(words[1 + i], rooms) for i in places} - {0} for places in (writes, reads)))


def _place(address: int, rooms: list[int]) -> int:
    """A part of the scratch as a positive number, another region as a negative one; 0 for nothing."""
    if address == NOWHERE:
        return 0
    region = address >> REGION
    return _region(region) if region else bisect_right(rooms, address)


def _closure(found: list[Word], places: set[int], follow: Callable[[Word], tuple[set[int], set[int]]]) -> set[int]:
    """All places that words lead to: where one touches the first set of `follow(word)`, it adds the second."""
    before = 0
    while len(places) != before:
        before = len(places)
        for word in found:
            touched, leads_to = follow(word)
            if touched & places:
                places |= leads_to
    return places
