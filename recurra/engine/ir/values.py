"""Operands during lowering: rows, which change with time, and loop invariants, which depend on weights alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from .nodes import Node

BATCH = "batch"  # the batch size, in a shape
Shape = tuple[int | str, ...]


class Unsupported(Exception):
    """The compiled engines cannot run this cell. The message names the operation."""


@dataclass(frozen=True)
class Value:
    """A row of numbers in segments, and its shape in torch.

    The batch is one axis; the numbers of a row lie along the others, the last axis fastest. A constant has shape ().
    """

    segments: tuple[Node, ...]
    shape: Shape

    @property
    def width(self) -> int:
        return sum(s.width for s in self.segments)

    def with_shape(self, shape: Sequence[int | str]) -> "Value":
        """The same numbers, in the same order, with another shape."""
        return Value(self.segments, tuple(shape))


@dataclass(frozen=True)
class LoopInvariant:
    """A value computed from weights alone, once per call. BATCH in its shape: torch repeats it for every sequence."""

    name: str
    shape: Shape


def row(*segments: Node) -> Value:
    """A row of shape `(B, n)`."""
    return Value(segments, (BATCH, sum(s.width for s in segments)))


def count(shape: Sequence[int | str]) -> int:
    """The number of elements per sequence along these axes."""
    return prod(size for size in shape if isinstance(size, int))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The broadcast shape, axes aligned at the last."""
    common: list[int | str] = []
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            raise Unsupported(f"an operation between shapes {format_shapes(*shapes)}")
        common.insert(0, sizes.pop() if sizes else 1)
    if common.count(BATCH) > 1:
        raise Unsupported(f"an operation between shapes {format_shapes(*shapes)}")
    return tuple(common)


def format_shapes(*shapes: Sequence[int | str]) -> str:
    """Shapes as text: `(B, 5) and (5,)`."""
    texts = [", ".join("B" if size == BATCH else str(size) for size in shape) for shape in shapes]
    return " and ".join(f"({text},)" if len(s) == 1 else f"({text})" for text, s in zip(texts, shapes, strict=True))


def boundaries(value: Value) -> list[int]:
    """The columns where segments start, and the end of the last one."""
    cuts = [0]
    for segment in value.segments:
        cuts.append(cuts[-1] + segment.width)
    return cuts
