"""The variables that hold the loaded values of a step: registers, prefetched inputs, or loads from memory."""

from ....cell import TIME
from ...ir.buffers import LENGTHS, BufferKind, BufferRef, Role
from ...ir.lowering import Unsupported
from ...ir.nodes import Node, is_whole
from ...plan.program import Plan
from ...plan.schedule import Schedule
from ..buffers import ProgramBuffers
from .kernel_builder import KernelBuilder


class Operands(ProgramBuffers):
    """Assigns a variable to every load of a schedule and writes the lines that fill it."""

    def __init__(self, schedule: Schedule, plan: Plan, builder: KernelBuilder):
        super().__init__(schedule, plan, builder.spec.backward, builder.spec.trains)
        self.builder, self.spec = builder, builder.spec
        self.names: dict[Node, str] = {}  # value → the variable that holds it
        self.registers: dict[tuple[BufferRef, int, int], str] = {}  # (buffer, offset, width) → the variable
        self._find_registers()
        for node in (n for g in schedule.groups for n in g.body):
            if node.op == "load" and node not in self.names:
                self._load(node)

    def as_tile(self, node: Node) -> str:
        """A value as a full tile: constants and single columns are broadcast."""
        name = self.names[node]
        spread = node.is_leaf or not is_whole(node)
        return f"({name} + {'zero' if node.width > 1 else 'zero_row'})" if spread else name

    def _find_registers(self) -> None:
        """Find states that stay in registers, by the pieces in which they are stored; write their initial values."""
        for group in self.schedule.groups:
            for out in group.stores:
                if not self.stays(out.buffer):
                    continue
                key = (out.buffer, out.offset, out.node.width)
                name = self.registers[key] = f"r{len(self.registers)}"
                start = BufferRef.d_final if self.spec.backward else BufferRef.initial
                source = start(out.buffer.name)
                self._initial(name, source, self.size(out.buffer), out.offset, out.node.width)
        if self.spec.ragged:
            lengths = self.builder.pointer(LENGTHS)
            self.builder.tile_setup.append(f"length = L.load({lengths} + row, mask=live, other=0)")
            size = self.builder.tiling.rows
            self.builder.tile_setup.append(f"ends = longest({lengths}, first_row, batch, {size})")
        if any(n.op == "load" and self.state_of(n) == TIME for g in self.schedule.groups for n in g.body):
            self.builder.tile_setup.append(
                f"clock = load_f32({self.builder.pointer(BufferRef.initial(TIME))} + row, live)"
            )

    def _initial(self, name: str, source: BufferRef, size: int, offset: int, width: int) -> None:
        self.builder.tile_setup.append(
            f"{name} = {self.builder.load(self.builder.pointer(source), size, offset, width, 'live')}"
        )

    def _load(self, node: Node) -> None:
        at, spec = node.attr, self.schedule.buffers[node.attr.buffer]
        state = self.state_of(node)
        if state == TIME:
            self.names[node] = f"(clock + {'t' if not self.spec.backward or at.buffer.lag else '(t + 1)'})"
        elif not self.spec.backward and state:
            self.names[node] = self._own_state(node)
        elif self.spec.backward and state:
            size, lag, hist = spec.width, at.buffer.lag, self.builder.pointer(at.buffer.memory)
            base = f"{hist} + next_at * {size}"
            if lag:
                start = f"{self.builder.pointer(BufferRef.initial(state))} + ({lag - 1} - tn) * batch * {size}"
                base = f"choose(tn >= {lag}, {hist} + (next_at - {lag} * batch) * {size}, {start})"
            self.names[node] = self.builder.prefetch(node, base, size, at.offset, node.width)
        elif at.buffer.role is Role.CARRY:
            self.names[node] = self._carry(node)
        elif spec.kind is BufferKind.PER_SEQUENCE:
            name = f"q{node.index}"
            self._initial(name, at.buffer, spec.width, at.offset, node.width)
            last = "length - 1" if self.spec.ragged else "steps - 1"
            self.names[node] = f"L.where(t == {last}, {name}, 0.0)" if at.start else name
        elif at.lag:
            raise Unsupported("a pre-activation's cotangent read in its own columns")
        else:
            base = f"{self.builder.pointer(at.buffer)} + next_at * {spec.width}"
            self.names[node] = self.builder.prefetch(node, base, spec.width, at.offset, node.width)

    def _own_state(self, node: Node) -> str:
        at, state = node.attr, self.states[node.attr.buffer.name]
        if not state.delays:
            return self._register(at.buffer, at.offset, node.width)
        hist, start = self.builder.pointer(at.buffer), self.builder.pointer(BufferRef.initial(state.name))
        base = (
            f"choose(t >= {at.lag}, {hist} + (at - {at.lag} * batch) * {state.size},"
            f" {start} + ({at.lag - 1} - t) * batch * {state.size})"
        )
        return self._load_now(node, base, state.size, "live")

    def _carry(self, node: Node) -> str:
        at = node.attr
        state, lag = self.states[at.buffer.name], at.buffer.lag
        if not state.delays:
            return self._register(at.buffer, at.offset, node.width)
        size = state.size
        base = f"{self.builder.pointer(at.buffer)} + (at + {lag} * batch) * {size}"
        return self._load_now(node, base, size, f"live & (row * 0 + t + {lag} < {self.builder.ends})")

    def _load_now(self, node: Node, base: str, size: int, mask: str) -> str:
        """Load what this program stored some steps ago."""
        name = f"o{node.index}"
        self.builder.step.append(f"{name} = {self.builder.load(base, size, node.attr.offset, node.width, mask)}")
        return name

    def _register(self, *key) -> str:
        if key not in self.registers:
            raise Unsupported("a state that is written and read in different pieces")
        return self.registers[key]
