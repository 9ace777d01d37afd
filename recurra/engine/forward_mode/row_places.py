"""Where the rows of a chunk lie: those that the way back reads for all of its steps, others for a few steps.

A program gives every value a place of its own in the scratch, several kilobytes a step, with which a chunk would leave
the caches. Here values that are not needed at the same time share a place, and the next few steps take the places of
the last. Copies go where the value can be read where it is, or made where it is wanted.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable
from itertools import pairwise

from .phases import BY_CODE, NEW
from .words import CODE, NOWHERE, REGION, address

Phase = list[list[int]]
ALIGNED = 16  # numbers that widths of rooms are a multiple of
ONE = address(4, 0), 0  # the row of ones in the pool


class RowPlaces:
    """The phases of a program with new addresses.

    `rooms`: where each part of the scratch begins; `size`: where the last one ends. `kept`: addresses that are read
    after the phases; they lie in the region `region` then, which has `kept_size` numbers for a step. `fixed`: regions
    that are the same in all steps. `is_known`: whether it is known what each word touches; else all stays as it was.
    """

    def __init__(
        self,
        phases: tuple[Phase, ...],
        rooms: list[int],
        size: int,
        kept: Iterable[int],
        region: int,
        fixed: Container[int],
    ):
        self.rooms, self.size, self.kept_size, self.fixed = rooms, size, 0, fixed
        self.widths = [end - start for start, end in pairwise([*rooms, size])]
        self.to: dict[int, int] = {}  # room → its new address
        self.names: dict[int, int] = {}  # room → the address of the same numbers
        self.phases = phases
        self.is_known = all(word[0] in BY_CODE for phase in phases for word in phase)
        if not self.is_known:
            return
        phases = tuple(map(_without_sums_of_one, phases))
        self.writes = Counter(room for phase in phases for word in phase for room in self._rooms(word, 0))
        phases = tuple([word for word in phase if not self._is_another_name(word)] for phase in phases)
        phases = tuple([_moved(word, self._named) for word in phase] for phase in phases)
        for room in sorted({room for room in map(self._room, map(self._named, kept)) if room is not None}):
            if room not in self.to:
                self.to[room] = address(region, self.kept_size)
                self.kept_size += self.widths[room]
        self._share([word for phase in phases for word in phase])
        self.phases = tuple([_moved(word, self) for word in phase] for phase in phases)

    def __call__(self, place: int) -> int:
        """The new address of an old one."""
        place = self._named(place)
        room = self._room(place)
        return place if room is None or room not in self.to else self.to[room] + place - self.rooms[room]

    def _named(self, place: int) -> int:
        """An address whose room is that of the value itself, not of a copy."""
        room = self._room(place)
        while room in self.names and room is not None:
            place = self.names[room] + place - self.rooms[room]
            room = self._room(place)
        return place

    def _room(self, place: int) -> int | None:
        return None if place == NOWHERE or place >> REGION else bisect_right(self.rooms, place) - 1

    def _rooms(self, word: list[int], *kinds: int) -> list[int]:
        """What a word writes (0) and reads (1) in the scratch."""
        found = (self._room(word[1 + i]) for kind in kinds for i in BY_CODE[word[0]][kind])
        return list(dict.fromkeys(room for room in found if room is not None))

    def _is_another_name(self, word: list[int]) -> bool:
        """Whether a word copies what can be read where it is, or made where it goes."""
        if word[0] != CODE["COPY"] or word[4] != 1:
            return False
        _, width, to, source, _ = word
        room, given = self._room(to), self._room(source)
        once = given is not None and self.writes[given] == 1 and self.widths[given] - width < ALIGNED
        whole = given is not None and once and source == self.rooms[given]
        if room is not None and self.writes[room] == 1 and to == self.rooms[room]:
            if (given is None and source >> REGION not in self.fixed) or (given is not None and not whole):
                return False
            self.names[room] = source
            return True
        if (
            room is None
            and to >> REGION == NEW
            and given is not None
            and whole
            and given not in (*self.to, *self.names)
        ):
            self.to[given] = to
            return True
        return False

    def _share(self, words: list[list[int]]) -> None:
        """Places of the values that one word writes and a later one reads; a place is free after the last of these."""
        last: dict[int, int] = {}
        for number, word in enumerate(words):
            last |= dict.fromkeys(self._rooms(word, 0, 1), number)
        free: dict[int, list[int]] = {}  # width → places
        self.size, own = 0, set()
        for number, word in enumerate(words):
            touched = self._rooms(word, 0, 1)
            for room in (room for room in touched if room not in self.to):
                width = self.widths[room]
                if not free.setdefault(width, []):
                    free[width].append(self.size)
                    self.size += width
                self.to[room] = free[width].pop()
                own.add(room)
            for room in (room for room in touched if room in own and last[room] == number):
                free[self.widths[room]].append(self.to[room])


def _moved(word: list[int], move: Callable[[int], int]) -> list[int]:
    found = list(word)
    for i in (i for group in BY_CODE[word[0]] for i in group):
        found[1 + i] = move(word[1 + i])
    return found


def _without_sums_of_one(phase: Phase) -> Phase:
    """A row of zeros to which one other row is added is a copy of that row."""
    found: Phase = []
    for word in phase:
        if word[0] == CODE["ADD_PRODUCT"] and found and found[-1][0] == CODE["ZERO"]:
            _, width, to, source, step, *other = word
            if found[-1][1:] == [width, to] and tuple(other) == ONE and source != to:
                found[-1] = [CODE["COPY"], width, to, source, step]
                continue
        found.append(word)
    return found
