"""Write the kernels of a scan: programs that own some units of a row, for a chunk of time.

Steps are written several at a time: their inputs are loaded while those before them are computed. Past the end of a
chunk a step changes nothing. The state of a chunk is a number in 32 bits; what the chunk does to the state before it,
a product of many numbers, is in 64 bits, so that it overflows where the loop would. The text depends neither on the
batch nor on the length.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ...ir.buffers import LENGTHS, BufferKind, BufferRef, Role
from ...ir.nodes import Node, Vector, subgraph
from ...ir.values import Unsupported
from ...plan.program import Plan
from ..math_functions import expression, preamble
from ..math_functions import number as constant
from ..matrix.phases import Place
from .split import Carried, ScanSplit

TOTALS = "totals"  # sums over the steps of a chunk, (chunks · B, all sums side by side)
STEPS = 8  # written at a time, at most
LOADS = 32  # of inputs that a program has on their way, at most
CHUNKS_AHEAD = 16  # chunks whose effects are loaded at once, at most
EFFECTS = 64  # numbers that are loaded at once, at most

GPU, INTERPRETER = "tiles_gluon", "tiles_triton"  # where a kernel's functions are; Gluon's compiler chooses no layouts,
# for which Triton's needs a time that is quadratic in the loads of a kernel

Argument = BufferRef | str


@dataclass(frozen=True)
class PassSpec:
    """Which kernel: of a group of blocks of a level what each chunk does to them, or the last one (level 0)."""

    backward: bool
    ragged: bool
    trains: bool
    exact: bool  # functions of 32-bit accuracy
    units: int
    level: int = 0
    group: int = 0


@dataclass
class PassSource:
    """A generated kernel and its arguments."""

    text: str
    arguments: list[Argument]

    @property
    def interpreted(self) -> str:
        """The text for Triton's interpreter."""
        return self.text.replace(GPU, INTERPRETER)


def start(place: Place) -> str:
    """The buffer of a state before every chunk, (chunks, B, units) in the order in which they run."""
    return f"start of {place[0]} {place[1]}"


def effect(place: Place) -> str:
    """The buffer of what a chunk leaves of a state that starts at zero."""
    return f"effect on {place[0]} {place[1]}"


def factor(place: Place, other: Place) -> str:
    """The buffer of what a chunk multiplies an old state by."""
    return f"factor of {place[0]} {place[1]} by {other[0]} {other[1]}"


def render(scan: ScanSplit, plan: Plan, spec: PassSpec) -> PassSource:
    """The kernel of a pass over the steps."""
    return _PassWriter(scan, plan, spec).run()


def render_chunks(scan: ScanSplit, level: int, group: int, backward: bool, units: int) -> PassSource:
    """The kernel that goes through the chunks: of each the state before it, from its effect and those before."""
    return _ChunksWriter(scan, scan.groups(level)[group], backward, units).run()


class _Writer:
    """Arguments and places of a program that owns `units` units of a row."""

    def __init__(self, scan: ScanSplit, units: int):
        self.scan, self.width, self.units = scan, scan.width, units
        self.arguments: list[Argument] = []

    def pointer(self, argument: Argument) -> str:
        if argument not in self.arguments:
            self.arguments.append(argument)
        return f"a{self.arguments.index(argument)}"

    def load(self, base: str, width: int, stride: int = 1) -> str:
        """This program's units; a single number is the same for all of them."""
        if width == 1:
            return f"L.load({base})"
        place = f"{base} + u * {stride}" if stride > 1 else f"{base} + u"
        masked = ", mask=here, other=0.0" if self.width % self.units else ""
        return f"L.load({place}{masked})"

    def store(self, base: str, value: str, width: int, condition: str) -> str:
        """Where a condition holds; a single number is stored by the first program alone."""
        pointer = base.split(" ", 1)[0]
        if width == 1 < self.width:
            return f"L.store({base}, ({value} + 0.0).to({pointer}.dtype.element_ty), mask={condition} & (block == 0))"
        mask = f"here & ({condition})" if self.width % self.units else f"yes & ({condition})"
        return f"L.store({base} + u, ({value} + zero).to({pointer}.dtype.element_ty), mask={mask})"

    def chunk_place(self, buffer: str, chunk: str) -> str:
        """A row of a buffer (chunks, B, units)."""
        return f"{self.pointer(buffer)} + (L.cast({chunk}, L.int64) * batch + row) * {self.width}"

    def coordinates(self) -> list[str]:
        return [
            "row = L.program_id(0)",
            "block = L.program_id(1)",
            f"u = block * {self.units} + unit_range({self.units})",
            f"here = u < {self.width}",
            f"yes = u < {self.width + self.units}",
            f"zero = unit_zeros({self.units})",
        ]

    def source(self, lines: list[str], scalars: list[str], exact: bool) -> PassSource:
        body = [*self.coordinates(), *lines]
        arguments = [*(f"a{i}" for i in range(len(self.arguments))), *scalars]
        text = [
            f"from recurra.engine.gpu.{GPU} import *",
            f"from recurra.engine.gpu.{GPU} import L, constexpr, jit",
            "",
            preamble(exact, "\n".join(body)),
            "",
            f"@jit(do_not_specialize={scalars})",
            f"def kernel({', '.join(arguments)}):",
            *(f"    # a{i}: {argument}" for i, argument in enumerate(self.arguments)),
            *("    " + line for line in body),
        ]
        return PassSource("\n".join(text) + "\n", self.arguments)


class _PassWriter(_Writer):
    def __init__(self, scan: ScanSplit, plan: Plan, spec: PassSpec):
        super().__init__(scan, spec.units)
        self.plan, self.spec = plan, spec
        blocks = [block for block in scan.blocks if not spec.level or block.level <= spec.level]
        self.targets = scan.groups(spec.level)[spec.group] if spec.level else []
        self.blocks = blocks if not spec.level else self._read_by(self.targets, blocks)
        places = [place for block in self.blocks for place in block.places]
        self.registers = {place: f"h{i}" for i, place in enumerate(places)}
        self.once: dict[Node, str] = {}  # what is loaded before the steps
        self.setup: list[str] = []
        self.end: list[str] = []
        self.loads = [node for node in subgraph(self._roots()) if self._is_input(node)]
        count = max(1, len(self.loads), len(self.registers))
        self.together = min(STEPS, max(2 if count <= LOADS else 1, LOADS // count))  # steps

    def _read_by(self, targets: list[Carried], blocks: list[Carried]) -> list[Carried]:
        """The blocks that some blocks need, themselves included."""
        needed = list(targets)
        for block in needed:
            loads = [n.attr.buffer for n in subgraph(block.new) if n.op == "load"]
            needed += [b for b in blocks if b not in needed and any(place[0] in loads for place in b.places)]
        return [block for block in blocks if block in needed]

    def _roots(self) -> list[Node]:
        new = [node for block in self.blocks for node in block.new]
        if self.spec.level:
            return [*new, *(a for block in self.targets for row in block.a for a in row if a is not None)]
        return [*new, *(node for _, node in self._stores()), *(node for _, node in self.scan.totals)]

    def _stores(self) -> list:
        return self.scan.stores

    def _is_input(self, node: Node) -> bool:
        """Whether it is loaded at every step."""
        return node.op == "load" and not self._is_carried(node) and not self._is_once(node)

    def _is_carried(self, node: Node) -> bool:
        if node.attr.buffer.role not in (Role.STATE, Role.CARRY):
            return False
        if (node.attr.buffer, node.attr.offset, node.width) not in self.registers:
            raise Unsupported("a state that is read in other pieces than it is written, in a scan")
        return True

    def _is_once(self, node: Node) -> bool:
        return node.attr.start or (
            node.attr.buffer.role is not Role.PAST
            and self.scan.buffers[node.attr.buffer].kind is BufferKind.PER_SEQUENCE
        )

    # ------------------------------------------------------------------------------------------ the kernel

    def run(self) -> PassSource:
        for block in self.blocks:
            self._start(block)
        totals = self._start_totals()
        now = [self._load_all("now", i, f"{i}") for i in range(self.together)]
        body = [line for i in range(self.together) for line in self._load_all("next", i, f"base + {self.together + i}")]
        for i in range(self.together):
            body += self._step(i)
        body += [f"now{k}_{i} = next{k}_{i}" for i in range(self.together) for k in range(len(self.loads))]
        self._finish(totals)
        ends = f"L.load({self.pointer(LENGTHS)} + row)" if self.spec.ragged else "steps"
        part = "L.num_programs(2) - 1 - L.program_id(2)" if self.spec.backward else "L.program_id(2)"
        lines = [
            f"part = {part}",
            f"count = {ends}",
            "first = part * chunk",
            "size = L.minimum(L.maximum(count - first, 0), chunk)",
            "last = L.maximum(size - 1, 0)",
            *self.setup,
            *(line for group in now for line in group),
            f"for turn in range((size + {self.together - 1}) // {self.together}):",
            f"    base = L.cast(turn, L.int32) * {self.together}",
            *("    " + line for line in body),
            *self.end,
        ]
        return self.source(lines, ["steps", "batch", "chunk"], self.spec.exact)

    def _start(self, block: Carried) -> None:
        is_target = bool(self.spec.level) and block in self.targets
        for place in block.places:
            name = self.registers[place]
            if is_target:
                self.setup.append(f"{name} = zero")
            else:
                base = self.chunk_place(start(place), "L.program_id(2)")
                self.setup.append(f"{name} = {self.load(base, self.width)} + zero")
        if is_target:
            for i, j in _pairs(block):
                self.setup.append(f"{self._factor(block, i, j)} = (zero + {float(i == j)}).to(L.float64)")

    def _factor(self, block: Carried, i: int, j: int) -> str:
        return f"p_{self.registers[block.places[i]]}_{j}"

    def _start_totals(self) -> dict[int, str]:
        if self.spec.level:
            return {}
        names = {number: f"total{number}" for number, _ in self.scan.totals}
        for number, node in self.scan.totals:
            self.setup.append(f"{names[number]} = {self._zero(node)}")
        return names

    def _zero(self, node: Node) -> str:
        """Of the shape of a sum; all values of a cell of one unit have the shape of its state."""
        return "zero" if node.width > 1 or self.width == 1 else "(row * 0).to(L.float32)"

    # ------------------------------------------------------------------------------------------ a step

    def _time(self, step: str) -> str:
        within = f"L.minimum({step}, last)"
        return f"first + last - {within}" if self.spec.backward else f"first + {within}"

    def _load_all(self, prefix: str, i: int, step: str) -> list[str]:
        """Load the inputs of a step; past the end of the chunk, those of its last one."""
        if not self.loads:
            return []
        lines = [f"time = {self._time(step)}", "at = L.cast(time, L.int64) * batch + row"]
        return [*lines, *(f"{prefix}{k}_{i} = {self._input(node)}" for k, node in enumerate(self.loads))]

    def _input(self, node: Node) -> str:
        at = node.attr
        memory = self.scan.buffers[at.buffer].width
        if at.buffer.role is not Role.PAST or not at.buffer.lag:
            return self.load(f"{self.pointer(at.buffer.memory)} + at * {memory} + {at.offset}", node.width)
        history, initial = self.pointer(at.buffer.memory), self.pointer(BufferRef.initial(at.buffer.name))
        base = f"choose(time > 0, {history} + (at - batch) * {memory}, {initial} + L.cast(row, L.int64) * {memory})"
        return self.load(f"{base} + {at.offset}", node.width)

    def _step(self, i: int) -> list[str]:
        lines = [
            f"live = base + {i} < size",
            f"time = {self._time(f'base + {i}')}",
            "at = L.cast(time, L.int64) * batch + row",
        ]
        names = {node: self._known(node, k, i, lines) for k, node in enumerate(self.loads)}
        for node in subgraph(self._roots()):
            if node not in names:
                names[node] = self._value(node, names, f"n{node.index}_{i}", lines)
        if not self.spec.level:
            lines += [self._store(out, names[node]) for out, node in self._stores()]
            for number, node in self.scan.totals:
                lines.append(f"total{number} += L.where(live, {names[node]} + {self._zero(node)}, 0.0)")
        for block in self.targets if self.spec.level else ():
            self._multiply(block, names, lines)
        new = {self.registers[p]: names[n] for b in self.blocks for p, n in zip(b.places, b.new, strict=True)}
        lines += [f"new_{register} = L.where(live, {name} + zero, {register})" for register, name in new.items()]
        return [*lines, *(f"{register} = new_{register}" for register in new)]

    def _known(self, node: Node, k: int, i: int, lines: list[str]) -> str:
        lines.append(f"v{k}_{i} = now{k}_{i}.to(L.float32)")
        return f"v{k}_{i}"

    def _value(self, node: Node, names: dict[Node, str], name: str, lines: list[str]) -> str:
        if node.op == "const":
            return constant(node.attr)
        if node.op == "expand":
            return names[node.args[0]]
        if node.op == "weight":
            return self._load_once(node, self._weight(node.attr), "w")
        if node.op == "load" and not self._is_once(node):
            return self.registers[node.attr.buffer, node.attr.offset, node.width]
        if node.op == "load":
            base = f"row * {self.scan.buffers[node.attr.buffer].width} + {node.attr.offset}"
            known = self._load_once(node, (f"{self.pointer(node.attr.buffer)} + {base}", 1), "q")
            if not node.attr.start:
                return known
            lines.append(f"{name} = L.where(time == count - 1, {known}, 0.0)")
            return name
        lines.append(f"{name} = {expression(node.op, node.attr, [names[arg] for arg in node.args])}")
        return name

    def _weight(self, vector: Vector) -> tuple[str, int]:
        columns = self.plan.equations.hoisted[vector.weight][-1:] or (1,)
        stride, first = (1, 0) if vector.col is None else (columns[0], vector.col)
        return f"{self.pointer(BufferRef.weight(vector.weight))} + {vector.rows[0] * stride + first}", stride

    def _load_once(self, node: Node, place: tuple[str, int], prefix: str) -> str:
        if node not in self.once:
            self.once[node] = f"{prefix}{node.index}"
            self.setup.append(f"{prefix}{node.index} = {self.load(place[0], node.width, place[1])}.to(L.float32)")
        return self.once[node]

    def _store(self, out, value: str) -> str:
        width = self.scan.buffers[out.buffer].width
        return self.store(f"{self.pointer(out.buffer)} + at * {width} + {out.offset}", value, out.node.width, "live")

    def _multiply(self, block: Carried, names: dict[Node, str], lines: list[str]) -> None:
        """What the steps so far multiply the state before the chunk by."""
        for i, j in _pairs(block):
            terms = [
                f"({names[a]} + zero).to(L.float64) * {self._factor(block, k, j)}"
                for k, a in enumerate(block.a[i])
                if a is not None
            ]
            old = self._factor(block, i, j)
            lines.append(f"new_{old} = L.where(live, {' + '.join(terms) or 'zero.to(L.float64)'}, {old})")
        lines += [f"{self._factor(block, i, j)} = new_{self._factor(block, i, j)}" for i, j in _pairs(block)]

    # ------------------------------------------------------------------------------------------ results

    def _finish(self, totals: dict[int, str]) -> None:
        for block in self.targets if self.spec.level else ():
            for place in block.places:
                base = self.chunk_place(effect(place), "L.program_id(2)")
                self.end.append(self.store(base, self.registers[place], self.width, "size >= 0"))
            for i, j in _pairs(block):
                base = self.chunk_place(factor(block.places[i], block.places[j]), "L.program_id(2)")
                self.end.append(self.store(base, self._factor(block, i, j), self.width, "size >= 0"))
        if self.spec.level:
            return
        for buffer, offset, width in self.registers:
            last = (BufferRef.d_initial if self.spec.backward else BufferRef.final)(buffer.name)
            base = f"{self.pointer(last)} + row * {self.scan.buffers[buffer].width} + {offset}"
            self.end.append(self.store(base, self.registers[buffer, offset, width], self.width, "ends_here"))
        if self.spec.backward:
            self.setup.append("ends_here = first == 0")
        else:
            self.setup.append(
                "ends_here = ((count > first) & (count <= first + chunk)) | ((count == 0) & (first == 0))"
            )
        places = sums_places(self.scan)
        for number, name in totals.items():
            at, width = places[number]
            base = f"{self.pointer(TOTALS)} + (L.cast(part, L.int64) * batch + row) * {places[-1][0]} + {at}"
            self.end.append(self.store(base, name, width, "size >= 0"))


class _ChunksWriter(_Writer):
    def __init__(self, scan: ScanSplit, blocks: list[Carried], backward: bool, units: int):
        super().__init__(scan, units)
        self.backward, self.blocks = backward, blocks
        places = [place for block in self.blocks for place in block.places]
        self.registers = {place: f"h{i}" for i, place in enumerate(places)}
        numbers = sum(len(block.places) * (1 + len(block.places)) for block in self.blocks)
        self.ahead = max(1, min(CHUNKS_AHEAD, EFFECTS // numbers))

    def run(self) -> PassSource:
        setup, body = [], []
        for (buffer, offset, width), name in self.registers.items():
            given = (BufferRef.d_final if self.backward else BufferRef.initial)(buffer.name)
            base = f"{self.pointer(given)} + row * {self.scan.buffers[buffer].width} + {offset}"
            setup.append(f"{name} = {self.load(base, width)}.to(L.float32) + zero")
        for i in range(self.ahead):
            body.append(f"at{i} = L.minimum(base + {i}, chunks - 1)")
            for block in self.blocks:
                body += self._loads(block, i)
        for i in range(self.ahead):
            for block in self.blocks:
                body += self._advance(block, i)
        lines = [
            *setup,
            f"for turn in range((chunks + {self.ahead - 1}) // {self.ahead}):",
            f"    base = L.cast(turn, L.int32) * {self.ahead}",
            *("    " + line for line in body),
        ]
        return self.source(lines, ["batch", "chunks"], True)

    def _loads(self, block: Carried, i: int) -> list[str]:
        lines = []
        for place in block.places:
            name = self.registers[place]
            lines.append(f"q_{name}_{i} = {self.load(self.chunk_place(effect(place), f'at{i}'), self.width)}")
            for j, other in enumerate(block.places):
                lines.append(
                    f"p_{name}_{j}_{i} = {self.load(self.chunk_place(factor(place, other), f'at{i}'), self.width)}"
                )
        return lines

    def _advance(self, block: Carried, i: int) -> list[str]:
        """Store the state before a chunk, and compute the one after it. Zero stays zero, whatever the factor."""
        lines, names = [f"live = base + {i} < chunks"], [self.registers[place] for place in block.places]
        for place, name in zip(block.places, names, strict=True):
            lines.append(self.store(self.chunk_place(start(place), f"at{i}"), name, self.width, "live"))
            terms = [f"L.where({old} == 0.0, 0.0, p_{name}_{j}_{i} * {old})" for j, old in enumerate(names)]
            lines.append(f"new_{name} = L.where(live, (q_{name}_{i} + {' + '.join(terms)}).to(L.float32), {name})")
        return [*lines, *(f"{name} = new_{name}" for name in names)]


def sums_places(scan: ScanSplit) -> list[tuple[int, int]]:
    """(first column, width) of every sum of the program, side by side; at the end (columns, 0)."""
    found, at = [], 0
    for _, node in scan.program.sums:
        found.append((at, node.width))
        at += node.width
    return [*found, (at, 0)]


def _pairs(block: Carried) -> Iterable[tuple[int, int]]:
    count = range(len(block.places))
    return [(i, j) for i in count for j in count]
