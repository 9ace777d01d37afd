"""Writes what mixes units: cotangents that are matrices, and ∂s'/∂s, in full or its diagonals alone."""

from typing import Any

from ..ir.nodes import Matrix, Node
from ..ir.values import Unsupported
from .row_program import POOL, RowProgram
from .structure import Cotangent, Root, StackStructure
from .words import NOWHERE, address


class MatrixProgram(RowProgram):
    """Rows, and the matrices that are made of them. `uses_matrix`: ∂s'/∂s is written out."""

    uses_matrix: bool

    def __init__(self, structure: StackStructure, shapes: dict, sheets: int, links: dict, readouts: int):
        super().__init__(structure, shapes, sheets)
        self.links, self.readouts = links, readouts
        self.matrices: dict[Cotangent, tuple[int, int, int]] = {}  # → address, first and last root row
        self.jacobian, self.jacobian_ld = NOWHERE, structure.state_size

    def _forward(self) -> None:
        s = self.structure
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
