"""Run a plan on the CPU: forward, backward, and the products that were left for after the loop."""

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import workspace
from .kernel import Bound, Kernel, Packed, Split
from .layout import Layout
from .nodes import Matrix, Vector
from .plan import Plan, Product


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
        self.latest: tuple[list[tuple[int, Split]], list[weakref.ref[Tensor]], Packed] | None = None

    @functools.cached_property
    def forward_kernel(self) -> Kernel:
        return Kernel(self.plan.forward, self.dtype, backward=False)

    @functools.cached_property
    def backward_kernel(self) -> Kernel:
        assert self.plan.backward is not None
        return Kernel(self.plan.backward, self.dtype, backward=True)

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
        kernel, plan = self.forward_kernel, self.plan
        packed = self._packed(weights, kernel.split(layout, layout.rows), layout.steps == 1 and not self.trains)
        bound = self._inputs(x, masks, layout, "time", 0)
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

    def _packed(self, weights: Sequence[Tensor], split: Split, single: bool) -> Packed:
        """The packed weights; for a single step, those of the step before if no weight has a new version."""
        if not single or any(w.is_inference() for w in weights):
            return self.forward_kernel.pack(dict(zip(self.weight_names, weights, strict=True)), split)
        marks, latest = [(w._version, split) for w in weights], self.latest
        if latest is not None and latest[0] == marks and all(r() is w for r, w in zip(latest[1], weights, strict=True)):
            return latest[2]
        packed = self.forward_kernel.pack(dict(zip(self.weight_names, weights, strict=True)), split)
        self.latest = marks, [weakref.ref(w) for w in weights], packed
        return packed

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
        after = _After(self, bound, given, layout)
        dstates = [after.initial(s.name, d) for s, d in zip(plan.states, dfinals, strict=True) if wants_states]
        pieces = [after.over_time(run) for run in runs(plan)]
        return after.input(), dstates, [*pieces, sums]

    def gradients(self, pieces: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        """Weight gradients from what `backward` gives: products over all steps, and the sums of the loop."""
        found: dict[str, Tensor] = {}
        shapes = {name: w.shape for name, w in zip(self.weight_names, weights, strict=True)}

        def place(name: str) -> Tensor:
            if name not in found:
                found[name] = pieces[-1].new_zeros(shapes[name])
            return found[name]

        for run, piece in zip(runs(self.plan), pieces[:-1], strict=True):
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
            value = torch.zeros(layout.rows, *state.shape(1)[1:], dtype=self.dtype) if final is None else final
            name = f"dfinal:{state.name}"
            if state.delays:
                bound[name] = Bound(_spread(value, layout), time)
            else:
                bound[name] = Bound(value, still)
            for (source, lag), buffer in self.plan.carries.items():
                if source == state.name:
                    ring = torch.zeros if state.delays else None
                    slots = (lag + 1) * layout.rows
                    data = ring(slots, state.size, dtype=self.dtype) if ring else value.repeat(lag + 1, 1)
                    bound[buffer] = Bound(data, layout.table("carry_back", lag, reach))


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


def runs(plan: Plan) -> list[list[Product]]:
    """Products of the same operand whose δ lie side by side: one matrix product takes them all."""
    groups: dict[object, list[Product]] = {}
    for product in plan.products:
        groups.setdefault((product.operand, product.delta.buffer, product.matrix.deep), []).append(product)
    found: list[list[Product]] = []
    for products in groups.values():
        last: Product | None = None
        for product in sorted(products, key=lambda p: p.delta.offset):
            if last is not None and last.delta.offset + last.delta.width == product.delta.offset:
                found[-1].append(product)
            else:
                found.append([product])
            last = product
    return found


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


class _After:
    """What is left when the loop is done: products over all steps at once."""

    def __init__(self, compiled: Compiled, bound: dict[str, Bound], given: dict[str, Tensor], layout: Layout):
        self.compiled, self.plan, self.bound, self.given, self.layout = compiled, compiled.plan, bound, given, layout

    def delta(self, run: list[Product]) -> Tensor:
        first, last = run[0].delta, run[-1].delta
        return self.bound[first.buffer].data[:, first.offset : last.offset + last.width]

    def matrix(self, matrix: Matrix) -> Tensor:
        """(wide, deep), as a product uses it."""
        weight = self.given[matrix.weight][slice(*matrix.rows), slice(*matrix.cols)]
        return weight.t() if matrix.flipped else weight

    def over_time(self, run: list[Product]) -> Tensor:
        delta, load, layout = self.delta(run), run[0].operand, self.layout
        source = self.bound[load.buffer]
        columns = slice(load.offset, load.offset + run[0].matrix.deep)
        if run[0].state is None:
            return self._product(delta.t(), source.data[:, columns])
        lag, rows = run[0].lag, layout.rows
        assert source.before is not None
        before = source.before.view(-1, rows, source.data.shape[1])
        if layout.active is not None:
            return self._product(delta.t(), _earlier(source.data, before, lag, layout)[:, columns])
        shift = min(lag, layout.steps) * rows
        total = self._product(delta[shift:].t(), source.data[: layout.total - shift, columns])
        for t in range(min(lag, layout.steps)):
            total.addmm_(delta[t * rows : (t + 1) * rows].t(), before[lag - 1 - t][:, columns])
        return total

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.mm(a, b, out=workspace.empty((a.shape[0], b.shape[1]), self.compiled.dtype))

    # ------------------------------------------------------------------------------------------ inputs

    def input(self) -> Tensor | None:
        if not self.plan.needs_x:
            return None
        given = self.bound.get("dx")
        width = self.bound["x"].data.shape[1]
        total = self._input_start(given, width)
        fresh = given is None
        for run in runs(self.plan):
            if run[0].operand.buffer == "x":
                stacked = torch.cat([self.matrix(p.matrix) for p in run])
                low, high = run[0].operand.offset, run[0].operand.offset + run[0].matrix.deep
                if fresh and high - low == width:
                    torch.mm(self.delta(run), stacked, out=total)
                else:
                    total[:, low:high] += self.delta(run) @ stacked
                fresh = False
        return total

    def _input_start(self, given: Bound | None, width: int) -> Tensor:
        """Zeros, or what the loop itself gave."""
        covered: set[int] = set()
        if given is not None:
            assert self.plan.backward is not None
            for out in self.plan.backward.outs:
                if out.buffer == "dx":
                    covered |= set(range(out.offset, out.offset + out.node.width))
            for column in set(range(width)) - covered:
                given.data[:, column] = 0
            return given.data
        whole = any(p.operand.buffer == "x" and p.matrix.deep == width for p in self.plan.products)
        shape = (self.layout.total, width)
        return workspace.empty(shape, self.compiled.dtype) if whole else workspace.zeros(shape, self.compiled.dtype)

    def initial(self, name: str, final: Tensor | None) -> Tensor:
        """The cotangent of a state's initial value."""
        state = next(s for s in self.plan.states if s.name == name)
        rows, steps = self.layout.rows, self.layout.steps
        total = torch.zeros(state.depth, rows, state.size, dtype=self.compiled.dtype)
        for lag in state.delays or (1,):
            for t in range(min(lag, steps)):
                place, at = total[lag - 1 - t], self.layout.rows_at(t)
                running = at.stop - at.start
                if (name, lag) in self.plan.carries:
                    slot = (steps - 1 - t) % (lag + 1) * rows
                    place[:running] += self.bound[self.plan.carries[name, lag]].data[slot : slot + running]
                for product in self.plan.products:
                    if product.state == name and product.lag == lag:
                        low, delta = product.operand.offset, product.delta
                        here = self.bound[delta.buffer].data[at, delta.offset : delta.offset + delta.width]
                        place[:running, low : low + product.matrix.deep] += here @ self.matrix(product.matrix)
        if final is not None:
            self._pass_through(total, final)
        return total.transpose(0, 1).contiguous() if state.delays else total[0]

    def _pass_through(self, total: Tensor, final: Tensor) -> None:
        """Of a sequence shorter than the state is deep, the last values are initial ones."""
        newest, row = self.layout.ends(), torch.arange(self.layout.rows)
        values = final if final.dim() == 3 else final[:, None]
        for j in range(values.shape[1]):
            slot = j - newest
            there = slot >= 0
            if there.any():
                total[slot[there], row[there]] += values[there, j]


def _earlier(data: Tensor, before: Tensor, lag: int, layout: Layout) -> Tensor:
    """For each row, that of the same sequence `lag` steps before."""
    step = torch.repeat_interleave(layout.times, layout.counts)
    row = torch.arange(layout.total) - layout.starts[step]
    at = step - lag
    early = (at < 0)[:, None]
    there = data[layout.starts[at.clamp(min=0)] + row]
    first = before.reshape(-1, data.shape[1])[(-1 - at).clamp(min=0) * layout.rows + row]
    return torch.where(early, first, there)
