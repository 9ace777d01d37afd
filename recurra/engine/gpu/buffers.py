"""What a program's buffers are called outside it, and which of them are carried from step to step."""

from ...cell import TIME
from ..ir.nodes import Node
from ..plan.planner import Plan
from ..plan.schedule import Schedule


class Buffers:
    def __init__(self, schedule: Schedule, plan: Plan, backward: bool, trains: bool):
        self.schedule, self.plan, self.backward, self.trains = schedule, plan, backward, trains
        self.states = {state.name: state for state in plan.states}

    def symbol(self, buffer: str) -> str:
        """What the memory of a buffer is called."""
        return f"hist:{buffer}" if buffer in self.states and not self.backward else buffer

    def stays(self, buffer: str) -> bool:
        """Whether it is carried in 32 bits, and only the step before is looked at."""
        if self.backward:
            return buffer.startswith("carry:") and not self.states[self.carried(buffer)[0]].delays
        return buffer in self.states and buffer != TIME and not self.states[buffer].delays

    def carried(self, buffer: str) -> tuple[str, int]:
        return next(key for key, name in self.plan.carries.items() if name == buffer)

    def size(self, buffer: str) -> int:
        return self.schedule.buffers[buffer].width

    def state_of(self, node: Node) -> str:
        """The state whose values a load reads."""
        buffer = node.attr.buffer
        return self.schedule.buffers[buffer].source if self.backward else buffer if buffer in self.states else ""

    def only_carried(self, buffer: str, exchanged: set[str]) -> bool:
        """Whether nobody reads it from memory; `exchanged`: what products read there."""
        if self.symbol(buffer) in exchanged:
            return False
        if self.backward or buffer not in self.states:
            return self.stays(buffer) or buffer.startswith("scratch:")
        return not (self.trains or buffer == self.plan.output or self.states[buffer].delays)
