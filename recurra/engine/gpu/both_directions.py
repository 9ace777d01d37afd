"""Both directions of a layer as one call: two loops at once, each on half of the card, captured as one CUDA graph.

The directions have the same equations and hence one executor. Everything is given, and comes back, in the order of
time; the second direction is reversed inside.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import select
from .graph_calls import MOST_BYTES
from .loops import precision_of
from .runner import GpuExecutor


class Direction(NamedTuple):
    """The tensors of one direction."""

    states: Sequence[Tensor]
    weights: Sequence[Tensor]


def can_run(executor: GpuExecutor, x: Tensor) -> bool:
    """Whether both directions are loops that fit on the card at once, and are small enough to be captured."""
    steps, batch = x.shape[:2]
    if executor.scans(steps):
        return False
    buffers = executor.plan.forward.buffers
    width = buffers[executor.plan.output].width + sum(w for _, w in executor.kept_shapes(1, False))
    copied = steps * batch * (x.shape[2] + 2 * width) * x.element_size()
    passes = (False, True) if executor.trains else (False,)
    return 2 * copied < MOST_BYTES and all(
        executor.loops.beside_another(backward, batch, x.device) is not None for backward in passes
    )


def forward(executor: GpuExecutor, x: Tensor, directions: Sequence[Direction]) -> list[Tensor]:
    """[y of both side by side, final states of the first, of the second, what backward needs of each]."""
    inputs = [x, *(tensor for one in directions for tensor in (*one.states, *one.weights))]
    key = "both", False, precision_of(executor.dtype), select.forced()
    return executor.graphs(functools.partial(_forward, executor), inputs, key)


def backward(
    executor: GpuExecutor,
    cotangents: Sequence[Tensor | None],
    x: Tensor,
    directions: Sequence[Direction],
    needed: Sequence[Tensor],
    wants_states: bool,
) -> list[Tensor]:
    """[cotangent of x, of the states of both if wanted, of the weights of both]; `needed`: y, then what is kept."""
    present = tuple([cotangent is not None for cotangent in cotangents])
    given = [x, *(tensor for one in directions for tensor in (*one.states, *one.weights))]
    inputs = [*given, *needed, *(c for c in cotangents if c is not None)]
    run = functools.partial(_backward, executor, present, wants_states)
    key = "both", present, wants_states, precision_of(executor.dtype), select.forced()
    flat = 1 + 2 * len(executor.plan.states) * wants_states
    return executor.graphs(run, inputs, key, flat)


def _forward(executor: GpuExecutor, inputs: Sequence[Tensor]) -> list[Tensor]:
    x, rest = inputs[0], iter(inputs[1:])
    first, second = _directions(executor, rest)
    loop = executor.loops.beside_another(False, x.shape[1], x.device)

    def run(direction: Direction, sequence: Tensor) -> list[Tensor]:
        return executor._forward(sequence, direction.states, (), direction.weights, None, loop)

    def run_second() -> list[Tensor]:
        y, *others = run(second, x.flip(0))
        return [y.flip(0), *others]

    after, before = _at_once(run_second, functools.partial(run, first, x))
    count = 1 + len(first.states)
    return [torch.cat([before[0], after[0]], -1), *before[1:count], *after[1:count], *before[count:], *after[count:]]


def _backward(
    executor: GpuExecutor, present: Sequence[bool], wants_states: bool, inputs: Sequence[Tensor]
) -> list[Tensor]:
    x, rest = inputs[0], iter(inputs[1:])
    first, second = _directions(executor, rest)
    y, kept = next(rest), len(executor.histories) + len(executor.plan.kept)
    needed = [[next(rest) for _ in range(kept)] for _ in range(2)]
    dy, *finals = [next(rest) if is_given else None for is_given in present]
    width, states = y.shape[-1] // 2, len(first.states)
    loop = executor.loops.beside_another(True, x.shape[1], x.device)

    def run(number: int, direction: Direction, reverse: bool) -> list[Tensor]:
        mine = slice(number * width, (number + 1) * width)
        own, sequence, output = None if dy is None else dy[..., mine], x, y[..., mine]
        if reverse:
            own, sequence, output = None if own is None else own.flip(0), x.flip(0), output.flip(0)
        given = [own, *finals[number * states : (number + 1) * states]]
        results = [output.contiguous(), *needed[number]]
        found = executor._backward(
            given, sequence, direction.states, (), direction.weights, None, results, wants_states, loop
        )
        count = 1 + states * wants_states
        return [*found[:count], *executor.gradients(found[count:], direction.weights)]

    after, before = _at_once(functools.partial(run, 1, second, True), functools.partial(run, 0, first, False))
    dx = before[0] + after[0].flip(0) if executor.plan.needs_x else before[0]
    count = 1 + states * wants_states
    return [dx, *before[1:count], *after[1:count], *before[count:], *after[count:]]


def _directions(executor: GpuExecutor, tensors) -> tuple[Direction, Direction]:
    states, weights = len(executor.plan.states), len(executor.weight_names)
    first, second = (
        Direction([next(tensors) for _ in range(states)], [next(tensors) for _ in range(weights)]) for _ in range(2)
    )
    return first, second


def _at_once(beside, here) -> tuple[list[Tensor], list[Tensor]]:
    """Results of both; while a graph is being captured, the first runs on a stream of its own."""
    if not torch.cuda.is_current_stream_capturing():
        return beside(), here()
    current = torch.cuda.current_stream()
    other = _other_stream(current.device)
    other.wait_stream(current)
    with torch.cuda.stream(other):
        results = beside()
    own = here()
    current.wait_stream(other)
    return results, own


@functools.cache
def _other_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
