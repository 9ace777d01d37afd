"""A schedule → the text of one kernel that runs all steps, in the words of `tiles_gluon.py` or `tiles_triton.py`.

Every value of a step is a tile: this program's columns of some rows. States that are read in their own columns only
stay in registers from step to step; what a product multiplies goes through memory, where the other programs wait for
it. What comes from outside is loaded a step ahead. Nothing in the text depends on the batch or the length.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ...cell import TIME
from ..lowering import Unsupported
from ..nodes import Matrix, Node, Vector
from ..plan import Out, Plan
from ..schedule import Group, Schedule
from .elementary import EXPRESSIONS, clamp, number, power, preamble
from .tiling import Tiling


@dataclass
class Rendered:
    text: str
    arguments: list[str]  # what each pointer points to
    lanes: list[tuple[Node, int]] = field(default_factory=list)  # whose product with x is made before the loop; column
    exchanged: set[str] = field(default_factory=set)  # to be filled with ones before the loop


@dataclass(frozen=True)
class _Source:
    """Where an operand of a product lies at this step."""

    base: str
    there: str
    stride: int
    deep: int
    waits: bool
    rank: tuple[int, int]  # how lately it is written: what to look at first while waiting


def render(schedule: Schedule, plan: Plan, tiling: Tiling, bits: int, precision: str, **kind: bool) -> Rendered:
    """`kind`: backward, ragged, trains; `interpreted` for the words of `tiles_triton.py`."""
    return _Writer(schedule, plan, tiling, bits, precision, **kind).run()


class _Writer:
    def __init__(
        self,
        schedule: Schedule,
        plan: Plan,
        tiling: Tiling,
        bits: int,
        precision: str,
        backward: bool,
        ragged: bool,
        trains: bool,
        interpreted: bool = False,
    ):
        self.schedule, self.plan, self.tiling, self.bits, self.precision = schedule, plan, tiling, bits, precision
        self.backward, self.ragged, self.trains, self.interpreted = backward, ragged, trains, interpreted
        self.states = {state.name: state for state in plan.states}
        self.chunk = 512 // bits  # four threads with sixteen bytes each
        self.arguments: list[str] = []
        self.exchanged: set[str] = set()
        self.names: dict[Node, str] = {}
        self.registers: dict[tuple[str, int, int], str] = {}  # (buffer, offset, width) → the variable
        self.ahead: dict[object, str] = {}  # loaded a step ahead → the variable
        self.before: list[str] = []  # before everything: weights
        self.first: list[str] = []  # before the loop, for each tile of the batch
        self.loads: list[tuple[str, str]] = []  # (variable, expression of `tn`, `next_at`)
        self.step: list[str] = []
        self.last: list[str] = []  # after the loop
        self.lanes: list[tuple[Node, int]] = []
        self.lane_columns = 0
        self.settled: set[Node] = set()  # operands all of which were seen at this step
        self.weight_tiles: list[tuple[str, str, str]] = []  # (variable, how to load it, the argument)
        self.order = {(o.buffer, o.offset): i for i, o in enumerate(o for g in schedule.groups for o in g.stores)}
        self._find_exchanged()

    # ------------------------------------------------------------------------------------------ the whole

    def run(self) -> Rendered:
        self._registers()
        for node in (n for g in self.schedule.groups for n in g.body):
            if node.op == "load" and node not in self.names:
                self._load(node)
        for number_, group in enumerate(self.schedule.groups):
            self._group(number_, group)
        self._end_of_step()
        return Rendered(self._text(), self.arguments, self.lanes, self.exchanged)

    def _text(self) -> str:
        t, dialect = self.tiling, "triton" if self.interpreted else "gluon"
        shape = f"{t.rows}, {t.columns}, {t.warps}"
        benches = max((len(g.lanes) for g in self.schedule.groups), default=0)
        head = [
            f"from recurra.engine.gpu.tiles_{dialect} import *",
            f"from recurra.engine.gpu.tiles_{dialect} import L, constexpr, jit",
            "",
            preamble(exact=self.bits == 32),
            "",
            '@jit(do_not_specialize=["steps", "batch", "tiles"])',
            f"def kernel({', '.join(f'a{i}' for i in range(len(self.arguments)))}, steps, batch, tiles):",
            *(f"    # a{i}: {name}" for i, name in enumerate(self.arguments)),
            "    mine = L.program_id(0)",
            f"    first_column = mine * {t.columns}",
            f"    col = columns(first_column, {shape})",
            f"    zero = zeros({shape})",
            f"    none = nothing({shape})",
            *([f"    bench_ = bench({benches}, {shape})"] if benches else []),
            *self._shelves(),
            *("    " + line for line in self.before),
            "    for tile in range(L.program_id(1), tiles, L.num_programs(1)):",
            f"        first_row = tile * {t.rows}",
            f"        row = rows(first_row, {shape})",
            "        live = row < batch",
            "        zero_row = L.where(live, 0.0, 0.0)",
            *("        " + line for line in self.first),
        ]
        turn = ["t = steps - 1 - L.cast(s, L.int32)", "tn = t - 1"]
        if not self.backward:
            turn = ["t = L.cast(s, L.int32)", "tn = t + 1"]
        soon = "live & (row * 0 + tn >= 0)" if self.backward else "live & (row * 0 + tn < steps)"
        head += [
            "        tn = steps - 1" if self.backward else "        tn = 0",
            "        next_at = L.cast(tn, L.int64) * batch",
            "        soon = live",
            *(f"        {name} = {expression}" for name, expression in self.loads),
            "        for s in range(steps):",
            *("            " + line for line in turn),
            "            at = L.cast(t, L.int64) * batch",
            f"            run = live{' & (t < length)' if self.ragged else ''}",
            "            next_at = L.cast(tn, L.int64) * batch",
            f"            soon = {soon}",
            *(f"            {name.replace('f', 'v', 1)} = {name}.to(L.float32)" for name, _ in self.loads),
            *(f"            {name} = {expression}" for name, expression in self.loads),
            *("            " + line for line in self.step),
            *("        " + line for line in self.last),
        ]
        return "\n".join(head).replace("PRE_WIDTH", str(self.lane_columns)) + "\n"

    def _shelves(self) -> list[str]:
        if self.tiling.weights != "shared" or self.interpreted or not self.weight_tiles:
            return []
        t, like = self.tiling, self.weight_tiles[0][2]
        return [f"    shelf_ = shelf({len(self.weight_tiles)}, {self.chunk}, {t.columns}, {t.warps}, {like})"]

    def pointer(self, symbol: str) -> str:
        if symbol not in self.arguments:
            self.arguments.append(symbol)
        return f"a{self.arguments.index(symbol)}"

    # ------------------------------------------------------------------------------------------ tiles in memory

    def _tile(self, base: str, stride: int | str, offset: int, width: int, mask: str) -> tuple[str, str]:
        """(address, mask) of this program's columns; of a single column, the same for everybody."""
        if width == 1:
            return f"{base} + row * {stride} + {offset}", mask
        whole = self.tiling.programs * self.tiling.columns == width
        return f"{base} + row * {stride} + {offset} + col", mask if whole else f"{mask} & (col < {width})"

    def _read(self, *tile: str) -> str:
        return f"read({', '.join(tile)})"

    def _soon(self, key: object, base: str, stride: int | str, offset: int, width: int) -> str:
        """A value from outside, loaded a step ahead; `base` speaks of `tn` and `next_at`."""
        if key not in self.ahead:
            name = f"f{len(self.loads)}"
            self.loads.append((name, f"fetch({', '.join(self._tile(base, stride, offset, width, 'soon'))})"))
            self.ahead[key] = name.replace("f", "v", 1)
        return self.ahead[key]

    # ------------------------------------------------------------------------------------------ loads

    def _registers(self) -> None:
        """States that stay in registers: the pieces in which they are written."""
        for group in self.schedule.groups:
            for out in group.stores:
                if not self._stays(out.buffer):
                    continue
                key = (out.buffer, out.offset, out.node.width)
                name = self.registers[key] = f"r{len(self.registers)}"
                source = f"init:{out.buffer}"
                if self.backward:
                    source = f"dfinal:{self._carried(out.buffer)[0]}"
                self._initial(name, source, self._size(out.buffer), out.offset, out.node.width)
        if self.ragged:
            self.first.append(f"length = L.load({self.pointer('lengths')} + row, mask=live, other=0)")
        if any(n.op == "load" and self._state_of(n) == TIME for g in self.schedule.groups for n in g.body):
            self.first.append(f"clock = read({self.pointer('init:' + TIME)} + row, live)")

    def _initial(self, name: str, source: str, size: int, offset: int, width: int) -> None:
        tile = self._tile(self.pointer(source), size, offset, width, "live")
        self.first.append(f"{name} = {self._read(*tile)}")

    def _stays(self, buffer: str) -> bool:
        if self.backward:
            return buffer.startswith("carry:") and not self.states[self._carried(buffer)[0]].delays
        return buffer in self.states and buffer != TIME and not self.states[buffer].delays

    def _carried(self, buffer: str) -> tuple[str, int]:
        return next(key for key, name in self.plan.carries.items() if name == buffer)

    def _size(self, buffer: str) -> int:
        return self.schedule.buffers[buffer].width

    def _state_of(self, node: Node) -> str:
        """The state whose values a load reads."""
        buffer = node.attr.buffer
        return self.schedule.buffers[buffer].source if self.backward else buffer if buffer in self.states else ""

    def _load(self, node: Node) -> None:
        at, buffer = node.attr, self.schedule.buffers[node.attr.buffer]
        state = self._state_of(node)
        if state == TIME:
            self.names[node] = f"(clock + {'t' if not self.backward or buffer.lag else '(t + 1)'})"
        elif not self.backward and state:
            self.names[node] = self._own_state(node)
        elif self.backward and state:
            size, lag, hist = buffer.width, buffer.lag, self.pointer(f"hist:{state}")
            base = f"{hist} + next_at * {size}"
            if lag:
                start = f"{self.pointer('init:' + state)} + ({lag - 1} - tn) * batch * {size}"
                base = f"choose(tn >= {lag}, {hist} + (next_at - {lag} * batch) * {size}, {start})"
            self.names[node] = self._soon(node, base, size, at.offset, node.width)
        elif at.buffer.startswith("carry:"):
            self.names[node] = self._carry(node)
        elif buffer.kind == "sequence":
            name = f"q{node.index}"
            self._initial(name, at.buffer, buffer.width, at.offset, node.width)
            last = "length - 1" if self.ragged else "steps - 1"
            self.names[node] = f"L.where(t == {last}, {name}, 0.0)" if at.start else name
        elif at.lag:
            raise Unsupported("a pre-activation's cotangent read in its own columns")
        else:
            base = f"{self.pointer(at.buffer)} + next_at * {buffer.width}"
            self.names[node] = self._soon(node, base, buffer.width, at.offset, node.width)

    def _own_state(self, node: Node) -> str:
        at, state = node.attr, self.states[node.attr.buffer]
        if not state.delays:
            return self._register(at.buffer, at.offset, node.width)
        hist, start = self.pointer(f"hist:{state.name}"), self.pointer(f"init:{state.name}")
        base = (
            f"choose(t >= {at.lag}, {hist} + (at - {at.lag} * batch) * {state.size},"
            f" {start} + ({at.lag - 1} - t) * batch * {state.size})"
        )
        return self._now(node, base, state.size, "live")

    def _carry(self, node: Node) -> str:
        at = node.attr
        name, lag = self._carried(at.buffer)
        if not self.states[name].delays:
            return self._register(at.buffer, at.offset, node.width)
        size = self.states[name].size
        base = f"{self.pointer(at.buffer)} + (at + {lag} * batch) * {size}"
        return self._now(node, base, size, f"live & (row * 0 + t + {lag} < steps)")

    def _now(self, node: Node, base: str, size: int, mask: str) -> str:
        """What this program itself wrote some steps ago."""
        name = f"o{node.index}"
        self.step.append(f"{name} = {self._read(*self._tile(base, size, node.attr.offset, node.width, mask))}")
        return name

    def _register(self, *key) -> str:
        if key not in self.registers:
            raise Unsupported("a state that is written and read in different pieces")
        return self.registers[key]

    # ------------------------------------------------------------------------------------------ products

    def _find_exchanged(self) -> None:
        """What programs wait for: operands of products that the loop itself makes."""
        made = {out.node: out for g in self.schedule.groups for out in g.stores if not out.node.is_leaf}
        self.made: dict[Node, Out] = {}
        for out in (o for g in self.schedule.groups for o in g.stores):
            self.made.setdefault(out.node, out)
        written = {out.buffer for out in made.values()} | {o.buffer for g in self.schedule.groups for o in g.stores}
        for lane in (lane for g in self.schedule.groups for lane in g.lanes):
            for operand in lane.args:
                buffer = operand.attr.buffer if operand.op == "load" else self.made[operand].buffer
                if buffer in written:
                    self.exchanged.add(self._symbol(buffer))

    def _symbol(self, buffer: str) -> str:
        return f"hist:{buffer}" if buffer in self.states and not self.backward else buffer

    def _source(self, operand: Node) -> _Source:
        if operand.op != "load":
            out = self.made[operand]
            size = self._size(out.buffer)
            base = f"{self.pointer(self._symbol(out.buffer))} + at * {size} + {out.offset}"
            return _Source(base, "batch > 0", size, operand.width, True, (0, self.order[out.buffer, out.offset]))
        at, size = operand.attr, self._size(operand.attr.buffer)
        if at.buffer in self.states and not self.backward:
            hist, start = self.pointer(f"hist:{at.buffer}"), self.pointer(f"init:{at.buffer}")
            base = (
                f"choose(t >= {at.lag}, {hist} + (at - {at.lag} * batch) * {size},"
                f" {start} + ({at.lag - 1} - t) * batch * {size}) + {at.offset}"
            )
            return _Source(base, "batch > 0", size, operand.width, True, (-at.lag, self._rank(at)))
        waits = at.buffer in self.exchanged
        if self.backward and self.schedule.buffers[at.buffer].source:
            raise Unsupported("a product with a state in its own derivative")
        base = f"{self.pointer(at.buffer)} + (at + {at.lag} * batch) * {size} + {at.offset}"
        there = f"t + {at.lag} < steps" if at.lag else "batch > 0"
        return _Source(base, there, size, operand.width, waits, (-at.lag, self._rank(at)))

    def _rank(self, at) -> int:
        return self.order.get((at.buffer, at.offset), 0)

    def _products(self, group: Group, mark: int) -> None:
        """Lanes of a group. What multiplies numbers that are there is done first, while others are on their way; then
        wait, multiply those, and look whether all of them had come."""
        operands = list(dict.fromkeys(a for lane in group.lanes for a in lane.args if not _is_x(a)))
        sources = {operand: self._source(operand) for operand in operands}
        looping = [lane for lane in group.lanes if any(a in sources for a in lane.args)]
        sums = {lane: f"sum{i}" for i, lane in enumerate(looping)}
        bases = {operand: f"base_{mark}_{i}" for i, operand in enumerate(operands)}
        self.step += [f"{bases[operand]} = {sources[operand].base}" for operand in operands]
        there = [o for o in operands if o in self.settled or not sources[o].waits]
        coming = [o for o in operands if o not in there]
        self.step += [f"{name} = none" for name in sums.values()]
        self.step += self._dots(there, {o: replace(sources[o], waits=False) for o in there}, bases, sums)
        if coming:
            self._await(coming, sources, bases, sums)
        self.settled |= set(coming)
        t = self.tiling
        self.step += [f"{name} = put(bench_, {i}, {name})" for i, name in enumerate(sums.values())]
        for i, lane in enumerate(looping):
            self.step.append(f"n{lane.index} = take(bench_, {i}, sum{i}, {t.rows}, {t.columns}, {t.warps})")
        for lane in group.lanes:
            self._with_input(lane, lane in sums)

    def _dots(self, operands: list[Node], sources: dict[Node, _Source], bases: dict, sums: dict) -> list[str]:
        lines = []
        parts = [(operand, start) for operand in operands for start in self._starts(operand.width)]
        for batch in batched(parts, self.tiling.depth):
            for number_, (operand, start) in enumerate(batch):
                place = self._operand_call(bases[operand], sources[operand], start)
                lines.append(f"part{number_} = operand({place})")
            for number_, (operand, start) in enumerate(batch):
                for lane, matrix in _users(list(sums), operand):
                    tile = self._weight(matrix, start)
                    lines.append(f'{sums[lane]} = dot(part{number_}, {tile}, {sums[lane]}, "{self.precision}")')
        return lines

    def _await(self, coming: list[Node], sources: dict[Node, _Source], bases: dict, sums: dict) -> None:
        self._look_early(coming, sources, bases)
        waited = {lane: name for lane, name in sums.items() if any(a in coming for a in lane.args)}
        self.step += [f"have{name} = {name}" for name in waited.values()]
        self.step += ["waiting = 1", "settled = 0", "while waiting != 0:"]
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
        self.step += ["    " + line for line in lines]

    def _look_early(self, coming: list[Node], sources: dict[Node, _Source], bases: dict[Node, str]) -> None:
        """Wait for the number that is written last, of each program: cheaper than asking for all of them again."""
        latest, t = max(coming, key=lambda operand: sources[operand].rank), self.tiling
        source = sources[latest]
        call = (
            f"early({bases[latest]}, {source.there}, first_row, batch, {source.stride},"
            f" {source.deep}, {t.rows}, {t.columns}, {t.warps})"
        )
        self.step += [f"hint = {call}", "while hint != 0:", f"    hint = {call}"]

    def _operand_call(self, base: str, source: _Source, start: int) -> str:
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
        columns = self.columns_of(matrix.weight)
        across, down = (1, columns) if matrix.flipped else (columns, 1)
        pointer = self.pointer(f"weight:{matrix.weight}")
        t = self.tiling
        first = "first_column" if matrix.wide > 1 else "mine * 0"  # a single column is everybody's
        load = (
            f"weights({pointer} + {matrix.rows[0] * columns + matrix.cols[0]}, {first}, {across}, {down},"
            f" {matrix.wide}, {start}, {matrix.deep}, {self.chunk}, {t.columns}, {t.warps})"
        )
        if t.weights == "memory":
            return load
        name = next((known for known, text, _ in self.weight_tiles if text == load), None)
        if name is None:
            name = f"w{len(self.weight_tiles)}"
            self.weight_tiles.append((name, load, pointer))
            if t.weights == "registers" or self.interpreted:
                self.before.append(f"{name} = {load}")
            else:
                self.before.append(f"keep(shelf_, {len(self.weight_tiles) - 1}, {load})")
        if t.weights == "shared" and not self.interpreted:
            return f"kept(shelf_, {int(name[1:])}, {t.warps})"
        return name

    def columns_of(self, weight: str) -> int:
        return self.plan.equations.hoisted[weight][-1]

    def _with_input(self, lane: Node, looped: bool) -> None:
        """Add what the products with x gave before the loop."""
        name = f"n{lane.index}"
        if any(_is_x(a) for a in lane.args):
            self.lanes.append((lane, self.lane_columns))
            given = self._soon(
                lane, f"{self.pointer('pre')} + next_at * PRE_WIDTH", "PRE_WIDTH", self.lane_columns, lane.width
            )
            self.lane_columns += lane.width
            self.step.append(f"{name} = {name} + {given}" if looped else f"{name} = {given}")
        if lane.width == 1:  # everybody computes it: the first column of everybody's tile
            t = self.tiling
            self.step.append(
                f"{name} = across({name}, (col - first_column) == 0, False, {t.rows}, {t.columns}, {t.warps})"
            )
        self.names[lane] = name

    # ------------------------------------------------------------------------------------------ values

    def _group(self, mark: int, group: Group) -> None:
        if group.lanes:
            self._products(group, mark)
        for node in group.body:
            if node not in self.names:
                self._value(node)
        stores = sorted(group.stores, key=lambda o: self._symbol(o.buffer) not in self.exchanged)
        for out in stores:
            self._store(out)
        for q, node in group.sums:
            self._sum(q, node)
        for node in group.rowsums:
            self._row_sum(node)

    def _value(self, node: Node) -> None:
        if node.op == "const":
            self.names[node] = number(node.attr)
        elif node.op == "weight":
            self._vector(node)
        elif node.op == "expand":
            self.names[node] = self.names[node.args[0]]
        else:
            self.names[node] = f"n{node.index}"
            self.step.append(f"n{node.index} = {self._expression(node)}")

    def _expression(self, node: Node) -> str:
        args = [self.names[a] for a in node.args]
        if node.op == "clamp":
            return clamp(args[0], *node.attr)
        if node.op == "pow":
            return power(args[0], node.attr)
        if node.op not in EXPRESSIONS:
            raise Unsupported(f"{node.op} on a GPU")
        return EXPRESSIONS[node.op].format(*(f"({a})" if a.startswith("-") else a for a in args))

    def _vector(self, node: Node) -> None:
        vector: Vector = node.attr
        shape = self.plan.equations.hoisted[vector.weight]
        stride, offset = (1, vector.rows[0]) if vector.col is None else (shape[-1], 0)
        if vector.col is not None:
            offset = vector.rows[0] * shape[-1] + vector.col
        place = f"{self.pointer('weight:' + vector.weight)} + {offset}"
        name = self.names[node] = f"b{node.index}"
        if node.width == 1:
            self.before.append(f"{name} = L.load({place}).to(L.float32)")
        else:
            self.before.append(f"{name} = read({place} + col * {stride}, col < {node.width})")

    # ------------------------------------------------------------------------------------------ results

    def _store(self, out: Out) -> None:
        symbol, width = self._symbol(out.buffer), out.node.width
        if out.buffer == TIME or self._only_a_register(out.buffer, symbol):
            return
        value = self._filled(out.node)
        if self.ragged:
            value = f"L.where(run, {value}, 0.0)"
        how = "publish" if symbol in self.exchanged else "write"
        base = f"{self.pointer(symbol)} + at * {self._size(out.buffer)}"
        address, mask = self._tile(base, self._size(out.buffer), out.offset, width, "live")
        self.step.append(f"{how}({address}, {value}, {mask if width > 1 else mask + ' & (row * 0 + mine == 0)'})")

    def _only_a_register(self, buffer: str, symbol: str) -> bool:
        """Whether nobody reads it from memory."""
        if self.backward:
            return self._stays(buffer) or (buffer.startswith("scratch:") and symbol not in self.exchanged)
        if buffer in self.states:
            kept = self.trains or buffer == self.plan.output or self.states[buffer].delays
            return not kept and symbol not in self.exchanged
        return buffer.startswith("scratch:") and symbol not in self.exchanged

    def _filled(self, node: Node) -> str:
        """A value as a full tile, whatever it was."""
        name = self.names[node]
        return f"({name} + {'zero' if node.width > 1 else 'zero_row'})" if node.is_leaf else name

    def _sum(self, q: int, node: Node) -> None:
        t, name = self.tiling, f"total{q}"
        width = node.width
        self.first.append(f"{name} = zero")
        self.step.append(f"{name} += L.where(run, {self.names[node]}, 0.0)")
        start = sum(n.width for _, n in self.schedule.sums[:q])
        total = sum(n.width for _, n in self.schedule.sums)
        place = f"{self.pointer('sums')} + tile * {total} + {start}"
        self.last.append(f"write_sum({place}, {name}, {width}, first_column, {t.rows}, {t.columns}, {t.warps})")

    def _row_sum(self, node: Node) -> None:
        t, slot = self.tiling, self.schedule.rowsums.index(node)
        value, width = node.args[0], node.args[0].width
        shape = f"{t.rows}, {t.columns}, {t.warps}"
        name = self.names[node] = f"n{node.index}"
        self.exchanged.add("rowsums")
        place = f"{self.pointer('rowsums')} + ({slot} * L.cast(steps, L.int64) * batch + at) * {t.programs}"
        largest = node.attr == "max"
        self.step += [
            f"{name} = across({self._filled(value)}, col < {width}, {largest}, {shape})",
            f"{name} = row_total({place}, {name}, mine, live, first_row, batch, {t.programs}, {largest}, {shape})",
        ]

    def _end_of_step(self) -> None:
        """What the next step finds in registers; after the last, what is left in them."""
        for group in self.schedule.groups:
            for out in group.stores:
                key = (out.buffer, out.offset, out.node.width)
                if key in self.registers:
                    name, new = self.registers[key], self._filled(out.node)
                    self.step.append(f"next_{name} = {f'L.where(run, {new}, {name})' if self.ragged else new}")
        for key, name in self.registers.items():
            self.step.append(f"{name} = next_{name}")
            buffer, offset, width = key
            symbol = f"dinit:{self._carried(buffer)[0]}" if self.backward else f"final:{buffer}"
            address, mask = self._tile(self.pointer(symbol), self._size(buffer), offset, width, "live")
            self.last.append(f"write({address}, {name}, {mask if width > 1 else mask + ' & (row * 0 + mine == 0)'})")


def batched(parts: list, size: int) -> list[list]:
    return [parts[i : i + size] for i in range(0, len(parts), size)]


def _users(lanes: list[Node], operand: Node) -> list[tuple[Node, Matrix]]:
    """Lanes that multiply an operand, and by what."""
    return [(lane, m) for lane in lanes for a, m in zip(lane.args, lane.attr, strict=True) if a is operand]


def _is_x(operand: Node) -> bool:
    return operand.op == "load" and operand.attr.buffer == "x"


def _joined(name: str, calls: Iterable[str]) -> list[str]:
    first, *rest = calls
    return [f"{name} = {first}", *(f"{name} = {name.strip()} | {call}" for call in rest)]
