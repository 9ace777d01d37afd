"""The one entry to the engines: cell + sequences → outputs.

`choose` looks at the cell, its inputs and what surrounds the call, and returns which engine runs it and why. Nothing
else decides. For a dense batch of plain tensors the choice also holds a prepared call, which `choose` finds again by
the signature of the inputs: dtypes, devices, shapes, gradients wanted.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ..cell import TIME, Cell
from ..optional import is_installed
from . import reference, torch_op
from .backend import backend, backend_here, self_check
from .batch_check import batch_obstacle, some_batch_obstacle
from .cell_cache import CellCache, cache_of, weights_of
from .cpu import compiler
from .cpu.executor import CpuExecutor
from .cpu.kernel import threads_here
from .executors import Executor, Refusal, Request, executor_for, pin, pinned, warn_plain_loop
from .graph_constants import graph_constant, object_at
from .newton.call import can_solve, solve
from .plan.replay import replay
from .prepared_calls import KIND, Call, prepare, prepare_with_more
from .reference import Scanned, Sequences
from .restarts import can_restart, with_mask
from .self_check import find_disagreement, report
from .split_at_resets import split_at_resets
from .torch_modes import is_exporting, is_plain_call, is_transformed
from .traced_step import keep_random_state

NARROW = {torch.bfloat16, torch.float16}  # on the CPU computed in float32 and rounded at the end
DTYPES = {"cpu": {torch.float32, torch.float64, *NARROW}, "cuda": {torch.float32, *NARROW}}
_REQUIRES_GRAD = attrgetter("requires_grad")


class Choice(NamedTuple):
    """Which engine runs a call ("newton", "compiled", "replayed" or "reference"), and why.

    `call(x, states)` runs it as it is, if it is a dense batch or a single step: it returns the output and the final
    states, shaped as the given ones. None: `scan` converts the inputs first. `run(given)` does so for sequences with
    masks, lengths or resets on a GPU, whose states may be missing.
    """

    backend: str
    why: str
    executor: Executor | None = None
    call: Call | None = None
    run: Callable[[Sequences], Scanned] | None = None


# ---------------------------------------------------------------------------------------------------- the choice


def choose(cell: Cell, given: Sequences, keep_trace: bool = False) -> Choice:
    """The engine for these sequences; for a single step if x is `(B, D)`. A missing state is the cell's own start."""
    if can_solve(cell, given) and not batch_obstacle(cell, given.x.shape[1]):
        return Choice("newton", "all steps at once by iterations, or the loop if they do not converge")
    return _choose_loop(cell, given, keep_trace)


def _choose_loop(cell: Cell, given: Sequences, keep_trace: bool) -> Choice:
    if is_compiling():
        return _choose_in_graph(cell, given, keep_trace)
    cache, threads = cache_of(cell), threads_here()
    x, states, masks, lengths, resets = given
    tensors = (x,) if states is None else (x, *states)
    has_more = masks or lengths is not None or resets is not None
    if has_more and x.is_cuda and not keep_trace:
        return _choose_with_more(cell, cache, given)
    if keep_trace or has_more or not is_plain_call(tensors):
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            return Choice("reference", "a state is not a tensor")
        return _decide(cell, cache, given, keep_trace)
    train = torch.is_grad_enabled() and any(map(_REQUIRES_GRAD, (*tensors, *cache.tensors)))
    compiled_by = compiler.find_compiler()
    signature = *map(KIND, tensors), train, train and x.requires_grad, backend_here(), threads, compiled_by
    choice = cache.choices.get(signature)
    if choice is None:
        choice = _decide(cell, cache, given, keep_trace)
        executor = choice.executor if choice.backend == "compiled" else None
        choice = choice._replace(call=prepare(cell, cache, executor, given))
        if choice.call is not None and _must_check(choice, given):
            return choice._replace(call=_FirstCall(cell, cache, signature, choice))
        cache.remember(signature, choice)
    return choice


def _choose_with_more(cell: Cell, cache: CellCache, given: Sequences) -> Choice:
    """The choice for masks, lengths or resets on a GPU, found again by their signature like that of a dense batch."""
    x, states, masks, lengths, resets = given
    tensors = (x, *(states or ()))
    more = (*masks.values(), *(t for t in (lengths, resets) if t is not None))
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        return Choice("reference", "a state is not a tensor")
    if not is_plain_call((*tensors, *more)) or any(map(_REQUIRES_GRAD, more)):
        return _decide(cell, cache, given, False)
    train = torch.is_grad_enabled() and any(map(_REQUIRES_GRAD, (*tensors, *cache.tensors)))
    kinds = len(tensors), *map(KIND, tensors), *map(KIND, more), *masks, lengths is None, resets is None
    signature = *kinds, train, train and x.requires_grad, backend_here()
    choice = cache.choices.get(signature)
    if choice is None:
        choice = _decide(cell, cache, given, False)
        if _must_check(choice, given):
            return choice
        executor = choice.executor if choice.backend == "compiled" else None
        restarts = _restarts(cell, given, False)
        choice = choice._replace(run=prepare_with_more(cell, cache, executor, given, restarts))
        cache.remember(signature, choice)
    return choice


def _decide(cell: Cell, cache: CellCache, given: Sequences, keep_trace: bool) -> Choice:
    dtypes = _weight_dtypes(cell, cache)
    reason = _obstacle(cell, given, dtypes)
    if reason:
        return Choice("reference", reason)
    train = torch.is_grad_enabled() and any(map(_REQUIRES_GRAD, (given.x, *(given.state or ()), *cache.tensors)))
    restarts = _restarts(cell, given, keep_trace)
    executor = executor_for(cell, cache, _request(cell, given, keep_trace, train, dtypes, restarts))
    if isinstance(executor, Refusal):
        return Choice("reference", executor.why)
    if executor.fault:
        return Choice("reference", f"the compiled code gave other numbers: {executor.fault}")
    if reason := batch_obstacle(cell, given.x.shape[-2]):
        warn_plain_loop(cell, f"{reason}.")
        return Choice("reference", reason)
    if isinstance(executor, CpuExecutor):
        if compiler.find_compiler() is None or not executor.is_built:
            return Choice("replayed", "no C++ compiler works here", executor)
        return Choice("compiled", "the step was planned and compiled", executor)
    batch, device = given.x.shape[-2], given.x.device
    reason = executor.obstacle(batch, device)
    return Choice("reference", reason) if reason else Choice("compiled", executor.way(batch, device), executor)


def _request(
    cell: Cell, given: Sequences, keep_trace: bool, train: bool, dtypes: set[torch.dtype], restarts: bool
) -> Request:
    (dtype,), device = dtypes, given.x.device.type
    if device == "cuda" and torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    elif device == "cpu" and dtype in NARROW:
        dtype = torch.float32
    needs_x, scan = train and given.x.requires_grad, cell.parallel == "scan"
    return Request(train, needs_x, keep_trace, dtype, device, restarts, scan)


def _weight_dtypes(cell: Cell, cache: CellCache) -> set[torch.dtype]:
    """Of the floating-point weights. Derived weights are computed once to learn theirs."""
    if "dtypes" not in cache.traced:
        with keep_random_state():  # deriving a weight may draw a dropout mask
            weights = cell.weights() if cache.weights is None else cache.weights
        cache.traced["dtypes"] = _floating([*weights.values()])
    return cache.traced["dtypes"]


def _floating(tensors: Sequence[Tensor]) -> set[torch.dtype]:
    return {w.dtype for w in tensors if w.is_floating_point()}


def _obstacle(cell: Cell, given: Sequences, dtypes: set[torch.dtype]) -> str:
    """What rules out the compiled engines whatever the cell's equations are; empty if nothing does."""
    states, device = given.state or (), given.x.device
    if backend() == "reference":
        return "set_backend('reference') is in force"
    if not is_compiling() and is_transformed():
        return "a functorch transform or forward-mode differentiation is active"
    if is_exporting():
        return "the model is being exported, and other runtimes know no operation of recurra's"
    if device.type not in DTYPES or (device.type == "cuda" and not _has_gluon()):
        return f"x is on {device}"
    if 0 in given.x.shape:
        return "x is empty"
    if given.resets is not None and is_compiling() and not can_restart(cell):
        return "resets change the shapes, which torch.compile must know"
    if not dtypes:
        return "the cell has no weights"
    if len(dtypes) != 1 or not dtypes <= DTYPES[device.type]:
        return f"weights of dtypes {sorted(map(str, dtypes))}"
    if not torch.is_autocast_enabled(device.type) and {given.x.dtype, *(s.dtype for s in states)} != dtypes:
        return "x, the states and the weights differ in dtype"
    if any(m.requires_grad for m in given.masks.values()):
        return "a mask requires a gradient"
    if any(s.requires_grad for s, spec in zip(states, cell.carried, strict=False) if spec.name == TIME):
        return "the time index requires a gradient"
    return ""


@graph_constant
def _has_gluon() -> bool:
    """Whether the installed Triton has the layer the GPU kernels are written in."""
    return _is_installed("triton.experimental.gluon")


_is_installed = functools.cache(is_installed)


# ---------------------------------------------------------------------------------------------------- the self-check


def _must_check(choice: Choice, given: Sequences) -> bool:
    """Whether this call is to be compared with the plain loop."""
    how, executor = self_check(), choice.executor
    if executor is None:
        return False
    return how == "all" or (how == "1" and (given.lengths is not None) not in executor.checked)


def _agrees(cell: Cell, choice: Choice, weights: dict[str, Tensor], given: Sequences, keep_trace: bool) -> bool:
    """Whether the plan gives the plain loop's numbers; if not, it is not used again."""
    executor = choice.executor
    assert executor is not None
    train = torch.is_grad_enabled() and executor.trains
    run = functools.partial(_run_plan, cell, choice, keep_trace)
    difference = find_disagreement(cell, executor, given, weights, train, keep_trace, run)
    if difference:
        executor.fault = difference
        report(cell, difference)
    elif difference is not None:
        executor.checked.add(given.lengths is not None)
    return not difference


class _FirstCall:
    """A prepared call that is compared with the plain loop, and then remembered."""

    def __init__(self, cell: Cell, cache: CellCache, signature: tuple, choice: Choice):
        self.cell, self.cache, self.signature, self.choice = cell, cache, signature, choice

    def __call__(self, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        cell, batch, is_step = self.cell, x.shape[-2], x.dim() == 2
        plain = cell.initial_state(batch, x) if states is None else states
        plain = [state.reshape(spec.shape(batch)) for state, spec in zip(plain, cell.carried, strict=True)]
        given = Sequences(x[None] if is_step else x, tuple(plain))
        with keep_random_state():  # deriving a weight may draw a dropout mask
            weights = self.cache.weights or cell.weights()
        if _agrees(cell, self.choice, weights, given, False):
            if self_check() != "all":
                self.cache.remember(self.signature, self.choice)
            assert self.choice.call is not None
            return self.choice.call(x, states)
        self.cache.choices.clear()
        scanned = reference.scan(cell, given)
        stacked = states is None or states[0].dim() == 3
        finals = tuple(final[None] if stacked else final for final in scanned.state)
        return scanned.y[0] if is_step else scanned.y, finals


# ---------------------------------------------------------------------------------------------------- torch.compile


def _choose_in_graph(cell: Cell, given: Sequences, keep_trace: bool) -> Choice:
    """The same while torch.compile traces the call: what depends on the cell alone is a constant of its graph."""
    weights = weights_of(cell)
    dtypes = _floating(list(weights.values()))
    reason = _obstacle(cell, given, dtypes)
    if reason:
        return Choice("reference", reason)
    train = torch.is_grad_enabled() and any(t.requires_grad for t in (given.x, *(given.state or ()), *weights.values()))
    request = _request(cell, given, keep_trace, train, dtypes, _restarts(cell, given, keep_trace))
    key = _constant_key(id(cell), _attributes_match(cell), given.x.device.index, *request)
    if not key:
        return Choice("reference", "the cell has no compiled form")
    executor = pinned(key)
    is_replayed = isinstance(executor, CpuExecutor) and not executor.is_built
    return Choice("replayed" if is_replayed else "compiled", "", executor)


@graph_constant
def _constant_key(
    cell_id: int,
    attributes_match: bool,
    index: int | None,
    train: bool,
    needs_x: bool,
    named: bool,
    dtype: torch.dtype,
    device: str,
    restarts: bool,
    scan: bool,
) -> str:
    """The key of the executor, which stays from now on; empty if there is none. The batch may be symbolic: nothing but
    its size limit depends on it, which `GpuExecutor.forward` checks."""
    cell = object_at(cell_id)
    cache = cache_of(cell)
    if not cache.guards.guard_graph() and cache.guards.follows_code:
        return ""  # torch.compile guards the plain loop itself
    executor = executor_for(cell, cache, Request(train, needs_x, named, dtype, device, restarts, scan))
    if isinstance(executor, Refusal) or executor.fault or some_batch_obstacle(cell):
        return ""
    if not isinstance(executor, CpuExecutor) and executor.obstacle(1, torch.device(device, index or 0)):
        return ""
    pin(executor)
    return executor.key


def _attributes_match(cell: Cell) -> bool:
    """True. Comparing the plain attributes of the cell here makes torch.compile trace again when one changes."""
    return all(getattr(cell, name) == value for name, value in _plain_attributes(id(cell)))


@graph_constant
def _plain_attributes(cell_id: int) -> tuple[tuple[str, bool | int | float | str], ...]:
    return tuple((name, v) for name, v in vars(object_at(cell_id)).items() if isinstance(v, (bool, int, float, str)))


# ---------------------------------------------------------------------------------------------------- the scan


def scan(cell: Cell, given: Sequences, keep_trace: bool = False) -> Scanned:
    """Run the cell over whole sequences on the engine that suits them."""
    choice = choose(cell, given, keep_trace)
    if choice.backend == "newton":
        solved = solve(cell, given, keep_trace)
        if solved is not None:
            return solved
        choice = _choose_loop(cell, given, keep_trace)
    if choice.call is not None:
        return Scanned(*choice.call(given.x, given.state))
    if choice.run is not None:
        return choice.run(given)
    if choice.backend == "reference" or choice.executor is None:
        return reference.scan(cell, given, keep_trace)
    if is_compiling():
        return _run_plan(cell, choice, keep_trace, weights_of(cell), given)
    weights = cache_of(cell).weights or cell.weights()
    if _must_check(choice, given) and not _agrees(cell, choice, weights, given, keep_trace):
        cache_of(cell).choices.clear()
        return reference.scan(cell, given, keep_trace)
    return _run_plan(cell, choice, keep_trace, weights, given)


def _run_plan(cell: Cell, choice: Choice, keep_trace: bool, weights: Mapping[str, Tensor], given: Sequences) -> Scanned:
    if given.resets is None:
        return _run(choice, weights, given, keep_trace)
    if _restarts(cell, given, keep_trace):
        return _run(choice, weights, with_mask(cell, given), keep_trace)
    split = split_at_resets(cell, given)
    return split.join(_run(choice, weights, split.given, keep_trace))


def _restarts(cell: Cell, given: Sequences, keep_trace: bool) -> bool:
    """Whether resets are a mask in the loop. On the CPU, more and shorter sequences are faster."""
    masked = given.resets is not None and (given.x.is_cuda or is_compiling())
    return masked and not keep_trace and can_restart(cell)


def _run(choice: Choice, weights: Mapping[str, Tensor], given: Sequences, keep_trace: bool) -> Scanned:
    """Convert the inputs to what the executor computes in, run it, convert back."""
    executor, device = choice.executor, given.x.device.type
    assert executor is not None
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return _run(choice, weights, given, keep_trace)
    read = executor.prologue(weights)
    x = given.x.to(executor.dtype)
    inputs = given.state, [given.masks[name] for name in executor.plan.masks], read
    states, masks, values = (_like(x, tensors) for tensors in inputs)  # literals of a step are on the CPU until now
    if choice.backend == "replayed":
        results = replay(executor.plan, x, states, masks, values, given.lengths)
    else:
        results = torch_op.scan(executor, x, states, masks, values, given.lengths)
    own = next((w.dtype for w in read if w.is_floating_point()), given.x.dtype)
    dtype = executor.dtype if device == "cuda" else own
    count = 1 + len(states)
    y, *finals = (value if value.dtype == dtype else value.to(dtype) for value in results[:count])
    if not keep_trace:
        return Scanned(y, tuple(finals))
    named = executor.plan.trace(results[count:][: len(executor.plan.named)])
    return Scanned(y, tuple(finals), {name: value.to(dtype) for name, value in named.items()})


def _like(x: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    return [v if v.dtype == x.dtype and v.device == x.device else v.to(x.device, x.dtype) for v in values]
