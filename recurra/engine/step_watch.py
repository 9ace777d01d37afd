"""Watches what a traced step does in Python, where no torch operation tells of it.

`StepWatch` is active while `step` runs on stand-in tensors. It collects the local variables of the step, hands calls of
`torch.autograd.Function` to the recorder, and refuses what a graph cannot hold: values read from memory, hooks,
derivatives taken inside the step, output, effects. Sizes that may be the batch size are numbers that notice
comparisons.
"""

import gc
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch._C import DisableTorchFunction, _EnableTorchFunction, _is_torch_function_enabled
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from ..cell import Cell
from .dropouts import DropoutCall, active_call
from .effects import Effects
from .record import Recorder
from .user_code import Untraceable, is_called_by_user, is_user_code, location

_APPLY = Function.apply.__func__.__code__  # pyrefly: ignore
_DERIVATIVES = {
    torch.autograd.grad.__code__: "torch.autograd.grad",
    torch.autograd.backward.__code__: "backward",
}
_LOG = logging.Logger.handle.__code__
_TRANSFORMS = "eager_transforms.py"  # torch.func.grad, vjp, jvp, …
_FUNCTIONAL_CALL = torch.nn.utils.stateless._functional_call.__code__  # the weights it sets are hidden while tracing
_READ_MEMORY = {"tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage", "__repr__"}
_HOOKS = {"register_hook", "register_post_accumulate_grad_hook", "retain_grad", "requires_grad_"}
_AUTOGRAD_FIELDS = {"requires_grad", "is_leaf", "grad_fn", "grad", "retains_grad", "output_nr", "_base", "_version"}
_AUTOGRAD_FIELDS |= {"_backward_hooks", "_post_accumulate_grad_hooks"}
# Where numbers lie in memory: x may be a view of anything, and stand-ins lie side by side.
_LAYOUT = {"is_contiguous", "stride", "storage_offset", "dim_order", "_is_view", "is_shared", "is_pinned"}
_SIZES = {"shape", "size", "numel", "nelement", "__len__"}
_MODES = {"is_grad_enabled", "is_inference_mode_enabled", "is_inference", "is_autocast_enabled"}
_HASH = Tensor.__hash__.__code__  # pyrefly: ignore
_OUTPUT = {"print", "input", "open", "write"}
# What another call gives another answer to, and no guard sees.
_CHANGING = {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time"}
_CHANGING |= {"now", "utcnow", "today", "urandom", "getrandbits"}


class StepWatch:
    """Context manager around one run of a step. `names` are its tensors among the local variables, in order."""

    def __init__(self, cell: Cell, recorder: Recorder, batch: int):
        self.recorder, self.batch, self.effects = recorder, batch, Effects(cell)
        self.code = type(cell).step.__code__
        self.names: dict[str, Tensor] = {}
        self.arguments: set[int] = set()
        self.applied: dict[FrameType, tuple[type, tuple]] = {}
        self.compared: set[str] = set()  # lines that compare what may be the batch size
        self.draw: Callable[[DropoutCall], Tensor | None] = lambda call: None  # its mask, if it has one
        self.plain_size = ""  # the line that reads a size as a plain number, whose comparisons are not noticed
        self.interrupting = _interrupting_code()
        self.interruption: FrameType | None = None  # a running function that Python called between two instructions
        self.mode = _FunctionMode(self, hidden=not _is_torch_function_enabled())

    def __enter__(self) -> "StepWatch":
        self.outer, self.profiler = sys.gettrace(), sys.getprofile()
        self.collects_garbage = gc.isenabled()
        gc.disable()  # a collection would run callbacks and finalizers of other objects within the step
        self.enabled = _EnableTorchFunction()
        self.enabled.__enter__()
        self.mode.__enter__()
        self.recorder.pause = lambda: _Pause(self)
        self.install()
        return self

    def install(self) -> None:
        """Have Python call the watch. A profiler of the user's stays where it is."""
        if self.profiler is None:
            sys.setprofile(self._on_builtin)
        sys.settrace(self._on_call)

    def remove(self) -> None:
        sys.settrace(self.outer)
        if self.profiler is None:
            sys.setprofile(None)

    def __exit__(self, kind: Any, *error: Any) -> None:
        self.remove()
        self.recorder.pause = nullcontext
        self.mode.__exit__(kind, *error)
        self.enabled.__exit__(kind, *error)
        if self.collects_garbage:
            gc.enable()
        changed = self.effects.changed()
        if changed:
            self._note(f"changes {changed[0]}", self.effects.line(changed[0]), changed)
            self.effects.undo()

    def _note(self, message: str, at: str = "", effects: Sequence[str] = ()) -> None:
        """Keep a failure without raising it: inside a trace function that would end the tracing."""
        failure = Untraceable(f"{message} ({at or location()})", effects)
        self.recorder.failure = self.recorder.failure or failure

    # ------------------------------------------------------------------------------------------ functions

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Callable | None:
        code = frame.f_code
        if self.interruption is not None:
            return None
        if code in self.interrupting:
            self.interruption = frame
            frame.f_trace_lines = False
            return self._on_interruption
        if code is _APPLY:
            self.applied[frame] = frame.f_locals["cls"], frame.f_locals["args"]
            frame.f_trace_lines = False
            return self._on_applied
        if code in _DERIVATIVES or code.co_filename.endswith(_TRANSFORMS):
            self._note(f"calls {_DERIVATIVES.get(code, 'torch.func.' + code.co_name)}")
        elif code is _FUNCTIONAL_CALL:
            self._note("calls torch.func.functional_call")
        elif code is _LOG:
            self._note("writes to a log")
        elif code is _HASH and is_called_by_user(Tensor.__hash__):
            self._note("looks a tensor up by its identity")
        elif is_user_code(code) and (iterator := self.effects.enter(frame)):
            raise self.recorder.fail(f"may take the next value of {iterator}")  # before it does
        if code is not self.code:
            return None
        self.arguments = {id(v) for v in frame.f_locals.values()}
        return self._on_line

    def _on_interruption(self, frame: FrameType, event: str, arg: object) -> Callable:
        if event == "return":
            self.interruption = None
        return self._on_interruption

    def _on_applied(self, frame: FrameType, event: str, arg: Any) -> Callable:
        if event == "return" and arg is not None:
            with DisableTorchFunction():
                self.recorder.add_custom_function(*self.applied.pop(frame), arg)
        return self._on_applied

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Callable:
        for name, value in frame.f_locals.items():
            if isinstance(value, Tensor) and id(value) not in self.arguments:
                if self.names.get(name) is not value:
                    self.names.pop(name, None)  # assigned again: its place is now the later one
                self.names[name] = value
        return self._on_line

    def _on_builtin(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and self.interruption is None and is_user_code(frame.f_code):
            name = arg.__name__
            if name in _OUTPUT:
                self._note(f"calls {name}", location(frame))
            elif name == "id":
                self._note("asks id() of an object", location(frame))
            elif name in _CHANGING:
                self._note(f"asks {name}(), which answers otherwise every time", location(frame))
            elif name in _MODES:
                self._note(f"asks {name}()", location(frame))

    # ------------------------------------------------------------------------------------------ torch functions

    def check(self, name: str, function: Any) -> None:
        """Refuse a function of torch that a graph cannot hold."""
        if name in _HOOKS:
            raise self.recorder.fail(f"calls {name} on a tensor")
        if name in _READ_MEMORY and is_called_by_user(function):
            raise self.recorder.fail(f"reads the numbers of a tensor with {name}")
        if name in _LAYOUT and is_called_by_user(function):
            raise self.recorder.fail(f"asks {name}() of a tensor")

    def check_field(self, name: str, function: Any) -> None:
        """Refuse reading what autograd knows of a tensor, and assigning to any field."""
        if function.__name__ == "__set__":
            raise self.recorder.fail(f"sets the field {name} of a tensor")
        if name in _AUTOGRAD_FIELDS and is_called_by_user(function):
            raise self.recorder.fail(f"reads the field {name} of a tensor")

    def sizes(self, name: str, function: Any, result: Any) -> Any:
        """A shape whose entries of the batch's size notice comparisons."""
        if not is_called_by_user(function):
            return result
        if isinstance(result, torch.Size):
            return torch.Size([BatchSize(n, self) if n == self.batch else n for n in result])
        if name == "size" and result == self.batch:
            return BatchSize(result, self)
        if name not in ("shape", "size"):
            self.note_plain_size()
        return result

    def note_plain_size(self) -> None:
        self.plain_size = self.plain_size or location()

    def compare(self) -> None:
        """What may be the batch size is compared."""
        if is_called_by_user(None):
            self.compared.add(location())


def _interrupting_code() -> set[CodeType]:
    """Functions that Python calls between two instructions of any code: signal handlers, callbacks of the collector."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = [getattr(each, "__func__", each) for each in (*handlers, *gc.callbacks)]
    return {function.__code__ for function in functions if hasattr(function, "__code__")}


class _Pause:
    """Context manager: Python does not call the watch."""

    def __init__(self, watch: StepWatch):
        self.watch = watch

    def __enter__(self) -> None:
        sys.settrace(None)
        if self.watch.profiler is None:
            sys.setprofile(None)

    def __exit__(self, *_: object) -> None:
        self.watch.install()


class _FunctionMode(TorchFunctionMode):
    """Shows the watch every torch function that the step calls. `hidden`: active modes of others stay inactive."""

    def __init__(self, watch: StepWatch, hidden: bool):
        super().__init__()
        self.watch, self.hidden = watch, hidden

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):  # of a field
            name = func.__self__.__name__
            self.watch.check_field(name, func)
        else:
            self.watch.check(name, func)
        with DisableTorchFunction() if self.hidden else nullcontext():
            call = active_call(func, args, kwargs or {})
            mask = None if call is None else self.watch.draw(call)
            result = func(*args, **(kwargs or {})) if call is None or mask is None else call(mask)
        return self.watch.sizes(name, func, result) if name in _SIZES else result


class BatchSize(int):
    """A size that may be the batch size. It tells the watch when something is decided by it."""

    def __new__(cls, value: int, watch: StepWatch) -> "BatchSize":
        made = super().__new__(cls, value)
        made.watch = watch
        return made

    watch: StepWatch

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __int__(self) -> int:
        self.watch.note_plain_size()
        return int.__index__(self)

    def __float__(self) -> float:
        self.watch.note_plain_size()
        return int.__float__(self)


def _comparison(name: str) -> Callable[[BatchSize, Any], Any]:
    plain = getattr(int, name)

    def compare(self: BatchSize, *other: Any) -> Any:
        if not (other and isinstance(other[0], BatchSize)):
            self.watch.compare()
        return plain(self, *other)

    return compare


def _arithmetic(name: str) -> Callable[[BatchSize, Any], Any]:
    plain = getattr(int, name)

    def compute(self: BatchSize, *other: Any) -> Any:
        result = plain(self, *other)
        return BatchSize(result, self.watch) if type(result) is int else result

    return compute


for _name in ("lt", "le", "gt", "ge", "eq", "ne", "bool"):
    setattr(BatchSize, f"__{_name}__", _comparison(f"__{_name}__"))
for _name in ("add", "sub", "mul", "floordiv", "mod", "radd", "rsub", "rmul", "rfloordiv", "rmod", "neg"):
    setattr(BatchSize, f"__{_name}__", _arithmetic(f"__{_name}__"))
