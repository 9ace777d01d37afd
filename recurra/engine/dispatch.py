"""The one entry to the engines: cell + sequences → outputs. Here, and nowhere else, a backend is chosen."""

import functools
import hashlib
import importlib.util
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled, _is_tracing
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from ..cell import Cell
from ..cells import registry
from ..errors import TraceError, UnknownNameError
from . import reference, torch_op
from .cell_cache import Known, known, weights_of
from .cpu import compiler
from .cpu.executor import Compiled
from .gpu.runner import OnGpu
from .ir.lowering import Unsupported
from .plan.planner import plan
from .plan.replay import replay
from .reference import Scanned, Sequences
from .split_at_resets import without_resets
from .traced_step import clean_context, trace_in_clean_context

__all__ = ["Choice", "EngineWarning", "Scanned", "Sequences", "choose", "scan", "set_backend"]

BACKENDS = ("auto", "reference", "compiled")
NARROW = {torch.bfloat16, torch.float16}  # computed in float32, rounded at the end
ON_CUDA, ON_CPU = {torch.float32, *NARROW}, {torch.float32, torch.float64, *NARROW}


class EngineWarning(UserWarning):
    """Something runs slower than it could; the message says what and why."""


# ---------------------------------------------------------------------------------------------------- the setting

_setting = {"backend": "auto"}


class set_backend:
    """Choose the engine: "auto", "reference" or "compiled". As a context manager, for the length of the `with`."""

    def __init__(self, name: str):
        if name not in BACKENDS:
            raise UnknownNameError("backend", repr(name), BACKENDS)
        self.before = _setting["backend"]
        _setting["backend"] = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _setting["backend"] = self.before


# ---------------------------------------------------------------------------------------------------- the choice


@dataclass(frozen=True)
class Choice:
    """The backend for a scan and why; for "compiled" and "replayed" also the key of the plan."""

    backend: str
    why: str
    key: str = ""


def choose(cell: Cell, given: Sequences, keep_trace: bool = False) -> Choice:
    """The backend for a scan of these sequences."""
    return _choose(cell, given, keep_trace, cell.weights(), None)


def _choose(cell: Cell, given: Sequences, keep_trace: bool, weights: dict[str, Tensor], parts: Known | None) -> Choice:
    reason = _obstacle(cell, given, weights)
    if reason:
        return Choice("reference", reason)
    train = torch.is_grad_enabled() and any(t.requires_grad for t in (given.x, *given.state, *weights.values()))
    dtype = next(w.dtype for w in weights.values() if w.is_floating_point())
    needs_x = train and given.x.requires_grad
    on_gpu = given.x.is_cuda
    if on_gpu and torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    elif dtype in NARROW and not on_gpu:
        dtype = torch.float32
    asked = (train, needs_x, keep_trace, dtype, given.x.device.type)
    key = _key(cell, _is_as_now(cell), *asked) if parts is None else _planned(parts, cell, asked)
    if key.startswith("!"):
        return Choice("reference", key[1:])
    if on_gpu:
        made, place = torch_op.plan_of(key), (given.x.shape[1], given.x.device)
        reason = made.obstacle(*place)
        return Choice("reference", reason) if reason else Choice("compiled", made.way(*place), key)
    if key.startswith("?"):
        return Choice("replayed", "no C++ compiler works here", key[1:])
    return Choice("compiled", "the step was planned and compiled", key)


def _obstacle(cell: Cell, given: Sequences, weights: dict[str, Tensor]) -> str:
    """What forbids the compiled engines whatever the cell's equations are; empty if nothing does."""
    if _setting["backend"] == "reference":
        return "set_backend('reference') is in force"
    if not torch.compiler.is_compiling() and transformed():
        return "a functorch transform or forward-mode differentiation is active"
    if torch.compiler.is_exporting() or torch.jit.is_tracing():
        return "the model is being exported, and other runtimes know no operation of recurra's"
    if given.x.device.type not in ("cpu", "cuda") or (given.x.is_cuda and not _has_gluon()):
        return f"x is on {given.x.device}"
    if 0 in given.x.shape:
        return "x is empty"
    if given.resets is not None and torch.compiler.is_compiling():
        return "resets change the shapes, which torch.compile must know"
    dtypes = {w.dtype for w in weights.values() if w.is_floating_point()}
    if not dtypes:
        return "the cell has no weights"
    served = ON_CUDA if given.x.is_cuda else ON_CPU
    if len(dtypes) != 1 or not dtypes <= served:
        return f"weights of dtypes {sorted(map(str, dtypes))}"
    if (
        not torch.is_autocast_enabled(given.x.device.type)
        and {given.x.dtype, *(s.dtype for s in given.state)} != dtypes
    ):
        return "x, the states and the weights differ in dtype"
    if any(m.requires_grad for m in given.masks.values()):
        return "a mask requires a gradient"
    if any(s.requires_grad for s, spec in zip(given.state, cell.carried, strict=True) if spec.name == "t"):
        return "the time index requires a gradient"
    return ""


@functools.cache
def _has_gluon() -> bool:
    """Whether the installed Triton has the layer the GPU's kernels are written in."""
    return importlib.util.find_spec("triton") is not None and (
        importlib.util.find_spec("triton.experimental.gluon") is not None
    )


def transformed() -> bool:
    return peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def must_be_seen(tensors: Sequence[Tensor]) -> bool:
    """Whether somebody looks at the operations one by one, or at tensors with other eyes (as if all signs were turned),
    so that no short way may be taken."""
    watched = torch_op.watched(tensors) or any(map(Tensor.is_neg, tensors))
    return watched or _is_any_autocast_enabled() or _is_tracing() or transformed()


KIND = attrgetter("dtype", "device", "shape")  # what a tensor has to be like


# ---------------------------------------------------------------------------------------------------- plans


def _key(cell: Cell, as_now: bool, train: bool, needs_x: bool, named: bool, dtype: torch.dtype, device: str) -> str:
    """The plan for this cell, made when first asked for; `!reason` if there can be none, `?key` without a compiler."""
    return _planned(known(cell), cell, (train, needs_x, named, dtype, device))


def _is_as_now(cell: Cell) -> bool:
    """True. The plain attributes of a cell are compared where the compiler sees it: it asks again when one changes."""
    return all(getattr(cell, name) == value for name, value in _plain_attributes(cell))


def _plain_attributes(cell: Cell) -> tuple[tuple[str, bool | int | float | str], ...]:
    return tuple((name, v) for name, v in vars(cell).items() if isinstance(v, (bool, int, float, str)))


def _planned(parts: Known, cell: Cell, asked: tuple[bool, bool, bool, torch.dtype, str]) -> str:
    if parts.hooked:
        return "!a hook on a part of the cell wants to be called at every step"
    found = parts.plans.get((asked, compiler.find_compiler()))
    if found is None:
        found = parts.plans[asked, compiler.find_compiler()] = _new_key(cell, *asked)
    return found


# What torch.compiler.assume_constant_result sets: these are facts about the cell, and the compiler need not look into
# how they are found. Calling that would import the compiler with recurra.
for _fact in (_key, _plain_attributes):
    _fact._dynamo_marked_constant = True  # pyrefly: ignore


def _new_key(cell: Cell, train: bool, needs_x: bool, named: bool, dtype: torch.dtype, device: str) -> str:
    try:
        step = trace_in_clean_context(cell)
    except TraceError as reason:
        return f"!{reason}"
    with clean_context():
        sizes = [tuple(p.meta["val"].shape) for p in step.placeholders()]
        text = f"{step.graph}{step.inputs}{step.weights}{step.outputs}{step.named}{sizes}{cell.carried}{cell.masks}"
        flags = f"{'train' if train else 'infer'}{'+x' if needs_x else ''}{'+named' if named else ''}"
        key = f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {flags} {_plain_name(dtype)} {device}"
        if key not in torch_op.PLANS:
            try:
                planned = plan(cell, step, train=train, needs_x=needs_x, named=named)
                if device == "cuda" and planned.seeks_largest:  # where numbers are rounded on the way
                    raise Unsupported("the derivative of a maximum over a row on the GPU")
                torch_op.PLANS[key] = OnGpu(planned, dtype) if device == "cuda" else Compiled(planned, dtype)
            except Unsupported as reason:
                _tell_unsupported(cell, str(reason))
                return f"!the compiled engine does not take {reason}"
        made = torch_op.PLANS[key]  # perhaps another cell's, with the same equations
        return key if isinstance(made, OnGpu) or _built(made) else f"?{key}"


def _plain_name(dtype: torch.dtype) -> str:
    """Without its dot: the compiler takes the key of a plan for the name of an attribute."""
    return str(dtype).removeprefix("torch.")


def _built(made: Compiled) -> bool:
    """Compile what the plan needs, both programs at once."""
    if compiler.find_compiler() is None:
        _tell_once(f"{compiler.why_no_compiler()}: layers run as torch operations.")
        return False
    kernels = [lambda: made.forward_kernel, *([lambda: made.backward_kernel] if made.trains else [])]
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(kernel) for kernel in kernels]:
                done.result()
    except compiler.BuildError as error:
        _tell_once(f"recurra's generated code did not compile; layers run as torch operations. {error}")
        return False
    return True


_told: set[str] = set()


def _tell_once(message: str) -> None:
    if message not in _told:
        _told.add(message)
        warnings.warn(message, EngineWarning, stacklevel=2)


def _tell_unsupported(cell: Cell, reason: str) -> None:
    """A cell of the zoo that cannot be compiled is documented; one of the user's own is worth a word."""
    if type(cell) not in registry().values() or _setting["backend"] == "compiled":
        _tell_once(f"{type(cell).__name__} runs on the reference engine: the compiled one does not take {reason}.")


# ---------------------------------------------------------------------------------------------------- the scan


def scan(cell: Cell, given: Sequences, keep_trace: bool = False) -> Scanned:
    """Run the cell over whole sequences on the backend that suits them."""
    parts = None if torch.compiler.is_compiling() else known(cell)
    weights = weights_of(cell) if parts is None else parts.weights or cell.weights()
    choice = _choose(cell, given, keep_trace, weights, parts)
    if choice.backend == "reference":
        return reference.scan(cell, given, keep_trace)
    if given.resets is not None:
        cut = without_resets(cell, given)
        return cut.join(_run(weights, cut.given, keep_trace, choice))
    return _run(weights, given, keep_trace, choice)


def _run(weights: dict[str, Tensor], given: Sequences, keep_trace: bool, choice: Choice) -> Scanned:
    device = given.x.device.type
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return _run(weights, given, keep_trace, choice)
    made = torch_op.plan_of(choice.key)
    hoisted = made.prologue(weights)
    x = given.x.to(made.dtype)
    wide = _all_like(x, hoisted)  # numbers that a step has written down are on no device yet
    states = _all_like(x, given.state)
    masks = _all_like(x, [given.masks[name] for name in made.plan.masks])
    if choice.backend == "replayed":
        results = replay(made.plan, x, states, masks, wide, given.lengths)
    else:
        results = torch_op.scan(choice.key, x, states, masks, wide, given.lengths)
    count = 1 + len(states)
    own = next((w.dtype for w in hoisted if w.is_floating_point()), given.x.dtype)
    dtype = made.dtype if device == "cuda" else own
    y, *finals = (value if value.dtype == dtype else value.to(dtype) for value in results[:count])
    if not keep_trace:
        return Scanned(y, tuple(finals))
    named = zip(made.plan.named, results[count:], strict=False)
    return Scanned(y, tuple(finals), {name: value.to(dtype) for name, value in named})


def _all_like(x: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    return [v if v.dtype == x.dtype and v.device == x.device else v.to(x.device, x.dtype) for v in values]
