"""Writes the programs of one step: forward with all derivatives, and the advance of the influence.

Three lists of words (words.py): `forward` computes outputs, new states, the rows of derivatives and ∂s'/∂s; `back`
takes the cotangents of the outputs to the old state and to the products; `advance` updates the influence and leaves the
gradient. Where a block of weights reaches whole layers, ∂s'/∂s times its influence is a matrix product by BLAS between
`back` and `advance` (influence.py).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...cell import TIME
from ..ir.buffers import Role, X
from ..ir.nodes import Matrix, Node, subgraph
from ..ir.values import Unsupported
from ..plan.planner import offsets
from ..trace import OUTPUT
from .pattern import MATRIX, OWN, Block
from .structure import Cotangent, Root, StackStructure
from .words import CODE, NOWHERE, OPERATIONS, address, bits

SCRATCH, INPUT, STATE, NEW, POOL, COTANGENT, OUTPUTS, KEPT, GRADIENT = range(9)
FIRST_SHEET = 9  # then for each sheet two regions, the old and the new influence; then the weights


@dataclass(eq=False)
class Sheet:
    """Blocks that influence the same roots in full: one matrix, readouts and rows of the carried roots × weights."""

    roots: list[Root]  # carried ones
    reached: list[Root]  # and outputs
    blocks: list[Block]
    at: dict[Block, int] = field(default_factory=dict)  # its first column

    @property
    def rows(self) -> int:
        return sum(root.width for root in self.roots)

    @property
    def columns(self) -> int:
        return sum(block.size for block in self.blocks)

    def row(self, root: Root) -> int:
        return sum(r.width for r in self.roots[: self.roots.index(root)])


class Programs:
    """The programs of a structure with its blocks, for `readouts` cotangents per sequence.

    `whole`: ∂s'/∂s is written out as a matrix in any case.
    """

    def __init__(
        self,
        structure: StackStructure,
        blocks: list[Block],
        links: dict,
        weights: dict,
        readouts: int,
        whole: bool = False,
    ):
        self.structure, self.blocks, self.links, self.readouts = structure, blocks, links, readouts
        self.shapes = weights  # (cell, weight) → shape
        self.size = 0  # of the scratch
        self.pool: list[float] = [1.0, 0.0]
        self.maps: list[Tensor] = []
        self.map_at: dict[Any, int] = {}
        self.words: list[int] = []
        self.sheets = self._sheets()
        self.weight_region = {key: FIRST_SHEET + 2 * len(self.sheets) + i for i, key in enumerate(weights)}
        self.kept_at: dict[tuple[Block, Root], int] = {}
        self.kept_size = self.gradient_size = 0
        self.gradient_at: dict[Block, int] = {}
        self._place_blocks()
        mixed = any(use.cotangent.matrix_roots for use in structure.uses)
        self.uses_matrix = whole or bool(self.sheets) or mixed or not self._reads_are_diagonal()
        self.cotangent_columns, self.cotangent_size = structure.readouts, structure.output_size
        self.places: dict[tuple[int, Node], tuple[int, int]] = {}  # node → its row: address and stride
        self.matrices: dict[Cotangent, tuple[int, int, int]] = {}  # → address, first and last root row
        self.forward = self._part(self._forward)
        self.back = self._part(self._back)
        self.advance = self._part(self._advance)

    def _part(self, write: Any) -> Tensor:
        self.words = []
        write()
        return torch.tensor(self.words, dtype=torch.int64)

    def emit(self, code: str, *arguments: Any) -> None:
        self.words.append(CODE[code])
        for argument in arguments:
            self.words += argument if isinstance(argument, tuple) else [int(argument)]

    def scratch(self, size: int) -> int:
        at, self.size = self.size, self.size + -(-size // 16) * 16
        return address(SCRATCH, at)

    # ------------------------------------------------------------------------------------------ where blocks are kept

    def _sheets(self) -> list[Sheet]:
        groups: dict[tuple[Root, ...], list[Block]] = {}
        for block in self.blocks:
            if roots := tuple(block.roots(MATRIX)):
                groups.setdefault(roots, []).append(block)
        sheets = [Sheet([r for r in roots if r.carried], list(roots), found) for roots, found in groups.items()]
        for sheet in sheets:
            at = 0
            for block in sheet.blocks:
                sheet.at[block] = at
                at += block.size
        return sheets

    def sheet_of(self, block: Block) -> int | None:
        return next((i for i, sheet in enumerate(self.sheets) if block in sheet.at), None)

    def _place_blocks(self) -> None:
        for block in self.blocks:
            for root in block.kept(OWN):
                self.kept_at[block, root] = self.kept_size
                self.kept_size += block.size
            if block.roots(OWN) or self.sheet_of(block) is None:
                self.gradient_at[block] = self.gradient_size
                self.gradient_size += block.size

    def _reads_are_diagonal(self) -> bool:
        """Whether the diagonals of ∂s'/∂s are found without its matrix: products of weights with the state itself."""

        def simple(cotangent: Cotangent, depth: int = 0) -> bool:
            for kind, source, *rest in cotangent.sources:
                if kind == "product":
                    matrix: Matrix = rest[1]
                    if source.matrix_roots or matrix.wide != matrix.deep or matrix.flipped:
                        return False
                elif kind != "scaled" or depth or not simple(source, 1):
                    return False
            return not cotangent.columns

        carried = {(root.at, root.width) for root in self.structure.roots if root.carried}
        alike = len({root.width for root in self.structure.roots}) == 1
        reads = self.structure.reads
        return alike and all(simple(r.cotangent) and (r.at, r.cotangent.width) in carried for r in reads)

    # ------------------------------------------------------------------------------------------ rows

    def _forward(self) -> None:
        s = self.structure
        self.jacobian_ld = s.state_size
        for k in range(len(s.cells)):
            self._assemble_input(k)
            self._cell_rows(k)
            self._new_states(k)
        self._outputs()
        if self.uses_matrix:
            self.jacobian = self.scratch((self.readouts + s.row_count) * s.state_size)
            self.emit("ZERO", (self.readouts + s.row_count) * s.state_size, self.jacobian)
            for use in s.uses:
                self.matrix(use.cotangent)
            for read in s.reads:
                self._read(read.at, read.cotangent)
            for root in s.roots:
                if root.moved_from >= 0:
                    self._diagonal_of(root, root.moved_from, (address(POOL, 0), 0))
        else:
            self._diagonals()

    def _assemble_input(self, k: int) -> None:
        """The input of a cell above the first."""
        s, self.input_row = self.structure, getattr(self, "input_row", [])
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
            return address(self.weight_region[k, v.weight], at), 0 if node.width == 1 else ld
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
            mask = self.structure.cells[k].masks[load.buffer.name]
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

    # ------------------------------------------------------------------------------------------ matrices

    def matrix(self, cotangent: Cotangent) -> tuple[int, int, int] | None:
        """Emit the part of a cotangent that is a matrix: (address, first root row, last); None without one."""
        if cotangent in self.matrices:
            return self.matrices[cotangent]
        roots = cotangent.matrix_roots
        if not roots:
            return None
        low, high = min(r.at for r in roots), max(r.at + r.width for r in roots)
        at = self.scratch((high - low) * cotangent.width)
        self.emit("ZERO", (high - low) * cotangent.width, at)
        self.matrices[cotangent] = at, low, high
        self._fill(cotangent, at, cotangent.width, low)
        return self.matrices[cotangent]

    def _fill(self, cotangent: Cotangent, at: int, ld: int, low: int) -> None:
        """Add all but the pure rows of a cotangent to a matrix whose first row is root row `low`."""
        pure = cotangent.rows
        for root, node in cotangent.diagonal.items():
            if root not in pure:
                start = at + (root.at - low) * ld
                self.emit("ADD_DIAGONAL", root.width, start, ld + 1, self.row(root.cell, node))
        for root, node in cotangent.columns.items():
            self.emit("ADD_DIAGONAL", root.width, at + (root.at - low) * ld, ld, self.row(root.cell, node))
        for kind, source, *rest in cotangent.sources:
            getattr(self, f"_from_{kind}")(cotangent, source, at, ld, low, *rest)

    def _from_product(self, to: Cotangent, u: Cotangent, at: int, ld: int, low: int, k: int, matrix: Matrix) -> None:
        weight, weight_ld = self._matrix(k, matrix)
        for root, node in u.rows.items():
            start, row = at + (root.at - low) * ld, self.row(root.cell, node)
            self.emit("SCALE_ROWS", matrix.wide, matrix.deep, start, ld, row, weight, weight_ld, matrix.flipped)
        if (found := self.matrix(u)) is not None:
            source, first, last = found
            start, rows = at + (first - low) * ld, last - first
            sizes = weight_ld, matrix.wide, matrix.deep, matrix.flipped
            self.emit("MULTIPLY", start, ld, source, u.width, rows, weight, *sizes)

    def _from_scaled(self, to: Cotangent, v: Cotangent, at: int, ld: int, low: int, node: Node) -> None:
        k = next(k for k, step in enumerate(self.structure.steps) if step.builder is node.builder)
        source, first, last = self._matrix_of(v)
        given = at + (first - low) * ld, ld, source, v.width, last - first, v.width, self.row(k, node)
        self.emit("ADD_SCALED_COLUMNS" if to.width == v.width else "SUM_SCALED_COLUMNS", *given)

    def _from_columns(
        self, to: Cotangent, u: Cotangent, at: int, ld: int, low: int, own: int, mine: int, n: int
    ) -> None:
        source, first, last = self._matrix_of(u)
        one = (address(POOL, 0), 0)
        start = at + (first - low) * ld + mine
        self.emit("ADD_SCALED_COLUMNS", start, ld, source + own, u.width, last - first, n, one)

    def _from_spread(self, to: Cotangent, u: Cotangent, at: int, ld: int, low: int) -> None:
        source, first, last = self._matrix_of(u)
        self.emit("SPREAD_COLUMN", at + (first - low) * ld, ld, source, u.width, last - first, to.width)

    def _from_gather(
        self, to: Cotangent, u: Cotangent, at: int, ld: int, low: int, own: Any, other: Any, its: Any
    ) -> None:
        source, first, last = self._matrix_of(u)
        beside = NOWHERE, (NOWHERE, 0)
        if other is not None:
            k = next(k for k, step in enumerate(self.structure.steps) if step.builder is other.builder)
            beside = self._map(its), self.row(k, other)
        start, rows = at + (first - low) * ld, last - first
        self.emit("SCATTER", start, ld, source, u.width, rows, u.width, self._map(own), own.terms, *beside)

    def _matrix_of(self, cotangent: Cotangent) -> tuple[int, int, int]:
        found = self.matrix(cotangent)
        if found is None:
            raise Unsupported("a cotangent that is no matrix where one is needed")
        return found

    # ------------------------------------------------------------------------------------------ ∂s'/∂s

    def jacobian_row(self, root_row: int) -> int:
        """Where a row of ∂s'/∂s begins; those of the readouts come first."""
        return self.jacobian + (self.readouts + root_row) * self.jacobian_ld

    def _diagonal_of(self, root: Root, column: int, row: tuple[int, int]) -> None:
        start = self.jacobian_row(root.at) + column
        self.emit("ADD_DIAGONAL", root.width, start, self.jacobian_ld + 1, row)

    def _read(self, column: int, cotangent: Cotangent) -> None:
        for root, node in cotangent.rows.items():
            self._diagonal_of(root, column, self.row(root.cell, node))
        self._fill(cotangent, self.jacobian_row(0) + column, self.jacobian_ld, 0)

    def _diagonals(self) -> None:
        """The diagonals of ∂s'/∂s alone: unit j by unit j."""
        self.diagonal_at: dict[tuple[Root, Root], int] = {}
        carried = {root.at: root for root in self.structure.roots if root.carried}
        one = (address(POOL, 0), 0)
        for read in self.structure.reads:
            old, cotangent = carried[read.at], read.cotangent
            for root, node in cotangent.diagonal.items():
                to = self._diagonal(root, old)
                self.emit("ADD_PRODUCT", root.width, to, self.row(root.cell, node), one)
            for kind, source, *rest in cotangent.sources:
                if kind == "product":
                    self._diagonal_of_product(source, rest[0], rest[1], lambda root, old=old: self._diagonal(root, old))
                else:
                    self._diagonal_of_inner(source, rest[0], old)
        for root in carried.values():
            if root.moved_from >= 0:
                to = self._diagonal(root, carried[root.moved_from])
                self.emit("ADD_PRODUCT", root.width, to, one, one)

    def _diagonal(self, new: Root, old: Root) -> int:
        if (new, old) not in self.diagonal_at:
            self.diagonal_at[new, old] = self.scratch(new.width)
            self.emit("ZERO", new.width, self.diagonal_at[new, old])
        return self.diagonal_at[new, old]

    def _diagonal_of_product(self, u: Cotangent, k: int, matrix: Matrix, target: Any) -> None:
        weight, ld = self._matrix(k, matrix)
        for root, node in u.rows.items():
            self.emit("ADD_PRODUCT", root.width, target(root), self.row(root.cell, node), (weight, ld + 1))

    def _diagonal_of_inner(self, v: Cotangent, node: Node, old: Root) -> None:
        rows: dict[Root, int] = {}

        def target(root: Root) -> int:
            if root not in rows:
                rows[root] = self.scratch(root.width)
                self.emit("ZERO", root.width, rows[root])
            return rows[root]

        for _, source, k, matrix in v.sources:
            self._diagonal_of_product(source, k, matrix, target)
        for root, at in rows.items():
            self.emit("ADD_PRODUCT", root.width, self._diagonal(root, old), (at, 1), self.row(root.cell, node))

    def link_row(self, new: Root, old: Root) -> tuple[int, int]:
        """The diagonal of ∂(new)/∂(old), as a row; none where there is no dependence."""
        if (new, old) not in self.links:
            return NOWHERE, 0
        if self.uses_matrix:
            return self.jacobian_row(new.at) + old.at, self.jacobian_ld + 1
        return (self.diagonal_at[new, old], 1) if (new, old) in self.diagonal_at else (NOWHERE, 0)

    # ------------------------------------------------------------------------------------------ back

    def _back(self) -> None:
        """Cotangents of the outputs → of the old state and of products, through the roots that each sheet reaches."""
        s, n = self.structure, self.readouts
        self.back_state: list[int] = []
        self.back_at: dict[tuple[Cotangent, int], int] = {}
        for number, sheet in enumerate(self.sheets):
            q = self.scratch(n * s.state_size) if number else self.jacobian
            self.emit("ZERO", n * s.state_size, q)
            self.back_state.append(q)
            for column, root in self._read_out(sheet.reached):
                given = address(COTANGENT, column), self.cotangent_size
                rows, ld = self.jacobian_row(root.at), self.jacobian_ld
                self.emit("BACK_MATRIX", n, root.width, s.state_size, q, ld, *given, rows, ld)
            for use in (use for block in sheet.blocks for use in block.uses):
                if (use.cotangent, number) not in self.back_at:
                    self.back_at[use.cotangent, number] = self._back_product(use.cotangent, sheet)

    def _read_out(self, roots: list[Root]) -> list[tuple[int, Root]]:
        """(column of the cotangents, root) for those of the roots that are read out."""
        return [(column, root) for column, root in self.cotangent_columns if root in roots]

    def _back_product(self, u: Cotangent, sheet: Sheet) -> int:
        """The cotangent of a product, (readouts, width), through the roots of a sheet."""
        n, rows, found = self.readouts, u.rows, self.matrices.get(u)
        mixed = set(u.matrix_roots)
        columns = [(column, root) for column, root in self._read_out(sheet.reached) if root in rows or root in mixed]
        if not columns:
            return NOWHERE
        to = self.scratch(n * u.width)
        self.emit("ZERO", n * u.width, to)
        for column, root in columns:
            given = address(COTANGENT, column), self.cotangent_size
            if root in rows:
                self.emit("BACK_DIAGONAL", n, u.width, to, u.width, *given, self.row(root.cell, rows[root]))
            elif found is not None:
                at, low, _ = found
                part = at + (root.at - low) * u.width
                self.emit("BACK_MATRIX", n, root.width, u.width, to, u.width, *given, part, u.width)
        return to

    # ------------------------------------------------------------------------------------------ advance

    def _advance(self) -> None:
        for number, sheet in enumerate(self.sheets):
            self._keep_rows(number, sheet)
            for block in sheet.blocks:
                self._from_own(number, sheet, block)
                self._immediate(number, sheet, block)
        for block in self.blocks:
            if block in self.gradient_at:
                self._own(block)
                self._from_sheet(block)

    def sheet_regions(self, number: int) -> tuple[int, int]:
        """Old and new influence; rows of the readouts come first."""
        return FIRST_SHEET + 2 * number, FIRST_SHEET + 2 * number + 1

    def _sheet_row(self, region: int, sheet: Sheet, row: int, column: int = 0) -> int:
        return address(region, (self.readouts + row) * sheet.columns + column)

    def dense_columns(self, sheet: Sheet) -> list[Root]:
        """The old roots of a sheet on which new ones depend in full: those of the product by BLAS."""
        return [old for old in sheet.roots if any(self.links.get((new, old)) == MATRIX for new in sheet.reached)]

    def runs(self, roots: list[Root]) -> list[list[Root]]:
        """Neighbours in the state vector."""
        found: list[list[Root]] = []
        for root in roots:
            if found and found[-1][-1].at + found[-1][-1].width == root.at:
                found[-1].append(root)
            else:
                found.append([root])
        return found

    def _keep_rows(self, number: int, sheet: Sheet) -> None:
        """Old roots on which new ones depend unit by unit: rows are scaled, without a product."""
        before, after = self.sheet_regions(number)
        dense, width = self.dense_columns(sheet), sheet.columns
        for old in sheet.roots:
            if old in dense:
                continue
            source = self._sheet_row(before, sheet, sheet.row(old))
            back = self.back_state[number] + old.at
            readout = address(after, 0)
            self.emit(
                "BACK_MATRIX", self.readouts, old.width, width, readout, width, back, self.jacobian_ld, source, width
            )
            for new in sheet.roots:
                if (new, old) in self.links:
                    to = self._sheet_row(after, sheet, sheet.row(new))
                    self.emit("KEEP_ROWS", old.width, width, to, width, source, width, self.link_row(new, old))

    def operand(self, use: Any) -> tuple[int, int]:
        """The row that a weight is multiplied by."""
        return (address(POOL, 0), 0) if use.operand is None else self.row(use.cell, use.operand)

    def _from_own(self, number: int, sheet: Sheet, block: Block) -> None:
        _, after = self.sheet_regions(number)
        for old in block.kept(OWN):
            sizes, kept = (block.units, block.deep, block.along_units), address(KEPT, self.kept_at[block, old])
            q, ld = self.back_state[number] + old.at, self.jacobian_ld
            self.emit("FROM_OWN", self.readouts, *sizes, address(after, sheet.at[block]), sheet.columns, q, ld, kept)
            for new in block.kept(MATRIX):
                if (new, old) in self.links:
                    to = self._sheet_row(after, sheet, sheet.row(new), sheet.at[block])
                    a = self.jacobian_row(new.at) + old.at
                    self.emit("FROM_OWN", new.width, *sizes, to, sheet.columns, a, ld, kept)

    def _immediate(self, number: int, sheet: Sheet, block: Block) -> None:
        _, after = self.sheet_regions(number)
        sizes = block.units, block.deep, block.along_units
        for use in block.uses:
            u, v = use.cotangent, self.operand(use)
            rows, found = u.rows, self.matrices.get(u)
            for root in block.kept(MATRIX):
                to = self._sheet_row(after, sheet, sheet.row(root), sheet.at[block])
                if root in rows:
                    self.emit("OUTER", *sizes, to, sheet.columns, self.row(root.cell, rows[root]), v)
                elif found is not None and root in u.matrix_roots:
                    part = found[0] + (root.at - found[1]) * u.width
                    self.emit("OUTER_MATRIX", root.width, *sizes, to, sheet.columns, part, u.width, v)
            if (back := self.back_at[u, number]) != NOWHERE:
                to = address(after, sheet.at[block])
                self.emit("OUTER_MATRIX", self.readouts, *sizes, to, sheet.columns, back, u.width, v)

    def _own(self, block: Block) -> None:
        """Carried roots first: their old influence is read, that of outputs is made and used at once."""
        old, roots = block.kept(OWN), [*block.kept(OWN), *(r for r in block.roots(OWN) if not r.carried)]
        kept = [address(KEPT, self.kept_at[block, root]) for root in old]
        jacobian = [self.link_row(new, before) for new in roots for before in old]
        deltas = []
        for root in roots:
            for use in block.uses:
                row = use.cotangent.rows.get(root)
                deltas.append((NOWHERE, 0) if row is None else self.row(root.cell, row))
        operands = [self.operand(use) for use in block.uses]
        read = [self._cotangent_of(root) for root in roots]
        sizes = block.units, block.deep, block.along_units, len(old), len(roots), len(block.uses), self.readouts
        gradient = address(GRADIENT, self.gradient_at[block]), self.gradient_size
        self.emit("OWN", *sizes, *kept, *jacobian, *deltas, *operands, self.cotangent_size, *read, *gradient)

    def _cotangent_of(self, root: Root) -> int:
        columns = [column for column, own in self.cotangent_columns if own is root]
        if len(columns) > 1:
            raise Unsupported("a state that is read out twice")
        return address(COTANGENT, columns[0]) if columns else NOWHERE

    def _from_sheet(self, block: Block) -> None:
        """What an approximation keeps of the influence through other units."""
        number = self.sheet_of(block)
        if number is None:
            return
        sheet, (before, _) = self.sheets[number], self.sheet_regions(number)
        gradient = address(GRADIENT, self.gradient_at[block]), self.gradient_size
        for new in block.roots(OWN):
            for old in block.kept(MATRIX):
                if (new, old) in self.links:
                    kept = address(KEPT, self.kept_at[block, new]) if new.carried else NOWHERE
                    a = self.jacobian_row(new.at) + old.at
                    source = self._sheet_row(before, sheet, sheet.row(old), sheet.at[block])
                    sizes = old.width, block.units, block.deep, block.along_units
                    given = a, self.jacobian_ld, source, sheet.columns, self.readouts, self._cotangent_of(new)
                    self.emit("FROM_SHEET", *sizes, kept, *given, self.cotangent_size, *gradient)


__all__ = ["Programs", "Sheet"]
