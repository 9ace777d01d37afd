"""A cell's programs, forward and backward, group by group as they are scheduled, each node evaluated by torch.

Slow for one cell and quick for many: nothing is compiled. Unwritten numbers are NaN, so that a value read too
early shows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from recurra.cell import TIME, Cell
from recurra.engine.ir.buffers import D_X, D_Y, BufferRef, Role, X
from recurra.engine.ir.nodes import Load, Node
from recurra.engine.ir.table import evaluate as evaluate_operation
from recurra.engine.plan.epilogue import WeightGradients
from recurra.engine.plan.planner import Plan, Program, plan
from recurra.engine.plan.schedule import _Scheduler
from recurra.engine.reference import Sequences
from recurra.engine.traced_step import trace_in_clean_context


@dataclass(frozen=True)
class Evaluated:
    y: Tensor
    state: list[Tensor]
    gradients: list[Tensor | None]  # of x, of the initial states, of the parameters


class _Memory:
    """Rows of every buffer at every step, and what stands before the first and after the last."""

    def __init__(self, made: Plan, given: Sequences, weights: dict[str, Tensor]):
        self.plan, self.weights, self.steps = made, weights, given.x.shape[0]
        self.rows: dict[tuple[BufferRef, int], Tensor] = {(X, t): row for t, row in enumerate(given.x)}
        self.batch, self.like = given.x.shape[1], given.x
        for name, each in made.masks.items():
            for t in range(self.steps):
                self.rows[BufferRef.mask(name), t] = given.masks[name][t] if each == "step" else given.masks[name]
        self.initial = {}
        for spec, value in zip(made.states, given.state, strict=True):
            slots = value.transpose(0, 1) if spec.delays else value[None]
            self.initial |= {(spec.name, -1 - j): slot for j, slot in enumerate(slots)}
        self.finals: dict[str, Tensor] = {}

    def write(self, buffer: BufferRef, t: int, offset: int, width: int, size: int, value: Tensor) -> None:
        blank = self.like.new_full((self.batch, size), float("nan"))
        row = self.rows.setdefault((buffer, t), blank)
        row[:, offset : offset + width] = value.expand(self.batch, width)

    def read(self, at: Load, width: int, t: int) -> Tensor:
        return self._row(at, t)[:, at.offset : at.offset + width]

    def _row(self, at: Load, t: int) -> Tensor:
        name, states = at.buffer.name, {spec.name: spec for spec in self.plan.states}
        if at.buffer.role is Role.CARRY:
            if t + at.lag >= self.steps:
                return self.nothing(states[name].size) if states[name].delays else self.finals[name]
            return self.rows[at.buffer, t + at.lag]
        if at.buffer.role is Role.DELTA:
            later = self.rows.get((at.buffer, t + at.lag))
            return self.nothing(10**4) if later is None and at.lag else later  # pyrefly: ignore
        if at.buffer.role is Role.D_FINAL:
            return self._final(states[name], at.start, t)
        if at.buffer.role in (Role.STATE, Role.PAST):
            when = t - (at.buffer.lag or at.lag)
            return self.initial[name, when] if when < 0 else self.rows[at.buffer.memory, when]
        return self.rows[at.buffer, t]

    def _final(self, spec, start: bool, t: int) -> Tensor:
        """The cotangent of the last values: at the step they are of."""
        final, back = self.finals[spec.name], self.steps - 1 - t
        if spec.delays:
            return final[:, back] if back < spec.depth else self.nothing(spec.size)
        return final if t == self.steps - 1 or not start else self.nothing(spec.size)

    def nothing(self, width: int) -> Tensor:
        return self.like.new_zeros(self.batch, width)


class _Run:
    """One program over all steps, as scheduled."""

    def __init__(self, program: Program, memory: _Memory):
        self.scheduler, self.memory = _Scheduler(program), memory
        self.schedule = self.scheduler.run()
        self.sums = [memory.like.new_zeros(node.width) for _, node in self.schedule.sums]

    def over(self, steps: Iterable[int]) -> None:
        for t in steps:
            self.rowsums: dict[Node, Tensor] = {}
            for group in self.schedule.groups:
                self._group(group, t)

    def _group(self, group, t: int) -> None:
        values: dict[Node, Tensor] = {}
        for node in group.body:
            values[node] = self._value(node, values, group, t)
        for out in group.stores:
            size = self.schedule.buffers[out.buffer].width
            self.memory.write(out.buffer, t, out.offset, out.node.width, size, values[out.node])
        for number, node in group.sums:
            self.sums[number] += values[node].expand(self.memory.batch, node.width).sum(0)
        for node in group.rowsums:
            rows = values[node.args[0]].expand(self.memory.batch, node.args[0].width)
            self.rowsums[node] = rows.amax(1, keepdim=True) if node.attr == "max" else rows.sum(1, keepdim=True)

    def _value(self, node: Node, values: dict[Node, Tensor], group, t: int) -> Tensor:
        if node in group.loads:
            return self.memory.read(group.loads[node].attr, node.width, t)
        if node.op == "load":
            return self.memory.read(node.attr, node.width, t)
        if node.op == "weight":
            return node.attr.of(self.memory.weights)[None]
        if node.op == "const":
            return self.memory.like.new_full((1, 1), node.attr)
        if node.op == "literal":
            return self.memory.like.new_tensor([node.attr])
        if node.op == "gather":
            return node.attr.compute([self._source(arg, t) for arg in node.args])
        if node.op == "rowsum":
            return self.rowsums[node]
        if node.op == "lane":
            return self._lane(node, t)
        args = [values[a] for a in node.args]
        if node.op == "expand":
            return args[0].expand(-1, node.width)
        return evaluate_operation(node.op, args, node.attr)

    def _source(self, node: Node, t: int) -> Tensor:
        """What a gather reads, from where it is in memory."""
        if node.op in ("weight", "literal"):
            row = node.attr.of(self.memory.weights) if node.op == "weight" else self.memory.like.new_tensor(node.attr)
            return row.expand(self.memory.batch, -1)
        place = node if node.op == "load" else self.scheduler.stored[node]
        return self.memory.read(place.attr, node.width, t)

    def _lane(self, node: Node, t: int) -> Tensor:
        total = self.memory.nothing(node.width)
        for operand, matrix in zip(node.args, node.attr, strict=True):
            place = operand if operand.op == "load" else self.scheduler.stored[operand]
            total = total + F.linear(self.memory.read(place.attr, operand.width, t), matrix.of(self.memory.weights))
        return total


def evaluate(cell: Cell, given: Sequences, dy: Tensor, dfinals: Sequence[Tensor]) -> Evaluated:
    """Outputs, final states, and the gradients for these cotangents; raises `Unsupported` as planning does."""
    made = plan(cell, trace_in_clean_context(cell), train=True, needs_x=True)
    weights = cell.weights()
    hoisted = made.equations.prologue(*(weights[name] for name in made.equations.weights))
    names = made.weight_names
    held = {n: w.detach().to(given.x.dtype) for n, w in zip(names, hoisted, strict=True)}
    with torch.no_grad():
        memory = _Memory(made, given, held)
        _Run(made.forward, memory).over(range(memory.steps))
        y = torch.stack([memory.rows[made.output, t] for t in range(memory.steps)])
        state = [_last(spec, memory) for spec in made.states]
        memory.finals = {s.name: d for s, d in zip(made.states, dfinals, strict=True)}
        for t, row in enumerate(dy):
            memory.rows[D_Y, t] = row
        assert made.backward is not None
        # Each program has scratch of its own.
        memory.rows = {at: row for at, row in memory.rows.items() if at[0].role is not Role.SCRATCH}
        back = _Run(made.backward, memory)
        back.over(reversed(range(memory.steps)))
        dx, dstates, dweights = _after(made, memory, back)
    moved = [(h, d) for h, d in zip(hoisted, dweights, strict=True) if h.requires_grad]
    parameters = list(cell.parameters())
    pulled = torch.autograd.grad(
        [h for h, _ in moved], parameters, [d.to(h.dtype) for h, d in moved], allow_unused=True
    )
    return Evaluated(y, state, [dx, *dstates, *pulled])


def _last(spec, memory: _Memory) -> Tensor:
    found = [
        memory.read(Load(BufferRef.state(spec.name), lag=1 + j), spec.size, memory.steps) for j in range(spec.depth)
    ]
    return torch.stack(found, 1) if spec.delays else found[0]


def _after(made: Plan, memory: _Memory, back: _Run) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    steps = range(memory.steps)
    pieces = []
    for run in made.runs:
        low, high = run[0].delta.offset, run[-1].delta.offset + run[-1].delta.width
        delta = torch.cat([memory.rows[run[0].delta.buffer, t][:, low:high] for t in steps])
        operand = torch.cat([memory.read(run[0].operand, run[0].matrix.deep, t) for t in steps])
        pieces.append(delta.t() @ operand)
    empty = memory.like.new_zeros(0)
    dweights = WeightGradients(made)([*pieces, torch.cat([empty, *back.sums])], list(memory.weights.values()))
    dx = torch.stack([_of_x(made, memory, t) for t in steps])
    return dx, [_initial(made, memory, spec) for spec in made.states if spec.name != TIME], dweights


def _of_x(made: Plan, memory: _Memory, t: int) -> Tensor:
    total = torch.zeros_like(memory.rows[X, t])
    if (D_X, t) in memory.rows:
        total += memory.rows[D_X, t].nan_to_num(0.0)  # unwritten columns
    for product in made.products:
        if product.operand.buffer == X:
            low, matrix = product.operand.offset, product.matrix
            total[:, low : low + matrix.deep] += _delta(product, memory, t) @ matrix.of(memory.weights)
    return total


def _delta(product, memory: _Memory, t: int) -> Tensor:
    at = product.delta
    return memory.rows[at.buffer, t][:, at.offset : at.offset + at.width]


def _initial(made: Plan, memory: _Memory, spec) -> Tensor:
    total = [memory.nothing(spec.size) for _ in range(spec.depth)]
    for lag in spec.delays or (1,):
        for t in range(min(lag, memory.steps)):
            if (carry := BufferRef.carry(spec.name, lag)) in made.carries:
                total[lag - 1 - t] += memory.rows[carry, t]
            for product in made.products:
                if product.operand.buffer == BufferRef.past(spec.name, lag):
                    low, matrix = product.operand.offset, product.matrix
                    total[lag - 1 - t][:, low : low + matrix.deep] += _delta(product, memory, t) @ matrix.of(
                        memory.weights
                    )
    final = memory.finals[spec.name]
    for j in range(memory.steps, spec.depth):
        total[j - memory.steps] += final[:, j]
    return torch.stack(total, 1) if spec.delays else total[0]
