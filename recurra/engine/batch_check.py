"""Whether the graph of a step holds for the number of sequences of a call.

A graph is traced for two and for three sequences. A step may do something else for eight: it can read the batch size in
ways that no trace notices (`len(x.unbind(0))`, `str(x.shape)`). So a step of the user's is traced once for every batch
size that comes, and its operations are compared with those of the graph. Where they differ (torch itself writes some
products of one row in another way), the numbers decide: values and gradients of the graph beside those of the step.
"""

import torch
from torch import Tensor, fx

from ..cell import Cell
from ..errors import TraceError
from .batch_sizes import difference_at, pattern_of
from .cell_cache import cache_of
from .cell_copies import traceable_copy
from .trace import PATTERN, Step, trace_at, trace_equations
from .traced_step import clean_context
from .user_code import Untraceable

ROUNDING = 1e4  # units of the last place of the largest number
MANY = 1024  # batch sizes that are remembered of a cell
SOME_SIZES = (4, 7, 16, 33, 64, 128, 1000)  # for a graph that is made for any number of sequences at once


def batch_obstacle(cell: Cell, batch: int) -> str:
    """Why the graph of a cell's step is not its step for so many sequences; empty if it is."""
    cache = cache_of(cell)
    if not cache.guards.follows_code or not batch:
        return ""
    known = cache.traced.setdefault("batch sizes", {})
    if batch not in known:
        if len(known) == MANY:
            known.clear()
        known[batch] = _find_difference(cell, batch)
    return known[batch]


def require_batch(cell: Cell, batch: int) -> None:
    """Raise an error if the graph of the step is to be run for so many sequences and is not the step."""
    if reason := batch_obstacle(cell, batch):
        raise Untraceable(reason)


def some_batch_obstacle(cell: Cell) -> str:
    """The same for a graph that serves every batch size: some sizes are tried."""
    return next(filter(None, (batch_obstacle(cell, batch) for batch in SOME_SIZES)), "")


def require_any_batch(cell: Cell) -> None:
    """Raise an error if the graph of the step, made for any number of sequences, is not the step for some."""
    if reason := some_batch_obstacle(cell):
        raise Untraceable(reason)


def _find_difference(cell: Cell, batch: int) -> str:
    traced, name = cache_of(cell).traced, type(cell).__name__
    try:
        with clean_context():
            if PATTERN not in traced:
                traced[PATTERN] = pattern_of(trace_equations(traceable_copy(cell)).graph)
            at_batch, _ = trace_at(traceable_copy(cell), batch)
            if not difference_at(traced[PATTERN], at_batch.graph, batch):
                return ""
            if _agree(trace_equations(traceable_copy(cell)), at_batch, cell, batch):
                return ""
    except TraceError as error:
        message = str(error)
        return message if message.startswith(name) else f"{name}.step {message.removeprefix('step ')}"
    return f"{name}.step runs other operations for {batch} sequences than for 2: it branches on the batch size"


# ---------------------------------------------------------------------------------------------------- numbers


def _agree(one: Step, other: Step, cell: Cell, batch: int) -> bool:
    """Whether two graphs give the same values and gradients for random numbers, `other` made for this batch size."""
    if (one.inputs, one.outputs, one.named) != (other.inputs, other.outputs, other.named):
        return False
    generator = torch.Generator().manual_seed(0)
    values = {name: _random(node.meta["val"], generator) for name, node in _by_name(other).items()}
    for name, weight in cell.weights().items():
        if not (weight.is_floating_point() or weight.is_complex()):
            values[name] = weight.detach()  # indices
    try:
        found, wanted = (_differentiated(step, values) for step in (one, other))
    except RuntimeError:  # shapes that do not fit
        return False
    return all(_are_close(a, b) for a, b in zip(found, wanted, strict=True))


def _by_name(step: Step) -> dict[str, fx.Node]:
    return dict(zip((*step.inputs, *step.weights), step.placeholders(), strict=True))


def _random(like: Tensor, generator: torch.Generator) -> Tensor:
    if not (like.is_floating_point() or like.is_complex()):
        return like
    drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype)
    return drawn.to(like.device).requires_grad_()


def _differentiated(step: Step, values: dict[str, Tensor]) -> list[Tensor | None]:
    """The values of a step, then the gradients of their sum with fixed factors."""
    with torch.enable_grad():
        results = step.function()(*(values[name] for name in _by_name(step)))
        leaves = [value for value in values.values() if value.requires_grad]
        sums = [(r * torch.arange(1, r.numel() + 1, device=r.device).reshape(r.shape).sin()).sum() for r in results]
        real = [total.real for total in sums if total.requires_grad]
        grads = torch.autograd.grad(real, leaves, allow_unused=True) if real else ()
    return [*(result.detach() for result in results), *grads]


def _are_close(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other or not bool((one if other is None else other).any())  # pyrefly: ignore
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    scale = float(other.abs().nan_to_num(0.0, 0.0, 0.0).max()) if other.numel() else 0.0
    allowed = ROUNDING * torch.finfo(one.dtype).eps * scale
    return torch.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True)
