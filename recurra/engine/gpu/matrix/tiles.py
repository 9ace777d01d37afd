"""Writes the values of a step as tiles: the part of a value that one program computes.

A tile has one axis for each of the value's own that the program does not have a single coordinate of. The lengths are
powers of two; numbers beyond a value's own are arbitrary, and left out of sums and stores.
"""

from dataclasses import dataclass, field

from ...ir.buffers import BufferRef
from ...ir.nodes import Matrix, Node, Vector
from ...ir.values import Unsupported
from ...plan.program import Plan
from ..math_functions import expression, number
from .axes import Axes, Axis
from .layout import TileLayout


@dataclass
class Kernel:
    """The arguments of a kernel, the lines before its loop, and the coordinates of its tiles."""

    axes: Axes
    layout: TileLayout
    plan: Plan
    arguments: list[BufferRef] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    ranges: dict[Axis, str] = field(default_factory=dict)  # axis of a tile → the variable with its coordinates
    fixed: dict[object, str] = field(default_factory=dict)  # weight or part of one → the variable that holds it

    def __post_init__(self) -> None:
        self.outer = {axis: f"o{i}" for i, axis in enumerate(self.layout.outer)}

    def pointer(self, buffer: BufferRef) -> str:
        if buffer not in self.arguments:
            self.arguments.append(buffer)
        return f"a{self.arguments.index(buffer)}"

    # ------------------------------------------------------------------------------------------ places

    def coordinate(self, axis: Axis) -> str:
        """The variable with the coordinates of a tile along an axis."""
        if axis not in self.ranges:
            name = self.ranges[axis] = f"x{len(self.ranges)}"
            start = f"block * {self.layout.width} + " if axis is self.layout.block else ""
            self.setup.append(f"{name} = {start}L.arange(0, {self.layout.length(axis)})")
        return self.ranges[axis]

    def places(self, axes: list[Axis], stride: int = 1, first: int = 0, rank: int | None = None) -> str:
        """The places of a tile in a row of a value; `first`: the position of its first axis in a tile of `rank`."""
        terms = []
        at = first + len(self.layout.on_tile(axes))
        rank = at if rank is None else rank
        for axis in reversed(axes):
            if axis in self.outer:
                terms.append(f"{self.outer[axis]} * {stride}")
            else:
                at -= 1
                terms.append(f"{spread(self.coordinate(axis), at, rank)} * {stride}")
            stride *= axis.size
        return " + ".join(reversed(terms)) or "0"

    def inside(self, axes: list[Axis]) -> list[str]:
        """Conditions under which numbers of a tile belong to the value."""
        on_tile = self.layout.on_tile(axes)
        return [
            f"({spread(self.coordinate(axis), at, len(on_tile))} < {axis.size})"
            for at, axis in enumerate(on_tile)
            if axis.size % self.layout.length(axis)
        ]

    def shape(self, axes: list[Axis]) -> list[int]:
        return [self.layout.length(axis) for axis in self.layout.on_tile(axes)]

    def full(self, name: str, axes: list[Axis]) -> str:
        """A value as a whole tile: constants are spread over it."""
        shape = self.shape(axes)
        return f"({name} + L.zeros({shape}, L.float32))" if shape else f"({name} + zero)"

    # ------------------------------------------------------------------------------------------ memory

    def load(self, base: str, axes: list[Axis], stride: int = 1) -> str:
        mask = " & ".join(self.inside(axes))
        return f"L.load({base} + {self.places(axes, stride)}{f', mask={mask}, other=0.0' if mask else ''})"

    def store(self, buffer: BufferRef, base: str, value: str, axes: list[Axis], is_partial: bool = False) -> str:
        """The line that stores a tile."""
        conditions = [*self.inside(axes), *self._writes(axes, is_partial)]
        mask = f", mask={' & '.join(conditions)}" if conditions else ""
        kind = f"{self.pointer(buffer)}.dtype.element_ty"
        return f"L.store({base} + {self.places(axes)}, {self.full(value, axes)}.to({kind}){mask})"

    def _writes(self, axes: list[Axis], is_partial: bool) -> list[str]:
        """Conditions under which this program stores a value that others compute as well."""
        missing = [f"({name} == 0)" for axis, name in self.outer.items() if axis not in axes]
        if self.layout.blocks > 1 and self.layout.block not in axes and not is_partial:
            missing.append("(block == 0)")
        return missing

    def is_partial(self, node: Node) -> bool:
        """Whether each block of programs has its own part of a sum."""
        block = self.layout.block
        if self.layout.blocks == 1:
            return False
        if node.op == "rowsum":
            return block in self.axes.of(node.args[0])
        if node.op != "gather":
            return False
        combination = self.axes.combinations[node]
        return any(axis.root() is block for axis in combination.axes[combination.results :])


def spread(name: str, at: int, rank: int) -> str:
    """A vector along one axis of a tile."""
    return name if rank == 1 else f"{name}[{', '.join(':' if i == at else 'None' for i in range(rank))}]"


class StepWriter:
    """Writes the values of one step, in one loop of a kernel."""

    def __init__(self, kernel: Kernel, names: dict[Node, str], prefix: str):
        self.kernel, self.axes, self.names, self.prefix = kernel, kernel.axes, names, prefix
        self.lines: list[str] = []

    def value(self, node: Node) -> str:
        """The variable of a value, after its lines are written."""
        for part in _needed(node, self.names):
            self.names[part] = self._written(part)
        return self.names[node]

    def _written(self, node: Node) -> str:
        if node.op == "const":
            return number(node.attr)
        if node.op == "weight":
            return self._weight(node)
        if node.op == "expand":
            return self.names[node.args[0]]
        name = f"{self.prefix}{node.index}"
        if node.op == "product":
            value, axes = self._product(node)
            self._sum(name, value, axes, set(range(len(self.kernel.shape(self.axes.of(node))), len(axes))), "sum")
        elif node.op == "rowsum":
            axes = self.kernel.layout.on_tile(self.axes.of(node.args[0]))
            self._sum(name, self._tile(node.args[0]), axes, set(range(len(axes))), node.attr or "sum")
        elif node.op == "gather":
            self._gather(name, node)
        elif node.is_elementwise:
            self.lines.append(f"{name} = {expression(node.op, node.attr, [self.names[arg] for arg in node.args])}")
        else:
            raise Unsupported(f"{node.op} beside a matrix in the loop")
        return name

    def _tile(self, node: Node) -> str:
        """A value as a whole tile."""
        return self.kernel.full(self.names[node], self.axes.of(node))

    # ------------------------------------------------------------------------------------------ sums

    def _gather(self, name: str, node: Node) -> None:
        """A product of two values, or one of them, on all axes of the iteration; then the sum over some."""
        combination, layout = self.axes.combinations[node], self.kernel.layout
        axes = [axis.root() for axis in combination.axes]
        widest = max((reading.positions for reading in combination.readings), key=len)
        order = widest if len(widest) == len(axes) else range(len(axes))  # the widest argument is not permuted
        tile = [i for i in order if axes[i] not in layout.outer]
        parts = []
        for arg, reading in zip(node.args, combination.readings, strict=True):
            own = [i for i in reading.positions if axes[i] not in layout.outer]
            parts.append(_aligned(self._tile(arg), own, tile))
        summed = {at for at, i in enumerate(tile) if i >= combination.results}
        self._sum(name, " * ".join(parts), [axes[i] for i in tile], summed, node.attr.kind)
        left = [i for i in tile if i < combination.results]
        if left != sorted(left):
            self.lines.append(f"{name} = L.permute({name}, {tuple(left.index(i) for i in sorted(left))})")

    def _sum(self, name: str, value: str, axes: list[Axis], summed: set[int], kind: str) -> None:
        """The sum or maximum of a tile over some of its axes."""
        if not summed:
            self.lines.append(f"{name} = {value}")
            return
        layout, rank = self.kernel.layout, len(axes)
        zeros = f"L.zeros({[layout.length(axis) for axis in axes]}, L.float32)"
        conditions = [
            f"({spread(self.kernel.coordinate(axes[at]), at, rank)} < {axes[at].size})"
            for at in sorted(summed)
            if axes[at].size % layout.length(axes[at])
        ]
        empty, reduce = ("0.0", "L.sum") if kind == "sum" else ('float("-inf")', "L.max")
        self.lines.append(f"{name} = {value} + {zeros}")
        if kind == "max":
            self.lines.append(f"{name}_nan = truth({name} != {name})")
        for each, other in ((name, empty), *([(f"{name}_nan", "0.0")] if kind == "max" else [])):
            if conditions:
                self.lines.append(f"{each} = L.where({' & '.join(conditions)}, {each}, {other})")
            self.lines += [f"{each} = {reduce}({each}, {at})" for at in sorted(summed, reverse=True)]
        if kind == "max":  # NaN if the numbers have one
            self.lines.append(f'{name} = L.where({name}_nan > 0.0, float("nan"), {name})')

    # ------------------------------------------------------------------------------------------ weights

    def _weight(self, node: Node) -> str:
        known = self.kernel.fixed
        if node not in known:
            vector: Vector = node.attr
            columns = self.kernel.plan.equations.hoisted[vector.weight][-1:] or (1,)
            stride, offset = (1, vector.rows[0]) if vector.col is None else (columns[0], 0)
            if vector.col is not None:
                offset = vector.rows[0] * columns[0] + vector.col
            base = f"{self.kernel.pointer(BufferRef.weight(vector.weight))} + {offset}"
            known[node] = f"w{node.index}"
            self.kernel.setup.append(
                f"w{node.index} = {self.kernel.load(base, self.axes.of(node), stride)}.to(L.float32)"
            )
        return known[node]

    def _product(self, node: Node) -> tuple[str, list[Axis]]:
        """A matrix times an operand, and the axes of both: those of the result first."""
        layout, operand = self.kernel.layout, node.args[0]
        across, down = self.axes.of(node), self.axes.of(operand)
        first, rank = len(layout.on_tile(across)), len(layout.on_tile([*across, *down]))
        tile = [*range(rank)]
        value = _aligned(self._tile(operand), tile[first:], tile)
        return f"{self._matrix(node.attr, across, down)} * {value}", layout.on_tile([*across, *down])

    def _matrix(self, matrix: Matrix, across: list[Axis], down: list[Axis]) -> str:
        """The variable that holds a matrix, with the axes of a product's result and then of its operand."""
        known = self.kernel.fixed
        if matrix not in known:
            columns = self.kernel.plan.equations.hoisted[matrix.weight][-1]
            strides = (1, columns) if matrix.flipped else (columns, 1)
            first, axes = len(self.kernel.layout.on_tile(across)), [*across, *down]
            rank = len(self.kernel.layout.on_tile(axes))
            places = [
                self.kernel.places(across, strides[0], 0, rank),
                self.kernel.places(down, strides[1], first, rank),
            ]
            start = matrix.rows[0] * columns + matrix.cols[0]
            base = f"{self.kernel.pointer(BufferRef.weight(matrix.weight))} + {start} + {' + '.join(places)}"
            mask = " & ".join(self.kernel.inside(axes))
            known[matrix] = f"matrix{len(known)}"
            masked = f", mask={mask}, other=0.0" if mask else ""
            self.kernel.setup.append(f"{known[matrix]} = L.load({base}{masked}).to(L.float32)")
        return known[matrix]


def _aligned(name: str, own: list[int], tile: list[int]) -> str:
    """A tile whose axes are `own`, with an axis of length one for each other of `tile`."""
    if not own or len(tile) == 1:
        return name
    wanted = [i for i in tile if i in own]
    if own != wanted:
        name = f"L.permute({name}, {tuple(own.index(i) for i in wanted)})"
    return name if len(own) == len(tile) else f"{name}[{', '.join(':' if i in own else 'None' for i in tile)}]"


def _needed(node: Node, known: dict[Node, str]) -> list[Node]:
    """What must be written for a node, in order."""
    found: set[Node] = set()
    todo = [node]
    while todo:
        part = todo.pop()
        if part not in found and part not in known:
            found.add(part)
            todo.extend(part.args)
    return sorted(found, key=lambda n: n.index)
