"""A schedule → the text of one kernel that runs all steps, in the words of `tiles_gluon.py` or `tiles_triton.py`.

Every value of a step is a tile: this program's columns of some rows. States that are read in their own columns only
stay in registers from step to step; what a product multiplies goes through memory, where the other programs wait for
it. What comes from outside is loaded a step ahead. Nothing in the text depends on the batch or the length.
"""

from dataclasses import dataclass, field

from ...ir.buffers import CLOCK, ROW_SUMS, SUMS, BufferRef
from ...ir.nodes import Node, Vector, is_whole
from ...plan.program import Out, Plan
from ...plan.schedule import Group, Schedule
from ..math_functions import expression, number
from .kernel_builder import Kind, Text
from .operands import Places
from .products import Products
from .row_per_program import Alone
from .tiling import Tiling


@dataclass
class Rendered:
    text: str
    arguments: list[BufferRef]  # what each pointer points to
    lanes: list[tuple[Node, int]] = field(default_factory=list)  # whose product with x is made before the loop; column
    exchanged: set[BufferRef] = field(default_factory=set)  # to be filled with ones before the loop


def render(schedule: Schedule, plan: Plan, tiling: Tiling, kind: Kind) -> Rendered:
    return _Writer(schedule, plan, tiling, kind).run()


class _Writer:
    """One step, group by group."""

    def __init__(self, schedule: Schedule, plan: Plan, tiling: Tiling, kind: Kind):
        self.schedule, self.plan, self.kind = schedule, plan, kind
        self.text = Text(tiling, kind)
        self.places = Places(schedule, plan, self.text)
        multiplies = Alone if tiling.alone else Products
        self.products = multiplies(schedule, plan, self.text, self.places)

    def run(self) -> Rendered:
        for mark, group in enumerate(self.schedule.groups):
            self._group(mark, group)
        self._end_of_step()
        text = self.text.whole(self.products.furniture())
        return Rendered(text, self.text.arguments, self.products.lanes, self.products.exchanged)

    # ------------------------------------------------------------------------------------------ values

    def _group(self, mark: int, group: Group) -> None:
        if group.lanes:
            self.products.write(group, mark)
        for node in group.body:
            if node not in self.places.names:
                self._value(node)
        stores = sorted(group.stores, key=lambda o: o.buffer not in self.products.exchanged)
        for out in stores:
            self._store(out)
        for q, node in group.sums:
            self._sum(q, node)
        for node in group.rowsums:
            self._row_sum(node)

    def _value(self, node: Node) -> None:
        if node.op == "const":
            self.places.names[node] = number(node.attr)
        elif node.op == "weight":
            self._vector(node)
        elif node.op == "expand":
            self.places.names[node] = self.places.names[node.args[0]]
        else:
            self.places.names[node] = f"n{node.index}"
            written = expression(node.op, node.attr, [self.places.names[a] for a in node.args])
            self.text.step.append(f"n{node.index} = {written}")

    def _vector(self, node: Node) -> None:
        vector: Vector = node.attr
        shape = self.plan.equations.hoisted[vector.weight]
        stride, offset = (1, vector.rows[0]) if vector.col is None else (shape[-1], 0)
        if vector.col is not None:
            offset = vector.rows[0] * shape[-1] + vector.col
        place = f"{self.text.pointer(BufferRef.weight(vector.weight))} + {offset}"
        name = self.places.names[node] = f"b{node.index}"
        if node.width == 1:
            self.text.before.append(f"{name} = L.load({place}).to(L.float32)")
        else:
            self.text.before.append(f"{name} = read({place} + col * {stride}, col < {node.width})")

    # ------------------------------------------------------------------------------------------ results

    def _store(self, out: Out) -> None:
        width = out.node.width
        if out.buffer == CLOCK:
            return
        value = self._filled(out.node)
        if self.kind.ragged:
            value = f"L.where(run, {value}, 0.0)"
        self.products.lay(out, value)
        if self.places.only_carried(out.buffer, self.products.exchanged):
            return
        how = "publish" if out.buffer in self.products.exchanged else "write"
        base = f"{self.text.pointer(out.buffer)} + at * {self.places.size(out.buffer)}"
        address, mask = self.text.tile(base, self.places.size(out.buffer), out.offset, width, "live")
        self.text.step.append(f"{how}({address}, {value}, {self.text.own(width, mask)})")

    def _filled(self, node: Node) -> str:
        """A value as a full tile, whatever it was."""
        name = self.places.names[node]
        spread = node.is_leaf or not is_whole(node)
        return f"({name} + {'zero' if node.width > 1 else 'zero_row'})" if spread else name

    def _sum(self, q: int, node: Node) -> None:
        name, width = f"total{q}", node.width
        self.text.first.append(f"{name} = zero")
        self.text.step.append(f"{name} += L.where(run, {self.places.names[node]}, 0.0)")
        start = sum(n.width for _, n in self.schedule.sums[:q])
        total = sum(n.width for _, n in self.schedule.sums)
        place = f"{self.text.pointer(SUMS)} + tile * {total} + {start}"
        self.text.last.append(f"write_sum({place}, {name}, {width}, first_column, {self.text.shape})")

    def _row_sum(self, node: Node) -> None:
        slot, programs, shape = self.schedule.rowsums.index(node), self.text.tiling.programs, self.text.shape
        value, width = node.args[0], node.args[0].width
        name, largest = f"n{node.index}", node.attr == "max"
        self.places.names[node] = name
        self.text.step.append(f"{name} = across({self._filled(value)}, col < {width}, {largest}, {shape})")
        if programs > 1:
            self.products.exchanged.add(ROW_SUMS)
            place = f"{self.text.pointer(ROW_SUMS)} + ({slot} * L.cast(steps, L.int64) * batch + at) * {programs}"
            self.text.step.append(
                f"{name} = row_total({place}, {name}, mine, live, first_row, batch, {programs}, {largest}, {shape})"
            )

    def _end_of_step(self) -> None:
        """What the next step finds in registers; after the last, what is left in them."""
        for group in self.schedule.groups:
            for out in group.stores:
                key = (out.buffer, out.offset, out.node.width)
                if key in self.places.registers:
                    name, new = self.places.registers[key], self._filled(out.node)
                    self.text.step.append(
                        f"next_{name} = {f'L.where(run, {new}, {name})' if self.kind.ragged else new}"
                    )
        for key, name in self.places.registers.items():
            self.text.step.append(f"{name} = next_{name}")
            buffer, offset, width = key
            result = BufferRef.d_initial(buffer.name) if self.kind.backward else BufferRef.final(buffer.name)
            address, mask = self.text.tile(self.text.pointer(result), self.places.size(buffer), offset, width, "live")
            self.text.last.append(f"write({address}, {name}, {self.text.own(width, mask)})")
