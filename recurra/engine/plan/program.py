"""What a plan consists of: programs over buffers, and what is left for after the loop."""

from dataclasses import dataclass, field

from ...cell import State
from ..ir.lowering import Equations
from ..ir.nodes import Builder, Load, Matrix, Node, Vector

D_OUTPUT, D_X = "doutput:", "dx:"  # buffers of cotangents; no state has a colon in its name


@dataclass(frozen=True)
class Buffer:
    """Rows in memory. `time`: one a step and sequence; `state`: the same with `depth` steps before the first;
    `sequence`: one a sequence; `carry`: the last `depth` steps of one; `scratch`: this step's."""

    width: int
    kind: str
    depth: int = 0
    source: str = ""  # of a state read at a fixed distance: the state
    lag: int = 0  # and the distance


@dataclass(frozen=True)
class Out:
    """A value to be stored at columns `offset` and on of a buffer."""

    buffer: str
    offset: int
    node: Node


@dataclass
class Program:
    builder: Builder
    outs: list[Out]
    sums: list[tuple[Vector, Node]] = field(default_factory=list)  # to be summed over all rows of all steps
    buffers: dict[str, Buffer] = field(default_factory=dict)


@dataclass(frozen=True)
class Delta:
    """The cotangent of a product, kept for all steps: `width` columns of a buffer."""

    buffer: str
    offset: int
    width: int


@dataclass(frozen=True)
class Product:
    """What is left of a product for after the loop: the gradient of its matrix is `δᵀ operand`."""

    matrix: Matrix
    delta: Delta
    operand: Load  # as the backward program names it
    state: str | None  # the state it reads, if it reads one
    lag: int


@dataclass
class Plan:
    equations: Equations
    states: tuple[State, ...]
    masks: dict[str, str]  # name → "sequence" or "step"
    forward: Program
    backward: Program | None
    output: str  # the buffer that holds y
    named: dict[str, str]  # name → the buffer that holds it
    kept: tuple[str, ...]  # buffers the forward program fills for the backward one
    products: list[Product]
    carries: dict[tuple[str, int], str]  # (state, lag) → the buffer its remaining cotangent is carried in
    needs_x: bool
    seeks_largest: bool = False  # the backward program looks for the largest of a row among its numbers
