"""Writes the programs of one step: forward with all derivatives, and the advance of the influence.

Three lists of words (words.py): `forward` computes outputs, new states, the rows of derivatives and ∂s'/∂s; `back`
takes the cotangents of the outputs to the old state and to the products; `advance` updates the influence and leaves the
gradient. Where a block of weights reaches whole layers, ∂s'/∂s times its influence is a matrix product by BLAS between
`back` and `advance` (influence.py).
"""

from dataclasses import dataclass, field

from ..ir.values import Unsupported
from .matrix_program import MatrixProgram
from .pattern import MATRIX, OWN, Block
from .phases import phases_of
from .row_program import COTANGENT, FIRST_SHEET, GRADIENT, KEPT
from .structure import Cotangent, Root, StackStructure
from .words import NOWHERE, address


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


class Programs(MatrixProgram):
    """The programs of a structure with its blocks, for `readouts` cotangents per sequence.

    `whole`: ∂s'/∂s is written out as a matrix in any case.
    """

    def __init__(
        self,
        structure: StackStructure,
        blocks: list[Block],
        links: dict,
        shapes: dict,
        readouts: int,
        whole: bool = False,
    ):
        self.blocks = blocks
        self.sheets = self._sheets()
        super().__init__(structure, shapes, len(self.sheets), links, readouts)
        self.kept_at: dict[tuple[Block, Root], int] = {}
        self.kept_size = self.gradient_size = 0
        self.gradient_at: dict[Block, int] = {}
        self._place_blocks()
        mixed = any(use.cotangent.matrix_roots for use in structure.uses)
        self.uses_matrix = whole or bool(self.sheets) or mixed or not self._reads_are_diagonal()
        self.cotangent_columns, self.cotangent_size = structure.readouts, structure.output_size
        self.forward = self._part(self._forward)
        self.phases = phases_of(self.words, self.starts, self.rooms)
        self.back = self._part(self._back)
        self.advance = self._part(self._advance)

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
