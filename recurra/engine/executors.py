"""Executors by key: a cell's plan on one device, made when first needed and shared by cells with the same equations.

An executor lives as long as a cell, an autograd graph or the list of recently used ones refers to it. Graphs that
torch.compile made hold the key alone, so executors that it asked for stay.
"""

import hashlib
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch

from ..cell import Cell
from ..cells import registry
from ..errors import TraceError
from . import caches
from .backend import backend, warn_once
from .cell_cache import CellCache
from .cpu import compiler
from .cpu.call_template import load_template
from .cpu.executor import CpuExecutor
from .gpu.matrix.runner import MatrixExecutor
from .gpu.runner import GpuExecutor
from .gpu.scan_runner import ScanExecutor
from .guards import MAX_VALUES, constant_buffers
from .ir.diagonal_blocks import diagonal_blocks
from .ir.lowering import Unsupported
from .plan.affine import is_scan
from .plan.planner import plan
from .restarts import restarting
from .traced_step import clean_context, trace_in_clean_context
from .user_code import Untraceable

RECENT = 128  # executors that stay though no cell uses them

Executor = CpuExecutor | GpuExecutor | MatrixExecutor


class Request(NamedTuple):
    """What a plan depends on beside the cell's equations."""

    train: bool
    needs_x: bool  # the gradient of x is asked for
    named: bool  # the named values of each step are returned
    dtype: torch.dtype
    device: str
    restarts: bool = False  # a mask says where sequences start again
    scan: bool = False  # what reads no state is computed ahead of the loop, whatever the sizes


class Refusal(NamedTuple):
    """Why no executor can run a cell."""

    why: str


_alive: WeakValueDictionary[str, Executor] = WeakValueDictionary()
_recent: OrderedDict[str, Executor] = OrderedDict()
_pinned = SimpleNamespace()  # by attribute: torch.compile reads a dictionary once, and executors come while it works

caches.register("executors", _recent.clear, lambda: len(_recent))


def find(key: str) -> Executor:
    """The executor with this key."""
    return _alive[key]


def pinned(key: str) -> Any:
    """The executor with this key, which torch.compile asked for."""
    return getattr(_pinned, key)


def pin(executor: Executor) -> None:
    """Keep an executor for the rest of the process: a compiled graph refers to its key."""
    setattr(_pinned, executor.key, executor)


def executor_for(cell: Cell, cache: CellCache, request: Request) -> Executor | Refusal:
    """The executor of this cell for this request, or why there is none."""
    if cache.hooked:
        return Refusal("a hook on a part of the cell must be called at every step")
    if cache.guards.overflow:
        return Refusal(f"its step reads more than {MAX_VALUES} values that may change between calls")
    asked = request, compiler.find_compiler()
    found = cache.executors.get(asked)
    if found is None:
        found = cache.executors[asked] = _make(cell, request)
        if not isinstance(found, Refusal):
            cache.guards.add_constants(cell, constant_buffers(cell, found.plan.equations.weights))
    return found


def _make(cell: Cell, request: Request) -> Executor | Refusal:
    cell = restarting(cell) if request.restarts else cell
    try:
        step = trace_in_clean_context(cell)
    except Untraceable as reason:
        warn_plain_loop(cell, f"{reason}.")
        return Refusal(str(reason))
    except TraceError as reason:  # the plain loop raises it again
        return Refusal(str(reason))
    with clean_context():
        sizes = [tuple(p.meta["val"].shape) for p in step.placeholders()]
        text = f"{step.graph}{step.inputs}{step.weights}{step.outputs}{step.named}{sizes}"
        text += f"{cell.carried}{cell.drawn_inputs()}{diagonal_blocks(cell)}"
        indices = {name: tensor.tolist() for name, tensor in constant_buffers(cell, step.weights).items()}
        key = _key(f"{text}{indices}", request)
        made = _alive.get(key)
        if made is None:
            try:
                planned = plan(cell, step, train=request.train, needs_x=request.needs_x, named=request.named)
                made = _executor(planned, request, key)
            except Unsupported as reason:
                warn_plain_loop(cell, f"the compiled one does not take {reason}.")
                return Refusal(f"the compiled engine does not take {reason}")
        _alive[key] = made
        _use(key, made)
        if isinstance(made, CpuExecutor):
            _build(made)
        return made


def _executor(planned: Any, request: Request, key: str) -> Executor:
    if request.device != "cuda":
        return CpuExecutor(planned, request.dtype, key, request.scan)
    if planned.seeks_largest:  # rounding differs between forward and backward there, so no number equals the maximum
        raise Unsupported("the derivative of a maximum over a row on the GPU")
    if not planned.gathers:
        return GpuExecutor(planned, request.dtype, key)
    for kind in (MatrixExecutor, *((ScanExecutor,) if is_scan(planned) else ())):
        try:
            return kind(planned, request.dtype, key)
        except Unsupported:
            continue
    return GpuExecutor(planned, request.dtype, key)  # step by step


def _key(text: str, request: Request) -> str:
    """No dots: torch.compile takes the key for the name of an attribute."""
    flags = "train" if request.train else "infer"
    asked = {"+x": request.needs_x, "+named": request.named, "+scan": request.scan}
    flags += "".join(flag for flag, is_asked in asked.items() if is_asked)
    dtype = str(request.dtype).removeprefix("torch.")
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {flags} {dtype} {request.device}"


def _use(key: str, made: Executor) -> None:
    _recent[key] = made
    _recent.move_to_end(key)
    while len(_recent) > RECENT:
        _recent.popitem(last=False)


def _build(made: CpuExecutor) -> None:
    """Compile the kernels, forward and backward side by side. Without a compiler the plan runs as torch operations."""
    if compiler.find_compiler() is None:
        warn_once(f"{compiler.why_no_compiler()}: layers run as torch operations.")
        return
    if made.is_built:
        return
    kernels = [
        lambda: made.forward_kernel,
        *([lambda: made.backward_kernel, lambda: made.summed] if made.trains else []),
    ]
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(kernel) for kernel in (*kernels, load_template)]:
                done.result()
    except compiler.BrokenBuildError as error:
        warn_once(f"Layers run as torch operations, which is slower. {error}")
        return
    except compiler.BuildError as error:
        warn_once(f"recurra's generated code did not compile; layers run as torch operations. {error}")
        return
    made.is_built = True


def warn_plain_loop(cell: Cell, reason: str) -> None:
    """For the user's own cells. Those of the zoo that cannot be compiled are documented."""
    if type(cell) not in registry().values() or backend() == "compiled":
        warn_once(f"{type(cell).__name__} runs on the reference engine: {reason}")
