"""Matrix products of a program that owns all columns of a row and waits for no other program.

Operands are kept in shared memory, one slot for each piece of a state or of a step's values; all weights are kept in
registers. Tensor cores take sixteen rows, so products are float32 multiply-adds, whatever the layer's dtype.
"""

from ...ir.buffers import BufferRef
from ...ir.nodes import Matrix, Node
from ...plan.program import Out
from ...plan.schedule import Group
from .products import CooperativeProducts
from .tiling import is_x

Piece = tuple[BufferRef, int, int]  # buffer, first column, width


class RowPerProgramProducts(CooperativeProducts):
    """Writes products over shared-memory slots; no buffer is exchanged."""

    def shared_memory_setup(self) -> list[str]:
        return [f"slot{slot} = operand_slot({self.builder.shape})" for slot in self.slots.values()]

    def _find_exchanged(self) -> None:
        """Assign a slot to each operand and write its initial value. No buffer is exchanged."""
        lanes = [lane for g in self.schedule.groups for lane in g.lanes]
        operands = [a for lane in lanes for a in lane.args if not is_x(a)]
        self.slots = {piece: slot for slot, piece in enumerate(dict.fromkeys(map(self._piece, operands)))}
        for buffer, offset, width in dict.fromkeys(self._piece(a) for a in operands if a.op == "load"):
            first = "zero"
            if not self.spec.backward:
                pointer = self.builder.pointer(BufferRef.initial(buffer.name))
                first = self.builder.load(pointer, self.operands.size(buffer), offset, width, "live")
            self.builder.tile_setup.append(self._store_slot((buffer, offset, width), first))

    def _piece(self, operand: Node) -> Piece:
        at = operand.attr if operand.op == "load" else self.made[operand]
        return at.buffer, at.offset, operand.width

    def _store_slot(self, piece: Piece, value: str) -> str:
        slot, width = self.slots[piece], piece[2]
        return f"stored{slot} = store_slot(slot{slot}, {value} + zero, col < {width})"

    def store_operand(self, out: Out, value: str) -> None:
        piece = out.buffer, out.offset, out.node.width
        if piece in self.slots:
            self.builder.step.append(self._store_slot(piece, value))

    def emit(self, group: Group, mark: int) -> None:
        operands = list(dict.fromkeys(a for lane in group.lanes for a in lane.args if not is_x(a)))
        slots = {operand: self.slots[self._piece(operand)] for operand in operands}
        for slot in dict.fromkeys(slots.values()):
            self.builder.step.append(f"part{slot} = load_slot(slot{slot}, stored{slot}, {self.builder.shape})")
        for lane in group.lanes:
            pairs = [(a, m) for a, m in zip(lane.args, lane.attr, strict=True) if not is_x(a)]
            products = [f"vector_matrix(part{slots[operand]}, {self._matrix(matrix)})" for operand, matrix in pairs]
            if products:
                self.builder.step.append(f"n{lane.index} = {' + '.join(products)}")
            self._with_input(lane, bool(products))

    def _matrix(self, matrix: Matrix) -> str:
        """The variable that holds a matrix."""
        pointer, place, strides = self._place(matrix)
        return self._loaded_once(
            f"load_matrix({place}, {strides}, {matrix.wide}, {matrix.deep}, {self.builder.shape})", pointer
        )
