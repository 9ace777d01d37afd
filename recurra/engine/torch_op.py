"""The compiled engine as a torch operation, registered with torch.library for autograd, torch.compile and opcheck.

`recurra::scan` and `recurra::scan_backward` name an executor by its key. If nothing observes the call, the same
executor runs without the dispatcher, as an autograd.Function. Every shape is that of the padded batch.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .executors import Executor, find
from .plan.replay import replay
from .restarts import as_mask
from .torch_modes import needs_dispatcher

# torch.library.custom_op would import torch.compile with the first call.
torch.library.define(
    "recurra::scan",
    "(str key, Tensor x, Tensor[] states, Tensor[] masks, Tensor[] weights, Tensor? lengths) -> Tensor[]",
)
torch.library.define(
    "recurra::scan_backward",
    "(str key, Tensor?[] cotangents, Tensor x, Tensor[] states, Tensor[] masks, Tensor[] weights, Tensor? lengths,"
    " Tensor[] needed, bool wants_states) -> Tensor[]",
)


def _scan(key, x, states, masks, weights, lengths) -> list[Tensor]:
    """[y, final states, named values, what backward needs]."""
    return find(key).forward(x, states, masks, weights, lengths, padded=True)


def _scan_backward(key, cotangents, x, states, masks, weights, lengths, needed, wants_states) -> list[Tensor]:
    """[cotangent of x (empty if the plan has none), of the states if wanted, pieces of those of the weights]."""
    return find(key).backward(cotangents, x, states, masks, weights, lengths, needed, wants_states)


for _device in ("cpu", "cuda"):
    torch.library.impl("recurra::scan", _device, _scan)
    torch.library.impl("recurra::scan_backward", _device, _scan_backward)


@torch.library.register_fake("recurra::scan")
def _(key, x, states, masks, weights, lengths):
    executor = find(key)
    plan, steps, batch = executor.plan, x.shape[0], x.shape[1]
    buffers = plan.forward.buffers
    outputs = [x.new_empty(steps, batch, buffers[plan.output].width), *(torch.empty_like(s) for s in states)]
    outputs += [x.new_empty(steps, batch, buffers[name].width) for name in plan.named.values()]
    return [*outputs, *(executor.kept_like(x, lengths is not None) if executor.trains else [])]


@torch.library.register_fake("recurra::scan_backward")
def _(key, cotangents, x, states, masks, weights, lengths, needed, wants_states):
    executor = find(key)
    plan = executor.plan
    dx = torch.empty_like(x) if plan.needs_x else x.new_empty(0)
    pieces = [x.new_empty(sum(p.delta.width for p in run), run[0].matrix.deep) for run in executor.runs]
    assert plan.backward is not None
    sums = x.new_empty(sum(node.width for _, node in plan.backward.sums))
    return [dx, *(torch.empty_like(v) for v in states if wants_states), *pieces, sums]


def _needed(results: Sequence[Tensor], states: int) -> list[Tensor]:
    """The results that the derivative reads: not the final states, into which users write between calls."""
    return [results[0], *results[1 + states :]]


# ---------------------------------------------------------------------------------------------------- autograd


def _save(ctx, inputs, output) -> None:
    key, x, states, masks, weights, lengths = inputs
    ctx.executor, ctx.counts = find(key), (len(states), len(masks), len(weights), lengths is not None)
    ctx.wants_states = any(state.requires_grad for state in states)
    ctx.set_materialize_grads(False)
    given = (x, *states, *masks, *weights, *(() if lengths is None else (lengths,)))
    ctx.save_for_backward(*given, *_needed(output, len(states)))


def _backward(ctx, cotangents):
    dx, dstates, masks, dweights = _cotangents(ctx, cotangents, functools.partial(_by_name, ctx.executor))
    return None, dx, list(dstates), [None] * masks, list(dweights), None


def _by_name(executor: Executor, cotangents, x, states, masks, weights, lengths, needed, wants_states) -> list[Tensor]:
    """`Executor.cotangents` through the dispatcher."""
    run = torch.ops.recurra.scan_backward
    result = run(executor.key, cotangents, x, states, masks, weights, lengths, needed, wants_states)
    count = 1 + len(states) * wants_states
    return [*result[:count], *executor.gradients(result[count:], weights)]


torch.library.register_autograd("recurra::scan", _backward, setup_context=_save)


def _cotangents(ctx, cotangents, run: Callable[..., list[Tensor]]) -> tuple:
    """Cotangents of x, of the states and of the weights, and the number of masks between them."""
    states, masks, weights, ragged = ctx.counts
    saved = iter(ctx.saved_tensors)
    x = next(saved)
    groups = [[next(saved) for _ in range(n)] for n in (states, masks, weights)]
    lengths = next(saved) if ragged else None
    executor = ctx.executor
    if torch.is_grad_enabled() or is_batched(cotangents):  # torch operations can be differentiated and transformed
        dx, dstates, dweights = replayed_cotangents(executor, cotangents, x, groups[0], groups[1], groups[2], lengths)
        return dx, dstates, masks, dweights
    result = run(list(cotangents), x, *groups, lengths, list(saved), ctx.wants_states)
    dx = result[0] if executor.plan.needs_x else None
    count = 1 + states if ctx.wants_states else 1
    dstates = result[1:count] if ctx.wants_states else [None] * states
    return dx, dstates, masks, result[count:]


def is_batched(cotangents: Sequence[Tensor | None]) -> bool:
    """Whether one is a batched tensor without memory, as with torch.autograd.grad's is_grads_batched."""
    return any(d is not None and not torch._C._has_storage(d) for d in cotangents)


def replayed_cotangents(executor: Executor, cotangents, x, states, masks, weights, lengths):
    """The derivative of the replayed plan. Each input enters as a view of its own: one tensor may be given twice, or be
    computed from another, and each input receives its own share alone."""
    differentiable, masks = torch.is_grad_enabled(), [as_mask(mask, x.dtype) for mask in masks]
    with torch.enable_grad():
        inputs = [v.view_as(v) for v in (x, *states, *weights)]
        count = 1 + len(states)
        results = replay(executor.plan, inputs[0], inputs[1:count], masks, inputs[count:], lengths)
    pairs = [(r, c) for r, c in zip(results, cotangents, strict=False) if c is not None and r.requires_grad]
    grads = torch.autograd.grad(
        [r for r, _ in pairs],
        [v for v in inputs if v.requires_grad],
        [c for _, c in pairs],
        create_graph=differentiable,
        allow_unused=True,
    )
    found = iter(grads)
    each = [next(found) if v.requires_grad else None for v in inputs]
    return each[0], each[1:count], each[count:]


# ---------------------------------------------------------------------------------------------------- no dispatcher


class _Scan(torch.autograd.Function):
    """The same operation without the dispatcher's overhead."""

    @staticmethod
    def forward(ctx, executor, counts, lengths, *tensors):  # pyrefly: ignore
        first, second = 1 + counts[0], 1 + counts[0] + counts[1]
        groups = tensors[1:first], tensors[first:second], tensors[second:]
        results = executor.forward(tensors[0], *groups, lengths)
        ctx.executor, ctx.counts = executor, (*counts, lengths is not None)
        ctx.wants_states = any(state.requires_grad for state in groups[0])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *(() if lengths is None else (lengths,)), *_needed(results, counts[0]))
        return tuple(results[: first + len(executor.plan.named)])

    @staticmethod
    def backward(ctx, *cotangents):
        dx, dstates, masks, dweights = _cotangents(ctx, cotangents, ctx.executor.cotangents)
        return None, None, None, dx, *dstates, *[None] * masks, *dweights


_apply_scan = super(torch.autograd.Function, _Scan).apply  # pyrefly: ignore  (no search for transforms: there is none)


def scan(
    executor: Executor,
    x: Tensor,
    states: Sequence[Tensor],
    masks: Sequence[Tensor],
    weights: Sequence[Tensor],
    lengths: Tensor | None,
) -> Sequence[Tensor]:
    """Run an executor: y, the final states, the named values; more may follow."""
    tensors = (x, *states, *masks, *weights)
    if needs_dispatcher(tensors):
        groups = list(states), list(masks), list(weights)
        return torch.ops.recurra.scan.default(executor.key, x, *groups, lengths)
    if not executor.trains:
        return executor.forward(x, states, masks, weights, lengths)
    return _apply_scan(executor, (len(states), len(masks), len(weights)), lengths, *tensors)
