"""The compiled engine as an operation of torch: registered with torch.library, so that autograd, torch.compile and
everything else that asks an operation who it is gets an answer.

`recurra::scan` and `recurra::scan_backward` name a plan by its key; the plan is found in this process's registry. Rows
of a ragged batch are gathered on entry and scattered on exit, so every shape outside is that of the padded batch.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch.compiler import is_compiling
from torch.nn import Parameter

from .cpu import allocator
from .cpu.arena import whole
from .cpu.call import Ran
from .cpu.executor import Compiled
from .cpu.layout import Layout, dense
from .plan.replay import replay
from .torch_modes import looked_at, unseen

MANY = 1 << 20  # rows whose order is worked out each time: it takes memory

_BY_NAME = SimpleNamespace()  # torch.compile looks at a dictionary once, and plans come while it works
PLANS: dict[str, Any] = vars(_BY_NAME)  # Compiled, or the GPU's OnGpu: the same names


def plan_of(key: str) -> Any:
    return getattr(_BY_NAME, key)


class _Rows:
    """The rows of a batch: all of them, or those within the lengths, the longest sequence first."""

    def __init__(self, steps: int, batch: int, lengths: Sequence[int] | None = None):
        self.steps, self.batch, self.ragged = steps, batch, lengths is not None
        if lengths is None:
            self.layout = dense(steps, batch)
            return
        ends, self.order = torch.sort(torch.tensor(lengths), descending=True, stable=True)
        self.back = torch.argsort(self.order)
        active = (ends > torch.arange(steps)[:, None]).sum(1)
        self.layout = Layout(max(1, int(ends[0])), batch, active[: max(1, int(ends[0]))])
        step = torch.repeat_interleave(self.layout.times, self.layout.counts)
        rank = torch.arange(self.layout.total) - self.layout.starts[step]
        self.index = step * batch + self.order[rank]

    def gather(self, value: Tensor) -> Tensor:
        """(T, B, n), or of a ragged batch (rows, n)."""
        if not self.ragged:
            return whole(value)
        return value.reshape(-1, value.shape[-1]).index_select(0, self.index)

    def scatter(self, rows: Tensor) -> Tensor:
        """(rows, n) → (T, B, n), zero past the ends."""
        if not self.ragged:
            return rows
        full = allocator.zeros((self.steps, self.batch, rows.shape[-1]), rows.dtype)
        full.view(-1, rows.shape[-1]).index_copy_(0, self.index, rows)
        return full

    def sort(self, values: Sequence[Tensor]) -> list[Tensor]:
        return [v[self.order] if self.ragged else whole(v) for v in values]

    def unsort(self, values: Sequence[Tensor]) -> list[Tensor]:
        return [v[self.back] for v in values] if self.ragged else list(values)

    def room(self, rows: Tensor) -> Tensor:
        """As many rows as the padded batch has: shapes must not depend on the lengths."""
        if not self.ragged or rows.shape[0] == self.steps * self.batch:
            return rows
        full = rows.new_empty(self.steps * self.batch, rows.shape[-1])
        full[: rows.shape[0]] = rows
        full[rows.shape[0] :] = 0
        return full


def _rows(x: Tensor, lengths: Tensor | None) -> _Rows:
    steps, batch = x.shape[:2]
    ends = None if lengths is None else tuple(lengths.tolist())
    if ends is None or min(ends, default=steps) >= steps:
        return _Rows(steps, batch)
    return _ragged(steps, batch, ends) if steps * batch < MANY else _Rows(steps, batch, ends)


@functools.lru_cache(maxsize=16)
def _ragged(steps: int, batch: int, ends: tuple[int, ...]) -> _Rows:
    """Backward meets the lengths that forward had, and each epoch those of the one before."""
    return _Rows(steps, batch, ends)


def _masks(plan: Compiled, masks: Sequence[Tensor], rows: _Rows) -> list[Tensor]:
    kinds = plan.plan.masks.values()
    return [rows.gather(m) if each == "step" else rows.sort([m])[0] for each, m in zip(kinds, masks, strict=True)]


# torch.library.custom_op would import the compiler with the first call, to tell it not to look in here.
torch.library.define(
    "recurra::scan",
    "(str key, Tensor x, Tensor[] states, Tensor[] masks, Tensor[] weights, Tensor? lengths) -> Tensor[]",
)
torch.library.define(
    "recurra::scan_backward",
    "(str key, Tensor?[] cotangents, Tensor x, Tensor[] states, Tensor[] masks, Tensor[] weights, Tensor? lengths,"
    " Tensor[] needed, bool wants_states) -> Tensor[]",
)


@unseen
def _scan(
    key: str,
    x: Tensor,
    states: list[Tensor],
    masks: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    padded: bool = True,
) -> list[Tensor]:
    """[y, final states, named values, what backward needs, with room for all rows of the batch if `padded`]."""
    plan, rows = PLANS[key], _rows(x, lengths)
    given = rows.gather(x), rows.sort(states), _masks(plan, masks, rows), weights
    ran = plan.forward(*given, rows.layout, x.shape[0] * x.shape[1] if padded else None)
    kept = [] if ran.kept is None else [ran.kept]
    if plan.trains and lengths is not None:  # backward reads y in the order of its rows
        packed = ran.y if rows.ragged else torch.zeros_like(ran.y).flatten(0, 1) if padded else ran.y[:0]
        kept.append(rows.room(packed) if padded else packed)
    outputs = [rows.scatter(v) for v in (ran.y, *ran.named)]
    return [outputs[0], *rows.unsort(ran.finals), *outputs[1:], *kept]


@unseen
def _scan_on_gpu(key, x, states, masks, weights, lengths) -> list[Tensor]:
    return PLANS[key].forward(x, states, masks, weights, lengths)


torch.library.impl("recurra::scan", "cpu", _scan)
torch.library.impl("recurra::scan", "cuda", _scan_on_gpu)


@torch.library.register_fake("recurra::scan")
def _(key, x, states, masks, weights, lengths):
    plan = PLANS[key]
    buffers, steps, batch = plan.plan.forward.buffers, x.shape[0], x.shape[1]
    output = buffers[plan.plan.output].width

    def room(width: int) -> Tensor:
        return x.new_empty(steps * batch, width)

    outputs = [x.new_empty(steps, batch, output), *(torch.empty_like(s) for s in states)]
    outputs += [x.new_empty(steps, batch, buffers[name].width) for name in plan.plan.named.values()]
    if plan.trains and x.device.type == "cpu":
        outputs += [x.new_empty(plan.kept_numbers(steps * batch)), *([room(output)] if lengths is not None else [])]
    elif plan.trains:
        outputs += [room(buffers[name].width) for name in (*plan.histories, *plan.plan.kept)]
    return outputs


@unseen
def _scan_backward(
    key: str,
    cotangents: list[Tensor | None],
    x: Tensor,
    states: list[Tensor],
    masks: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    needed: list[Tensor],
    wants_states: bool,
) -> list[Tensor]:
    """Cotangents of x (empty if the plan gives none), of the states if wanted, and pieces of those of the weights."""
    plan, rows = PLANS[key], _rows(x, lengths)
    count, named = len(states), len(plan.plan.named)
    y, _, names, kept = _parts(needed, 0, named)
    if rows.ragged:
        y = kept[1][: rows.layout.total]
    # Whoever kept these for us (torch.autograd.graph.saved_tensors_hooks) may give them back laid out in another way.
    ran = Ran(y.contiguous(), [], [rows.gather(v) for v in names], kept[0].contiguous())
    dy, dfinals, dnamed, _ = _parts(cotangents, count, named)
    dx, dstates, pieces = plan.backward(
        None if dy is None else rows.gather(dy),
        [None if d is None else rows.sort([d])[0] for d in dfinals],
        [None if d is None else rows.gather(d) for d in dnamed],
        rows.gather(x),
        rows.sort(states),
        _masks(plan, masks, rows),
        weights,
        ran,
        rows.layout,
        wants_states,
    )
    given = x.new_empty(0) if dx is None else rows.scatter(dx).view(x.shape)
    return [given, *rows.unsort(dstates), *pieces]


@unseen
def _scan_backward_on_gpu(key, cotangents, x, states, masks, weights, lengths, needed, wants_states) -> list[Tensor]:
    plan = PLANS[key]
    y, _, names, kept = _parts(needed, 0, len(plan.plan.named))
    wanted = _parts(cotangents, len(states), len(plan.plan.named))[:3]
    return plan.backward(wanted, x, states, masks, weights, lengths, (y, names, kept), wants_states)


torch.library.impl("recurra::scan_backward", "cpu", _scan_backward)
torch.library.impl("recurra::scan_backward", "cuda", _scan_backward_on_gpu)


@torch.library.register_fake("recurra::scan_backward")
def _(key, cotangents, x, states, masks, weights, lengths, needed, wants_states):
    first = torch.empty_like(x) if PLANS[key].plan.needs_x else x.new_empty(0)
    plan = PLANS[key].plan
    pieces = [x.new_empty(sum(p.delta.width for p in run), run[0].matrix.deep) for run in PLANS[key].runs]
    assert plan.backward is not None
    sums = x.new_empty(sum(node.width for _, node in plan.backward.sums))
    return [first, *(torch.empty_like(v) for v in states if wants_states), *pieces, sums]


def _parts(values: Sequence, states: int, named: int):
    """y, final states, named values, the rest."""
    first, second = 1 + states, 1 + states + named
    return values[0], list(values[1:first]), list(values[first:second]), list(values[second:])


def _needed(results: Sequence[Tensor], states: int) -> list[Tensor]:
    """Of what a scan gives, what its derivative reads: not the final states, into which people write between calls."""
    return [results[0], *results[1 + states :]]


def _save(ctx, inputs, output) -> None:
    key, x, states, masks, weights, lengths = inputs
    ctx.key, ctx.counts = key, (len(states), len(masks), len(weights), lengths is not None)
    ctx.wants_states = any(state.requires_grad for state in states)
    ctx.set_materialize_grads(False)
    given = (x, *states, *masks, *weights, *(() if lengths is None else (lengths,)))
    ctx.save_for_backward(*given, *_needed(output, len(states)))


def _pull(ctx, cotangents):
    dx, dstates, masks, dweights = _pulled(ctx, cotangents, torch.ops.recurra.scan_backward)
    return None, dx, list(dstates), [None] * masks, list(dweights), None


def _pulled(ctx, cotangents, run_backward: Callable[..., list[Tensor]]) -> tuple:
    """Cotangents of x, of the states and of the weights, and the number of masks between them."""
    states, masks, weights, ragged = ctx.counts
    saved = iter(ctx.saved_tensors)
    x = next(saved)
    groups = [[next(saved) for _ in range(n)] for n in (states, masks, weights)]
    lengths = next(saved) if ragged else None
    plan = PLANS[ctx.key]
    if torch.is_grad_enabled() or _batched(cotangents):  # plain operations can be differentiated again, and transformed
        dx, dstates, dweights = _again(plan, cotangents, x, groups[0], groups[1], groups[2], lengths)
        return dx, dstates, masks, dweights
    result = run_backward(ctx.key, list(cotangents), x, *groups, lengths, list(saved), ctx.wants_states)
    dx = result[0] if plan.plan.needs_x else None
    count = 1 + states if ctx.wants_states else 1
    dstates = result[1:count] if ctx.wants_states else [None] * states
    return dx, dstates, masks, plan.gradients(result[count:], groups[2])


def _batched(cotangents: Sequence[Tensor | None]) -> bool:
    """Whether one stands for many, as with torch.autograd.grad's is_grads_batched, and has no memory to point to."""
    return any(d is not None and not torch._C._has_storage(d) for d in cotangents)


def _again(plan: Compiled, cotangents, x, states, masks, weights, lengths):
    """The derivative of the replayed plan. Each input enters by a view of its own: a tensor may be given twice, or be
    computed from another, and its part is what comes by its own way alone."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        wanted = [v.view_as(v) for v in (x, *states, *weights)]
        count = 1 + len(states)
        results = replay(plan.plan, wanted[0], wanted[1:count], masks, wanted[count:], lengths)
    pairs = [(r, c) for r, c in zip(results, cotangents, strict=False) if c is not None and r.requires_grad]
    inputs = [v for v in wanted if v.requires_grad]
    grads = torch.autograd.grad(
        [r for r, _ in pairs], inputs, [c for _, c in pairs], create_graph=differentiable, allow_unused=True
    )
    found = iter(grads)
    each = [next(found) if v.requires_grad else None for v in wanted]
    return each[0], each[1:count], each[count:]


torch.library.register_autograd("recurra::scan", _pull, setup_context=_save)


# ------------------------------------------------------------------------------------------ without the dispatcher


class _Direct(torch.autograd.Function):
    """The same operation where nobody has to know it by name: a fraction of the dispatcher's overhead."""

    @staticmethod
    def forward(ctx, key, counts, lengths, *tensors):  # pyrefly: ignore
        groups = _grouped(tensors, counts)
        results = _forward(tensors[0])(key, tensors[0], *groups, lengths)
        # Saved tensors may be asked for once only (checkpoints): who runs backward is settled here.
        ctx.backward_run = _scan_backward_on_gpu if tensors[0].is_cuda else _scan_backward
        ctx.key, ctx.counts = key, (*counts, lengths is not None)
        ctx.wants_states = any(state.requires_grad for state in groups[0])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *(() if lengths is None else (lengths,)), *_needed(results, counts[0]))
        return tuple(results[: 1 + counts[0] + len(PLANS[key].plan.named)])

    @staticmethod
    def backward(ctx, *cotangents):
        dx, dstates, masks, dweights = _pulled(ctx, cotangents, ctx.backward_run)
        return None, None, None, dx, *dstates, *[None] * masks, *dweights


def _grouped(tensors: Sequence[Tensor], counts: tuple[int, int, int]) -> list[list[Tensor]]:
    first, second = 1 + counts[0], 1 + counts[0] + counts[1]
    return [list(tensors[1:first]), list(tensors[first:second]), list(tensors[second:])]


def scan(
    key: str,
    x: Tensor,
    states: list[Tensor],
    masks: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
) -> Sequence[Tensor]:
    """y, the final states, the named values; more may follow."""
    tensors = (x, *states, *masks, *weights)
    if watched(tensors):
        return torch.ops.recurra.scan.default(key, x, states, masks, weights, lengths)
    if not PLANS[key].trains:
        return _forward(x)(key, x, states, masks, weights, lengths)
    return _Direct.apply(key, (len(states), len(masks), len(weights)), lengths, *tensors)


def _forward(x: Tensor) -> Callable[..., list[Tensor]]:
    """Without the padding of what is kept: here nobody has to know shapes beforehand."""
    return _scan_on_gpu if x.is_cuda else functools.partial(_scan, padded=False)


def watched(tensors: Iterable[Tensor]) -> bool:
    """Whether somebody looks at operations by name: a compiler, a mode, a tensor of another kind."""
    seen = is_compiling() or _len_torch_dispatch_stack() > 0 or looked_at()
    return seen or not _PLAIN.issuperset(map(type, tensors))


_PLAIN = {Tensor, Parameter}
