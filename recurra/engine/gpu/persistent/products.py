"""Products inside the loop: what they multiply, how a program waits for it, where its weights lie."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...ir.buffers import INPUT_PROJECTION, BufferRef, Role
from ...ir.lowering import Unsupported
from ...ir.nodes import Load, Matrix, Node
from ...plan.program import Out, Plan
from ...plan.schedule import Group, Schedule
from .kernel_builder import Text
from .operands import Places
from .spin_wait import WORDS, constraints, listing, side_by_side
from .tiling import is_x


@dataclass(frozen=True)
class Source:
    """Where an operand of a product lies at this step."""

    base: str
    there: str
    stride: int
    offset: int  # of its first column; `base` is there already
    deep: int
    waits: bool
    rank: tuple[int, int]  # how lately it is written: what to look at first while waiting


class Products:
    def __init__(self, schedule: Schedule, plan: Plan, text: Text, places: Places):
        self.schedule, self.plan, self.text, self.places = schedule, plan, text, places
        self.tiling, self.kind = text.tiling, text.kind
        self.chunk = 512 // self.kind.bits  # four threads with sixteen bytes each
        self.exchanged: set[BufferRef] = set()  # what programs wait for
        self.lanes: list[tuple[Node, int]] = []  # whose product with x is made before the loop; its first column
        self.lane_columns = sum(lane.width for g in schedule.groups for lane in g.lanes if any(map(is_x, lane.args)))
        self.settled: set[Node] = set()  # operands all of which were seen at this step
        self.weight_tiles: list[tuple[str, str, str]] = []  # (variable, how to load it, the argument)
        self.order = {(o.buffer, o.offset): i for i, o in enumerate(o for g in schedule.groups for o in g.stores)}
        self.made: dict[Node, Out] = {}  # value of a step → where it is first stored
        for out in (o for g in schedule.groups for o in g.stores):
            self.made.setdefault(out.node, out)
        self._prepare()

    def furniture(self) -> list[str]:
        """Lines that set up shared memory."""
        t, benches = self.tiling, max((len(g.lanes) for g in self.schedule.groups), default=0)
        lines = [
            f"none = nothing({self.text.shape})",
            *([f"bench_ = bench({benches}, {self.text.shape})"] * bool(benches)),
        ]
        if t.weights == "shared" and self.weight_tiles and not self.kind.interpreted:
            like = self.weight_tiles[0][2]
            lines.append(f"shelf_ = shelf({len(self.weight_tiles)}, {self.chunk}, {t.columns}, {t.warps}, {like})")
        return lines

    def lay(self, out: Out, value: str) -> None:
        """Make ready for products what a step made: here its place in memory, where others find it, is enough."""

    def _prepare(self) -> None:
        """Find what programs wait for: operands of products that the loop itself makes."""
        written = {out.buffer for g in self.schedule.groups for out in g.stores}
        for lane in (lane for g in self.schedule.groups for lane in g.lanes):
            for operand in lane.args:
                buffer = operand.attr.buffer if operand.op == "load" else self.made[operand].buffer
                if buffer in written:
                    self.exchanged.add(buffer)

    def _source(self, operand: Node) -> Source:
        if operand.op != "load":
            out = self.made[operand]
            size = self.places.size(out.buffer)
            base = f"{self.text.pointer(out.buffer)} + at * {size} + {out.offset}"
            return Source(
                base, "batch > 0", size, out.offset, operand.width, True, (0, self.order[out.buffer, out.offset])
            )
        at, size = operand.attr, self.places.size(operand.attr.buffer)
        if at.buffer.role is Role.STATE:
            hist, start = self.text.pointer(at.buffer), self.text.pointer(BufferRef.initial(at.buffer.name))
            base = (
                f"choose(t >= {at.lag}, {hist} + (at - {at.lag} * batch) * {size},"
                f" {start} + ({at.lag - 1} - t) * batch * {size}) + {at.offset}"
            )
            return Source(base, "batch > 0", size, at.offset, operand.width, True, (-at.lag, self._rank(at)))
        waits = at.buffer in self.exchanged
        if at.buffer.role is Role.PAST:
            raise Unsupported("a product with a state in its own derivative")
        base = f"{self.text.pointer(at.buffer)} + (at + {at.lag} * batch) * {size} + {at.offset}"
        there = f"t + {at.lag} < steps" if at.lag else "batch > 0"
        return Source(base, there, size, at.offset, operand.width, waits, (-at.lag, self._rank(at)))

    def _rank(self, at: Load) -> int:
        return self.order.get((at.buffer, at.offset), 0)

    def write(self, group: Group, mark: int) -> None:
        """Lanes of a group. What multiplies numbers that are there is done first, while others are on their way; then
        wait, multiply those, and look whether all of them had come."""
        operands = list(dict.fromkeys(a for lane in group.lanes for a in lane.args if not is_x(a)))
        sources = {operand: self._source(operand) for operand in operands}
        looping = [lane for lane in group.lanes if any(a in sources for a in lane.args)]
        sums = {lane: f"sum{i}" for i, lane in enumerate(looping)}
        bases = {operand: f"base_{mark}_{i}" for i, operand in enumerate(operands)}
        self.text.step += [f"{bases[operand]} = {sources[operand].base}" for operand in operands]
        there = [o for o in operands if o in self.settled or not sources[o].waits]
        coming = [o for o in operands if o not in there]
        self.text.step += [f"{name} = none" for name in sums.values()]
        self.text.step += self._dots(there, {o: replace(sources[o], waits=False) for o in there}, bases, sums)
        if coming and all(self._in_vectors(sources[operand]) for operand in coming):
            self.text.step += self._arrivals(coming, sources, bases, sums)
        elif coming:
            self._await(coming, sources, bases, sums)
        self.settled |= set(coming)
        self.text.step += [f"{name} = put(bench_, {i}, {name})" for i, name in enumerate(sums.values())]
        for i, lane in enumerate(looping):
            self.text.step.append(f"n{lane.index} = take(bench_, {i}, sum{i}, {self.text.shape})")
        for lane in group.lanes:
            self._with_input(lane, lane in sums)

    def _dots(self, operands: list[Node], sources: dict[Node, Source], bases: dict, sums: dict) -> list[str]:
        lines = []
        parts = [(operand, start) for operand in operands for start in self._starts(operand.width)]
        for batch in batched(parts, self.tiling.depth):
            for number_, (operand, start) in enumerate(batch):
                place = self._operand_call(bases[operand], sources[operand], start)
                lines.append(f"part{number_} = operand({place})")
            for number_, (operand, start) in enumerate(batch):
                lines += self._multiplied(operand, start, f"part{number_}", sums)
        return lines

    def _in_vectors(self, source: Source) -> bool:
        """Whether rows begin and end where sixteen bytes do, so that a thread may wait for those by itself."""
        together = 128 // self.kind.bits
        whole = source.stride % together == source.offset % together == source.deep % together == 0
        return whole and self.kind.by_warp

    def _arrivals(self, coming: list[Node], sources: dict[Node, Source], bases: dict, sums: dict) -> list[str]:
        t, rows = self.tiling, self.tiling.rows // 8
        lines, first = [f"there = rows_there(first_row, batch, {t.warps})"], "herald" if t.heralds else "pause"
        parts = [(operand, start) for operand in coming for start in self._starts(operand.width)]
        if t.heralds:
            latest = max(coming, key=lambda operand: sources[operand].rank)
            call = self._operand_call(bases[latest], replace(sources[latest], waits=False), 0)
            lines.append(f"herald = herald_of({call})")
        for batch in batched(parts, t.depth):
            spots = [f"spot{i}" for i in range(len(batch))]
            words = [[f"word{i}_{j}" for j in range(rows * WORDS)] for i in range(len(batch))]
            for spot, (operand, start) in zip(spots, batch, strict=True):
                source = replace(sources[operand], waits=False)
                lines.append(f"{spot} = spot({self._operand_call(bases[operand], source, start)})")
            strides = [sources[operand].stride * self.kind.bits for operand, _ in batch]  # bytes between eight rows
            lines.append(
                f"{', '.join(word for group in words for word in group)} = L.inline_asm_elementwise("
                f'"{listing(strides, rows, self.kind.bits, first)}", "{constraints(len(batch), rows, first)}",'
                f" [{', '.join([*spots, 'there', *(['herald'] if first == 'herald' else [])])}],"
                f" ({'L.int32, ' * (rows * WORDS * len(batch))}), False, 1)"
            )
            first = ""  # who has come once is there
            for i, (operand, start) in enumerate(batch):
                lines.append(f"part{i} = numbers({side_by_side(words[i])}, {bases[operand]}, {t.rows}, {t.warps})")
                lines += self._multiplied(operand, start, f"part{i}", sums)
        return lines

    def _multiplied(self, operand: Node, start: int, part: str, sums: dict) -> list[str]:
        return [
            f'{sums[lane]} = dot({part}, {self._weight(matrix, start)}, {sums[lane]}, "{self.kind.precision}")'
            for lane, matrix in _users(list(sums), operand)
        ]

    def _await(self, coming: list[Node], sources: dict[Node, Source], bases: dict, sums: dict) -> None:
        self._look_early(coming, sources, bases)
        waited = {lane: name for lane, name in sums.items() if any(a in coming for a in lane.args)}
        self.text.step += [f"have{name} = {name}" for name in waited.values()]
        self.text.step += ["waiting = 1", "settled = 0", "while waiting != 0:"]
        lines = [f"{name} = have{name}" for name in waited.values()]
        lines += self._dots(coming, sources, bases, waited)
        # NaN: something may have been missing. If all is there now, one more round settles it.
        lines.append(f"waiting = undefined({' + '.join(waited.values())}) * (1 - settled)")
        calls = [
            f"absent({self._operand_call(bases[operand], sources[operand], start)})"
            for operand in coming
            for start in self._starts(operand.width)
        ]
        lines += ["if waiting != 0:", *_joined("    missing", calls)]
        lines += ["    settled = 1 - missing", "    waiting = waiting * 0 + 1"]
        self.text.step += ["    " + line for line in lines]

    def _look_early(self, coming: list[Node], sources: dict[Node, Source], bases: dict[Node, str]) -> None:
        """Wait for the number that is written last, of each program: cheaper than asking for all of them again."""
        latest = max(coming, key=lambda operand: sources[operand].rank)
        source = sources[latest]
        place = f"{bases[latest]}, {source.there}, first_row, batch, {source.stride}, {source.deep}"
        call = f"early({place}, {self.text.shape})"
        self.text.step += [f"hint = {call}", "while hint != 0:", f"    hint = {call}"]

    def _operand_call(self, base: str, source: Source, start: int) -> str:
        there = f"({source.there}) & (hint == 0)" if source.waits else source.there
        t = self.tiling
        return (
            f"{base}, {there}, first_row, batch, {source.stride}, {start}, {source.deep}, {self.chunk},"
            f" {t.rows}, {t.warps}"
        )

    def _starts(self, deep: int) -> range:
        return range(0, deep, self.chunk * self.tiling.warps)

    def _weight(self, matrix: Matrix, start: int) -> str:
        """The variable that holds a tile of a matrix, or the expression that gets it."""
        pointer, place, strides = self._place(matrix)
        t = self.tiling
        first = "first_column" if matrix.wide > 1 else "mine * 0"  # a single column is everybody's
        load = (
            f"weights({place}, {first}, {strides}, {matrix.wide}, {start}, {matrix.deep}, {self.chunk},"
            f" {t.columns}, {t.warps})"
        )
        if t.weights == "memory":
            return load
        shelved = t.weights == "shared" and not self.kind.interpreted
        name = self._kept(load, pointer, shelved)
        return f"kept(shelf_, {int(name[1:])}, {t.warps})" if shelved else name

    def _place(self, matrix: Matrix) -> tuple[str, str, str]:
        """The argument that points to a weight, where a matrix begins in it, and its strides across and down."""
        columns = self.plan.equations.hoisted[matrix.weight][-1]
        pointer = self.text.pointer(BufferRef.weight(matrix.weight))
        strides = f"1, {columns}" if matrix.flipped else f"{columns}, 1"
        return pointer, f"{pointer} + {matrix.rows[0] * columns + matrix.cols[0]}", strides

    def _kept(self, load: str, pointer: str, shelved: bool = False) -> str:
        """The name of what is loaded once, before the loop: a variable's, or a number on the shelf."""
        name = next((known for known, text, _ in self.weight_tiles if text == load), None)
        if name is None:
            number = len(self.weight_tiles)
            name = f"w{number}"
            self.weight_tiles.append((name, load, pointer))
            self.text.before.append(f"keep(shelf_, {number}, {load})" if shelved else f"{name} = {load}")
        return name

    def _with_input(self, lane: Node, looped: bool) -> None:
        """Add what the products with x gave before the loop."""
        name = f"n{lane.index}"
        if any(is_x(a) for a in lane.args):
            column = sum(earlier.width for earlier, _ in self.lanes)
            self.lanes.append((lane, column))
            base = f"{self.text.pointer(INPUT_PROJECTION)} + next_at * {self.lane_columns}"
            given = self.text.soon(lane, base, self.lane_columns, column, lane.width)
            self.text.step.append(f"{name} = {name} + {given}" if looped else f"{name} = {given}")
        if lane.width == 1:  # everybody computes it: the first column of everybody's tile
            self.text.step.append(f"{name} = across({name}, (col - first_column) == 0, False, {self.text.shape})")
        self.places.names[lane] = name


def batched(parts: list, size: int) -> list[list]:
    return [parts[i : i + size] for i in range(0, len(parts), size)]


def _users(lanes: list[Node], operand: Node) -> list[tuple[Node, Matrix]]:
    """Lanes that multiply an operand, and by what."""
    return [(lane, m) for lane in lanes for a, m in zip(lane.args, lane.attr, strict=True) if a is operand]


def _joined(name: str, calls: Iterable[str]) -> list[str]:
    first, *rest = calls
    return [f"{name} = {first}", *(f"{name} = {name.strip()} | {call}" for call in rest)]
