"""Matrix products of cooperating programs: loading operands, waiting for other programs, and keeping weights."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...ir.buffers import INPUT_PROJECTION, BufferRef, Role
from ...ir.lowering import Unsupported
from ...ir.nodes import Load, Matrix, Node
from ...plan.program import Out, Plan
from ...plan.schedule import Group, Schedule
from .kernel_builder import KernelBuilder
from .operands import Operands
from .spin_wait import WORDS, constraints, instructions, join_tiles
from .tiling import depth_of, is_x


@dataclass(frozen=True)
class Source:
    """The memory of an operand at this step."""

    base: str  # pointer to its first column
    valid: str  # condition; zeros are loaded unless it holds
    stride: int
    offset: int  # of its first column in the buffer
    deep: int
    waits: bool  # for other programs
    rank: tuple[int, int]  # order of stores: the operand stored last is polled first
    block: int = 0  # outputs of the diagonal block whose inputs are read; 0: all inputs are


class CooperativeProducts:
    """Writes the products of programs that share the columns of a row."""

    def __init__(self, schedule: Schedule, plan: Plan, builder: KernelBuilder, operands: Operands):
        self.schedule, self.plan, self.builder, self.operands = schedule, plan, builder, operands
        self.tiling, self.spec = builder.tiling, builder.spec
        self.chunk = 512 // self.spec.bits  # elements of depth per warp: four threads with sixteen bytes each
        self.exchanged: set[BufferRef] = set()  # buffers that programs wait for
        self.lanes: list[tuple[Node, int]] = []  # product with x before the loop; its first column
        self.is_projected = _never if self.spec.single_step else is_x  # operand of a product that runs before the loop
        lanes = [lane for group in schedule.groups for lane in group.lanes]
        self.lane_columns = sum(lane.width for lane in lanes if any(map(self.is_projected, lane.args)))
        self.settled: set[Node] = set()  # operands known to be complete at this step
        self.weight_tiles: list[tuple[str, str, str]] = []  # (variable, load expression, pointer)
        self.order = {(o.buffer, o.offset): i for i, o in enumerate(o for g in schedule.groups for o in g.stores)}
        self.made: dict[Node, Out] = {}  # value of a step → its first store
        for out in (o for g in schedule.groups for o in g.stores):
            self.made.setdefault(out.node, out)
        self._find_exchanged()

    def shared_memory_setup(self) -> list[str]:
        """Lines that allocate shared memory and the zero accumulator."""
        t, count = self.tiling, max((len(g.lanes) for g in self.schedule.groups), default=0)
        lines = [
            f"zero_sum = zero_accumulator({self.builder.shape})",
            *([f"partials = partials_buffer({count}, {self.builder.shape})"] * bool(count)),
        ]
        if t.weights == "shared" and self.weight_tiles and not self.spec.interpreted:
            like = self.weight_tiles[0][2]
            sizes = f"{len(self.weight_tiles)}, {self.chunk}, {t.columns}, {t.warps}"
            lines.append(f"stored_weights = weight_buffer({sizes}, {like})")
        return lines

    def store_operand(self, out: Out, value: str) -> None:
        """Make a stored value available to products; in cooperative mode its memory is enough."""

    def _find_exchanged(self) -> None:
        """Find the buffers that programs wait for: operands of products that the loop itself stores."""
        written = {out.buffer for g in self.schedule.groups for out in g.stores}
        for lane in (lane for g in self.schedule.groups for lane in g.lanes):
            for operand in lane.args:
                buffer = operand.attr.buffer if operand.op == "load" else self.made[operand].buffer
                if buffer in written and not (self.spec.single_step and operand.op == "load"):
                    self.exchanged.add(buffer)

    def _source(self, operand: Node) -> Source:
        if operand.op != "load":
            out = self.made[operand]
            size = self.operands.size(out.buffer)
            base = f"{self.builder.pointer(out.buffer)} + at * {size} + {out.offset}"
            return Source(
                base, "batch > 0", size, out.offset, operand.width, True, (0, self.order[out.buffer, out.offset])
            )
        at, size = operand.attr, self.operands.size(operand.attr.buffer)
        if at.buffer.role is Role.STATE and self.spec.single_step:
            base = f"{self.builder.pointer(BufferRef.initial(at.buffer.name))} + {at.offset}"
            return Source(base, "batch > 0", size, at.offset, operand.width, False, (0, 0))
        if at.buffer.role is Role.STATE:
            hist, start = self.builder.pointer(at.buffer), self.builder.pointer(BufferRef.initial(at.buffer.name))
            base = (
                f"choose(t >= {at.lag}, {hist} + (at - {at.lag} * batch) * {size},"
                f" {start} + ({at.lag - 1} - t) * batch * {size}) + {at.offset}"
            )
            return Source(base, "batch > 0", size, at.offset, operand.width, True, (-at.lag, self._rank(at)))
        waits = at.buffer in self.exchanged
        if at.buffer.role is Role.PAST:
            raise Unsupported("a product with a state in its own derivative")
        base = f"{self.builder.pointer(at.buffer)} + (at + {at.lag} * batch) * {size} + {at.offset}"
        valid = f"t + {at.lag} < {self.builder.ends}" if at.lag else "batch > 0"
        return Source(base, valid, size, at.offset, operand.width, waits, (-at.lag, self._rank(at)))

    def _of_block(self, group: Group, operand: Node) -> Source:
        """The memory of an operand; where all matrices that multiply it are zero outside diagonal blocks, that of the
        block in which this program's columns lie."""
        source = self._source(operand)
        matrices = [matrix for _, matrix in _users(group.lanes, operand)]
        bands = {(m.bands[1], depth_of(m, self.tiling.columns), m.wide) for m in matrices}
        (block, deep, _), *others = bands
        if others or deep == operand.width or len({m.deep for m in matrices}) > 1:
            return source
        base = f"({source.base}) + first_column // {block} * {deep}"
        return replace(source, base=base, deep=deep, block=block)

    def _rank(self, at: Load) -> int:
        return self.order.get((at.buffer, at.offset), 0)

    def emit(self, group: Group, mark: int) -> None:
        """Write the lanes of a group: first products of complete operands, while the others arrive; then wait and
        multiply those."""
        operands = list(dict.fromkeys(a for lane in group.lanes for a in lane.args if not self.is_projected(a)))
        sources = {operand: self._of_block(group, operand) for operand in operands}
        looping = [lane for lane in group.lanes if any(a in sources for a in lane.args)]
        sums = {lane: f"sum{i}" for i, lane in enumerate(looping)}
        bases = {operand: f"base_{mark}_{i}" for i, operand in enumerate(operands)}
        self.builder.step += [f"{bases[operand]} = {sources[operand].base}" for operand in operands]
        complete = [o for o in operands if o in self.settled or not sources[o].waits]
        pending = [o for o in operands if o not in complete]
        self.builder.step += [f"{name} = zero_sum" for name in sums.values()]
        self.builder.step += self._load_and_dot(
            complete, {o: replace(sources[o], waits=False) for o in complete}, bases, sums
        )
        if pending and all(self._is_vectorised(sources[operand]) for operand in pending):
            self.builder.step += self._spin_wait_by_warp(pending, sources, bases, sums)
        elif pending:
            self._spin_wait_by_program(pending, sources, bases, sums)
        self.settled |= {operand for operand in pending if not sources[operand].block}
        self.builder.step += [f"{name} = store_partials(partials, {i}, {name})" for i, name in enumerate(sums.values())]
        for i, lane in enumerate(looping):
            self.builder.step.append(f"n{lane.index} = reduce_partials(partials, {i}, sum{i}, {self.builder.shape})")
        for lane in group.lanes:
            self._with_input(lane, lane in sums)

    def _load_and_dot(self, operands: list[Node], sources: dict[Node, Source], bases: dict, sums: dict) -> list[str]:
        lines = []
        parts = [(operand, start) for operand in operands for start in self._starts(sources[operand].deep)]
        for batch in batched(parts, self.tiling.depth):
            for number_, (operand, start) in enumerate(batch):
                place = self._operand_call(bases[operand], sources[operand], start)
                lines.append(f"part{number_} = load_operand({place})")
            for number_, (operand, start) in enumerate(batch):
                lines += self._dot_lines(operand, start, f"part{number_}", sums, sources[operand])
        return lines

    def _is_vectorised(self, source: Source) -> bool:
        """Whether rows are multiples of sixteen bytes, so that each thread can poll its own vector."""
        elements = 128 // self.spec.bits
        aligned = source.stride % elements == source.offset % elements == source.deep % elements == 0
        return aligned and self.spec.warps_wait

    def _spin_wait_by_warp(
        self, pending: list[Node], sources: dict[Node, Source], bases: dict, sums: dict
    ) -> list[str]:
        t, rows = self.tiling, self.tiling.rows // 8
        lines, first = [f"row_count = valid_rows(first_row, batch, {t.warps})"], "probe" if t.probe_first else "pause"
        parts = [(operand, start) for operand in pending for start in self._starts(sources[operand].deep)]
        if t.probe_first:
            latest = max(pending, key=lambda operand: sources[operand].rank)
            call = self._operand_call(bases[latest], replace(sources[latest], waits=False), 0)
            lines.append(f"probe = probe_pointers({call})")
        for batch in batched(parts, t.depth):
            spots = [f"pointer{i}" for i in range(len(batch))]
            words = [[f"word{i}_{j}" for j in range(rows * WORDS)] for i in range(len(batch))]
            for spot, (operand, start) in zip(spots, batch, strict=True):
                source = replace(sources[operand], waits=False)
                lines.append(f"{spot} = vector_pointers({self._operand_call(bases[operand], source, start)})")
            strides = [
                sources[operand].stride * self.spec.bits for operand, _ in batch
            ]  # bytes between rows r and r + 8
            lines.append(
                f"{', '.join(word for group in words for word in group)} = L.inline_asm_elementwise("
                f'"{instructions(strides, rows, self.spec.bits, first)}", "{constraints(len(batch), rows, first)}",'
                f" [{', '.join([*spots, 'row_count', *(['probe'] if first == 'probe' else [])])}],"
                f" ({'L.int32, ' * (rows * WORDS * len(batch))}), False, 1)"
            )
            first = ""  # the other programs have stored by now
            for i, (operand, start) in enumerate(batch):
                lines.append(f"part{i} = unpack_operand({join_tiles(words[i])}, {bases[operand]}, {t.rows}, {t.warps})")
                lines += self._dot_lines(operand, start, f"part{i}", sums, sources[operand])
        return lines

    def _dot_lines(self, operand: Node, start: int, part: str, sums: dict, source: Source) -> list[str]:
        return [
            f'{sums[lane]} = dot({part}, {self._weight(matrix, start, source)}, {sums[lane]}, "{self.spec.precision}")'
            for lane, matrix in _users(list(sums), operand)
        ]

    def _spin_wait_by_program(self, pending: list[Node], sources: dict[Node, Source], bases: dict, sums: dict) -> None:
        self._probe(pending, sources, bases)
        waited = {lane: name for lane, name in sums.items() if any(a in pending for a in lane.args)}
        self.builder.step += [f"have{name} = {name}" for name in waited.values()]
        self.builder.step += ["waiting = 1", "settled = 0", "while waiting != 0:"]
        lines = [f"{name} = have{name}" for name in waited.values()]
        lines += self._load_and_dot(pending, sources, bases, waited)
        # NaN: an operand may have been incomplete. If all are complete now, one more round is final.
        lines.append(f"waiting = has_nan({' + '.join(waited.values())}) * (1 - settled)")
        calls = [
            f"operand_unset({self._operand_call(bases[operand], sources[operand], start)})"
            for operand in pending
            for start in self._starts(sources[operand].deep)
        ]
        lines += ["if waiting != 0:", *_any_of("    unset", calls)]
        lines += ["    settled = 1 - unset", "    waiting = waiting * 0 + 1"]
        self.builder.step += ["    " + line for line in lines]

    def _probe(self, pending: list[Node], sources: dict[Node, Source], bases: dict[Node, str]) -> None:
        """Poll one element per program of the operand stored last: cheaper than loading all operands again."""
        latest = max(pending, key=lambda operand: sources[operand].rank)
        source = sources[latest]
        place = f"{bases[latest]}, {source.valid}, first_row, batch, {source.stride}, {source.deep}"
        call = f"probe_unset({place}, {self.builder.shape})"
        self.builder.step += [f"probe = {call}", "while probe != 0:", f"    probe = {call}"]

    def _operand_call(self, base: str, source: Source, start: int) -> str:
        valid = f"({source.valid}) & (probe == 0)" if source.waits else source.valid
        t = self.tiling
        return (
            f"{base}, {valid}, first_row, batch, {source.stride}, {start}, {source.deep}, {self.chunk},"
            f" {t.rows}, {t.warps}"
        )

    def _starts(self, deep: int) -> range:
        return range(0, deep, self.chunk * self.tiling.warps)

    def _weight(self, matrix: Matrix, start: int, source: Source) -> str:
        """The variable that holds a tile of a matrix, or the expression that loads it."""
        pointer, place, strides = self._place(matrix)
        t, deep = self.tiling, source.deep
        if source.block:
            place = f"{place} + first_column // {source.block} * {deep * int(strides.split(', ')[1])}"
        first = "first_column" if matrix.wide > 1 else "program * 0"  # a single column belongs to all programs
        load = (
            f"load_weights({place}, {first}, {strides}, {matrix.wide}, {start}, {deep}, {self.chunk},"
            f" {t.columns}, {t.warps})"
        )
        if t.weights == "memory":
            return load
        in_shared = t.weights == "shared" and not self.spec.interpreted
        name = self._loaded_once(load, pointer, in_shared)
        return f"load_stored_weights(stored_weights, {int(name[1:])}, {t.warps})" if in_shared else name

    def _place(self, matrix: Matrix) -> tuple[str, str, str]:
        """(argument, pointer to the first element of a matrix, its strides between columns and rows)."""
        columns = self.plan.equations.hoisted[matrix.weight][-1]
        pointer = self.builder.pointer(BufferRef.weight(matrix.weight))
        strides = f"1, {columns}" if matrix.flipped else f"{columns}, 1"
        return pointer, f"{pointer} + {matrix.rows[0] * columns + matrix.cols[0]}", strides

    def _loaded_once(self, load: str, pointer: str, in_shared: bool = False) -> str:
        """The variable of a tile that is loaded once, before the loop; in shared memory, its number is in the name."""
        name = next((known for known, text, _ in self.weight_tiles if text == load), None)
        if name is None:
            number = len(self.weight_tiles)
            name = f"w{number}"
            self.weight_tiles.append((name, load, pointer))
            self.builder.setup.append(
                f"store_weights(stored_weights, {number}, {load})" if in_shared else f"{name} = {load}"
            )
        return name

    def _with_input(self, lane: Node, looped: bool) -> None:
        """Add the input projection, which was computed before the loop."""
        name = f"n{lane.index}"
        if any(map(self.is_projected, lane.args)):
            column = sum(earlier.width for earlier, _ in self.lanes)
            self.lanes.append((lane, column))
            base = f"{self.builder.pointer(INPUT_PROJECTION)} + next_at * {self.lane_columns}"
            given = self.builder.prefetch(lane, base, self.lane_columns, column, lane.width)
            self.builder.step.append(f"{name} = {name} + {given}" if looped else f"{name} = {given}")
        if lane.width == 1:  # computed by all programs, in the first column of each tile
            self.builder.step.append(
                f"{name} = reduce_columns({name}, (col - first_column) == 0, False, {self.builder.shape})"
            )
        self.operands.names[lane] = name


def _never(operand: Node) -> bool:
    return False


def batched(parts: list, size: int) -> list[list]:
    return [parts[i : i + size] for i in range(0, len(parts), size)]


def _users(lanes: list[Node], operand: Node) -> list[tuple[Node, Matrix]]:
    """Lanes that multiply an operand, each with its matrix."""
    return [(lane, m) for lane in lanes for a, m in zip(lane.args, lane.attr, strict=True) if a is operand]


def _any_of(name: str, calls: Iterable[str]) -> list[str]:
    first, *rest = calls
    return [f"{name} = {first}", *(f"{name} = {name.strip()} | {call}" for call in rest)]
