"""A schedule → what a single step consists of: products for torch, and after them one plain Triton kernel a group.

No kernel here waits for another, so any card can run them in any grid. What a step hands on to itself, to the next and
to products lies on shelves of `window.py`. What belongs to the caller is found through a table of addresses, so that a
graph of these kernels holds none of them.
"""

from collections.abc import Iterator

import torch

from ....cell import TIME
from ...ir.buffers import CLOCK, INPUT_PROJECTION, SUMS, BufferKind, BufferRef, Role
from ...ir.lowering import Unsupported
from ...ir.nodes import Matrix, Node, Vector, is_whole
from ...plan.program import Out, Plan
from ...plan.schedule import Group, Schedule
from ..buffers import ProgramBuffers
from ..math_functions import expression, number, preamble
from ..persistent.tiling import is_x
from .stages import ROWS, Multiplication, Shelf, ShelfRef, ShelfRole, ShelfSpot, Spot, Stage, Stepwise


def render(schedule: Schedule, plan: Plan, backward: bool, trains: bool, dtype: torch.dtype) -> Stepwise:
    return _Writer(ProgramBuffers(schedule, plan, backward, trains), dtype).run()


class _Writer:
    def __init__(self, buffers: ProgramBuffers, dtype: torch.dtype):
        self.buffers, self.schedule, self.dtype = buffers, buffers.schedule, dtype
        groups = self.schedule.groups
        self.made: dict[Node, Out] = {}
        for out in (o for g in groups for o in g.stores):
            self.made.setdefault(out.node, out)
        self.handed_on = {node for g in groups for node in g.loads}
        self.users = self._users()
        spots = [spot for found in self.users.values() for spot in found]
        self.margins = {buffer: [shift for b, shift, _ in spots if b == buffer] for buffer, _, _ in spots}
        self.homes = self._side_by_side()
        self.shelves: dict[ShelfRef, Shelf] = {}
        self.outside: list[BufferRef] = []
        self.carried: dict[tuple[ShelfRef, BufferRef, int, int], None] = {}
        self.written: set[BufferRef] = set()
        self.lanes: list[tuple[Node, int]] = []
        self.lane_columns = sum(lane.width for g in groups for lane in g.lanes if any(map(is_x, lane.args)))
        self.products: dict[int, list[Multiplication]] = {}  # by the number of the group
        self.parts: dict[Node, list[tuple[ShelfRef, int]]] = {}  # of a lane: shelves and columns that add up to it
        self.stages: list[Stage] = []

    def run(self) -> Stepwise:
        self._plan_products()
        for group in self.schedule.groups:
            self._group(group)
        for low, high, buffer in self._carried_reads():
            self._check_carried(buffer, low, high)
        lines = self._head() + [line for stage in self.stages for line in stage.function()]
        return Stepwise(
            "\n".join(lines) + "\n",
            self.stages,
            self.shelves,
            self.outside,
            list(self.carried),
            self.written,
            self.lanes,
        )

    # ------------------------------------------------------------------------------------------ memory

    def _spot(self, operand: Node) -> Spot:
        if operand.op != "load":
            out = self.made[operand]
            return out.buffer, 0, out.offset
        at = operand.attr
        if at.buffer.role is Role.STATE:
            return at.buffer, -at.lag, at.offset
        if at.buffer.role is Role.PAST:
            return at.buffer.memory, -at.buffer.lag, at.offset
        return at.buffer, at.lag, at.offset

    def _side_by_side(self) -> dict[BufferRef, tuple[ShelfRef, int]]:
        """Buffers whose values are multiplied: on which shelf each lies, and from which column on. Those that are
        multiplied at the same distances share one: operands side by side are multiplied as one where they can be."""
        alike: dict[tuple, list[BufferRef]] = {}
        for buffer, shifts in self.margins.items():
            key = (buffer,) if buffer.role is Role.SCRATCH else (min(shifts), max(shifts))
            alike.setdefault(key, []).append(buffer)
        homes = {}
        for buffers in alike.values():
            shelf, column = ShelfRef(ShelfRole.OPERANDS, tuple(buffers)), 0
            for buffer in buffers:
                homes[buffer] = shelf, column
                column += self._width(buffer)
        return homes

    def _shelf(self, buffer: BufferRef) -> tuple[ShelfRef, int]:
        """That of a buffer whose values are multiplied, put up when first asked for, and its first column there."""
        ref, column = self.homes[buffer]
        if ref not in self.shelves:
            shifts = self.margins[buffer]
            holds = tuple((b, self.homes[b][1], self._width(b)) for b in ref.buffers)
            slots, before, after = int(buffer.role is Role.SCRATCH), max(0, -min(shifts)), max(0, *shifts, 0)
            self.shelves[ref] = Shelf(sum(w for _, _, w in holds), slots, before, after, wide=False, holds=holds)
        return ref, column

    def _width(self, buffer: BufferRef) -> int:
        if buffer == INPUT_PROJECTION:
            return self.lane_columns
        spec = self.schedule.buffers.get(buffer)
        return spec.width if spec else self.buffers.states[buffer.name].size

    def _new_shelf(self, ref: ShelfRef, shelf: Shelf) -> ShelfRef:
        self.shelves.setdefault(ref, shelf)
        return ref

    def _pointer(self, ref: ShelfRef) -> str:
        arguments = self.stages[-1].arguments
        if ref not in arguments:
            arguments.append(ref)
        return f"a{arguments.index(ref)}"

    def _place(self, ref: ShelfRef, offset: int, slot: str = "") -> str:
        """This program's columns on a shelf."""
        shelf = self.shelves[ref]
        first = slot or ("" if shelf.slots else f"at + {shelf.before} * batch")
        rows = f"({first} + row)" if first else "row"
        return f"{self._pointer(ref)} + {rows} * {shelf.width} + {offset} + col"

    def _on_shelf(self, ref: ShelfRef, offset: int, width: int, slot: str = "") -> str:
        """A single column is read by everybody."""
        place = self._place(ref, offset, slot)
        return f"read({place}, here)" if width > 1 else f"read({place.removesuffix(' + col')}, live)"

    def _far(self, buffer: BufferRef) -> str:
        """A pointer to what is not the window's own. The caller sees to it that it begins at sixteen bytes."""
        if buffer not in self.outside:
            self.outside.append(buffer)
        number, known = self.outside.index(buffer), self.stages[-1].looked_up
        wide = buffer == BufferRef.initial(TIME) or buffer.role is Role.CARRY
        kind = "float64" if buffer == SUMS else "float32" if wide else str(self.dtype).removeprefix("torch.")
        line = f"p{number} = L.multiple_of(L.load(table + {number}).to(L.pointer_type(L.{kind})), 16)  # {buffer}"
        if line not in known:
            known.append(line)
        return f"p{number}"

    def _from_outside(self, buffer: BufferRef, offset: int, width: int, shift: int = 0) -> str:
        """What another step wrote, or somebody else: before the first step initial values, after the last zeros."""
        size, rows, mask = self._width(buffer), "(far + row)", "here" if width > 1 else "live"
        base, spec = self._far(buffer), self.schedule.buffers.get(buffer)
        if spec is not None and spec.kind is BufferKind.PER_SEQUENCE:
            rows = "row"
        elif shift < 0:
            initial = self._far(BufferRef.initial(buffer.name))
            start = f"{initial} + L.cast({-shift - 1} - t, L.int64) * batch * {size}"
            base, rows = f"choose(t >= {-shift}, {base} + (far - {-shift} * batch) * {size}, {start})", "row"
        elif shift > 0:
            rows, mask = f"(far + {shift} * batch + row)", f"{mask} & (t + {shift} < steps)"
        return f"read({base} + {rows} * {size} + {offset}{' + col' if width > 1 else ''}, {mask})"

    def _carried_reads(self) -> Iterator[tuple[int, int, BufferRef]]:
        for node in (n for g in self.schedule.groups for n in g.body):
            if node.op == "load" and self.buffers.stays(node.attr.buffer):
                yield node.attr.offset, node.attr.offset + node.width, node.attr.buffer

    def _check_carried(self, buffer: BufferRef, low: int, high: int) -> None:
        written = {c for _, b, at, width in self.carried if b == buffer for c in range(at, at + width)}
        if not written >= set(range(low, high)):
            raise Unsupported("a state that is written and read in different pieces")

    # ------------------------------------------------------------------------------------------ a group

    def _group(self, group: Group) -> None:
        stage = len(self.stages)
        self.stages.append(Stage(f"group{stage}", group.width, self.products.get(stage, [])))
        self.names: dict[Node, str] = {}
        self._sums_of_products(group)
        for node in group.body:
            if node not in self.names:
                self._value(node, group)
        for out in group.stores:
            self._store(out)
        for node in dict.fromkeys(o.node for o in group.stores if o.node in self.handed_on):
            self._line(f"write({self._place(self._handed(node), 0)}, {self.names[node]} + zero, here)")
        for q, node in group.sums:
            self._sum(q, node)
        for node in group.rowsums:
            self._row_sum(node)

    def _line(self, text: str) -> None:
        self.stages[-1].lines.append(text)

    def _users(self) -> dict[int, dict[Spot, list[tuple[Node, Matrix]]]]:
        """By the group before which it is multiplied, each operand and who wants it times what. What is there before
        the step is multiplied at its beginning, once for the lanes of all groups."""
        users: dict[int, dict[Spot, list[tuple[Node, Matrix]]]] = {}
        for stage, group in enumerate(self.schedule.groups):
            for lane in group.lanes:
                for operand, matrix in zip(lane.args, lane.attr, strict=True):
                    if not is_x(operand):
                        home = users.setdefault(0 if operand.op == "load" else stage, {})
                        home.setdefault(self._spot(operand), []).append((lane, matrix))
        return users

    def _plan_products(self) -> None:
        for stage, found in self.users.items():
            on_shelves = {}
            for (buffer, shift, offset), pairs in found.items():
                shelf, column = self._shelf(buffer)
                on_shelves[shelf, shift, column + offset] = pairs
            self.products[stage] = [
                self._product(ShelfRef(ShelfRole.PRODUCT, numbers=(stage, i)), *operand)
                for i, operand in enumerate(_merged(on_shelves))
            ]

    def _product(self, into: ShelfRef, spot: ShelfSpot, users: list[tuple[Node, list[Matrix]]]) -> Multiplication:
        column = 0
        for lane, _ in users:
            self.parts.setdefault(lane, []).append((into, column))
            column += lane.width
        self._new_shelf(into, Shelf(column, slots=1))
        return Multiplication(*spot, tuple(tuple(matrices) for _, matrices in users), into)

    def _sums_of_products(self, group: Group) -> None:
        for lane in group.lanes:
            parts = [self._on_shelf(into, column, lane.width) for into, column in self.parts.get(lane, [])]
            if any(is_x(a) for a in lane.args):
                column = sum(earlier.width for earlier, _ in self.lanes)
                self.lanes.append((lane, column))
                parts.append(self._from_outside(INPUT_PROJECTION, column, lane.width))
            self._named(lane, " + ".join(parts))

    # ------------------------------------------------------------------------------------------ values

    def _named(self, node: Node, text: str) -> None:
        self.names[node] = f"n{node.index}"
        self._line(f"n{node.index} = {text}")

    def _value(self, node: Node, group: Group) -> None:
        if node in group.loads:
            self._named(node, self._on_shelf(self._handed(node), 0, node.width))
        elif node.op == "const":
            self.names[node] = number(node.attr)
        elif node.op == "expand":
            self.names[node] = self.names[node.args[0]]
        elif node.op == "weight":
            self._vector(node)
        elif node.op == "load":
            self._load(node)
        elif node.op == "rowsum":
            slot, largest = self._row_sum_shelf(node), node.attr == "max"
            count = self.shelves[slot].width
            sizes = f"{count}, {1 << (count - 1).bit_length()}, {largest}, {ROWS}"
            self._named(node, f"parts_total({self._pointer(slot)}, first_row, batch, {sizes})")
        else:
            self._named(node, expression(node.op, node.attr, [self.names[a] for a in node.args]))

    def _vector(self, node: Node) -> None:
        vector: Vector = node.attr
        columns = self.buffers.plan.equations.hoisted[vector.weight][-1:] or (1,)
        stride, first = (1, 0) if vector.col is None else (columns[0], vector.col)
        place = f"{self._far(BufferRef.weight(vector.weight))} + {vector.rows[0] * stride + first}"
        if node.width == 1:
            self._named(node, f"L.load({place}).to(L.float32)")
        else:
            self._named(node, f"read({place} + col * {stride}, col < {node.width})")

    def _load(self, node: Node) -> None:
        at = node.attr
        if self.buffers.state_of(node) == TIME:
            late = self.buffers.backward and not at.buffer.lag
            self._named(node, f"read({self._far(BufferRef.initial(TIME))} + row, live) + t{' + 1' if late else ''}")
        elif self.buffers.stays(at.buffer):
            self._named(node, self._on_shelf(self._ring(at.buffer), at.offset, node.width, slot="now"))
        else:
            buffer, shift, offset = self._spot(node)
            text = self._from_outside(buffer, offset, node.width, shift)
            self._named(node, f"L.where(t == end - 1, {text}, 0.0)" if at.start else text)

    def _ring(self, buffer: BufferRef) -> ShelfRef:
        """Two slots in which a state is carried from step to step, in turn."""
        return self._new_shelf(ShelfRef(ShelfRole.RING, (buffer,)), Shelf(self.buffers.size(buffer), slots=2))

    def _handed(self, node: Node) -> ShelfRef:
        """What a later group of the step reads, in 32 bits."""
        return self._new_shelf(ShelfRef(ShelfRole.HANDED, numbers=(node.index,)), Shelf(node.width, slots=1))

    # ------------------------------------------------------------------------------------------ results

    def _filled(self, node: Node) -> str:
        """A value as a full tile, whatever it was."""
        spread = node.is_leaf or not is_whole(node)
        return f"({self.names[node]} + zero)" if spread else self.names[node]

    def _store(self, out: Out) -> None:
        if out.buffer == CLOCK:
            return
        width, value = out.node.width, self._filled(out.node)
        if self.buffers.stays(out.buffer):
            ring = self._ring(out.buffer)
            before = self._on_shelf(ring, out.offset, width, slot="now")
            self._line(f"write({self._place(ring, out.offset, 'next')}, L.where(run, {value}, {before}), here)")
            self.carried[ring, out.buffer, out.offset, width] = None
        if self.buffers.only_carried(out.buffer, set(self.margins)):
            return
        value = f"L.where(run, {value}, 0.0)"
        if out.buffer in self.margins:
            shelf, column = self._shelf(out.buffer)
            self._line(f"write({self._place(shelf, column + out.offset)}, {value}, here)")
            self.written.add(out.buffer)
        if out.buffer.role is not Role.SCRATCH:
            place = f"{self._far(out.buffer)} + (far + row) * {self._width(out.buffer)} + {out.offset} + col"
            self._line(f"write({place}, {value}, here)")

    def _sum(self, q: int, node: Node) -> None:
        start, total = (sum(n.width for _, n in sums) for sums in (self.schedule.sums[:q], self.schedule.sums))
        place = f"{self._far(SUMS)} + L.program_id(0) * {total} + {start}"
        value = f"L.where(run & here, {self._filled(node)}, 0.0)"
        self._line(f"add_sum({place}, {value}, {node.width}, first_column, {ROWS}, {self.stages[-1].columns})")

    def _row_sum_shelf(self, node: Node) -> ShelfRef:
        """A number for each program that has a part of the row."""
        count = Stage("", node.args[0].width).programs
        ref = ShelfRef(ShelfRole.ROW_SUM, numbers=(self.schedule.rowsums.index(node),))
        return self._new_shelf(ref, Shelf(count, slots=1))

    def _row_sum(self, node: Node) -> None:
        slot, largest = self._row_sum_shelf(node), node.attr == "max"
        value = f"across({self._filled(node.args[0])}, here, {largest}, {ROWS}, {self.stages[-1].columns}, 1)"
        place = f"{self._pointer(slot)} + row * {self.shelves[slot].width} + L.program_id(1)"
        self._line(f"write({place}, {value}, live)")

    def _head(self) -> list[str]:
        return [
            "from recurra.engine.gpu.tiles_triton import *",
            "from recurra.engine.gpu.tiles_triton import L, constexpr, jit",
            "",
            preamble(exact=self.dtype == torch.float32),
            "",
            "",
            f"@jit(do_not_specialize={[f'a{i}' for i in range(len(self.outside))]})",
            f"def addresses({', '.join([*(f'a{i}' for i in range(len(self.outside))), 'table'])}):",
            *(f"    L.store(table + {i}, a{i}.to(L.int64))  # {buffer}" for i, buffer in enumerate(self.outside)),
            *([] if self.outside else ["    pass"]),
        ]


def _merged(
    users: dict[ShelfSpot, list[tuple[Node, Matrix]]],
) -> list[tuple[ShelfSpot, list[tuple[Node, list[Matrix]]]]]:
    """Operands that lie side by side and go to the same lanes, as one: where it begins, and the lanes with what they
    multiply its pieces by."""
    found: list[tuple[ShelfSpot, list[tuple[Node, list[Matrix]]]]] = []
    end: ShelfSpot | None = None
    for (shelf, shift, offset), pairs in sorted(users.items(), key=lambda item: (str(item[0][0]), *item[0][1:])):
        if (shelf, shift, offset) == end and [lane for lane, _ in found[-1][1]] == [lane for lane, _ in pairs]:
            for (_, pieces), (_, matrix) in zip(found[-1][1], pairs, strict=True):
                pieces.append(matrix)
        else:
            found.append(((shelf, shift, offset), [(lane, [matrix]) for lane, matrix in pairs]))
        end = shelf, shift, offset + pairs[0][1].deep
    return found
