"""Generate the source of one persistent kernel for all steps from a schedule.

A value of a step is a tile: this program's columns of some rows. A state that is only read in the columns where it was
written stays in registers. Operands of products go through memory, where other programs wait for them. Inputs are
loaded one step ahead. The source does not depend on batch size or length.
"""

from dataclasses import dataclass, field

from ...ir.buffers import CLOCK, ROW_SUMS, SUMS, BufferRef
from ...ir.nodes import Node, Vector
from ...plan.program import Out, Plan
from ...plan.schedule import Group, Schedule
from ..math_functions import expression, number
from .kernel_builder import KernelBuilder, KernelSpec
from .operands import Operands
from .products import CooperativeProducts
from .row_exchange import RowExchange
from .row_per_program import RowPerProgramProducts
from .tiling import Tiling


@dataclass
class KernelSource:
    """A generated kernel and what its caller must provide."""

    text: str
    arguments: list[BufferRef]  # the buffer of each pointer
    lanes: list[tuple[Node, int]] = field(default_factory=list)  # product with x before the loop; its first column
    exchanged: set[BufferRef] = field(default_factory=set)  # buffers to be filled with all-one bits
    row_sums: int = 0  # numbers a row that programs exchange for row sums


def render(schedule: Schedule, plan: Plan, tiling: Tiling, spec: KernelSpec) -> KernelSource:
    return _KernelWriter(schedule, plan, tiling, spec).run()


class _KernelWriter:
    """Writes one step, group by group."""

    def __init__(self, schedule: Schedule, plan: Plan, tiling: Tiling, spec: KernelSpec):
        self.schedule, self.plan, self.spec = schedule, plan, spec
        self.builder = KernelBuilder(tiling, spec)
        self.operands = Operands(schedule, plan, self.builder)
        products = RowPerProgramProducts if tiling.row_per_program else CooperativeProducts
        self.products = products(schedule, plan, self.builder, self.operands)
        self.row_exchange = RowExchange(schedule, self.builder, self.operands)

    def run(self) -> KernelSource:
        for mark, group in enumerate(self.schedule.groups):
            self._group(mark, group)
        self._end_of_step()
        text = self.row_exchange.placed(self.builder.source(self.products.shared_memory_setup()))
        exchanged = self.products.exchanged | ({ROW_SUMS} if self.row_exchange.width else set())
        return KernelSource(text, self.builder.arguments, self.products.lanes, exchanged, self.row_exchange.width)

    # ------------------------------------------------------------------------------------------ values

    def _group(self, mark: int, group: Group) -> None:
        if group.lanes:
            self.products.emit(group, mark)
        for node in group.body:
            if node not in self.operands.names:
                self._value(node)
        self.row_exchange.publish(group)
        stores = sorted(group.stores, key=lambda o: o.buffer not in self.products.exchanged)
        for out in stores:
            self._store(out)
        for q, node in group.sums:
            self._sum(q, node)
        self.row_exchange.wait(group)

    def _value(self, node: Node) -> None:
        if node.op == "const":
            self.operands.names[node] = number(node.attr)
        elif node.op == "weight":
            self._vector(node)
        elif node.op == "expand":
            self.operands.names[node] = self.operands.names[node.args[0]]
        else:
            self.operands.names[node] = f"n{node.index}"
            written = expression(node.op, node.attr, [self.operands.names[a] for a in node.args])
            self.builder.step.append(f"n{node.index} = {written}")

    def _vector(self, node: Node) -> None:
        vector: Vector = node.attr
        shape = self.plan.equations.hoisted[vector.weight]
        stride, offset = (1, vector.rows[0]) if vector.col is None else (shape[-1], 0)
        if vector.col is not None:
            offset = vector.rows[0] * shape[-1] + vector.col
        pointer = f"{self.builder.pointer(BufferRef.weight(vector.weight))} + {offset}"
        name = self.operands.names[node] = f"b{node.index}"
        if node.width == 1:
            self.builder.setup.append(f"{name} = L.load({pointer}).to(L.float32)")
        else:
            self.builder.setup.append(f"{name} = load_f32({pointer} + col * {stride}, col < {node.width})")

    # ------------------------------------------------------------------------------------------ results

    def _store(self, out: Out) -> None:
        width = out.node.width
        if out.buffer == CLOCK:
            return
        value = self.operands.as_tile(out.node)
        if self.spec.ragged:
            value = f"L.where(run, {value}, 0.0)"
        self.products.store_operand(out, value)
        if self.operands.only_carried(out.buffer, self.products.exchanged):
            return
        function = "publish" if out.buffer in self.products.exchanged else "store"
        base = f"{self.builder.pointer(out.buffer)} + at * {self.operands.size(out.buffer)}"
        address, mask = self.builder.address(base, self.operands.size(out.buffer), out.offset, width, "live")
        mask = self.builder.writer_mask(width, mask)
        self.builder.step.append(f"{function}({address}, {value}, {mask})")
        if self.spec.ragged:
            self.builder.padding.append(f"store({address}, {'zero' if width > 1 else 'zero_row'}, {mask})")

    def _sum(self, q: int, node: Node) -> None:
        name, width = f"total{q}", node.width
        self.builder.tile_setup.append(f"{name} = zero")
        self.builder.step.append(f"{name} += L.where(run, {self.operands.names[node]}, 0.0)")
        start = sum(n.width for _, n in self.schedule.sums[:q])
        total = sum(n.width for _, n in self.schedule.sums)
        pointer = f"{self.builder.pointer(SUMS)} + tile * {total} + {start}"
        self.builder.tile_end.append(
            f"store_column_sums({pointer}, {name}, {width}, first_column, {self.builder.shape})"
        )

    def _end_of_step(self) -> None:
        """Update the registers for the next step; after the last, store them."""
        for group in self.schedule.groups:
            for out in group.stores:
                key = (out.buffer, out.offset, out.node.width)
                if key in self.operands.registers:
                    name, new = self.operands.registers[key], self.operands.as_tile(out.node)
                    self.builder.step.append(
                        f"next_{name} = {f'L.where(run, {new}, {name})' if self.spec.ragged else new}"
                    )
        for key, name in self.operands.registers.items():
            self.builder.step.append(f"{name} = next_{name}")
            buffer, offset, width = key
            result = BufferRef.d_initial(buffer.name) if self.spec.backward else BufferRef.final(buffer.name)
            address, mask = self.builder.address(
                self.builder.pointer(result), self.operands.size(buffer), offset, width, "live"
            )
            self.builder.tile_end.append(f"store({address}, {name}, {self.builder.writer_mask(width, mask)})")
