"""Products of a program that has all columns of a row: nobody waits for anybody.

What is multiplied lies in shared memory, in a slot for each piece of a state or of a step's values; all weights lie in
registers. A tensor core would want sixteen rows; a program here multiplies the plain way, in 32 bits whatever the
numbers come in.
"""

from ...ir.buffers import BufferRef
from ...ir.nodes import Matrix, Node
from ...plan.program import Out
from ...plan.schedule import Group
from .products import Products
from .tiling import is_x

Piece = tuple[BufferRef, int, int]  # a buffer, the first column, how many


class Alone(Products):
    def furniture(self) -> list[str]:
        return [f"slot{slot} = room({self.text.shape})" for slot in self.slots.values()]

    def _prepare(self) -> None:
        """A slot for all that products multiply, and what lies there at first. Nobody waits for any of it."""
        lanes = [lane for g in self.schedule.groups for lane in g.lanes]
        operands = [a for lane in lanes for a in lane.args if not is_x(a)]
        self.slots = {piece: slot for slot, piece in enumerate(dict.fromkeys(map(self._piece, operands)))}
        for buffer, offset, width in dict.fromkeys(self._piece(a) for a in operands if a.op == "load"):
            first = "zero"
            if not self.kind.backward:
                pointer = self.text.pointer(BufferRef.initial(buffer.name))
                first = self.text.read(pointer, self.places.size(buffer), offset, width, "live")
            self.text.first.append(self._laid((buffer, offset, width), first))

    def _piece(self, operand: Node) -> Piece:
        at = operand.attr if operand.op == "load" else self.made[operand]
        return at.buffer, at.offset, operand.width

    def _laid(self, piece: Piece, value: str) -> str:
        slot, width = self.slots[piece], piece[2]
        return f"laid{slot} = lay(slot{slot}, {value} + zero, col < {width})"

    def lay(self, out: Out, value: str) -> None:
        piece = out.buffer, out.offset, out.node.width
        if piece in self.slots:
            self.text.step.append(self._laid(piece, value))

    def write(self, group: Group, mark: int) -> None:
        operands = list(dict.fromkeys(a for lane in group.lanes for a in lane.args if not is_x(a)))
        slots = {operand: self.slots[self._piece(operand)] for operand in operands}
        for slot in dict.fromkeys(slots.values()):
            self.text.step.append(f"part{slot} = taken(slot{slot}, laid{slot}, {self.text.shape})")
        for lane in group.lanes:
            pairs = [(a, m) for a, m in zip(lane.args, lane.attr, strict=True) if not is_x(a)]
            products = [f"times(part{slots[operand]}, {self._whole(matrix)})" for operand, matrix in pairs]
            if products:
                self.text.step.append(f"n{lane.index} = {' + '.join(products)}")
            self._with_input(lane, bool(products))

    def _whole(self, matrix: Matrix) -> str:
        """The variable that holds a matrix."""
        pointer, place, strides = self._place(matrix)
        return self._kept(f"whole({place}, {strides}, {matrix.wide}, {matrix.deep}, {self.text.shape})", pointer)
