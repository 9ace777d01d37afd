"""Generate the kernel of a loop whose matrices stay in registers: all steps of a part of a row.

Forward, it stores the matrices before every `chunk` steps. Backward, it goes through the chunks from the last one:
first forward, to compute the matrices of every step again into a scratch buffer, then backward through them. Inputs are
loaded some steps ahead. The source does not depend on batch size or length.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...ir.buffers import LENGTHS, BufferRef, Role
from ...ir.nodes import Node
from ...ir.values import Unsupported
from ...plan.program import Plan
from ..math_functions import preamble
from .axes import Axes, Axis
from .layout import TileLayout, choose
from .phases import CARRIED, Phases, Place
from .tiles import Kernel, StepWriter

AHEAD = 4  # steps between the load of an input and its use


@dataclass(frozen=True)
class MatrixSpec:
    """The properties of a kernel beside its phases."""

    backward: bool
    ragged: bool
    trains: bool
    bits: int  # of an element
    chunk: int  # steps between two stored matrices


@dataclass
class MatrixSource:
    """A generated kernel and what its caller must provide."""

    text: str
    arguments: list[BufferRef]
    layout: TileLayout
    partial: set[BufferRef] = field(default_factory=set)  # results and totals of which each block has a part


def render(phases: Phases, plan: Plan, spec: MatrixSpec) -> MatrixSource:
    return _Writer(phases, plan, spec).run()


class _Writer:
    def __init__(self, phases: Phases, plan: Plan, spec: MatrixSpec):
        self.phases, self.plan, self.spec = phases, plan, spec
        self.axes = Axes(phases.loop_nodes, plan.states, phases.carried)
        self.updates = phases.updates if any(map(_is_past_matrix, self.axes.nodes)) else {}
        carried = [*phases.carried.values(), *phases.updates.values()]
        matrices = [node for node in self.axes.nodes if node.width >= phases.matrix]
        self.layout = choose(self.axes, carried, matrices)
        self.kernel = Kernel(self.axes, self.layout, plan)
        self.partial: set[BufferRef] = set()
        self.registers = {place: f"r{i}" for i, place in enumerate(phases.carried)}
        self.start: list[str] = []  # before the loop
        self.end: list[str] = []  # after it

    def run(self) -> MatrixSource:
        for place, name in self.registers.items():
            self._register(place, name)
        self._check_loads()
        loop = self._backward() if self.spec.backward else self._forward()
        body = [*self._coordinates(), *self.kernel.setup, *self.start, *loop, *self.end]
        return MatrixSource(self._source(body), self.kernel.arguments, self.layout, self.partial)

    # ------------------------------------------------------------------------------------------ around the loop

    def _source(self, body: list[str]) -> str:
        arguments = [*(f"a{i}" for i in range(len(self.kernel.arguments))), "steps", "batch"]
        return (
            "\n".join(
                [
                    "from recurra.engine.gpu.tiles_triton import *",
                    "from recurra.engine.gpu.tiles_triton import L, constexpr, jit",
                    "",
                    preamble(self.spec.bits == 32, "\n".join(body)),
                    "",
                    '@jit(do_not_specialize=["steps", "batch"])',
                    f"def kernel({', '.join(arguments)}):",
                    *(f"    # a{i}: {buffer}" for i, buffer in enumerate(self.kernel.arguments)),
                    *("    " + line for line in body),
                ]
            )
            + "\n"
        )

    def _coordinates(self) -> list[str]:
        lines = ["row = L.program_id(0)", "part = L.program_id(1)", "zero = (row * 0).to(L.float32)"]
        if self.layout.blocks > 1:
            lines += [f"block = part % {self.layout.blocks}", f"part = part // {self.layout.blocks}"]
        else:
            lines.append("block = part * 0")
        for axis, name in self.kernel.outer.items():
            lines += [f"{name} = part % {axis.size}", f"part = part // {axis.size}"]
        ends = f"L.load({self.kernel.pointer(LENGTHS)} + row)" if self.spec.ragged else "steps"
        return [*lines, f"count = {ends}"]

    def _axes_of(self, place: Place) -> list[Axis]:
        for node in self.axes.nodes:
            if node.op == "load" and (node.attr.buffer, node.attr.offset, node.width) == place:
                return self.axes.of(node)
        raise Unsupported("a state that is written and read in different pieces")

    def _register(self, place: Place, name: str) -> None:
        """The initial value of what is carried, and where its last one goes."""
        buffer, offset, _ = place
        axes, size = self._axes_of(place), self.phases.buffers[buffer].width
        sources = {Role.STATE: BufferRef.initial, Role.CARRY: BufferRef.d_final}
        if buffer.role not in sources:
            self.start.append(f"{name} = {self.kernel.full('zero', axes)}")
            return
        base = f"row * {size} + {offset}"
        given = self.kernel.pointer(sources[buffer.role](buffer.name))
        self.start.append(f"{name} = {self.kernel.load(f'{given} + {base}', axes)}.to(L.float32)")
        last = (BufferRef.d_initial if self.spec.backward else BufferRef.final)(buffer.name)
        self.end.append(self.kernel.store(last, f"{self.kernel.pointer(last)} + {base}", name, axes))

    def _check_loads(self) -> None:
        for node in self.axes.nodes:
            if (
                node.op == "load"
                and _is_carried(node)
                and (node.attr.lag != 1 or self._place(node) not in self.registers)
            ):
                raise Unsupported("a state that is written and read in different pieces")

    def _place(self, node: Node) -> Place:
        return node.attr.buffer, node.attr.offset, node.width

    def _inputs(self, roots: list[Node]) -> list[Node]:
        """The loads of each step that some values need."""
        seen: set[Node] = set()
        todo, found = list(roots), []
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            todo.extend(node.args)
            if node.op == "load" and not _is_carried(node) and not _is_past_matrix(node):
                found.append(node)
        return sorted(found, key=lambda node: node.index)

    # ------------------------------------------------------------------------------------------ forward

    def _forward(self) -> list[str]:
        names = {n: self.registers[self._place(n)] for n in self.axes.nodes if n.op == "load" and _is_carried(n)}
        inputs = _Inputs(self, self._inputs(self.phases.loop_nodes), "f", 1)
        step = StepWriter(self.kernel, names | inputs.names, "n")
        self._results(step)
        self._advance(step)
        stored = self._checkpoints() if self.spec.trains else []
        return [
            *inputs.before("0", "0", "count - 1"),
            "for s in range(count):",
            "    t = L.cast(s, L.int32)",
            "    at = L.cast(t, L.int64) * batch + row",
            *("    " + line for line in (*inputs.inside("0", "count - 1"), *stored, *step.lines)),
        ]

    def _checkpoints(self) -> list[str]:
        lines = []
        for (buffer, offset, width), name in self.registers.items():
            if width < self.phases.matrix:
                continue
            size, ref = self.phases.buffers[buffer].width, BufferRef.checkpoint(buffer.name)
            base = f"{self.kernel.pointer(ref)} + (L.cast(t // {self.spec.chunk}, L.int64) * batch + row) * {size}"
            axes = self._axes_of((buffer, offset, width))
            lines.append("    " + self.kernel.store(ref, f"{base} + {offset}", name, axes))
        return [f"if t % {self.spec.chunk} == 0:", *lines] if lines else []

    def _results(self, step: StepWriter) -> None:
        """Store what the loop leaves at every step; add up what it sums over all."""
        for buffer, node in self.phases.stores.items():
            axes, width, pointer = self.axes.of(node), node.width, self.kernel.pointer(buffer)
            value, partial = step.value(node), self.kernel.is_partial(node)
            base = f"{pointer} + at * {width}"
            if partial:
                self.partial.add(buffer)
                base += f" + L.cast(block, L.int64) * steps * batch * {width}"
            step.lines.append(self.kernel.store(buffer, base, value, axes, partial))
        for number, _, node in self.phases.totals:
            axes, buffer, name = self.axes.of(node), BufferRef.total(number), f"total{number}"
            value, partial = step.value(node), self.kernel.is_partial(node)
            self.start.append(f"{name} = {self.kernel.full('zero', axes)}")
            step.lines.append(f"{name} += {value}")
            base = f"{self.kernel.pointer(buffer)} + row * {node.width}"
            if partial:
                self.partial.add(buffer)
                base += f" + L.cast(block, L.int64) * batch * {node.width}"
            self.end.append(self.kernel.store(buffer, base, name, axes, partial))

    def _advance(self, step: StepWriter) -> None:
        """What the next step reads."""
        for place, node in self.phases.carried.items():
            new = self.kernel.full(step.value(node), self._axes_of(place))
            step.lines.append(f"next_{self.registers[place]} = {new}")
        step.lines += [f"{name} = next_{name}" for name in self.registers.values()]

    # ------------------------------------------------------------------------------------------ backward

    def _backward(self) -> list[str]:
        names = {n: self.registers[self._place(n)] for n in self.axes.nodes if n.op == "load" and _is_carried(n)}
        past = [node for node in self.axes.nodes if _is_past_matrix(node)]
        for node in past:
            if node.attr.buffer.lag > 1 or node.width != self.phases.buffers[node.attr.buffer].width:
                raise Unsupported("a part of a matrix of an earlier step")
            names[node] = f"{'now' if node.attr.buffer.lag == 0 else 'was'}_{self._number(node)}"
        roots = [node for node in self.phases.loop_nodes if node not in self.phases.updates.values()]
        inputs = _Inputs(self, self._inputs(roots), "g", -1)
        step = StepWriter(self.kernel, names | inputs.names, "n")
        self._results(step)
        self._advance(step)
        again = self._recomputed()
        number = sorted({self._number(node) for node in past})
        chunk = self.spec.chunk
        return [
            f"chunks = (count + {chunk - 1}) // {chunk}",
            "for reversed_chunk in range(chunks):",
            f"    first = L.cast(chunks - 1 - reversed_chunk, L.int32) * {chunk}",
            f"    size = L.minimum(count - first, {chunk})",
            *("    " + line for line in inputs.before("first + size - 1", "first", "first + size - 1")),
            *("    " + line for line in again),
            *(f"    was_{i} = {self._scratch_load(i, 'first + size - 1')}" for i in number),
            "    for s in range(size):",
            "        t = first + size - 1 - L.cast(s, L.int32)",
            "        at = L.cast(t, L.int64) * batch + row",
            *("        " + line for line in inputs.inside("first", "first + size - 1")),
            *(f"        before_{i} = {self._scratch_load(i, 'L.maximum(t - 1, first)')}" for i in number),
            *("        " + line for line in step.lines),
            *(line for i in number for line in (f"        now_{i} = was_{i}", f"        was_{i} = before_{i}")),
        ]

    def _number(self, node: Node) -> int:
        names = [state.name for state in self.plan.states]
        return names.index(node.attr.buffer.name)

    def _matrix_axes(self, number: int) -> list[Axis]:
        for node in self.axes.nodes:
            if _is_past_matrix(node) and self._number(node) == number:
                return self.axes.of(node)
        raise Unsupported("a matrix that only its own update reads")

    def _scratch(self, number: int, time: str) -> str:
        state = self.plan.states[number]
        buffer = self.kernel.pointer(BufferRef.chunk(state.name))
        return f"{buffer} + (L.cast(row, L.int64) * {self.spec.chunk} + ({time} - first)) * {state.size}"

    def _scratch_load(self, number: int, time: str) -> str:
        return self.kernel.load(self._scratch(number, time), self._matrix_axes(number))

    def _recomputed(self) -> list[str]:
        """The matrices of a chunk, forward: those before each step in the scratch buffer, the last one in `now`."""
        if not self.updates:
            return []
        past = [node for node in self.axes.nodes if _is_past_matrix(node)]
        names = {node: f"now_{self._number(node)}" for node in past if node.attr.buffer.lag == 1}
        inputs = _Inputs(self, self._inputs(list(self.updates.values())), "h", 1)
        step = StepWriter(self.kernel, names | inputs.names, "m")
        lines, loads, stores = [], [], []
        for name, node in self.updates.items():
            number = [state.name for state in self.plan.states].index(name)
            axes, size = self._matrix_axes(number), self.plan.states[number].size
            saved, scratch = BufferRef.checkpoint(name), BufferRef.chunk(name)
            base = (
                f"{self.kernel.pointer(saved)} + (L.cast(first // {self.spec.chunk}, L.int64) * batch + row) * {size}"
            )
            loads.append(f"now_{number} = {self.kernel.load(base, axes)}")
            stores.append(self.kernel.store(scratch, self._scratch(number, "t"), f"now_{number}", axes))
            step.lines.append(f"new_{number} = {self.kernel.full(step.value(node), axes)}")
            lines.append(f"now_{number} = new_{number}")
        return [
            *loads,
            *inputs.before("first", "first", "first + size - 1"),
            "L.debug_barrier()",
            "for s in range(size):",
            "    t = first + L.cast(s, L.int32)",
            *("    " + line for line in (*inputs.inside("first", "first + size - 1"), *stores, *step.lines, *lines)),
            "L.debug_barrier()",
        ]


class _Inputs:
    """Values that a loop loads at every step, some steps ahead."""

    def __init__(self, writer: _Writer, nodes: list[Node], prefix: str, direction: int):
        self.direction, self.loads, self.names = direction, [], {}
        self.prefix = prefix
        for i, node in enumerate(nodes):
            at, kernel = node.attr, writer.kernel
            if at.lag or at.start:
                raise Unsupported(f"{at.buffer} of another step beside a matrix")
            width = writer.phases.buffers[at.buffer].width
            self.loads.append((f"{prefix}{i}", self._expression(kernel, node, width, writer.axes.of(node))))
            self.names[node] = f"{prefix}{i}_now"

    def _expression(self, kernel: Kernel, node: Node, width: int, axes: list[Axis]) -> Callable[[str], str]:
        pointer, offset = kernel.pointer(node.attr.buffer), node.attr.offset
        return lambda row: kernel.load(f"{pointer} + {row} * {width} + {offset}", axes)

    def _clamped(self, time: str, low: str, high: str) -> str:
        row = f"L.maximum(L.minimum({time}, {high}), {low})"
        return f"{self.prefix}_at = L.cast({row}, L.int64) * batch + row"

    def before(self, first: str, low: str, high: str) -> list[str]:
        """Load the inputs of the first steps."""
        lines = []
        for step in range(AHEAD if self.loads else 0):
            lines.append(self._clamped(f"{first} + {step * self.direction}", low, high))
            lines += [f"{name}_{step} = {load(f'{self.prefix}_at')}" for name, load in self.loads]
        return lines

    def inside(self, low: str, high: str) -> list[str]:
        """The values of step t, and the loads of a later one."""
        lines = [f"{name}_now = {name}_0.to(L.float32)" for name, _ in self.loads]
        if not self.loads:
            return lines
        lines.append(self._clamped(f"t + {AHEAD * self.direction}", low, high))
        for name, load in self.loads:
            lines += [f"{name}_{step} = {name}_{step + 1}" for step in range(AHEAD - 1)]
            lines.append(f"{name}_{AHEAD - 1} = {load(f'{self.prefix}_at')}")
        return lines


def _is_carried(node: Node) -> bool:
    return node.attr.buffer.role in CARRIED and node.attr.lag > 0


def _is_past_matrix(node: Node) -> bool:
    return node.op == "load" and node.attr.buffer.role is Role.PAST
