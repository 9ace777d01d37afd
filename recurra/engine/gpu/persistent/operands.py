"""Where the values of a step lie: in registers since the step before, on their way from outside, or in memory."""

from ....cell import TIME
from ...ir.buffers import LENGTHS, BufferKind, BufferRef, Role
from ...ir.lowering import Unsupported
from ...ir.nodes import Node
from ...plan.program import Plan
from ...plan.schedule import Schedule
from ..buffers import ProgramBuffers
from .kernel_builder import Text


class Places(ProgramBuffers):
    def __init__(self, schedule: Schedule, plan: Plan, text: Text):
        super().__init__(schedule, plan, text.kind.backward, text.kind.trains)
        self.text, self.kind = text, text.kind
        self.names: dict[Node, str] = {}  # of every value: the variable that holds it
        self.registers: dict[tuple[BufferRef, int, int], str] = {}  # (buffer, offset, width) → the variable
        self.find_registers()
        for node in (n for g in schedule.groups for n in g.body):
            if node.op == "load" and node not in self.names:
                self.load(node)

    def find_registers(self) -> None:
        """States that stay in registers: the pieces in which they are written."""
        for group in self.schedule.groups:
            for out in group.stores:
                if not self.stays(out.buffer):
                    continue
                key = (out.buffer, out.offset, out.node.width)
                name = self.registers[key] = f"r{len(self.registers)}"
                start = BufferRef.d_final if self.kind.backward else BufferRef.initial
                source = start(out.buffer.name)
                self._initial(name, source, self.size(out.buffer), out.offset, out.node.width)
        if self.kind.ragged:
            self.text.first.append(f"length = L.load({self.text.pointer(LENGTHS)} + row, mask=live, other=0)")
        if any(n.op == "load" and self.state_of(n) == TIME for g in self.schedule.groups for n in g.body):
            self.text.first.append(f"clock = read({self.text.pointer(BufferRef.initial(TIME))} + row, live)")

    def _initial(self, name: str, source: BufferRef, size: int, offset: int, width: int) -> None:
        self.text.first.append(f"{name} = {self.text.read(self.text.pointer(source), size, offset, width, 'live')}")

    def load(self, node: Node) -> None:
        at, spec = node.attr, self.schedule.buffers[node.attr.buffer]
        state = self.state_of(node)
        if state == TIME:
            self.names[node] = f"(clock + {'t' if not self.kind.backward or at.buffer.lag else '(t + 1)'})"
        elif not self.kind.backward and state:
            self.names[node] = self._own_state(node)
        elif self.kind.backward and state:
            size, lag, hist = spec.width, at.buffer.lag, self.text.pointer(at.buffer.memory)
            base = f"{hist} + next_at * {size}"
            if lag:
                start = f"{self.text.pointer(BufferRef.initial(state))} + ({lag - 1} - tn) * batch * {size}"
                base = f"choose(tn >= {lag}, {hist} + (next_at - {lag} * batch) * {size}, {start})"
            self.names[node] = self.text.soon(node, base, size, at.offset, node.width)
        elif at.buffer.role is Role.CARRY:
            self.names[node] = self._carry(node)
        elif spec.kind is BufferKind.PER_SEQUENCE:
            name = f"q{node.index}"
            self._initial(name, at.buffer, spec.width, at.offset, node.width)
            last = "length - 1" if self.kind.ragged else "steps - 1"
            self.names[node] = f"L.where(t == {last}, {name}, 0.0)" if at.start else name
        elif at.lag:
            raise Unsupported("a pre-activation's cotangent read in its own columns")
        else:
            base = f"{self.text.pointer(at.buffer)} + next_at * {spec.width}"
            self.names[node] = self.text.soon(node, base, spec.width, at.offset, node.width)

    def _own_state(self, node: Node) -> str:
        at, state = node.attr, self.states[node.attr.buffer.name]
        if not state.delays:
            return self._register(at.buffer, at.offset, node.width)
        hist, start = self.text.pointer(at.buffer), self.text.pointer(BufferRef.initial(state.name))
        base = (
            f"choose(t >= {at.lag}, {hist} + (at - {at.lag} * batch) * {state.size},"
            f" {start} + ({at.lag - 1} - t) * batch * {state.size})"
        )
        return self._now(node, base, state.size, "live")

    def _carry(self, node: Node) -> str:
        at = node.attr
        state, lag = self.states[at.buffer.name], at.buffer.lag
        if not state.delays:
            return self._register(at.buffer, at.offset, node.width)
        size = state.size
        base = f"{self.text.pointer(at.buffer)} + (at + {lag} * batch) * {size}"
        return self._now(node, base, size, f"live & (row * 0 + t + {lag} < steps)")

    def _now(self, node: Node, base: str, size: int, mask: str) -> str:
        """What this program itself wrote some steps ago."""
        name = f"o{node.index}"
        self.text.step.append(f"{name} = {self.text.read(base, size, node.attr.offset, node.width, mask)}")
        return name

    def _register(self, *key) -> str:
        if key not in self.registers:
            raise Unsupported("a state that is written and read in different pieces")
        return self.registers[key]
