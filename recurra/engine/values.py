"""What an operand of a traced step is: a row of numbers that changes with time, or something made of weights alone."""

from dataclasses import dataclass

from .nodes import Node


class Unsupported(Exception):
    """The compiled engines do not take this cell; the message names the operation."""


@dataclass(frozen=True)
class Value:
    """A row of numbers in segments; `flat` if torch sees `(B,)` instead of `(B, 1)`."""

    segments: tuple[Node, ...]
    flat: bool = False

    @property
    def is_number(self) -> bool:
        """A constant that goes with rows of any shape."""
        return self.flat and self.segments[0].op == "const"

    @property
    def width(self) -> int:
        return sum(s.width for s in self.segments)


@dataclass(frozen=True)
class Hoisted:
    """Something computed from weights alone."""

    name: str
    shape: tuple[int, ...]


def boundaries(value: Value) -> list[int]:
    cuts = [0]
    for segment in value.segments:
        cuts.append(cuts[-1] + segment.width)
    return cuts
