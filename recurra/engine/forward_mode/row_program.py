"""Writes the rows of one step: values, outputs, new states, and the rows of derivatives, as words of a program."""

from typing import Any

import torch
from torch import Tensor

from ...cell import TIME
from ..ir.buffers import Role, X
from ..ir.nodes import Matrix, Node, subgraph
from ..ir.values import Unsupported
from ..plan.planner import offsets
from ..trace import OUTPUT
from .structure import Cotangent, StackStructure
from .words import CODE, NOWHERE, OPERATIONS, address, bits

SCRATCH, INPUT, STATE, NEW, POOL, COTANGENT, OUTPUTS, KEPT, GRADIENT = range(9)
FIRST_SHEET = 9  # then for each sheet two regions, the old and the new influence; then the weights


class RowProgram:
    """Words that compute the rows of a step, one after another."""

    def __init__(self, structure: StackStructure, shapes: dict, sheets: int):
        self.structure, self.shapes = structure, shapes  # (cell, weight) → shape
        self.size, self.rooms = 0, list[int]()  # of the scratch; where each part of it begins
        self.pool: list[float] = [1.0, 0.0]
        self.maps: list[Tensor] = []
        self.map_at: dict[Any, int] = {}
        self.words: list[int] = []
        self.starts: list[int] = []  # of each word in `words`
        self.input_row: list[int] = []  # where the input of each cell lies
        self.weight_region = {key: FIRST_SHEET + 2 * sheets + i for i, key in enumerate(shapes)}
        self.places: dict[tuple[int, Node], tuple[int, int]] = {}  # node → its row: address and stride

    def _part(self, write: Any) -> Tensor:
        self.words, self.starts = [], []
        write()
        return torch.tensor(self.words, dtype=torch.int64)

    def emit(self, code: str, *arguments: Any) -> None:
        self.starts.append(len(self.words))
        self.words.append(CODE[code])
        for argument in arguments:
            self.words += argument if isinstance(argument, tuple) else [int(argument)]

    def scratch(self, size: int) -> int:
        at, self.size = self.size, self.size + -(-size // 16) * 16
        self.rooms.append(at)
        return address(SCRATCH, at)

    def _assemble_input(self, k: int) -> None:
        """The input of a cell above the first."""
        s = self.structure
        if k == 0:
            self.input_row.append(address(INPUT, 0))
            return
        first = s.cells[0].input_size if s.depth == "graves" else 0
        row = self.scratch(s.cells[k].input_size)
        if first:
            self.emit("COPY", first, row, (address(INPUT, 0), 1))
        for at, node in offsets(s.steps[k - 1].outputs[OUTPUT]):
            self.emit("COPY", node.width, row + first + at, self.row(k - 1, node))
            if s.depth == "residual" and k > 1:
                below = (self.input_row[k - 1] + at, 1)
                self.emit("ADD_PRODUCT", node.width, row + at, below, (address(POOL, 0), 0))
        self.input_row.append(row)

    def _outputs(self) -> None:
        s = self.structure
        self.emit("ZERO", s.output_size, address(OUTPUTS, 0))
        for k, start in enumerate(s.output_at):
            for at, node in offsets(s.steps[k].outputs[OUTPUT]) if start >= 0 else []:
                row, one = address(OUTPUTS, start + at), (address(POOL, 0), 0)
                self.emit("ADD_PRODUCT", node.width, row, self.row(k, node), one)

    def _new_states(self, k: int) -> None:
        s = self.structure
        for state in s.cells[k].carried:
            at = s.state_at[k, state.name]
            for slot in range(1, max(state.delays or (1,))):
                old = address(STATE, at + (slot - 1) * state.size)
                self.emit("COPY", state.size, address(NEW, at + slot * state.size), (old, 1))
            for first, node in offsets(s.new[k][state.name]):
                self.emit("COPY", node.width, address(NEW, at + first), self.row(k, node))

    def _wanted(self, k: int) -> list[Node]:
        """Every value of cell k that a program reads: results, derivatives, operands."""
        s = self.structure
        wanted = [n for segments in (*s.new[k].values(), s.steps[k].outputs[OUTPUT]) for n in segments]
        for cotangent in self._cotangents():
            rows = [*cotangent.diagonal.items(), *cotangent.columns.items()]
            wanted += [node for root, node in rows]
            for kind, _, *rest in cotangent.sources:
                wanted += (
                    [rest[0]] if kind == "scaled" else [rest[1]] if kind == "gather" and rest[1] is not None else []
                )
        wanted += [use.operand for use in s.uses if use.operand is not None]
        return [node for node in dict.fromkeys(wanted) if node.builder is s.steps[k].builder]

    def _cotangents(self) -> list[Cotangent]:
        s = self.structure
        todo = [use.cotangent for use in s.uses] + [read.cotangent for read in s.reads] + list(s.inputs.values())
        found: dict[Cotangent, None] = {}
        while todo:
            cotangent = todo.pop()
            if cotangent not in found:
                found[cotangent] = None
                todo += [source for _, source, *_ in cotangent.sources]
        return list(found)

    def _cell_rows(self, k: int) -> None:
        builder, wanted = self.structure.steps[k].builder, self._wanted(k)
        plain = builder.expand_composites(wanted)
        for node in subgraph([plain[n] for n in wanted]):
            self.places[k, node] = self._node(k, node)
        for node in wanted:
            self.places[k, node] = self.places[k, plain[node]]

    def row(self, k: int, node: Node) -> tuple[int, int]:
        return self.places[k, node]

    def _node(self, k: int, node: Node) -> tuple[int, int]:
        """Emit the computation of a node whose arguments are placed; its row."""
        if node.op == "load":
            return self._load(k, node), int(node.width > 1)
        if node.op == "const":
            return self._constants([node.attr]), 0
        if node.op == "literal":
            return self._constants(node.attr), 1
        if node.op == "weight":
            v = node.attr
            ld = self.shapes[k, v.weight][-1] if v.col is not None else 1
            at = v.rows[0] * ld + (v.col or 0)
            copy = self.scratch(node.width)  # later steps of a chunk ask for the weight that this step had
            self.emit("COPY", node.width, copy, (address(self.weight_region[k, v.weight], at), ld))
            return copy, int(node.width > 1)
        if node.op == "expand" and self.row(k, node.args[0])[1] == 0:
            return self.row(k, node.args[0])
        y = self.scratch(node.width)
        rows = [self.row(k, argument) for argument in node.args]
        if node.op == "product":
            self._product(k, node, y, rows[0])
        elif node.op == "rowsum":
            self.emit("ROWMAX" if node.attr == "max" else "ROWSUM", node.args[0].width, y, rows[0])
        elif node.op == "concat":
            for (at, part), row in zip(offsets(node.args), rows, strict=True):
                self.emit("COPY", part.width, y + at, row)
        elif node.op == "gather":
            maps = [self._map(m) for m in node.attr.maps]
            other = (maps[1], rows[1]) if len(rows) == 2 else (NOWHERE, (NOWHERE, 0))
            self.emit("GATHER", node.width, y, maps[0], node.attr.terms, rows[0], *other, node.attr.kind == "max")
        elif node.is_elementwise:
            self._elementwise(node, y, rows)
        else:
            raise Unsupported(f"{node.op} in a program of derivatives")
        return y, int(node.width > 1)

    def _load(self, k: int, node: Node) -> int:
        load = node.attr
        if load.buffer == X:
            return self.input_row[k] + load.offset
        if load.buffer.role is Role.MASK:
            mask = self.structure.cells[k].drawn_inputs()[load.buffer.name]
            return self._constants([mask.mean] * node.width)
        if load.buffer.name == TIME:
            return address(STATE, self.structure.state_at[k, TIME])
        return address(STATE, self.structure.column(k, node))

    def _constants(self, numbers: Any) -> int:
        at = len(self.pool)
        self.pool += [float(number) for number in numbers]
        return address(POOL, at)

    def _map(self, index: Any) -> int:
        if index not in self.map_at:
            self.map_at[index] = sum(m.numel() for m in self.maps)
            self.maps.append(index.places.to(torch.int32).reshape(-1))
        return self.map_at[index]

    def _matrix(self, k: int, matrix: Matrix) -> tuple[int, int]:
        """Address and leading dimension of a block of a weight matrix."""
        ld = self.shapes[k, matrix.weight][-1]
        return address(self.weight_region[k, matrix.weight], matrix.rows[0] * ld + matrix.cols[0]), ld

    def _product(self, k: int, node: Node, y: int, row: tuple[int, int]) -> None:
        matrix: Matrix = node.attr
        if row[1] != 1 and matrix.deep > 1:
            copy = self.scratch(matrix.deep)
            self.emit("COPY", matrix.deep, copy, row)
            row = copy, 1
        at, ld = self._matrix(k, matrix)
        self.emit("PRODUCT", y, row[0], at, ld, matrix.wide, matrix.deep, matrix.flipped)

    def _elementwise(self, node: Node, y: int, rows: list[tuple[int, int]]) -> None:
        numbers = node.attr if node.op == "clamp" else (node.attr, None) if isinstance(node.attr, float | int) else ()
        low, high = numbers or (None, None)
        flags = (low is not None) + 2 * (high is not None)
        padded = [*rows, *[(NOWHERE, 0)] * (3 - len(rows))]
        attributes = bits(low or 0.0), bits(high or 0.0)
        self.emit("ELEMENTWISE", OPERATIONS[node.op], node.width, y, *padded, *attributes, flags)

    def operand(self, use: Any) -> tuple[int, int]:
        """The row that a weight is multiplied by."""
        return (address(POOL, 0), 0) if use.operand is None else self.row(use.cell, use.operand)
