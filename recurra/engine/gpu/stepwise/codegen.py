"""Generate the work of a single step from a schedule: matrix products for torch, and one Triton kernel per group.

No kernel waits for another, so any card can run them in any grid. Values that pass between groups, steps and products
are kept in buffers of a window (`graphs.py`). The caller's tensors are found through a table of addresses, so that a
captured graph holds none of them.
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
from .gathers import Source, Tables, lines_of
from .stages import (
    LITERALS,
    MAPS,
    ROWS,
    Location,
    Multiplication,
    Stage,
    StepSource,
    WindowBuffer,
    WindowBufferRef,
    WindowBufferRole,
    WindowLocation,
)


def render(schedule: Schedule, plan: Plan, backward: bool, trains: bool, dtype: torch.dtype) -> StepSource:
    buffers = ProgramBuffers(schedule, plan, backward, trains)
    return _StepWriter(buffers, dtype, plan.compares_numbers).run()


class _StepWriter:
    """Writes the kernels of a step, group by group."""

    def __init__(self, buffers: ProgramBuffers, dtype: torch.dtype, as_written: bool):
        self.buffers, self.schedule, self.dtype, self.as_written = buffers, buffers.schedule, dtype, as_written
        groups = self.schedule.groups
        self.made: dict[Node, Out] = {}
        for out in (o for g in groups for o in g.stores):
            self.made.setdefault(out.node, out)
        self.read_later = {node for g in groups for node in g.loads}
        self.tables = Tables()
        self.gathered = {self._stored(source)[0] for source in self._sources() if source.op != "load"}
        self.users = self._users()
        spots = [spot for found in self.users.values() for spot in found]
        self.shifts = {buffer: [shift for b, shift, _ in spots if b == buffer] for buffer, _, _ in spots}
        self.operand_columns = self._lay_out_operands()
        self.window_buffers: dict[WindowBufferRef, WindowBuffer] = {}
        self.external: list[BufferRef] = []
        self.carried: dict[tuple[WindowBufferRef, BufferRef, int, int], None] = {}
        self.written: set[BufferRef] = set()
        self.lanes: list[tuple[Node, int]] = []
        self.lane_columns = sum(lane.width for g in groups for lane in g.lanes if any(map(is_x, lane.args)))
        self.products: dict[int, list[Multiplication]] = {}  # group number → products before it
        self.parts: dict[Node, list[tuple[WindowBufferRef, int]]] = {}  # lane → (buffer, first column) of its summands
        self.stages: list[Stage] = []

    def run(self) -> StepSource:
        self._plan_products()
        for group in self.schedule.groups:
            self._group(group)
        for low, high, buffer in self._carried_reads():
            self._check_carried(buffer, low, high)
        body = [line for stage in self.stages for line in stage.function()]
        lines = self._head("\n".join(body)) + body
        return StepSource(
            "\n".join(lines) + "\n",
            self.stages,
            self.window_buffers,
            self.external,
            list(self.carried),
            self.written,
            self.lanes,
            as_written=self.as_written,
            tables=self.tables,
        )

    # ------------------------------------------------------------------------------------------ memory

    def _location(self, operand: Node) -> Location:
        if operand.op != "load":
            out = self.made[operand]
            return out.buffer, 0, out.offset
        at = operand.attr
        if at.buffer.role is Role.STATE:
            return at.buffer, -at.lag, at.offset
        if at.buffer.role is Role.PAST:
            return at.buffer.memory, -at.buffer.lag, at.offset
        return at.buffer, at.lag, at.offset

    def _lay_out_operands(self) -> dict[BufferRef, tuple[WindowBufferRef, int]]:
        """Operand → (window buffer, first column). Operands that are read at the same shifts share a window buffer, so
        that adjacent ones can be multiplied as one."""
        alike: dict[tuple, list[BufferRef]] = {}
        for buffer, shifts in self.shifts.items():
            key = (buffer,) if buffer.role is Role.SCRATCH else (min(shifts), max(shifts))
            alike.setdefault(key, []).append(buffer)
        columns = {}
        for buffers in alike.values():
            ref, column = WindowBufferRef(WindowBufferRole.OPERANDS, tuple(buffers)), 0
            for buffer in buffers:
                columns[buffer] = ref, column
                column += self._width(buffer)
        return columns

    def _operand_buffer(self, buffer: BufferRef) -> tuple[WindowBufferRef, int]:
        """(window buffer, first column) of an operand; the window buffer is added at the first use."""
        ref, column = self.operand_columns[buffer]
        if ref not in self.window_buffers:
            shifts = self.shifts[buffer]
            holds = tuple((b, self.operand_columns[b][1], self._width(b)) for b in ref.buffers)
            slots, before, after = int(buffer.role is Role.SCRATCH), max(0, -min(shifts)), max(0, *shifts, 0)
            self.window_buffers[ref] = WindowBuffer(
                sum(w for _, _, w in holds), slots, before, after, wide=False, holds=holds
            )
        return ref, column

    def _width(self, buffer: BufferRef) -> int:
        if buffer == INPUT_PROJECTION:
            return self.lane_columns
        spec = self.schedule.buffers.get(buffer)
        return spec.width if spec else self.buffers.states[buffer.name].size

    def _add_buffer(self, ref: WindowBufferRef, spec: WindowBuffer) -> WindowBufferRef:
        self.window_buffers.setdefault(ref, spec)
        return ref

    def _pointer(self, ref: WindowBufferRef) -> str:
        arguments = self.stages[-1].arguments
        if ref not in arguments:
            arguments.append(ref)
        return f"a{arguments.index(ref)}"

    def _window_address(self, ref: WindowBufferRef, offset: int, slot: str = "", column: str = " + col") -> str:
        """Address of this program's columns in a window buffer."""
        spec = self.window_buffers[ref]
        first = slot or ("" if spec.slots else f"at + {spec.before} * batch")
        rows = f"({first} + row)" if first else "row"
        return f"{self._pointer(ref)} + {rows} * {spec.width} + {offset}{column}"

    def _load_window(self, ref: WindowBufferRef, offset: int, width: int, slot: str = "") -> str:
        """Load this program's columns; a single column is loaded by all programs."""
        if width == 1:
            return f"load_f32({self._window_address(ref, offset, slot, column='')}, live)"
        return f"load_f32({self._window_address(ref, offset, slot)}, here)"

    def _external(self, buffer: BufferRef) -> str:
        """A pointer to a tensor of the caller, which is aligned to sixteen bytes."""
        if buffer not in self.external:
            self.external.append(buffer)
        number, known = self.external.index(buffer), self.stages[-1].pointer_lines
        wide = buffer == BufferRef.initial(TIME) or buffer.role is Role.CARRY
        kind = "float64" if buffer == SUMS else "float32" if wide else str(self.dtype).removeprefix("torch.")
        line = f"p{number} = L.multiple_of(L.load(table + {number}).to(L.pointer_type(L.{kind})), 16)  # {buffer}"
        if line not in known:
            known.append(line)
        return f"p{number}"

    def _load_external(self, buffer: BufferRef, offset: int, width: int, shift: int = 0) -> str:
        """Load from a tensor of the caller, `shift` steps away."""
        place, mask = self._external_row(buffer, offset, shift, "here" if width > 1 else "live")
        return f"load_f32({place}{' + col' if width > 1 else ''}, {mask})"

    def _external_row(self, buffer: BufferRef, offset: int, shift: int, mask: str) -> tuple[str, str]:
        """Where a row of a tensor of the caller begins, and where it has numbers: initial values before the first step,
        none after the last."""
        size, rows = self._width(buffer), "(step_row + row)"
        base, spec = self._external(buffer), self.schedule.buffers.get(buffer)
        if spec is not None and spec.kind is BufferKind.PER_SEQUENCE:
            rows = "row"
        elif shift < 0:
            initial = self._external(BufferRef.initial(buffer.name))
            start = f"{initial} + L.cast({-shift - 1} - t, L.int64) * batch * {size}"
            base, rows = f"choose(t >= {-shift}, {base} + (step_row - {-shift} * batch) * {size}, {start})", "row"
        elif shift > 0:
            rows, mask = f"(step_row + {shift} * batch + row)", f"{mask} & (t + {shift} < steps)"
        return f"{base} + {rows} * {size} + {offset}", mask

    def _carried_reads(self) -> Iterator[tuple[int, int, BufferRef]]:
        for node in (*(n for g in self.schedule.groups for n in g.body), *self._sources()):
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
        for node in dict.fromkeys(o.node for o in group.stores if o.node in self.read_later):
            self._line(f"store({self._window_address(self._value_buffer(node), 0)}, {self.names[node]} + zero, here)")
        for q, node in group.sums:
            self._sum(q, node)
        for node in group.rowsums:
            self._row_sum(node)

    def _line(self, text: str) -> None:
        self.stages[-1].lines.append(text)

    def _users(self) -> dict[int, dict[Location, list[tuple[Node, Matrix]]]]:
        """Group number → operand → (lane, matrix) pairs that use it. Operands that exist before the step are multiplied
        before the first group, once for the lanes of all groups."""
        users: dict[int, dict[Location, list[tuple[Node, Matrix]]]] = {}
        for stage, group in enumerate(self.schedule.groups):
            for lane in group.lanes:
                for operand, matrix in zip(lane.args, lane.attr, strict=True):
                    if not is_x(operand):
                        home = users.setdefault(0 if operand.op == "load" else stage, {})
                        home.setdefault(self._location(operand), []).append((lane, matrix))
        return users

    def _plan_products(self) -> None:
        for stage, found in self.users.items():
            operands = {}
            for (buffer, shift, offset), pairs in found.items():
                ref, column = self._operand_buffer(buffer)
                operands[ref, shift, column + offset] = pairs
            self.products[stage] = [
                self._product(WindowBufferRef(WindowBufferRole.PRODUCT, numbers=(stage, i)), *operand)
                for i, operand in enumerate(_merge_adjacent(operands))
            ]

    def _product(
        self, into: WindowBufferRef, spot: WindowLocation, users: list[tuple[Node, list[Matrix]]]
    ) -> Multiplication:
        column = 0
        for lane, _ in users:
            self.parts.setdefault(lane, []).append((into, column))
            column += lane.width
        self._add_buffer(into, WindowBuffer(column, slots=1))
        return Multiplication(*spot, tuple(tuple(matrices) for _, matrices in users), into)

    def _sums_of_products(self, group: Group) -> None:
        for lane in group.lanes:
            parts = [self._load_window(into, column, lane.width) for into, column in self.parts.get(lane, [])]
            if any(is_x(a) for a in lane.args):
                column = sum(earlier.width for earlier, _ in self.lanes)
                self.lanes.append((lane, column))
                parts.append(self._load_external(INPUT_PROJECTION, column, lane.width))
            self._assign(lane, " + ".join(parts))

    # ------------------------------------------------------------------------------------------ values

    def _assign(self, node: Node, text: str) -> None:
        self.names[node] = f"n{node.index}"
        self._line(f"n{node.index} = {text}")

    def _value(self, node: Node, group: Group) -> None:
        if node in group.loads:
            self._assign(node, self._load_window(self._value_buffer(node), 0, node.width))
        elif node.op == "const":
            self.names[node] = number(node.attr)
        elif node.op == "expand":
            self.names[node] = self.names[node.args[0]]
        elif node.op == "weight":
            self._vector(node)
        elif node.op == "load":
            self._load(node)
        elif node.op == "rowsum":
            slot, largest = self._row_sum_buffer(node), node.attr == "max"
            count = self.window_buffers[slot].width
            sizes = f"{count}, {1 << (count - 1).bit_length()}, {largest}, {ROWS}"
            self._assign(node, f"reduce_parts({self._pointer(slot)}, first_row, batch, {sizes})")
        elif node.op == "literal":
            place = f"{self._pointer(LITERALS)} + {self.tables.first_of_literal(node.attr)} + col"
            self._assign(node, f"load_f32({place}, col < {node.width})")
        elif node.op == "gather":
            self._gather(node)
        else:
            self._assign(node, expression(node.op, node.attr, [self.names[a] for a in node.args]))

    def _vector_place(self, node: Node) -> tuple[str, int]:
        """Where a vector of a weight begins, and numbers from one of its numbers to the next."""
        vector: Vector = node.attr
        columns = self.buffers.plan.equations.hoisted[vector.weight][-1:] or (1,)
        stride, first = (1, 0) if vector.col is None else (columns[0], vector.col)
        return f"{self._external(BufferRef.weight(vector.weight))} + {vector.rows[0] * stride + first}", stride

    def _vector(self, node: Node) -> None:
        place, stride = self._vector_place(node)
        if node.width == 1:
            self._assign(node, f"L.load({place}).to(L.float32)")
        else:
            self._assign(node, f"load_f32({place} + col * {stride}, col < {node.width})")

    def _load(self, node: Node) -> None:
        at = node.attr
        if self.buffers.state_of(node) == TIME:
            late = self.buffers.backward and not at.buffer.lag
            self._assign(
                node, f"load_f32({self._external(BufferRef.initial(TIME))} + row, live) + t{' + 1' if late else ''}"
            )
        elif self.buffers.stays(at.buffer):
            self._assign(node, self._load_window(self._ring(at.buffer), at.offset, node.width, slot="current"))
        else:
            buffer, shift, offset = self._location(node)
            text = self._load_external(buffer, offset, node.width, shift)
            self._assign(node, f"L.where(t == end - 1, {text}, 0.0)" if at.start else text)

    def _ring(self, buffer: BufferRef) -> WindowBufferRef:
        """A double buffer that carries a state from step to step."""
        return self._add_buffer(
            WindowBufferRef(WindowBufferRole.RING, (buffer,)), WindowBuffer(self.buffers.size(buffer), slots=2)
        )

    def _value_buffer(self, node: Node) -> WindowBufferRef:
        """A float32 buffer for a value that a later group of the step reads."""
        return self._add_buffer(
            WindowBufferRef(WindowBufferRole.VALUE, numbers=(node.index,)), WindowBuffer(node.width, slots=1)
        )

    # ------------------------------------------------------------------------------------------ other orders

    def _sources(self) -> list[Node]:
        """The rows in memory that gathers read in another order; not those of weights and constants."""
        found = (n for g in self.schedule.groups for n in g.body if n.op == "gather")
        return [arg for node in found for arg in node.args if arg.op not in ("weight", "literal")]

    def _stored(self, source: Node) -> tuple[BufferRef, int]:
        """Where the schedule stores a row that is read in another order."""
        at = self.schedule.stored[source].attr
        return at.buffer, at.offset

    def _gathered_buffer(self, buffer: BufferRef) -> WindowBufferRef:
        """The numbers of a buffer in single precision, for kernels that read them in another order."""
        ref = WindowBufferRef(WindowBufferRole.VALUE, (buffer,))
        return self._add_buffer(ref, WindowBuffer(self._width(buffer), slots=1))

    def _gather(self, node: Node) -> None:
        sources = [self._source(arg) for arg in node.args]
        firsts = [self.tables.first_of_map(index) for index in node.attr.maps]
        self.names[node] = f"n{node.index}"
        for line in lines_of(self.names[node], node.attr, sources, firsts, self._pointer(MAPS)):
            self._line(line)

    def _source(self, source: Node) -> Source:
        """A row that a gather reads."""
        if source.op == "weight":
            place, stride = self._vector_place(source)
            return Source(f"{place} + row * 0", stride)
        if source.op == "literal":
            return Source(f"{self._pointer(LITERALS)} + {self.tables.first_of_literal(source.attr)} + row * 0")
        if source.op != "load":
            buffer, offset = self._stored(source)
            return Source(self._window_address(self._gathered_buffer(buffer), offset, column=""))
        at = source.attr
        if self.buffers.stays(at.buffer):
            return Source(self._window_address(self._ring(at.buffer), at.offset, "current", ""))
        buffer, shift, offset = self._location(source)
        base, mask = self._external_row(buffer, offset, shift, "live")
        return Source(base, mask=f"{mask} & (t == end - 1)" if at.start else mask)

    # ------------------------------------------------------------------------------------------ results

    def _as_tile(self, node: Node) -> str:
        """A value as a full tile: constants and single columns are broadcast."""
        spread = node.is_leaf or not is_whole(node)
        return f"({self.names[node]} + zero)" if spread else self.names[node]

    def _store(self, out: Out) -> None:
        if out.buffer == CLOCK:
            return
        width, value = out.node.width, self._as_tile(out.node)
        if out.buffer in self.gathered:
            self._line(f"store({self._window_address(self._gathered_buffer(out.buffer), out.offset)}, {value}, here)")
        if self.buffers.stays(out.buffer):
            ring = self._ring(out.buffer)
            before = self._load_window(ring, out.offset, width, slot="current")
            self._line(
                f"store({self._window_address(ring, out.offset, 'following')}, L.where(run, {value}, {before}), here)"
            )
            self.carried[ring, out.buffer, out.offset, width] = None
        if self.buffers.only_carried(out.buffer, set(self.shifts)):
            return
        value = f"L.where(run, {value}, 0.0)"
        if out.buffer in self.shifts:
            ref, column = self._operand_buffer(out.buffer)
            self._line(f"store({self._window_address(ref, column + out.offset)}, {value}, here)")
            self.written.add(out.buffer)
        if out.buffer.role is not Role.SCRATCH:
            place = f"{self._external(out.buffer)} + (step_row + row) * {self._width(out.buffer)} + {out.offset} + col"
            self._line(f"store({place}, {value}, here)")

    def _sum(self, q: int, node: Node) -> None:
        start, total = (sum(n.width for _, n in sums) for sums in (self.schedule.sums[:q], self.schedule.sums))
        place = f"{self._external(SUMS)} + L.program_id(0) * {total} + {start}"
        value = f"L.where(run & here, {self._as_tile(node)}, 0.0)"
        self._line(f"add_column_sums({place}, {value}, {node.width}, first_column, {ROWS}, {self.stages[-1].columns})")

    def _row_sum_buffer(self, node: Node) -> WindowBufferRef:
        """A buffer with one element per row and program."""
        count = Stage("", node.args[0].width).programs
        ref = WindowBufferRef(WindowBufferRole.ROW_SUM, numbers=(self.schedule.rowsums.index(node),))
        return self._add_buffer(ref, WindowBuffer(count, slots=1))

    def _row_sum(self, node: Node) -> None:
        slot, largest = self._row_sum_buffer(node), node.attr == "max"
        value = f"reduce_columns({self._as_tile(node.args[0])}, here, {largest}, {ROWS}, {self.stages[-1].columns}, 1)"
        place = f"{self._pointer(slot)} + row * {self.window_buffers[slot].width} + L.program_id(1)"
        self._line(f"store({place}, {value}, live)")

    def _head(self, body: str) -> list[str]:
        return [
            "from recurra.engine.gpu.tiles_triton import *",
            "from recurra.engine.gpu.tiles_triton import L, constexpr, jit",
            "",
            preamble(self.dtype == torch.float32, body),
            "",
            "",
            f"@jit(do_not_specialize={[f'a{i}' for i in range(len(self.external))]})",
            f"def addresses({', '.join([*(f'a{i}' for i in range(len(self.external))), 'table'])}):",
            *(f"    L.store(table + {i}, a{i}.to(L.int64))  # {buffer}" for i, buffer in enumerate(self.external)),
            *([] if self.external else ["    pass"]),
        ]


def _merge_adjacent(
    users: dict[WindowLocation, list[tuple[Node, Matrix]]],
) -> list[tuple[WindowLocation, list[tuple[Node, list[Matrix]]]]]:
    """Merge operands that are adjacent in memory and used by the same lanes: first location, and per lane the matrices
    of the pieces."""
    found: list[tuple[WindowLocation, list[tuple[Node, list[Matrix]]]]] = []
    end: WindowLocation | None = None
    for (ref, shift, offset), pairs in sorted(users.items(), key=lambda item: (str(item[0][0]), *item[0][1:])):
        if (ref, shift, offset) == end and [lane for lane, _ in found[-1][1]] == [lane for lane, _ in pairs]:
            for (_, pieces), (_, matrix) in zip(found[-1][1], pairs, strict=True):
                pieces.append(matrix)
        else:
            found.append(((ref, shift, offset), [(lane, [matrix]) for lane, matrix in pairs]))
        end = ref, shift, offset + pairs[0][1].deep
    return found
