"""A schedule → what a single step consists of: products for torch, and after them one plain Triton kernel a group.

No kernel here waits for another, so any card can run them in any grid. Values pass from group to group and from step to
step through the memory of a window over a few steps (`window.py`): each buffer is a `Shelf` there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...cell import TIME
from ..lowering import Unsupported
from ..nodes import Matrix, Node, Vector
from ..plan import Out, Plan
from ..schedule import Group, Schedule
from .buffers import Buffers
from .elementary import expression, number, preamble
from .tiling import is_x

COLUMNS, ROWS = 128, 8  # of a program's tile

Spot = tuple[str, int, int]  # where something lies: shelf, distance in steps, first column


@dataclass(frozen=True)
class Shelf:
    """Memory of a window: `width` numbers for each row of the batch, in a slot for each step and some `before` and
    `after` them; or in so many `slots`, where only the present step counts."""

    width: int
    slots: int = 0
    before: int = 0
    after: int = 0
    wide: bool = False  # 32 bits, whatever the layer's dtype

    def count(self, steps: int) -> int:
        return self.slots or self.before + steps + self.after


@dataclass(frozen=True)
class Multiplication:
    """Columns of a shelf, at a distance of some steps, times a matrix put together from blocks."""

    symbol: str
    shift: int
    offset: int
    blocks: tuple[tuple[Matrix, ...], ...]  # a row of them for each lane
    into: str

    @property
    def wide(self) -> int:
        return sum(row[0].wide for row in self.blocks)

    @property
    def deep(self) -> int:
        return sum(matrix.deep for matrix in self.blocks[0])

    @property
    def flipped(self) -> bool:
        """Whether its matrix lies in memory as (deep, wide): as most of its blocks do."""
        return self.blocks[0][0].flipped


@dataclass
class Stage:
    """A group: its products, and the kernel that takes them further."""

    name: str
    width: int
    products: list[Multiplication] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)  # what each pointer points to
    lines: list[str] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return min(COLUMNS, 1 << (self.width - 1).bit_length())

    @property
    def programs(self) -> int:
        """Side by side, for a tile of the batch."""
        return -(-self.width // self.columns)


@dataclass
class Stepwise:
    """All of a step. `arguments`, `lanes` and `exchanged` are what `Rendered` has."""

    text: str
    stages: list[Stage]
    shelves: dict[str, Shelf]
    vectors: dict[str, Vector]  # weights that kernels read as they are
    carried: list[tuple[str, str, int, int]]  # (shelf, buffer, offset, width): written anew at each step
    written: set[str]  # shelves with a slot a step that the kernels fill; the others come from outside
    lanes: list[tuple[Node, int]]
    exchanged: frozenset[str] = frozenset()

    @property
    def arguments(self) -> list[str]:
        """What a call must bring along or make room for."""
        outside = [name for name, shelf in self.shelves.items() if not shelf.slots]
        return outside + [name for name in self.shelves if name == "sums"]


def render(schedule: Schedule, plan: Plan, backward: bool, trains: bool, bits: int) -> Stepwise:
    return _Writer(Buffers(schedule, plan, backward, trains), bits).run()


class _Writer:
    def __init__(self, buffers: Buffers, bits: int):
        self.buffers, self.schedule, self.bits = buffers, buffers.schedule, bits
        groups = self.schedule.groups
        self.made: dict[Node, Out] = {}
        for out in (o for g in groups for o in g.stores):
            self.made.setdefault(out.node, out)
        self.handed_on = {node for g in groups for node in g.loads}
        self.multiplied = {self._spot(a)[0] for g in groups for lane in g.lanes for a in lane.args if not is_x(a)}
        self.margins = self._margins()
        self.shelves: dict[str, Shelf] = {}
        self.vectors: dict[str, Vector] = {}
        self.carried: dict[tuple[str, str, int, int], None] = {}
        self.written: set[str] = set()
        self.lanes: list[tuple[Node, int]] = []
        self.lane_columns = sum(lane.width for g in groups for lane in g.lanes if any(map(is_x, lane.args)))
        self.products: dict[int, list[Multiplication]] = {}  # by the number of the group
        self.parts: dict[Node, list[tuple[str, int]]] = {}  # of a lane: shelves and columns that add up to it
        self.stages: list[Stage] = []

    def run(self) -> Stepwise:
        self._plan_products()
        for group in self.schedule.groups:
            self._group(group)
        for low, high, buffer in self._carried_reads():
            self._check_carried(buffer, low, high)
        text = "\n".join(self._head() + [line for stage in self.stages for line in _function(stage)])
        return Stepwise(
            text + "\n", self.stages, self.shelves, self.vectors, list(self.carried), self.written, self.lanes
        )

    # ------------------------------------------------------------------------------------------ memory

    def _spot(self, operand: Node) -> Spot:
        if operand.op != "load":
            out = self.made[operand]
            return self.buffers.symbol(out.buffer), 0, out.offset
        at, buffer = operand.attr, self.schedule.buffers[operand.attr.buffer]
        if at.buffer in self.buffers.states and not self.buffers.backward:
            return f"hist:{at.buffer}", -at.lag, at.offset
        if buffer.source:
            return f"hist:{buffer.source}", -buffer.lag, at.offset
        return at.buffer, at.lag, at.offset

    def _margins(self) -> dict[str, tuple[int, int]]:
        """How far before and after a window steps look."""
        found: dict[str, tuple[int, int]] = {}
        for group in self.schedule.groups:
            plain = [n for n in group.body if n.op == "load" and not self.buffers.stays(n.attr.buffer)]
            for node in (*plain, *(a for lane in group.lanes for a in lane.args)):
                symbol, shift, _ = self._spot(node)
                before, after = found.get(symbol, (0, 0))
                found[symbol] = max(before, -shift), max(after, shift)
        return found

    def _shelf(self, symbol: str) -> Shelf:
        """That of a buffer, put up when first asked for."""
        if symbol not in self.shelves:
            buffer = self.schedule.buffers.get(symbol)
            width = buffer.width if buffer else self.buffers.states[symbol.removeprefix("hist:")].size
            before, after = self.margins.get(symbol, (0, 0))
            slots = int(buffer is not None and buffer.kind in ("sequence", "scratch"))
            self.shelves[symbol] = Shelf(width, slots, before, after, wide=symbol.startswith("carry:"))
        return self.shelves[symbol]

    def _new_shelf(self, symbol: str, shelf: Shelf) -> str:
        self.shelves.setdefault(symbol, shelf)
        return symbol

    def _pointer(self, symbol: str) -> str:
        arguments = self.stages[-1].arguments
        if symbol not in arguments:
            arguments.append(symbol)
        return f"a{arguments.index(symbol)}"

    def _place(self, symbol: str, offset: int, width: int, shift: int = 0, slot: str = "") -> str:
        """Address and mask of this program's columns; a single column is read by everybody."""
        shelf = self._shelf(symbol)
        first = slot or ("" if shelf.slots else f"at + {shelf.before + shift} * batch")
        rows = f"({first} + row)" if first else "row"
        base = f"{self._pointer(symbol)} + {rows} * {shelf.width} + {offset}"
        return f"{base}, live" if width == 1 else f"{base} + col, here"

    def _read(self, symbol: str, offset: int, width: int, shift: int = 0, slot: str = "") -> str:
        return f"read({self._place(symbol, offset, width, shift, slot)})"

    def _carried_reads(self) -> Iterator[tuple[int, int, str]]:
        for node in (n for g in self.schedule.groups for n in g.body):
            if node.op == "load" and self.buffers.stays(node.attr.buffer):
                yield node.attr.offset, node.attr.offset + node.width, node.attr.buffer

    def _check_carried(self, buffer: str, low: int, high: int) -> None:
        written = {c for _, name, at, width in self.carried if name == buffer for c in range(at, at + width)}
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
            self._write(f"{self.names[node]} + zero", self._handed(node), 0, node.width)
        for q, node in group.sums:
            self._sum(q, node)
        for node in group.rowsums:
            self._row_sum(node)

    def _line(self, text: str) -> None:
        self.stages[-1].lines.append(text)

    def _plan_products(self) -> None:
        """What is there before the step is multiplied at its beginning, once for the lanes of all groups."""
        users: dict[int, dict[Spot, list[tuple[Node, Matrix]]]] = {}
        for stage, group in enumerate(self.schedule.groups):
            for lane in group.lanes:
                for operand, matrix in zip(lane.args, lane.attr, strict=True):
                    if not is_x(operand):
                        home = users.setdefault(0 if operand.op == "load" else stage, {})
                        home.setdefault(self._spot(operand), []).append((lane, matrix))
        for stage, found in users.items():
            self.products[stage] = [
                self._product(f"product:{stage}:{i}", *spot, pairs) for i, (spot, pairs) in enumerate(_merged(found))
            ]

    def _product(
        self, into: str, symbol: str, shift: int, offset: int, users: list[tuple[Node, list[Matrix]]]
    ) -> Multiplication:
        self._shelf(symbol)
        column = 0
        for lane, _ in users:
            self.parts.setdefault(lane, []).append((into, column))
            column += lane.width
        self._new_shelf(into, Shelf(column, slots=1, wide=True))
        return Multiplication(symbol, shift, offset, tuple(tuple(matrices) for _, matrices in users), into)

    def _sums_of_products(self, group: Group) -> None:
        for lane in group.lanes:
            parts = [self._read(into, column, lane.width) for into, column in self.parts.get(lane, [])]
            if any(is_x(a) for a in lane.args):
                column = sum(earlier.width for earlier, _ in self.lanes)
                self.lanes.append((lane, column))
                self._new_shelf("pre", Shelf(self.lane_columns))
                parts.append(self._read("pre", column, lane.width))
            self._named(lane, " + ".join(parts))

    # ------------------------------------------------------------------------------------------ values

    def _named(self, node: Node, text: str) -> None:
        self.names[node] = f"n{node.index}"
        self._line(f"n{node.index} = {text}")

    def _value(self, node: Node, group: Group) -> None:
        if node in group.loads:
            self._named(node, self._read(self._handed(node), 0, node.width))
        elif node.op == "const":
            self.names[node] = number(node.attr)
        elif node.op == "expand":
            self.names[node] = self.names[node.args[0]]
        elif node.op == "weight":
            name = f"vector:{node.index}"
            self.vectors[name] = node.attr
            pointer = self._pointer(name)
            self._named(node, f"L.load({pointer})" if node.width == 1 else f"read({pointer} + col, col < {node.width})")
        elif node.op == "load":
            self._load(node)
        elif node.op == "rowsum":
            slot = self._row_sum_shelf(node)
            count, largest = self.shelves[slot].width, node.attr == "max"
            self._named(node, f"parts_total({self._pointer(slot)}, first_row, batch, {count}, {largest}, {ROWS})")
        else:
            self._named(node, expression(node.op, node.attr, [self.names[a] for a in node.args]))

    def _load(self, node: Node) -> None:
        at, buffer = node.attr, self.schedule.buffers[node.attr.buffer]
        if self.buffers.state_of(node) == TIME:
            clock = self._read(self._new_shelf(f"init:{TIME}", Shelf(1, slots=1, wide=True)), 0, 1)
            self._named(node, f"{clock} + {'t' if not self.buffers.backward or buffer.lag else '(t + 1)'}")
        elif self.buffers.stays(at.buffer):
            self._named(node, self._read(self._ring(at.buffer), at.offset, node.width, slot="now"))
        else:
            symbol, shift, offset = self._spot(node)
            text = self._read(symbol, offset, node.width, shift)
            self._named(node, f"L.where(t == end - 1, {text}, 0.0)" if at.start else text)

    def _ring(self, buffer: str) -> str:
        """Two slots in which a state is carried from step to step, in turn."""
        return self._new_shelf(f"ring:{buffer}", Shelf(self.buffers.size(buffer), slots=2, wide=True))

    def _handed(self, node: Node) -> str:
        """What a later group of the step reads, in 32 bits."""
        return self._new_shelf(f"handed:{node.index}", Shelf(node.width, slots=1, wide=True))

    # ------------------------------------------------------------------------------------------ results

    def _filled(self, node: Node) -> str:
        """A value as a full tile, whatever it was."""
        return f"({self.names[node]} + zero)" if node.is_leaf or node.op == "expand" else self.names[node]

    def _write(self, value: str, symbol: str, offset: int, width: int, slot: str = "") -> None:
        address = self._place(symbol, offset, width, slot=slot).rpartition(",")[0]
        self._line(f"write({address}{'' if width > 1 else ' + col'}, {value}, here)")

    def _store(self, out: Out) -> None:
        if out.buffer == TIME:
            return
        symbol, width, value = self.buffers.symbol(out.buffer), out.node.width, self._filled(out.node)
        if self.buffers.stays(out.buffer):
            ring = self._ring(out.buffer)
            before = self._read(ring, out.offset, width, slot="now")
            self._write(f"L.where(run, {value}, {before})", ring, out.offset, width, slot="next")
            self.carried[ring, out.buffer, out.offset, width] = None
        if not self.buffers.only_carried(out.buffer, self.multiplied):
            self._write(f"L.where(run, {value}, 0.0)", symbol, out.offset, width)
            if not self.shelves[symbol].slots:
                self.written.add(symbol)

    def _sum(self, q: int, node: Node) -> None:
        start, total = (sum(n.width for _, n in sums) for sums in (self.schedule.sums[:q], self.schedule.sums))
        self._new_shelf("sums", Shelf(total, slots=1, wide=True))
        place = f"{self._pointer('sums')} + L.program_id(0) * {total} + {start}"
        value = f"L.where(run & here, {self._filled(node)}, 0.0)"
        self._line(f"add_sum({place}, {value}, {node.width}, first_column, {ROWS}, {self.stages[-1].columns})")

    def _row_sum_shelf(self, node: Node) -> str:
        """A number for each program that has a part of the row."""
        count = Stage("", node.args[0].width).programs
        return self._new_shelf(f"rowsum:{self.schedule.rowsums.index(node)}", Shelf(count, slots=1, wide=True))

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
            preamble(exact=self.bits == 32),
        ]


def _merged(
    users: dict[Spot, list[tuple[Node, Matrix]]],
) -> list[tuple[Spot, list[tuple[Node, list[Matrix]]]]]:
    """Operands that lie side by side and go to the same lanes, as one: where it begins, and the lanes with what they
    multiply its pieces by."""
    found: list[tuple[Spot, list[tuple[Node, list[Matrix]]]]] = []
    end: Spot | None = None
    for (symbol, shift, offset), pairs in sorted(users.items(), key=lambda item: item[0]):
        if (symbol, shift, offset) == end and [lane for lane, _ in found[-1][1]] == [lane for lane, _ in pairs]:
            for (_, pieces), (_, matrix) in zip(found[-1][1], pairs, strict=True):
                pieces.append(matrix)
        else:
            found.append(((symbol, shift, offset), [(lane, [matrix]) for lane, matrix in pairs]))
        end = symbol, shift, offset + pairs[0][1].deep
    return found


def _function(stage: Stage) -> list[str]:
    tile = f"{ROWS}, {stage.columns}, 1"
    return [
        "",
        "",
        '@jit(do_not_specialize=["k", "turn", "batch"])',
        f"def {stage.name}({', '.join(f'a{i}' for i in range(len(stage.arguments)))}, start, ends, k, turn, batch):",
        *(f"    # a{i}: {name}" for i, name in enumerate(stage.arguments)),
        f"    first_row, first_column = L.cast(L.program_id(0), L.int64) * {ROWS}, L.program_id(1) * {stage.columns}",
        f"    row, col = rows(first_row, {tile}), columns(first_column, {tile})",
        "    live = row < batch",
        f"    here, zero = live & (col < {stage.width}), zeros({tile})",
        "    at = L.cast(k, L.int64) * batch",
        "    now, next = turn * batch, (1 - turn) * batch",
        "    t = L.load(start) + k",
        "    end = L.load(ends + row, mask=live, other=0)",
        "    run = live & (t < end)",
        *("    " + line for line in stage.lines),
    ]
