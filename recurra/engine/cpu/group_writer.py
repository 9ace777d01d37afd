"""Writes the C++ function of a group: matrix products of a block of rows, then one fused loop over the columns."""

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ..ir.buffers import BufferRef
from ..ir.index_map import IndexMap
from ..ir.nodes import TABLE, Load, Matrix, Node, Vector
from ..plan.schedule import Group, Schedule

LITERALS = {"0.0": "0", "-0.0": "-0.0", "1.0": "1", "-1.0": "-1", "2.0": "2", "0.5": "0.5"}


@dataclass
class Tables:
    """What the generated code addresses by index."""

    buffers: dict[BufferRef, int] = field(default_factory=dict)
    offsets: dict[Hashable, int] = field(default_factory=dict)
    constants: dict[float, int] = field(default_factory=dict)
    vectors: dict[Vector, int] = field(default_factory=dict)
    literals: dict[tuple[float, ...], int] = field(default_factory=dict)
    maps: dict[IndexMap, int] = field(default_factory=dict)
    packs: list[list[tuple[Matrix, ...]]] = field(default_factory=list)  # each: lanes × segments
    groups: list[Group] = field(default_factory=list)  # packs of group g: pack_group[i] == g
    pack_group: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)  # at which fewer rows may be active


def number(table: dict, key: Any) -> int:
    return table.setdefault(key, len(table))


class GroupWriter:
    """Writes the function of one group."""

    def __init__(self, group: Group, index: int, schedule: Schedule, tables: Tables, shrinking: bool):
        self.group, self.index, self.schedule, self.tables, self.shrinking = group, index, schedule, tables, shrinking
        self.names: dict[Node, str] = {}
        self.counter = itertools.count()
        self.bases: dict[tuple[BufferRef, int, int], int] = {}
        self.setup: list[str] = []  # lines before the loops
        self.column: list[str] = []  # lines per vector of columns
        self.row: list[str] = []  # lines per row
        self.last: list[str] = []  # lines after the loops
        self.touched: dict[int, None] = {}  # bases of the rows that the equations read or write

    def function(self) -> str:
        self._name_lanes()
        for node in self.group.body:
            self._node(node)
        self._results()
        products, g = self._products(), self.index
        head = (
            f"static void group_{g}(const Call& c, int64_t s, int64_t low, int64_t high, int64_t first, int64_t last,"
            " int64_t me, real* sums) {"
        )
        lines = [
            head,
            f"  const int64_t width = c.widths[{g}], tile = c.tiles[{g}], vectors = (width + W - 1) / W;",
            *("  " + line for line in self.setup),
            "  const bool reversed = c.exceeds_cache && s & 1;  // the weights read last are still in the cache",
            "  for (int64_t q = first; q < last; ++q) {",
            "    const int64_t j = reversed ? first + last - 1 - q : q;",
            "    const int64_t wide = vectors - j * tile < tile ? vectors - j * tile : tile;",
            "    for (int64_t group = low, end; group < high; group = end) {",
            "      end = group + row_group(c, high - group);",
            *("      " + line for line in products),
            *("      " + line for line in self._loop_over_blocks(self._equations())),
            "    }",
            "  }",
            *("  " + line for line in self.last),
            "}",
        ]
        return "\n".join(lines)

    def _loop_over_blocks(self, lines: list[str]) -> list[str]:
        """A loop over the blocks of a row group: rows from `i` on, whose products are at `here`."""
        lanes = len(self.group.lanes)
        return [
            "for (int64_t i = group, turn = 0, rows; i < end; i += rows, ++turn) {",
            "  rows = block(end - i);",
            *([f"  real* const here = sum + turn * {lanes} * wide * ROWS * W;"] if lanes else []),
            *("  " + line for line in lines),
            "}",
        ]

    def _equations(self) -> list[str]:
        return [
            "for (int64_t u = 0; u < wide; ++u) {",
            "  const int64_t column = (j * tile + u) * W;",
            "  const int count = width - column < W ? int(width - column) : W;",
            *("  " + line for line in self.column),
            "  for (int64_t r = 0; r < rows; ++r) {",
            *("    " + line for line in self._prefetch_next_step()),
            *("    " + line for line in self.row),
            "  }",
            *("  " + line for line in self._flushes()),
            "}",
        ]

    def _prefetched_rows(self) -> list[str]:
        """Collect the addresses of rows that the equations read and write; they are prefetched during the products."""
        rows = [f"prefetched[prefetch_count++] = b{base} + (i + r) * d{base} + j * tile * W;" for base in self.touched]
        return [
            f"const real* prefetched[{max(1, len(rows))} * ROWS];",
            "int prefetch_count = 0;",
            *(["for (int64_t r = 0; r < rows; ++r) {", *("  " + row for row in rows), "}"] if rows else []),
        ]

    def _prefetch_next_step(self) -> list[str]:
        """In a group without products: prefetch the same row of the next step."""
        bases = [] if self.group.lanes else self.touched
        return [f"__builtin_prefetch(b{base} + n{base} + (i + r) * d{base} + column);" for base in bases]

    # ------------------------------------------------------------------------------------------ products

    def _name_lanes(self) -> None:
        """Assign each lane the expression of its product."""
        for at, lane in enumerate(lane for _, alike in self.group.classes() for lane in alike):
            self.names[lane] = f"*(const vec*)(here + (({at} * wide + u) * ROWS + r) * W)"

    def _products(self) -> list[str]:
        lines, at = [], 0
        for operands, lanes in self.group.classes():
            pack = len(self.tables.packs)
            self.tables.packs.append([lane.attr for lane in lanes])
            self.tables.pack_group.append(self.index)
            lines += self._class(pack, operands, len(lanes), at)
            at += len(lanes)
        return [f"alignas(64) real sum[ROW_GROUP * {at} * TILE * W];", *lines] if at else []

    def _class(self, pack: int, operands: tuple[Node, ...], lanes: int, at: int) -> list[str]:
        """Products of lanes with the same operands, span by span; the last span prefetches rows of the equations."""
        depth = f"depth_{pack}"
        segments, depths, bands = [], [], []
        for q, operand in enumerate(operands):
            place = operand if operand.op == "load" else self.schedule.stored[operand]
            base, load = self._base(place), place.attr
            length = f"c.offsets[{number(self.tables.offsets, ('depth', pack, q))}]"
            rows = f"b{base} + i * d{base}"
            if self.shrinking and load.lag:
                rows = f"i < c.active[s - {load.lag}] ? {rows} : nullptr"
            segments.append(f"{{{rows}, d{base}, {length}}}")
            depths.append(length)
            bands.append(self._band(pack, q))
        self.setup.append(f"const int64_t {depth} = {' + '.join(depths)}, span_{pack} = span_of(c, {depth});")
        prefetched = "RowPrefetch{}"
        if at == 0:
            last_span = f"k + span_{pack} >= {depth}"
            prefetched = f"{last_span} ? paced_prefetch(prefetched, prefetch_count, wide, span_{pack}) : {prefetched}"
        block = [
            *(self._prefetched_rows() if at == 0 else []),
            f"const Segment segments[] = {{{', '.join(segments)}}};",
            f"const Band bands[] = {{{', '.join(bands)}}};",
            f"products(c, segments, bands, {depth}, k, c.packs[{pack}], Tile{{j * tile, wide, width, {lanes}}},"
            f" int(rows), turn, reversed, {prefetched}, here + {at} * wide * ROWS * W);",
        ]
        every_span = f"for (int64_t k = 0; k < {depth}; k += span_{pack})"
        return [every_span, *("  " + line for line in self._loop_over_blocks(block))]

    def _band(self, pack: int, q: int) -> str:
        """Which inputs each output reads, where the matrices of all lanes have the same diagonal blocks."""
        first, *others = (lane[q].bands for lane in self.tables.packs[pack])
        if not any(first) or any(other != first for other in others):
            return "{}"
        keys = (number(self.tables.offsets, ("band", pack, q, i)) for i in range(len(first)))
        return f"{{{', '.join(f'c.offsets[{key}]' for key in keys)}}}"

    # ------------------------------------------------------------------------------------------ values

    def _base(self, node: Node) -> int:
        load: Load = node.attr
        key = (load.buffer, load.lag, load.offset)
        if key not in self.bases:
            base = self.bases[key] = len(self.bases)
            buffer = number(self.tables.buffers, load.buffer)
            offset = number(self.tables.offsets, ("offset", load.buffer, load.offset))
            lag = f"s - {load.lag}" if load.lag else "s"
            self.setup.append(f"real* const b{base} = at(c, {buffer}, {lag}, {offset});")
            self.setup.append(f"const int64_t d{base} = c.buffers[{buffer}].stride;")
            if not self.group.lanes:
                self.setup.append(f"const int64_t n{base} = to_next(c, {buffer}, {lag}, b{base}, {offset});")
        return self.bases[key]

    def _read(self, node: Node) -> str:
        base = self._base(node)
        address = f"b{base} + (i + r) * d{base}"
        if node.width > 1:
            self.touched[base] = None
        value = f"splat(*({address}))" if node.width == 1 < self.group.width else f"load({address} + column, count)"
        return f"i < c.active[s - 1] ? vec{{}} : {value}" if node.attr.start else value

    def _constant(self, value: float) -> str:
        if (literal := LITERALS.get(str(value))) is not None:
            return f"real({literal})"
        return f"c.constants[{number(self.tables.constants, value)}]"

    def _node(self, node: Node) -> None:
        name = f"v{next(self.counter)}"
        if node.op == "const":
            self.column.append(f"const vec {name} = splat({self._constant(node.attr)});")
        elif node.op == "weight":
            vector = f"c.vectors[{number(self.tables.vectors, node.attr)}]"
            wide = node.width > 1 or self.group.width == 1
            value = f"load({vector} + column, count)" if wide else f"splat(*{vector})"
            self.column.append(f"const vec {name} = {value};")
        elif node.op == "literal":
            row = f"c.literals[{number(self.tables.literals, node.attr)}]"
            self.column.append(f"const vec {name} = load({row} + column, count);")
        elif node.op == "lane" and node not in self.group.loads:
            self.row.append(f"const vec {name} = {self.names[node]};")
        else:
            self.row.append(f"const vec {name} = {self._expression(node)};")
        self.names[node] = name

    def _expression(self, node: Node) -> str:
        if node in self.group.loads:
            return self._read(self.group.loads[node])
        if node.op == "load":
            return self._read(node)
        if node.op == "rowsum":
            slot = self.schedule.rowsums.index(node)
            return f"splat({'rowmax' if node.attr == 'max' else 'rowsum'}(c, {slot}, i + r))"
        if node.op == "expand":
            return self.names[node.args[0]]
        if node.op == "gather":
            return self._gather(node)
        args = [self.names[a] for a in node.args]
        if node.op == "clamp":
            return self._clamped(args[0], *node.attr)
        return TABLE[node.op].cpp.format(*args, attr=node.attr)

    def _gather(self, node: Node) -> str:
        """Numbers read from memory through index maps, and reduced."""
        rows = []
        for arg, index in zip(node.args, node.attr.maps, strict=True):
            rows += [f"c.maps[{number(self.tables.maps, index)}]", self._row_address(arg)]
        function = "gather_dot" if len(node.args) == 2 else f"gather_{node.attr.kind}"
        if node.attr.moves:
            function = "gather_one"
        value = f"{function}({', '.join(rows)}, column, count)"
        starts = any(arg.op == "load" and arg.attr.start for arg in node.args)
        return f"i < c.active[s - 1] ? vec{{}} : {value}" if starts else value

    def _row_address(self, source: Node) -> str:
        """Where the row of a gather's source begins."""
        if source.op == "weight":
            return f"c.vectors[{number(self.tables.vectors, source.attr)}]"
        if source.op == "literal":
            return f"c.literals[{number(self.tables.literals, source.attr)}]"
        base = self._base(source if source.op == "load" else self.schedule.stored[source])
        return f"b{base} + (i + r) * d{base}"

    def _clamped(self, x: str, low: float | None, high: float | None) -> str:
        """min(max(x, low), high): the upper bound wins. NaN passes."""
        inner = f"at_least({x}, {self._constant(low)})" if low is not None else x
        return f"at_most({inner}, {self._constant(high)})" if high is not None else inner

    # ------------------------------------------------------------------------------------------ results

    def _results(self) -> None:
        for out in self.group.stores:
            base = self._base(out.node.builder.load(out.buffer, out.node.width, offset=out.offset))
            self.touched[base] = None
            self.row.append(f"store(b{base} + (i + r) * d{base} + column, {self.names[out.node]}, count);")
        for q, node in self.group.sums:
            self.column.append(f"vec total_{q} = {{}};")
            self.row.append(f"total_{q} += {self.names[node]};")
        for node in self.group.rowsums:
            self._row_sum(self.schedule.rowsums.index(node), self.names[node.args[0]], node.attr == "max")

    def _row_sum(self, slot: int, value: str, largest: bool) -> None:
        """The maximum of a row; or the sum of its vectors, which is reduced to a number at the end."""
        address, every_row = (
            f"(c.rowsums + ({slot} * c.rowsum_parts + me) * c.rows)",
            "for (int64_t i = low; i < high; ++i)",
        )
        if largest:
            self.setup.append(f"{every_row} {address}[i] = -__builtin_inf();")
            self.row.append(f"{address}[i + r] = nan_max({address}[i + r], horizontal_max({value}, count));")
            return
        self.setup.append(f"real* const p{slot} = row_vectors(c, {len(self.schedule.rowsums)}, {slot}, me);")
        self.setup.append(f"{every_row} *(vec*)(p{slot} + i * W) = vec{{}};")
        self.row.append(f"add_to(p{slot} + (i + r) * W, zero_tail({value}, count));")
        self.last.append(f"{every_row} {address}[i] = horizontal_sum(*(const vec*)(p{slot} + i * W));")

    def _flushes(self) -> list[str]:
        return [f"add_to(sums + c.sum_offsets[{q}] + column, total_{q});" for q, _ in self.group.sums]
