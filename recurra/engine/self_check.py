"""The self-check: the first call of a new plan is compared with the plain loop, values and gradients.

A few steps of a few rows of the call's own input run both ways. Both get detached weights, and the plain loop a copy of
the cell: hooks, attributes, gradients and random numbers of the caller stay untouched. A difference beyond rounding is
a bug in recurra; the plan is then not used. `RECURRA_CHECK` says how often (backend.py).

Rounding is judged in two stages. If the results differ by more than some units of the last place, both are compared
with the plain loop in float64: a step that amplifies rounding does so on the plain loop, too.

Processor time of the check of an LSTM beside that of its compilation: 16 ms of 1.9 s at 512 units (0.8 %), 39 ms of
2.3 s at 1024 units (1.7 %). It grows with the number of weights, about 5 ns each, and compilation does not: from some
10 million weights on it is more than 2 %.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..cell import Cell
from ..errors import TraceError
from .backend import warn_once
from .cell_copies import copy_with
from .cpu.executor import CpuExecutor
from .cpu.layout import dense
from .executors import Executor
from .gpu.runner import GpuExecutor
from .gpu.scan.shape import FEWEST_STEPS
from .reference import Scanned, Sequences, _loop
from .restarts import MASK
from .split_at_resets import split_at_resets
from .torch_modes import has_saved_tensor_hooks, needs_dispatcher
from .trace import bind_weights
from .traced_step import BoundStep, keep_random_state, step_function

STEPS, ROWS = 3, 4  # of the call, unless kernels for so few rows would have to be compiled for the check alone
MANY_WEIGHTS = 1 << 17  # numbers from which on two steps must do: they take a millisecond each
ULPS = 64  # units of the last place of the largest number that two orders of summation may differ by
OWN_ERROR = 8  # times the plain loop's own rounding error

Run = Callable[[Mapping[str, Tensor], Sequences], Scanned]


class Result(NamedTuple):
    """What a run gave: outputs, states, traced values; then gradients, None where there is none."""

    names: list[str]
    values: list[Tensor | None]


def find_disagreement(
    cell: Cell, executor: Executor, given: Sequences, weights: Mapping[str, Tensor], train: bool, trace: bool, run: Run
) -> str | None:
    """How `run`, the planned step, differs from the plain loop; empty if it does not, None if that cannot be told now.

    `given` may be a whole batch; `weights` are those of this call, derived ones included; `trace`: `run` returns one.
    """
    if not _can_check(given, weights):
        return None
    given = _small(cell, executor, given, _steps(executor, given, weights))
    if given.resets is not None and MASK not in executor.plan.masks:
        with torch.no_grad():  # here, where both ways start again from the same states
            given = split_at_resets(cell, given).given
    leaves = _each_once(weights, lambda w: _leaf(w, train and w.is_floating_point()))
    with keep_random_state(), torch.set_grad_enabled(train):
        given = given._replace(x=_leaf(given.x, train and given.x.requires_grad), state=_leaves(given.state, train))
        found = _differentiated(run(leaves, given), given, leaves)
        try:
            wanted = _differentiated(_plain(cell, given, leaves, trace), given, leaves)
            differing = _differing(found, wanted, _epsilon(executor, given))
            if not differing:
                return ""
            exact = _exact(cell, given, leaves, trace, train)
        except (TraceError, torch.OutOfMemoryError):  # no copy of the cell, or no memory for one
            return ""
        except Exception as error:  # of the step itself, which the caller sees on the plain loop
            return f"the plain loop raises {type(error).__name__}: {error}"
    if exact is not None:
        differing = _differing(found, exact, _epsilon(executor, given), _own_errors(wanted, exact))
    return "; ".join(f"{name} by {error:.1e} of {scale:.1e}" for name, error, scale in differing[:3])


def report(cell: Cell, difference: str) -> None:
    """Warn, and say how to report it."""
    warn_once(
        f"{type(cell).__name__} runs on the plain loop, which is slower: recurra's compiled code for it gave other "
        f"numbers there ({difference}). This is a bug in recurra. Please report it with the code of the cell and the "
        "text of rc.explain(layer, x, source=True). RECURRA_CHECK=0 skips this check."
    )


def _can_check(given: Sequences, weights: Mapping[str, Tensor]) -> bool:
    """Not if something observes the operations of the call, or a CUDA graph is being captured."""
    tensors = (given.x, *given.state, *given.masks.values(), *weights.values())
    if needs_dispatcher(tensors) or has_saved_tensor_hooks():
        return False
    return not (given.x.is_cuda and torch.cuda.is_current_stream_capturing())


# ---------------------------------------------------------------------------------------------------- inputs


def _steps(executor: Executor, given: Sequences, weights: Mapping[str, Tensor]) -> int:
    """A few steps; of a scan over chunks of time as few as have chunks, for what one hands to the next."""
    steps, batch = given.x.shape[:2]
    if isinstance(executor, GpuExecutor) and executor.scans(steps):
        assert executor.scan is not None
        if executor.scan.shape(steps, batch, given.x.device).chunks > 1:
            return FEWEST_STEPS
    return STEPS if sum(weight.numel() for weight in weights.values()) < MANY_WEIGHTS else 2


def _small(cell: Cell, executor: Executor, given: Sequences, steps: int) -> Sequences:
    """The first steps of the first rows."""
    steps = min(steps, given.x.shape[0])
    rows = _rows(executor, steps, *given.x.shape[:2])
    each_step = {name for name, mask in cell.drawn_inputs().items() if mask.each == "step"}
    return Sequences(
        given.x[:steps, :rows],
        tuple(state[:rows] for state in given.state),
        {name: m[:steps, :rows] if name in each_step else m[:rows] for name, m in given.masks.items()},
        None if given.lengths is None else given.lengths[:rows].clamp(max=steps),
        None if given.resets is None else given.resets[:steps, :rows],
    )


def _rows(executor: Executor, few: int, steps: int, batch: int) -> int:
    """As few rows as run on the kernels of the whole batch. On a GPU, kernels depend on the batch."""
    if not isinstance(executor, CpuExecutor):
        return batch
    rows = min(ROWS, batch)
    if executor.is_built:
        hoists = executor._worth_hoisting(dense(steps, batch))
        while rows < batch and executor._worth_hoisting(dense(few, rows)) is not hoists:
            rows = min(2 * rows, batch)
    return rows


def _leaf(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.detach().requires_grad_() if requires_grad else tensor.detach()


def _leaves(tensors: Sequence[Tensor], train: bool) -> tuple[Tensor, ...]:
    return tuple(_leaf(tensor, train and tensor.requires_grad) for tensor in tensors)


# ---------------------------------------------------------------------------------------------------- both ways


def _plain(
    cell: Cell, given: Sequences, weights: Mapping[str, Tensor], trace: bool, others: Callable | None = None
) -> Scanned:
    """The plain loop on a copy of the cell with these weights, and what `others` makes of its other tensors."""
    if cell.modifiers or trace:
        return _loop(cell, given, trace, BoundStep(step_function(cell), dict(weights)))
    own = (*cell.named_parameters(), *cell.named_buffers())
    tensors = {id(w): weights[name] if name in weights else others(w) if others else w for name, w in own}
    twin = copy_with(cell, tensors)
    with bind_weights(twin, dict(weights)):
        return _loop(twin, given, False, None)


def _exact(cell: Cell, given: Sequences, weights: Mapping[str, Tensor], trace: bool, train: bool) -> Result | None:
    """The plain loop in float64; None if the step cannot run in it."""
    wide = functools.partial(_in_float64, train=train)
    leaves = _each_once(weights, wide)
    masks = {name: wide(mask) for name, mask in given.masks.items()}
    given = given._replace(x=wide(given.x), state=tuple(map(wide, given.state)), masks=masks)
    try:
        with torch.autocast(given.x.device.type, enabled=False):
            return _differentiated(_plain(cell, given, leaves, trace, wide), given, leaves)
    except RuntimeError:  # the step names another dtype
        return None


def _each_once(weights: Mapping[str, Tensor], function: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """A function of each weight; one that has several names stays one."""
    made = {id(weight): function(weight) for weight in weights.values()}
    return {name: made[id(weight)] for name, weight in weights.items()}


def _in_float64(tensor: Tensor, train: bool) -> Tensor:
    wide = tensor.detach().double() if tensor.is_floating_point() else tensor.detach()
    return wide.requires_grad_(train and tensor.requires_grad)


def _differentiated(scanned: Scanned, given: Sequences, weights: Mapping[str, Tensor]) -> Result:
    """All values, and the gradients of their sum with fixed factors."""
    outputs = {"y": scanned.y} | {f"state {i}": state for i, state in enumerate(scanned.state)} | (scanned.trace or {})
    inputs = {"x": given.x} | {f"initial state {i}": state for i, state in enumerate(given.state)} | dict(weights)
    inputs = {f"gradient of {name}": tensor for name, tensor in inputs.items() if tensor.requires_grad}
    differentiable = [value for value in outputs.values() if value.requires_grad]
    grads: Sequence[Tensor | None] = [None] * len(inputs)
    if differentiable and inputs:
        # Of one number: given cotangents, torch imports its symbolic shapes first, which takes seconds.
        total = torch.stack([(value * _factors(value)).sum().double() for value in differentiable]).sum()
        grads = torch.autograd.grad(total, list(inputs.values()), allow_unused=True)
    return Result([*outputs, *inputs], [*(value.detach() for value in outputs.values()), *grads])


def _factors(like: Tensor) -> Tensor:
    """Numbers between -1 and 1, all different, without the random generator."""
    count = torch.arange(like.numel(), dtype=torch.float64, device=like.device)
    return torch.cos(2.4 * count + 0.3).reshape(like.shape).to(like.dtype)


# ---------------------------------------------------------------------------------------------------- comparison


def _epsilon(executor: Executor, given: Sequences) -> float:
    """The rounding error of one operation, of the widest of the dtypes that take part."""
    device = given.x.device.type
    dtypes = [executor.dtype, given.x.dtype]
    if torch.is_autocast_enabled(device):
        dtypes.append(torch.get_autocast_dtype(device))
    epsilon = max(torch.finfo(dtype).eps for dtype in dtypes)
    is_tf32 = device == "cuda" and torch.backends.cuda.matmul.allow_tf32
    return max(epsilon, 2**-10) if is_tf32 else epsilon


def _differing(
    found: Result, wanted: Result, epsilon: float, allowances: Sequence[float] | None = None
) -> list[tuple[str, float, float]]:
    """(name, largest difference, largest number) of all that differ by more than rounding."""
    scales = [_largest(value) for value in wanted.values]
    if allowances is not None:  # a gradient of zero is a sum of terms as large as those of others
        whole = max(scales, default=0.0)
        scales = [max(scale, whole) for scale in scales]
    allowed = [ULPS * epsilon * scale for scale in scales]
    if allowances is not None:
        allowed = [a + OWN_ERROR * b for a, b in zip(allowed, allowances, strict=True)]
    errors = [_difference(a, b) for a, b in zip(found.values, wanted.values, strict=True)]
    rows = zip(wanted.names, errors, scales, allowed, strict=True)
    return [(name, error, scale) for name, error, scale, most in rows if not error <= most]


def _own_errors(wanted: Result, exact: Result) -> list[float]:
    return [_difference(a, b) for a, b in zip(wanted.values, exact.values, strict=True)]


def _largest(value: Tensor | None) -> float:
    """The largest finite magnitude."""
    if value is None or not value.numel():
        return 0.0
    largest = _magnitude(value)
    return largest if math.isfinite(largest) else _magnitude(value.nan_to_num(0.0, 0.0, 0.0))


def _magnitude(value: Tensor) -> float:
    low, high = torch.aminmax(value.detach())  # much faster than a norm
    return max(-float(low), float(high))


def _difference(one: Tensor | None, other: Tensor | None) -> float:
    """The largest difference; equal infinities and NaNs do not differ, and None is zero."""
    if one is None or other is None:
        return _largest(other if one is None else one)
    if not one.numel():
        return 0.0
    quick = _magnitude(one - other)  # in the wider dtype of the two
    if math.isfinite(quick):
        return quick
    one, other = one.double(), other.double()
    same = (one == other) | (one.isnan() & other.isnan())
    return float((one - other).abs().masked_fill(same, 0.0).nan_to_num(torch.inf, torch.inf).max())
