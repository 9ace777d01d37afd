"""What an operand of a traced step is: a row of numbers that changes with time, or something made of weights alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from .nodes import Node

BATCH = "batch"  # stands for the number of sequences in a shape
Shape = tuple[int | str, ...]


class Unsupported(Exception):
    """The compiled engines do not take this cell; the message names the operation."""


@dataclass(frozen=True)
class Value:
    """A row of numbers in segments, and the shape torch sees it in: the batch is one axis, and the numbers of a row
    lie along the others, the last axis fastest. A constant that goes with rows of any shape has no axis at all."""

    segments: tuple[Node, ...]
    shape: Shape

    @property
    def width(self) -> int:
        return sum(s.width for s in self.segments)

    def seen_as(self, shape: Sequence[int | str]) -> "Value":
        """The same numbers in the same order."""
        return Value(self.segments, tuple(shape))


@dataclass(frozen=True)
class Hoisted:
    """Something computed from weights alone. One that torch repeats for every sequence is computed once."""

    name: str
    shape: Shape


def row(*segments: Node) -> Value:
    """As most rows are seen: `(B, n)`."""
    return Value(segments, (BATCH, sum(s.width for s in segments)))


def count(shape: Sequence[int | str]) -> int:
    """How many numbers of one sequence are along these axes."""
    return prod(size for size in shape if isinstance(size, int))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape of an operation on numbers of these shapes, axes counted from the last."""
    common: list[int | str] = []
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            raise Unsupported(f"an operation between shapes {shown(*shapes)}")
        common.insert(0, sizes.pop() if sizes else 1)
    if common.count(BATCH) > 1:
        raise Unsupported(f"an operation between shapes {shown(*shapes)}")
    return tuple(common)


def shown(*shapes: Sequence[int | str]) -> str:
    """Shapes for a person to read: `(B, 5) and (5,)`."""
    texts = [", ".join("B" if size == BATCH else str(size) for size in shape) for shape in shapes]
    return " and ".join(f"({text},)" if len(s) == 1 else f"({text})" for text, s in zip(texts, shapes, strict=True))


def boundaries(value: Value) -> list[int]:
    cuts = [0]
    for segment in value.segments:
        cuts.append(cuts[-1] + segment.width)
    return cuts
