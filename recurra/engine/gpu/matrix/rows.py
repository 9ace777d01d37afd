"""Values of all steps at once: what runs before and after the loop of matrix states.

A value is a tensor (T · B, n), in the order of time. Elementwise values wait until something else reads them; then one
kernel computes all that are wanted. Torch computes the rest. A state that the loop does not carry is read one or more
steps back by moving its rows.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ...ir.buffers import CLOCK, BufferKind, BufferRef, Role
from ...ir.index_map import Gather
from ...ir.nodes import TABLE, Node, subgraph
from ...ir.table import evaluate
from ...ir.values import Unsupported
from ...plan.program import Out, Plan
from ..epilogue import PaddedRows
from . import elementwise
from .phases import Phases


class Rows:
    """Computes nodes of a program for all rows; remembers each. Operations run in single precision."""

    def __init__(
        self,
        plan: Plan,
        phases: Phases,
        bound: Mapping[BufferRef, Tensor],
        weights: Mapping[str, Tensor],
        rows: PaddedRows,
        like: Tensor,
    ):
        self.plan, self.phases, self.bound, self.weights, self.rows = plan, phases, bound, weights, rows
        self.program = phases.program
        self.like = like  # of the executor's dtype
        self.states = {state.name: state for state in plan.states}
        self.exact = like.dtype == torch.float32
        self.known: dict[Node, Tensor] = {}
        self.shared: dict[Node, bool] = {}
        self.made: dict[BufferRef, Tensor] = {}
        self.outs: dict[BufferRef, list[Out]] = {}
        for out in self.program.outs:
            self.outs.setdefault(out.buffer, []).append(out)

    def __call__(self, node: Node) -> Tensor:
        """(T · B, n), or (1, n) of what is the same in all rows."""
        self.compute([node])
        return self.known[node]

    def compute(self, nodes: Sequence[Node], places: dict[Node, Tensor] | None = None) -> None:
        """Know some values. One that a kernel stores in its place, (T · B, n), leaves `places`, and is known if it is
        read again."""
        places = {} if places is None else places
        parts = subgraph(list(nodes), stop=self.known.__contains__)
        waits = {part: self._waits(part) for part in parts}
        wanted = {*nodes, *(arg for part in parts if not waits[part] or part.op == "gather" for arg in part.args)}
        pending: list[Node] = []
        for part in parts:
            if part in self.known:
                continue
            reads_memory = not waits[part] or part.op == "gather"
            if reads_memory and any(arg in pending for arg in part.args):
                self._elementwise(pending, places)
                pending = []
            if not waits[part]:
                self.known[part] = self._value(part)
            elif part in wanted:
                pending.append(part)
        self._elementwise(pending, places)

    def _waits(self, node: Node) -> bool:
        """Whether a kernel computes it beside other values, once they are wanted."""
        repeats = elementwise.group_of(node) > 0
        return (repeats or elementwise.is_written(node)) and not self._is_shared(node)

    def _is_shared(self, node: Node) -> bool:
        """Whether all rows have the same value, as far as its operations tell."""
        if node not in self.shared:
            leaf = node.op in ("const", "weight", "literal")
            self.shared[node] = leaf or (node.op != "load" and all(map(self._is_shared, node.args)))
        return self.shared[node]

    def _elementwise(self, nodes: list[Node], places: dict[Node, Tensor]) -> None:
        """Compute the waiting values of each width in one kernel."""
        for width in sorted({node.width for node in nodes}):
            these = [node for node in nodes if node.width == width]
            known = {n: self._empty(n) for n in these if n not in places or n in self.operands}
            stores = [*known.items(), *((node, places.pop(node)) for node in these if node in places)]
            source = self._source([node for node, _ in stores])
            as_written = self.plan.compares_numbers
            elementwise.launch(source, self.known, [place for _, place in stores], as_written)
            self.known |= known

    def _source(self, outputs: list[Node]) -> elementwise.ElementwiseSource:
        """The kernel that stores these values; the next call finds it again."""
        between = subgraph(outputs, stop=self.known.__contains__)
        key = self.exact, *outputs, None, *(arg for node in between for arg in node.args if arg in self.known)
        if key not in self.phases.kernels:
            self.phases.kernels[key] = elementwise.render(outputs, self.known, self.exact)
        return self.phases.kernels[key]

    def _empty(self, node: Node) -> Tensor:
        dtype = torch.float32 if node in self.operands else self.like.dtype  # matrices multiply numbers of their own
        return torch.empty(self.rows.total, node.width, dtype=dtype, device=self.like.device)

    @functools.cached_property
    def operands(self) -> set[Node]:
        """What the program computes with in single precision: all but what matrices multiply."""
        nodes = subgraph([out.node for out in self.program.outs])
        found = {arg for node in nodes if node.op != "product" for arg in node.args}
        found |= {node for _, node in self.program.sums} | set(self.phases.inputs.values())
        read = {node.attr.buffer for node in nodes if node.op == "load"}
        single = {Role.CARRY, Role.KEPT}
        return found | {o.node for o in self.program.outs if o.buffer in read or o.buffer.role in single}

    def stored(self, buffers: Sequence[BufferRef], dtype: torch.dtype) -> list[Tensor]:
        """What a program stores in some buffers at all steps, with zeros in the padding."""
        found, places, views = [], {}, []
        for buffer in buffers:
            outs = sorted(self.outs[buffer], key=lambda out: out.offset)
            found.append(self.like.new_empty(self.rows.total, sum(out.node.width for out in outs), dtype=dtype))
            pieces = found[-1].split([out.node.width for out in outs], 1)
            views += [(out.node, piece) for out, piece in zip(outs, pieces, strict=True)]
        for node, view in views:
            if self._waits(node) and node not in self.known:
                places.setdefault(node, view)
        left = dict(places)
        self.compute([node for node, _ in views], left)
        for node, view in views:
            if places.get(node) is not view or node in left:
                view.copy_(self.full(node) if node in self.known else places[node])
        if self.running is not None:
            for tensor in found:
                tensor.masked_fill_(~self.running, 0.0)
        return found

    def full(self, node: Node) -> Tensor:
        """(T · B, n)."""
        return self(node).expand(self.rows.total, node.width)

    def buffer(self, ref: BufferRef) -> Tensor:
        """What a program stores in a buffer at all steps, side by side."""
        parts = [self.full(out.node) for out in sorted(self.outs[ref], key=lambda out: out.offset)]
        return parts[0] if len(parts) == 1 else torch.cat([part.float() for part in parts], 1)

    # ------------------------------------------------------------------------------------------ one value

    def _value(self, node: Node) -> Tensor:
        if node.op == "const":
            return torch.full((1, 1), node.attr, device=self.like.device)
        if node.op == "literal":
            return torch.tensor([node.attr], device=self.like.device)
        if node.op == "weight":
            return node.attr.of(self.weights).float()[None]
        if node.op == "load":
            return self._load(node)
        args = [self.known[arg] for arg in node.args]
        if node.op == "product":
            operand = args[0].to(self.like.dtype).expand(-1, node.args[0].width)
            return operand @ node.attr.of(self.weights).t()
        args = [arg.float() for arg in args]
        if node.op == "rowsum":
            row = args[0].expand(-1, node.args[0].width)
            return row.amax(1, keepdim=True) if node.attr == "max" else row.sum(1, keepdim=True)
        if node.op == "expand":
            return args[0].expand(-1, node.width)
        if node.op == "concat":
            count = max(arg.shape[0] for arg in args)
            return torch.cat([a.expand(count, part.width) for a, part in zip(args, node.args, strict=True)], 1)
        if node.op == "gather":
            return gather(node.attr, [a.expand(-1, part.width) for a, part in zip(args, node.args, strict=True)])
        if node.op == "stop":
            return args[0]
        if node.op not in TABLE:
            raise Unsupported(f"{node.op} over all steps")
        return evaluate(node.op, args, node.attr)

    def _load(self, node: Node) -> Tensor:
        at, width = node.attr, node.width
        columns = slice(at.offset, at.offset + width)
        role, name = at.buffer.role, at.buffer.name
        if at.buffer == CLOCK or (role is Role.PAST and name == CLOCK.name):
            return self._clock(at.lag if role is Role.STATE else at.buffer.lag)
        if role is Role.STATE:
            return self._earlier(name, self._history(at.buffer), at.lag)[:, columns]
        if role is Role.PAST:
            history = self.bound[at.buffer.memory]
            return self._earlier(name, history, at.buffer.lag)[:, columns]
        if role is Role.CARRY:
            return self._later_carry(at.buffer, at.lag)[:, columns]
        if role is Role.DELTA and at.lag:
            return self._later(self._stored(at.buffer), at.lag)[:, columns]
        if at.start:
            return self._at_the_end(self.bound[at.buffer])[:, columns]
        value = self.bound[at.buffer]
        if self.program.buffers[at.buffer].kind is BufferKind.PER_SEQUENCE:
            value = value.repeat(self.rows.steps, 1)
        return value[:, columns]

    # ------------------------------------------------------------------------------------------ other steps

    def _clock(self, lag: int) -> Tensor:
        steps, batch = self.rows.steps, self.rows.rows
        time = torch.arange(steps, device=self.like.device, dtype=torch.float32)[:, None] + (0.0 if lag else 1.0)
        start = self.bound[BufferRef.initial(CLOCK.name)].float().reshape(1, batch)
        return (time + start).reshape(-1, 1)

    def _history(self, buffer: BufferRef) -> Tensor:
        return self.bound[buffer] if buffer in self.bound else self._stored(buffer)

    def _stored(self, buffer: BufferRef) -> Tensor:
        """What the program itself stores at all steps."""
        if buffer not in self.made:
            self.made[buffer] = self.buffer(buffer)
        return self.made[buffer]

    def _earlier(self, state: str, history: Tensor, lag: int) -> Tensor:
        """The rows `lag` steps before; before the first step, initial values."""
        if not lag:
            return history
        steps, batch = self.rows.steps, self.rows.rows
        initial = self.bound[BufferRef.initial(state)]
        slots = initial if initial.dim() == 3 else initial[None]  # newest first
        first = slots[:lag].flip(0)[:steps]
        past = history.reshape(steps, batch, -1)[: max(0, steps - lag)]
        return torch.cat([first.to(past.dtype), past]).reshape(steps * batch, -1)

    def _later(self, rows: Tensor, lag: int) -> Tensor:
        """The rows `lag` steps later; after the last step, zeros."""
        running = self.masked(rows)
        steps, batch = self.rows.steps, self.rows.rows
        end = running.new_zeros(min(lag, steps) * batch, running.shape[1])
        return torch.cat([running[lag * batch :], end])

    def _later_carry(self, carry: BufferRef, lag: int) -> Tensor:
        found = self._later(self._stored(carry), lag)
        if self.states[carry.name].delays:
            return found
        return found + self._at_the_end(self.bound[BufferRef.d_final(carry.name)])

    def _at_the_end(self, final: Tensor) -> Tensor:
        """Each sequence's value at the row of its last step, zeros at the others."""
        spread = final.new_zeros(self.rows.total, final.shape[-1], dtype=torch.float32)
        if self.rows.total:
            ends = self.rows.ends()
            value = torch.where((ends > 0)[:, None], final.float(), 0.0)
            spread.index_add_(0, self.rows.row_index(ends - 1), value)
        return spread

    def masked(self, value: Tensor) -> Tensor:
        """Zeros in the padding."""
        running = self.running
        return value if running is None else torch.where(running, value, torch.zeros_like(value))

    @functools.cached_property
    def running(self) -> Tensor | None:
        """(T · B, 1); None if all rows are."""
        if self.rows.lengths is None:
            return None
        steps = torch.arange(self.rows.steps, device=self.like.device)[:, None]
        return (steps < self.rows.lengths.to(self.like.device)).reshape(-1, 1)


# ---------------------------------------------------------------------------------------------------- gathers


def gather(what: Gather, args: Sequence[Tensor]) -> Tensor:
    """The result of an index map. Maps with axes are views."""
    views = [_view(index.data, index.terms) for index in what.maps]
    if any(view is None for view in views):
        return what.compute(list(args))
    read = [view(arg) for view, arg in zip(views, args, strict=True)]  # pyrefly: ignore
    value = read[0] if len(read) == 1 else read[0].reshape(-1, *_flat(what)) * read[1].reshape(-1, *_flat(what))
    count = args[0].shape[0] if len(args) == 1 else max(arg.shape[0] for arg in args)
    value = value.reshape(count, *_flat(what))
    if what.terms == 1:
        return value[:, 0]
    return value.sum(1) if what.kind == "sum" else value.amax(1)


def _flat(what: Gather) -> tuple[int, int]:
    return what.terms, what.maps[0].width


@functools.lru_cache(maxsize=512)
def _view(data: bytes, terms: int) -> Callable[[Tensor], Tensor] | None:
    """A map of rows as a view of their memory; None if it has no axes."""
    places = torch.frombuffer(bytearray(data), dtype=torch.int32).reshape(terms, -1).long()
    if bool((places < 0).any()):
        return None
    first, down, across = int(places[0, 0]), places[:, 0], places[0]
    if not torch.equal(places, down[:, None] + across[None, :] - first):
        return None
    one, other = _strides(down), _strides(across)
    if one is None or other is None:
        return None
    sizes, strides = [s for s, _ in (*one, *other)], [s for _, s in (*one, *other)]

    def read(value: Tensor) -> Tensor:
        rows = value.contiguous()
        start = rows.storage_offset() + first
        return rows.as_strided((rows.shape[0], *sizes), (rows.shape[1], *strides), start)

    return read


def _strides(places: Tensor) -> list[tuple[int, int]] | None:
    """(size, stride) of each axis, the last one fastest, of numbers that are a sum of steps along axes."""
    count = len(places)
    if count == 1:
        return []
    stride = int(places[1] - places[0])
    steady = places == places[0] + stride * torch.arange(count)
    run = int(steady.int().argmin()) if not bool(steady.all()) else count
    for size in range(run, 1, -1):
        if count % size == 0:
            starts = places.reshape(-1, size)
            if torch.equal(starts, starts[:, :1] + stride * torch.arange(size)):
                outer = _strides(starts[:, 0])
                return None if outer is None else [*outer, (size, stride)]
    return None
