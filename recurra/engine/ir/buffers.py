"""Typed references to the buffers that programs, kernels and calls read and write."""

import functools
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ...cell import TIME


class Role(Enum):
    """What a buffer holds. The value is the word used in explanations and in comments of generated code."""

    # Read and written by the forward program.
    X = "x"
    MASK = "mask"
    STATE = "state"  # all values of a state; as a load, the one `Load.lag` steps back
    Y = "output"  # the output, unless it is a state
    NAMED = "named"
    KEPT = "kept"  # a value the forward program stores for the backward one
    INPUT = "input"  # computed from x and masks before the loop
    INPUT_PRODUCT = "x product"  # a product with x, made before the loop
    SCRATCH = "scratch"

    # Read and written by the backward program.
    PAST = "past"  # a state as it was `lag` steps before the step being differentiated
    DELTA = "delta"  # cotangents of products
    CARRY = "carry"  # what else flows back to a state, read `lag` steps later
    HEAD = "head"  # stands for the cotangent of a new state until the loop is closed
    D_X = "dx"
    D_Y = "doutput"
    D_NAMED = "dnamed"
    D_FINAL = "dfinal"

    # Arguments of calls and of kernels only.
    INITIAL = "initial"
    FINAL = "final"
    D_INITIAL = "dinitial"
    WEIGHT = "weight"
    LENGTHS = "lengths"
    INPUT_PROJECTION = "input projection"  # all products with x of all steps, side by side
    SUMS = "sums"  # over all rows of all steps
    ROW_SUMS = "row sums"
    CHECKPOINT = "checkpoint"  # a matrix before every few steps
    CHUNK = "chunk"  # a matrix before each of these few steps
    TOTAL = "total"  # one of the sums, for each sequence

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is a call of Python at each look-up


class BufferKind(Enum):
    """How many rows a buffer has."""

    PER_STEP = "time"  # one for each step and sequence
    PER_SEQUENCE = "sequence"  # one for each sequence
    STATE = "state"  # as PER_STEP, and those before the first step
    CARRY = "carry"  # the last few steps
    SCRATCH = "scratch"  # the current step


_cached = functools.lru_cache(maxsize=1024)  # a call looks the same few up again and again


class BufferRef(NamedTuple):
    """The key of a buffer: its role, the state, mask, weight or value it belongs to, and what tells it from others."""

    role: Role
    name: str = ""
    lag: int = 0  # steps, of a past state and of a carry
    number: int = 0  # of kept values, scratch and products with x; of δ its width

    @staticmethod
    @_cached
    def mask(name: str) -> "BufferRef":
        return BufferRef(Role.MASK, name)

    @staticmethod
    @_cached
    def state(name: str) -> "BufferRef":
        return BufferRef(Role.STATE, name)

    @staticmethod
    @_cached
    def named(name: str) -> "BufferRef":
        return BufferRef(Role.NAMED, name)

    @staticmethod
    @_cached
    def kept(number: int) -> "BufferRef":
        return BufferRef(Role.KEPT, number=number)

    @staticmethod
    @_cached
    def input_product(number: int) -> "BufferRef":
        return BufferRef(Role.INPUT_PRODUCT, number=number)

    @staticmethod
    @_cached
    def scratch(number: int) -> "BufferRef":
        return BufferRef(Role.SCRATCH, number=number)

    @staticmethod
    @_cached
    def past(name: str, lag: int) -> "BufferRef":
        return BufferRef(Role.PAST, name, lag)

    @staticmethod
    @_cached
    def delta(width: int) -> "BufferRef":
        return BufferRef(Role.DELTA, number=width)

    @staticmethod
    @_cached
    def carry(name: str, lag: int) -> "BufferRef":
        return BufferRef(Role.CARRY, name, lag)

    @staticmethod
    @_cached
    def head(name: str) -> "BufferRef":
        return BufferRef(Role.HEAD, name)

    @staticmethod
    @_cached
    def d_named(name: str) -> "BufferRef":
        return BufferRef(Role.D_NAMED, name)

    @staticmethod
    @_cached
    def d_final(name: str) -> "BufferRef":
        return BufferRef(Role.D_FINAL, name)

    @staticmethod
    @_cached
    def initial(name: str) -> "BufferRef":
        return BufferRef(Role.INITIAL, name)

    @staticmethod
    @_cached
    def final(name: str) -> "BufferRef":
        return BufferRef(Role.FINAL, name)

    @staticmethod
    @_cached
    def d_initial(name: str) -> "BufferRef":
        return BufferRef(Role.D_INITIAL, name)

    @staticmethod
    @_cached
    def weight(name: str) -> "BufferRef":
        return BufferRef(Role.WEIGHT, name)

    @staticmethod
    @_cached
    def checkpoint(name: str) -> "BufferRef":
        return BufferRef(Role.CHECKPOINT, name)

    @staticmethod
    @_cached
    def chunk(name: str) -> "BufferRef":
        return BufferRef(Role.CHUNK, name)

    @staticmethod
    @_cached
    def total(number: int) -> "BufferRef":
        return BufferRef(Role.TOTAL, number=number)

    @property
    def memory(self) -> "BufferRef":
        """The buffer whose rows it reads: a past value lies among all values of its state."""
        return BufferRef.state(self.name) if self.role is Role.PAST else self

    @property
    def label(self) -> str:
        """For explanations: the name of a state, else the role."""
        return self.name if self.role in (Role.STATE, Role.PAST) else self.role.value

    def __str__(self) -> str:
        """One line, for comments of generated code."""
        name = self.name if self.name.isprintable() else ascii(self.name)
        text = " ".join(filter(None, (self.role.value, name)))
        if self.role in (Role.PAST, Role.CARRY):
            return f"{text}, lag {self.lag}"
        return f"{text} {self.number}" if self.role in _NUMBERED else text


_NUMBERED = (Role.KEPT, Role.DELTA, Role.SCRATCH, Role.INPUT_PRODUCT, Role.TOTAL)

X, Y, D_X, D_Y = (BufferRef(role) for role in (Role.X, Role.Y, Role.D_X, Role.D_Y))
LENGTHS, SUMS, ROW_SUMS = (BufferRef(role) for role in (Role.LENGTHS, Role.SUMS, Role.ROW_SUMS))
INPUT_PROJECTION = BufferRef(Role.INPUT_PROJECTION)
CLOCK = BufferRef.state(TIME)  # the time index, a state of one number


@dataclass(frozen=True)
class BufferSpec:
    """Rows in memory: how wide, and how many."""

    width: int
    kind: BufferKind
