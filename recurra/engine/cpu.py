"""Run a plan on the CPU: forward, backward, and the products that were left for after the loop."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import workspace
from .hoist import Hoisted, hoisted
from .kernel import Bound, Kernel
from .layout import Layout
from .nodes import Matrix, Vector
from .over_time import After, OverTime, runs
from .plan import Plan, Product

FEWEST_ROWS = 3  # up to which a product reads a weight for next to nothing


@dataclass(frozen=True)
class Ran:
    """What a forward pass leaves behind."""

    y: Tensor  # (rows of all steps, size)
    finals: list[Tensor]
    named: list[Tensor]
    kept: list[Tensor]  # in training: the histories of the states that are not y, then what the plan keeps


class Compiled:
    """A plan with its kernels. Compiled when first used, for the dtype it is used with."""

    def __init__(self, plan: Plan, dtype: torch.dtype):
        self.plan, self.dtype = plan, dtype
        self.weight_names = tuple(plan.equations.hoisted)
        self.histories = tuple(s.name for s in plan.states if s.name != plan.output)

    @functools.cached_property
    def forward_kernel(self) -> Kernel:
        return Kernel(self.plan.forward, self.dtype, backward=False)

    @functools.cached_property
    def hoisted(self) -> Hoisted:
        return hoisted(self.plan.forward)

    @functools.cached_property
    def hoisted_kernel(self) -> Kernel:
        return Kernel(self.hoisted.program, self.dtype, backward=False)

    def _worth_hoisting(self, layout: Layout) -> bool:
        """Whether the weights a step need no longer read outweigh the memory in between. They do not where they are at
        hand, unless rows are so few that reading them is all that a step does."""
        split = self.forward_kernel.split(layout, layout.rows)
        if not self.forward_kernel.far(split) and layout.rows > FEWEST_ROWS:
            return False
        readers = 1 if split.by_unit else split.threads
        return 16 * layout.total * self.hoisted.width < readers * layout.steps * self.hoisted.numbers

    @functools.cached_property
    def backward_kernel(self) -> Kernel:
        assert self.plan.backward is not None
        return Kernel(self.plan.backward, self.dtype, backward=True)

    @functools.cached_property
    def runs(self) -> list[list[Product]]:
        return runs(self.plan)

    @functools.cached_property
    def summed(self) -> OverTime:
        return OverTime(self.dtype)

    @property
    def trains(self) -> bool:
        return self.plan.backward is not None

    def prologue(self, weights: dict[str, Tensor]) -> list[Tensor]:
        """What the loop reads: weights, and what is computed from weights alone."""
        if all(name in weights for name in self.weight_names):
            return [weights[name] for name in self.weight_names]
        return list(self.plan.equations.prologue(*(weights[name] for name in self.plan.equations.weights)))

    # ------------------------------------------------------------------------------------------ forward

    def forward(
        self, x: Tensor, states: Sequence[Tensor], masks: Sequence[Tensor], weights: Sequence[Tensor], layout: Layout
    ) -> Ran:
        plan, given = self.plan, dict(zip(self.weight_names, weights, strict=True))
        bound = self._inputs(x, masks, layout, "time", 0)
        kernel = self.forward_kernel
        if self._worth_hoisting(layout):
            kernel = self.hoisted_kernel
            for name, data in self.hoisted.fill(x, given).items():
                bound[name] = Bound(data, layout.table("time"))
        packed = kernel.pack(given, kernel.split(layout, layout.rows))
        for state, initial in zip(plan.states, states, strict=True):
            whole = self.trains or state.name == plan.output
            rows = layout.total if whole else (state.depth + 1) * layout.rows
            table = layout.table("history" if whole else "ring", state.depth, state.depth)
            bound[state.name] = Bound(self._empty(rows, state.size), table, _slots(initial, state.depth))
        for name, buffer in kernel.schedule.buffers.items():
            if name not in bound:
                still = buffer.kind == "scratch"
                rows = layout.rows if still else layout.total
                bound[name] = Bound(self._empty(rows, buffer.width), layout.table("still" if still else "time"))
        kernel.run(packed, layout, bound)
        finals = [
            self._final(bound[s.name], s.depth, bool(s.delays), layout, self.trains or s.name == plan.output)
            for s in plan.states
        ]
        kept = [bound[name].data for name in (*self.histories, *plan.kept)] if self.trains else []
        return Ran(bound[plan.output].data, finals, [bound[name].data for name in plan.named.values()], kept)

    def _empty(self, rows: int, width: int) -> Tensor:
        return workspace.empty((rows, width), self.dtype)

    def _inputs(self, x: Tensor, masks: Sequence[Tensor], layout: Layout, time: str, reach: int) -> dict[str, Bound]:
        bound = {"x": Bound(x, layout.table(time, 0, reach))}
        for (name, each), mask in zip(self.plan.masks.items(), masks, strict=True):
            bound[name] = Bound(mask, layout.table(time if each == "step" else "still", 0, reach))
        return bound

    def _final(self, state: Bound, depth: int, delayed: bool, layout: Layout, whole: bool) -> Tensor:
        """The last values of each sequence, newest first."""
        assert state.before is not None
        if layout.active is None and not delayed:
            last = layout.total - layout.rows if whole else (layout.steps - 1) % (depth + 1) * layout.rows
            return state.data[last : last + layout.rows].clone()
        newest, row = layout.ends() - 1, torch.arange(layout.rows)
        values = []
        if layout.total == 0:
            return (
                state.before.view(depth, layout.rows, -1).transpose(0, 1).clone() if delayed else state.before.clone()
            )
        for j in range(depth):
            t = newest - j
            there = layout.starts[t.clamp(min=0)] if whole else t % (depth + 1) * layout.rows
            data = state.data[torch.where(t >= 0, there + row, 0)]
            before = state.before.view(-1, state.data.shape[1])[((-1 - t).clamp(min=0) * layout.rows + row)]
            values.append(torch.where((t >= 0)[:, None], data, before))
        return torch.stack(values, 1) if delayed else values[0]

    # ------------------------------------------------------------------------------------------ backward

    def backward(
        self,
        dy: Tensor | None,
        dfinals: Sequence[Tensor | None],
        dnamed: Sequence[Tensor | None],
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        ran: Ran,
        layout: Layout,
        wants_states: bool = True,
    ) -> tuple[Tensor | None, list[Tensor], list[Tensor]]:
        """Cotangents of x (if the plan gives one), of the initial states, and the pieces `gradients` puts together."""
        kernel, plan = self.backward_kernel, self.plan
        given = dict(zip(self.weight_names, weights, strict=True))
        reach = kernel.reach
        bound = self._inputs(x, masks, layout, "time_back", reach)
        self._bind_forward(bound, states, ran, layout, reach)
        self._bind_cotangents(bound, dy, dfinals, dnamed, layout, reach)
        for name, buffer in kernel.schedule.buffers.items():
            if name not in bound:
                still = buffer.kind == "scratch"
                data = self._empty(layout.rows if still else layout.total, buffer.width)
                bound[name] = Bound(data, layout.table("still" if still else "time_back", 0, reach))
        packed = kernel.pack(given, kernel.split(layout, layout.rows))
        sums = kernel.run(packed, layout, bound)
        after = After(plan, self.runs, bound, given, layout)
        dstates = [after.initial(s.name, d) for s, d in zip(plan.states, dfinals, strict=True) if wants_states]
        return after.input(), dstates, [*self.summed(after), sums]

    def gradients(self, pieces: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        """Weight gradients from what `backward` gives: products over all steps, and the sums of the loop."""
        found: dict[str, Tensor] = {}
        shapes = {name: w.shape for name, w in zip(self.weight_names, weights, strict=True)}

        def place(name: str) -> Tensor:
            if name not in found:
                found[name] = pieces[-1].new_zeros(shapes[name])
            return found[name]

        for run, piece in zip(self.runs, pieces[:-1], strict=True):
            parts = piece.split([product.delta.width for product in run])
            for product, part in zip(run, parts, strict=True):
                matrix, part = product.matrix, part.t() if product.matrix.flipped else part
                if matrix.weight not in found and part.shape == shapes[matrix.weight]:
                    found[matrix.weight] = part
                else:
                    found[matrix.weight] = _added(place(matrix.weight), matrix, part)
        assert self.plan.backward is not None
        vectors = [vector for vector, _ in self.plan.backward.sums]
        sums = pieces[-1].split([node.width for _, node in self.plan.backward.sums]) if vectors else ()
        for vector, total in zip(vectors, sums, strict=True):
            low, high = vector.rows
            total = total if total.numel() == high - low else total.sum()
            if vector.weight not in found and vector.col is None and total.numel() == shapes[vector.weight].numel():
                found[vector.weight] = total.reshape(shapes[vector.weight])
            else:
                found[vector.weight] = _added_vector(place(vector.weight), vector, total)
        return [place(name) for name in self.weight_names]

    def _bind_forward(
        self, bound: dict[str, Bound], states: Sequence[Tensor], ran: Ran, layout: Layout, reach: int
    ) -> None:
        histories = dict(zip(self.histories, ran.kept, strict=False)) | {self.plan.output: ran.y}
        before = {s.name: _slots(v, s.depth) for s, v in zip(self.plan.states, states, strict=True)}
        assert self.plan.backward is not None
        for name, buffer in self.plan.backward.buffers.items():
            if buffer.source:
                table = layout.table("history_back", buffer.lag, reach)
                bound[name] = Bound(histories[buffer.source], table, before[buffer.source])
        times = dict(zip(self.plan.kept, ran.kept[len(self.histories) :], strict=True))
        times |= dict(zip(self.plan.named.values(), ran.named, strict=True))
        if self.plan.output == "output":
            times["output"] = ran.y
        for name, data in times.items():
            bound[name] = Bound(data, layout.table("time_back", 0, reach))

    def _bind_cotangents(
        self,
        bound: dict[str, Bound],
        dy: Tensor | None,
        dfinals: Sequence[Tensor | None],
        dnamed: Sequence[Tensor | None],
        layout: Layout,
        reach: int,
    ) -> None:
        assert self.plan.backward is not None
        buffers = self.plan.backward.buffers
        still = layout.table("still", 0, reach)
        time = layout.table("time_back", 0, reach)
        outputs = {"doutput": dy} | dict(zip((f"d{n}" for n in self.plan.named.values()), dnamed, strict=True))
        for name, cotangent in outputs.items():
            width = buffers[name].width
            none = Bound(torch.zeros(1, width, dtype=self.dtype), still, stride=0)
            bound[name] = none if cotangent is None else Bound(cotangent, time)
        for state, final in zip(self.plan.states, dfinals, strict=True):
            name, carried = f"dfinal:{state.name}", [k for k in self.plan.carries.items() if k[0][0] == state.name]
            shape = state.shape(layout.rows)
            if state.delays:
                value = torch.zeros(shape, dtype=self.dtype) if final is None else final
                bound[name] = Bound(_spread(value, layout), time)
            elif name in self.backward_kernel.tables.buffers:
                bound[name] = Bound(torch.zeros(shape, dtype=self.dtype) if final is None else final, still)
            for (_, lag), buffer in carried:
                data = torch.zeros(lag + 1, layout.rows, state.size, dtype=self.dtype)
                if final is not None and not state.delays:
                    data.copy_(final.expand_as(data))
                bound[buffer] = Bound(data.view(-1, state.size), layout.table("carry_back", lag, reach))


def _slots(initial: Tensor, depth: int) -> Tensor:
    """(B, depth, size), newest first → (depth, B, size)."""
    return initial.transpose(0, 1).contiguous() if initial.dim() == 3 else initial.contiguous()


def _spread(final: Tensor, layout: Layout) -> Tensor:
    """The cotangent of each sequence's last values (B, depth, size), at the rows of the steps they are of."""
    spread = final.new_zeros(layout.total, final.shape[2])
    newest, row = layout.ends() - 1, torch.arange(layout.rows)
    for j in range(final.shape[1]):
        t = newest - j
        there = t >= 0
        spread[layout.starts[t[there]] + row[there]] += final[there, j]
    return spread


def _added(total: Tensor, matrix: Matrix, part: Tensor) -> Tensor:
    total = total.clone()
    total[slice(*matrix.rows), slice(*matrix.cols)] += part
    return total


def _added_vector(total: Tensor, vector: Vector, part: Tensor) -> Tensor:
    total, (low, high) = total.clone(), vector.rows
    if vector.col is not None:
        total[low:high, vector.col] += part
    else:
        total.view(-1)[low:high] += part
    return total
