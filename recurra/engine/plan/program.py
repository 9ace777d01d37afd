"""The parts of a plan: programs over buffers, and the products that remain for after the loop."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ...cell import State
from ..ir.buffers import D_Y, BufferRef, BufferSpec
from ..ir.lowering import LoweredStep
from ..ir.nodes import Builder, Load, Matrix, Node, Vector, subgraph
from .exactness import compares_numbers


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

    def roots(self) -> list[Node]:
        """The values that the program is for."""
        return [*(out.node for out in self.outs), *(node for _, node in self.sums)]


@dataclass(frozen=True)
class Delta:
    """The cotangent of a product, kept for all steps: `width` columns of a buffer."""

    buffer: BufferRef
    offset: int
    width: int


@dataclass(frozen=True)
class Product:
    """A product of the forward program, as the epilogue needs it: the gradient of its matrix is `δᵀ operand`."""

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

    @functools.cached_property
    def gathers(self) -> bool:
        """Whether a program reads rows in memory through index maps, or rows of constants."""
        roots = [*self.forward.roots(), *(self.backward.roots() if self.backward else ())]
        return any(node.op in ("gather", "concat", "literal") for node in subgraph(roots))

    @functools.cached_property
    def compares_numbers(self) -> bool:
        """Whether a number that is computed again must have the same bits as before."""
        backward = self.backward.roots() if self.backward else []
        return self.seeks_largest or compares_numbers(self.forward.roots(), backward)

    @property
    def trains(self) -> bool:
        return self.backward is not None

    @functools.cached_property
    def weight_names(self) -> tuple[str, ...]:
        """What the loop reads: weights of the cell, and values computed from weights alone."""
        return tuple(self.equations.hoisted)

    @functools.cached_property
    def derived_weights(self) -> tuple[str, ...]:
        """Those of the weights that are computed, before the loop, from weights alone."""
        return tuple(name for name in self.weight_names if name not in self.equations.weights)

    def prologue(self, weights: Mapping[str, Tensor]) -> list[Tensor]:
        """The values of `weight_names`, from the weights of the cell."""
        if all(name in weights for name in self.weight_names):
            return [weights[name] for name in self.weight_names]
        return list(self.equations.prologue(*(weights[name] for name in self.equations.weights)))

    @functools.cached_property
    def histories(self) -> tuple[BufferRef, ...]:
        """The states whose values are kept for the backward program beside y."""
        states = (BufferRef.state(state.name) for state in self.states)
        return tuple(state for state in states if state != self.output)

    @functools.cached_property
    def runs(self) -> list[list[Product]]:
        """Products of the same operand whose δ lie side by side: one matrix product over all steps takes them all."""
        groups: dict[object, list[Product]] = {}
        for product in self.products:
            groups.setdefault((product.operand, product.delta.buffer, product.matrix.deep), []).append(product)
        found: list[list[Product]] = []
        for products in groups.values():
            end = -1
            for product in sorted(products, key=lambda p: p.delta.offset):
                if product.delta.offset == end:
                    found[-1].append(product)
                else:
                    found.append([product])
                end = product.delta.offset + product.delta.width
        return found

    def trace(self, rows: Iterable[Tensor]) -> dict[str, Tensor]:
        """The named values (T, B, …) as the step shapes them, from rows (T, B, n). States stay rows."""
        shapes, states = self.equations.shapes, {state.name for state in self.states}
        return {
            name: row.unflatten(-1, shapes[name]) if name in shapes and name not in states else row
            for name, row in zip(self.named, rows, strict=True)
        }

    def cotangents(self) -> list[BufferRef]:
        """What the backward program is given: cotangents of y, of the named values and of the final states."""
        named = (BufferRef.d_named(name) for name in self.named)
        return [D_Y, *named, *(BufferRef.d_final(state.name) for state in self.states)]
