"""Which buffers of a program are states or carries, and which of them a kernel never stores."""

from collections.abc import Set

from ..ir.buffers import CLOCK, BufferRef, Role
from ..ir.nodes import Node
from ..plan.program import Plan
from ..plan.schedule import Schedule


class ProgramBuffers:
    """The buffers of one program of a plan."""

    def __init__(self, schedule: Schedule, plan: Plan, backward: bool, trains: bool):
        self.schedule, self.plan, self.backward, self.trains = schedule, plan, backward, trains
        self.states = {state.name: state for state in plan.states}

    def stays(self, buffer: BufferRef) -> bool:
        """Whether it is carried in 32 bits, and read one step later only."""
        carried = buffer.role is (Role.CARRY if self.backward else Role.STATE) and buffer != CLOCK
        return carried and not self.states[buffer.name].delays

    def size(self, buffer: BufferRef) -> int:
        return self.schedule.buffers[buffer].width

    def state_of(self, node: Node) -> str:
        """The name of the state whose values a load reads; empty if it reads none."""
        buffer = node.attr.buffer
        return buffer.name if buffer.role in (Role.STATE, Role.PAST) else ""

    def only_carried(self, buffer: BufferRef, exchanged: Set[BufferRef]) -> bool:
        """Whether nothing reads it from memory; `exchanged`: what products read there."""
        if buffer in exchanged:
            return False
        if buffer.role is not Role.STATE:
            return self.stays(buffer) or buffer.role is Role.SCRATCH
        return not (self.trains or buffer == self.plan.output or self.states[buffer.name].delays)
