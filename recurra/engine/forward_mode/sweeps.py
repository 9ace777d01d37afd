"""Writes two programs beside that of a step: cotangents back through it, and a tangent forward through it.

Both multiply with the derivatives of the step and write no matrix of them: they cost what the step costs.
"""

from ..ir.nodes import Matrix, Node
from .program import Programs
from .row_program import POOL
from .structure import Cotangent
from .words import NOWHERE, address

PULLED = 2  # cotangents taken back at once: that of the loss, and that of random signs
ONE = address(POOL, 0), 0


class SweepPrograms(Programs):
    """`forward` computes the step and the rows of its derivatives, `back` and `advance` use them.

    `back` takes cotangents of the roots, (PULLED, rows), to the old state and to all products; `advance` takes tangents
    of the old state and of products to the roots.
    """

    def _place_blocks(self) -> None:
        """No influence is kept."""

    def _forward(self) -> None:
        self.uses_matrix = False
        for k in range(len(self.structure.cells)):
            self._assemble_input(k)
            self._cell_rows(k)
            self._new_states(k)
        self._outputs()

    # ------------------------------------------------------------------------------------------ back

    def _back(self) -> None:
        s, n = self.structure, self.structure.state_size
        self.root_cotangents, self.state_cotangents = self.scratch(PULLED * s.row_count), self.scratch(PULLED * n)
        self.emit("ZERO", PULLED * n, self.state_cotangents)
        for use in s.uses:
            self.matrix(use.cotangent)
        for read in s.reads:
            source, width = self._matrix_of(read.cotangent)[0], read.cotangent.width
            self._add_columns(self.state_cotangents + read.at, n, source, width, width)
        for root in s.roots:
            if root.moved_from >= 0:
                source = self.root_cotangents + root.at
                self._add_columns(self.state_cotangents + root.moved_from, n, source, s.row_count, root.width)

    def _add_columns(self, to: int, to_ld: int, source: int, source_ld: int, width: int) -> None:
        self.emit("ADD_SCALED_COLUMNS", to, to_ld, source, source_ld, PULLED, width, ONE)

    def matrix(self, cotangent: Cotangent) -> tuple[int, int, int]:
        """Emit a cotangent from those of the roots, (PULLED, width). Its sources come before it in `matrices`."""
        if cotangent not in self.matrices:
            at = self.scratch(PULLED * cotangent.width)
            self.emit("ZERO", PULLED * cotangent.width, at)
            self._fill(cotangent, at, cotangent.width, 0)
            self.matrices[cotangent] = at, 0, PULLED
        return self.matrices[cotangent]

    def _fill(self, cotangent: Cotangent, at: int, ld: int, low: int) -> None:
        rows = self.structure.row_count
        for root, node in cotangent.diagonal.items():
            given = self.root_cotangents + root.at, rows
            self.emit("BACK_DIAGONAL", PULLED, root.width, at, ld, *given, self.row(root.cell, node))
        for root, node in cotangent.columns.items():
            given = self.root_cotangents + root.at, rows
            self.emit("SUM_SCALED_COLUMNS", at, ld, *given, PULLED, root.width, self.row(root.cell, node))
        for kind, source, *rest in cotangent.sources:
            getattr(self, f"_from_{kind}")(cotangent, source, at, ld, low, *rest)

    def _from_product(self, to: Cotangent, u: Cotangent, at: int, ld: int, low: int, k: int, matrix: Matrix) -> None:
        source, (weight, weight_ld) = self._matrix_of(u)[0], self._matrix(k, matrix)
        sizes = matrix.wide, matrix.deep, matrix.flipped
        self.emit("MULTIPLY", at, ld, source, u.width, PULLED, weight, weight_ld, *sizes)

    # ------------------------------------------------------------------------------------------ forward

    def _advance(self) -> None:
        s = self.structure
        self.state_tangent, self.root_tangents = self.scratch(s.state_size), self.scratch(s.row_count)
        self.tangents, first = {}, self.size
        for cotangent in self.matrices:
            self.tangents[cotangent] = self.scratch(cotangent.width)
        self.tangent_rows, self.tangent_size = address(0, first), self.size - first
        self.emit("ZERO", s.row_count, self.root_tangents)
        for read in s.reads:
            self._add(self.tangents[read.cotangent], read.cotangent.width, (self.state_tangent + read.at, 1))
        for root in s.roots:
            if root.moved_from >= 0:
                self._add(self.root_tangents + root.at, root.width, (self.state_tangent + root.moved_from, 1))
        for cotangent in reversed(self.matrices):  # what it comes from is after it
            self._push(cotangent)

    def _add(self, to: int, width: int, row: tuple[int, int], factor: tuple[int, int] = ONE) -> None:
        self.emit("ADD_PRODUCT", width, to, row, factor)

    def _push(self, u: Cotangent) -> None:
        """The tangent of a value → of the roots, and of the values that are made of it."""
        own = self.tangents[u]
        for root, node in u.diagonal.items():
            self._add(self.root_tangents + root.at, root.width, (own, 1), self.row(root.cell, node))
        for root, node in u.columns.items():
            self._add(self.root_tangents + root.at, root.width, (own, 0), self.row(root.cell, node))
        for kind, made, *rest in u.sources:
            to = self.tangents[made]
            if kind == "product":
                k, matrix = rest
                row = self.scratch(matrix.wide)
                sizes = matrix.wide, matrix.deep, matrix.flipped
                self.emit("PRODUCT", row, own, *self._matrix(k, matrix), *sizes)
                self._add(to, matrix.wide, (row, 1))
            elif kind == "scaled":
                self._add(to, made.width, (own, int(u.width == made.width)), self._row_of(rest[0]))
            elif kind == "columns":
                first, mine, count = rest
                self._add(to + first, count, (own + mine, 1))
            elif kind == "spread":
                row = self.scratch(1)
                self.emit("ROWSUM", u.width, row, (own, 1))
                self._add(to, 1, (row, 1))
            else:  # "gather"
                here, other, its = rest
                row, beside = self.scratch(made.width), (NOWHERE, (NOWHERE, 0))
                if other is not None:
                    beside = self._map(its), self._row_of(other)
                self.emit("GATHER", made.width, row, self._map(here), here.terms, (own, 1), *beside, False)
                self._add(to, made.width, (row, 1))

    def _row_of(self, node: Node) -> tuple[int, int]:
        k = next(k for k, step in enumerate(self.structure.steps) if step.builder is node.builder)
        return self.row(k, node)
