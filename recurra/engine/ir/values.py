"""Operands during lowering: rows, which change with time, and loop invariants, which depend on weights alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from .nodes import Node

BATCH = "batch"  # the batch size, in a shape


class Fold(NamedTuple):
    """The size of an axis that holds the batch and others: `before · B · after`."""

    before: int
    after: int


Size = int | str | Fold
Shape = tuple[Size, ...]


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

    def with_shape(self, shape: Sequence[Size]) -> "Value":
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


def count(shape: Sequence[Size]) -> int:
    """The number of elements per sequence along these axes."""
    return prod(at_batch(shape, 1))


def at_batch(shape: Sequence[Size], batch: int) -> tuple[int, ...]:
    """The sizes for a batch of this size."""
    sizes = (size.before * batch * size.after if isinstance(size, Fold) else size for size in shape)
    return tuple(batch if isinstance(size, str) else size for size in sizes)


def is_batch(size: object) -> bool:
    """Whether a size is the batch, or holds it."""
    return isinstance(size, Fold) or (isinstance(size, str) and size == BATCH)


def has_batch(shape: Sequence[Size]) -> bool:
    return any(not isinstance(size, int) for size in shape)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The broadcast shape, axes aligned at the last."""
    common: list[Size] = []
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            raise Unsupported(f"an operation between shapes {format_shapes(*shapes)}")
        common.insert(0, sizes.pop() if sizes else 1)
    if sum(not isinstance(size, int) for size in common) > 1:
        raise Unsupported(f"an operation between shapes {format_shapes(*shapes)}")
    return tuple(common)


def format_shapes(*shapes: Sequence[Size]) -> str:
    """Shapes as text: `(B, 5) and (5,)`."""
    texts = [", ".join(map(_format_size, shape)) for shape in shapes]
    return " and ".join(f"({text},)" if len(s) == 1 else f"({text})" for text, s in zip(texts, shapes, strict=True))


def _format_size(size: Size) -> str:
    if isinstance(size, Fold):
        return "·".join(part for part in (str(size.before), "B", str(size.after)) if part != "1")
    return "B" if size == BATCH else str(size)


def boundaries(value: Value) -> list[int]:
    """The columns where segments start, and the end of the last one."""
    cuts = [0]
    for segment in value.segments:
        cuts.append(cuts[-1] + segment.width)
    return cuts
