"""Writes the C++ function of a group as a nest of loops over the axes of a matrix: heads, rows, vectors of columns.

A value that does not change along an axis is read outside its loop. Columns run in blocks of a few vectors, whose sums
over rows stay in registers. Threads share the heads.
"""

from typing import NamedTuple

from ..ir.buffers import Role
from ..ir.nodes import TABLE, Node
from ..plan.nests import Places
from .group_writer import GroupWriter, number

BLOCKS = (4, 2, 1)  # vectors of columns at a time


class _Kind(NamedTuple):
    """Along which of the two innermost axes a value changes."""

    by_row: bool
    by_column: bool


class NestWriter(GroupWriter):
    """Writes the function of one group with axes."""

    def function(self) -> str:
        self.kinds: dict[Node, _Kind] = {}
        self.heads: list[str] = []  # lines per head
        self.columns: list[str] = []  # per block of columns
        self.rows: list[str] = []  # per row
        self.vectors: list[str] = []  # per vector
        self.after_row: list[str] = []
        self.after_rows: list[str] = []
        for node in self.group.body:
            self._node(node)
        for out in self.group.stores:
            base = self._base(out.node.builder.load(out.buffer, out.node.width, offset=out.offset))
            if out.buffer.role is Role.STATE and self._keeps_history:
                self.vectors.append(f"__builtin_prefetch(b{base} + i * d{base} + {{at}} + FAR, 1);")
            self.vectors.append(f"store(b{base} + i * d{base} + {{at}}, {self.names[out.node]}, count);")
        for node in self.group.reductions:
            self._reduce(node)
        return "\n".join(self._text())

    @property
    def _keeps_history(self) -> bool:
        """Whether each step writes its states to memory of its own, for the backward pass."""
        return any(buffer.role is Role.KEPT for buffer in self.schedule.buffers)

    def _text(self) -> list[str]:
        group, last = self.index, len(self.group.axes) - 1
        sizes = [f"const int64_t size{a} = {self._size('size', a, s)};" for a, s in enumerate(self.group.axes)]
        blocks = [f"for (; v + {n} * W <= size{last}; v += {n} * W) part(Vectors<{n}>{{}}, v, W);" for n in BLOCKS[:-1]]
        return [
            f"static void group_{group}(const Call& c, int64_t s, int64_t low, int64_t high, int64_t first,"
            " int64_t last, int64_t me, real* sums) {",
            *("  " + line for line in (*self.setup, *sizes)),
            "  for (int64_t i = low; i < high; ++i) {",
            "    constexpr int64_t r = 0;",
            "    for (int64_t head = first; head < last; ++head) {",
            *("      " + line for line in (*self._coordinates(), *self.heads, *self._block())),
            "      int64_t v = 0;",
            *("      " + line for line in blocks),
            f"      for (int64_t left; (left = size{last} - v) > 0; v += W)",
            "        part(Vectors<1>{}, v, left < W ? int(left) : W);",
            "    }",
            "  }",
            "}",
        ]

    def _coordinates(self) -> list[str]:
        """Those of a head along the outer axes."""
        outer = range(len(self.group.axes) - 2)
        lines = []
        for axis in outer:
            within = " * ".join(f"size{a}" for a in outer if a > axis)
            lines.append(f"const int64_t h{axis} = head{f' / ({within})' if within else ''} % size{axis};")
        return lines

    def _block(self) -> list[str]:
        """The function of a block of columns: all rows of it."""
        row, last = len(self.group.axes) - 2, len(self.group.axes) - 1

        def each(lines: list[str]) -> list[str]:
            return ["UNROLLED for (int u = 0; u < N; ++u) {", *("  " + line for line in lines), "}"] if lines else []

        at = "column + u * W"
        declared = [line for line in self.columns if line.startswith("vec ")]
        computed = [line for line in self.columns if not line.startswith("vec ")]
        return [
            "auto part = [&](auto vectors, int64_t v, int count) __attribute__((always_inline)) {",
            "  constexpr int N = decltype(vectors)::value;",
            *("  " + line for line in (*declared, *each(computed))),
            f"  for (int64_t k = 0; k < size{row}; ++k) {{",
            f"    const int64_t column = (head * size{row} + k) * size{last} + v;",
            *("    " + line for line in self.rows),
            *("    " + line.replace("{at}", at) for line in each(self.vectors)),
            *("    " + line for line in self.after_row),
            "  }",
            *("  " + line for line in self.after_rows),
            "};",
        ]

    # ------------------------------------------------------------------------------------------ values

    def _size(self, *key: object) -> str:
        """A number of the cell's sizes, the last of a key."""
        return f"c.offsets[{number(self.tables.offsets, key)}]"

    def _node(self, node: Node) -> None:
        kind, value = self._value(node)
        self.kinds[node], self.names[node] = kind, self._written(kind, value)

    def _written(self, kind: _Kind, value: str) -> str:
        """Write a value where it changes no more often than it must; what it is called there."""
        name = f"v{next(self.counter)}"
        if kind.by_row:
            (self.vectors if kind.by_column else self.rows).append(f"const vec {name} = {value};")
        elif kind.by_column:
            self.columns += [f"vec {name}[N];", f"{name}[u] = {value};"]
            return f"{name}[u]"
        else:
            self.heads.append(f"const vec {name} = {value};")
        return name

    def _value(self, node: Node) -> tuple[_Kind, str]:
        full, none = _Kind(True, True), _Kind(False, False)
        load = self.group.loads.get(node, node if node.op == "load" else None)
        if load is not None:
            if node.width == 1:
                return none, self._read(load)
            base = self._base(load)
            if load.attr.buffer.role is Role.PAST:
                self.vectors.append(f"__builtin_prefetch(b{base} + i * d{base} + {{at}} + FAR);")
            value = f"load(b{base} + i * d{base} + {{at}}, count)"
            return full, f"i < c.active[s - 1] ? vec{{}} : {value}" if load.attr.start else value
        if node.op == "const":
            return none, f"splat({self._constant(node.attr)})"
        if node.op in ("weight", "literal"):
            row = self._row_address(node)
            return (none, f"splat(*{row})") if node.width == 1 else (full, f"load({row} + {{at}}, count)")
        if node.op == "gather":
            places = self.schedule.nests.places(node)
            assert places is not None
            return self._at(node.args[0], places)
        if node.op == "rowsum":
            return none, self._expression(node)
        kinds = [self.kinds[arg] for arg in node.args]
        kind = _Kind(any(k.by_row for k in kinds), any(k.by_column for k in kinds))
        args = [self.names[arg] for arg in node.args]
        if node.op == "expand":
            return kind, args[0]
        if node.op == "clamp":
            return kind, self._clamped(args[0], *node.attr)
        return kind, TABLE[node.op].cpp.format(*args, attr=node.attr)

    def _at(self, source: Node, places: Places) -> tuple[_Kind, str]:
        """Numbers of another row."""
        kind = _Kind(places.by_row != 0, places.by_column != 0)
        address = self._address(self._row_address(source), source, places)
        row = f" + k * {self._stride(source, places, -2)}" if kind.by_row else ""
        value = f"load({address}{row} + v + u * W, count)" if kind.by_column else f"splat({address}[{row[3:] or 0}])"
        starts = source.op == "load" and source.attr.start
        return kind, f"i < c.active[s - 1] ? vec{{}} : {value}" if starts else value

    def _address(self, row: str, source: Node, places: Places) -> str:
        """The variable that points to the first number of a head in another row."""
        name = f"p{next(self.counter)}"
        outer = range(len(places.strides) - 2)
        terms = [self._size("first", source.index, places.first)]
        terms += [f"h{axis} * {self._stride(source, places, axis)}" for axis in outer if places.strides[axis]]
        self.heads.append(f"real* const {name} = (real*)({row} + {' + '.join(terms)});")
        return name

    def _stride(self, source: Node, places: Places, axis: int) -> str:
        name = f"s{next(self.counter)}"
        self.setup.append(f"const int64_t {name} = {self._size('stride', next(self.counter), places.strides[axis])};")
        return name

    # ------------------------------------------------------------------------------------------ sums

    def _reduce(self, node: Node) -> None:
        """A sum over rows in registers, over columns of a row by one vector, or over both."""
        reduction = self.schedule.nests.reductions[node]
        factors = []
        for arg, places in zip(node.args, reduction.args, strict=True):
            if places is None:
                factors.append(self.names[arg])
                continue
            factors.append(self._written(*self._at(arg, places)))
        place = self.schedule.stored[node]
        address = self._address(f"b{self._base(place)} + i * d{self._base(place)}", node, reduction.result)
        name, product = f"sum{next(self.counter)}", " * ".join(factors)
        if reduction.result.by_column:
            self.columns.append(f"vec {name}[N] = {{}};")
            self.vectors.append(f"{name}[u] += {product};")
            store = f"store({address} + v + u * W, {name}[u], count);"
            self.after_rows.append(f"UNROLLED for (int u = 0; u < N; ++u) {store}")
            return
        self.vectors.append(f"{name} += zero_tail({product}, count);")
        if reduction.result.by_row:
            self.rows.append(f"vec {name} = {{}};")
            row = self._stride(node, reduction.result, -2)
            self.after_row.append(f"add_part({address}[k * {row}], {name}, v);")
        else:
            self.columns.append(f"vec {name} = {{}};")
            self.after_rows.append(f"add_part({address}[0], {name}, v);")
