"""What a plan consists of: programs over buffers, and what is left for after the loop."""

from dataclasses import dataclass, field

from ...cell import State
from ..ir.buffers import D_Y, BufferRef, BufferSpec
from ..ir.lowering import LoweredStep
from ..ir.nodes import Builder, Load, Matrix, Node, Vector


@dataclass(frozen=True)
class Out:
    """A value to be stored at columns `offset` and on of a buffer."""

    buffer: BufferRef
    offset: int
    node: Node


@dataclass
class Program:
    builder: Builder
    outs: list[Out]
    sums: list[tuple[Vector, Node]] = field(default_factory=list)  # to be summed over all rows of all steps
    buffers: dict[BufferRef, BufferSpec] = field(default_factory=dict)


@dataclass(frozen=True)
class Delta:
    """The cotangent of a product, kept for all steps: `width` columns of a buffer."""

    buffer: BufferRef
    offset: int
    width: int


@dataclass(frozen=True)
class Product:
    """What is left of a product for after the loop: the gradient of its matrix is `δᵀ operand`."""

    matrix: Matrix
    delta: Delta
    operand: Load  # as the backward program reads it

    @property
    def lag(self) -> int:
        """Steps back at which the operand was a state; 0 if it is a value of the step itself."""
        return self.operand.buffer.lag


@dataclass
class Plan:
    equations: LoweredStep
    states: tuple[State, ...]
    masks: dict[str, str]  # name → "sequence" or "step"
    forward: Program
    backward: Program | None
    output: BufferRef  # holds y: that of a state, or its own
    named: dict[str, BufferRef]  # named value → the buffer that holds it
    kept: tuple[BufferRef, ...]  # filled by the forward program for the backward one
    products: list[Product]
    carries: tuple[BufferRef, ...]  # what flows back to states other than through products
    needs_x: bool
    seeks_largest: bool = False  # the backward program looks for the largest of a row among its numbers

    def cotangents(self) -> list[BufferRef]:
        """What the backward program is given: cotangents of y, of the named values and of the final states."""
        named = (BufferRef.d_named(name) for name in self.named)
        return [D_Y, *named, *(BufferRef.d_final(state.name) for state in self.states)]
