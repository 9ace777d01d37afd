"""What a step changes outside of itself: attributes of the cell, globals, enclosing variables, lists it appends to.

A graph has no such effects. `Effects` takes a snapshot of all that the traced functions can reach before they run, and
compares it afterwards.
"""

import copy
import dis
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from ..cell import CACHE, OF_ENGINE, Cell

_DEPTH = 4  # containers in containers
_ITEMS = 1024  # objects that are compared below one name
_OF_EVERY_MODULE = {*vars(nn.Module()), *OF_ENGINE} - {"training", "_modules"}
_MISSING = object()
_CODE = (FunctionType, BuiltinFunctionType, MethodType, ModuleType)
_BY_ID = (Tensor, nn.Module, *_CODE)
_PLAIN = (bool, int, float, complex, str, bytes)
_CONTAINERS = (list, dict, set, deque, bytearray)


class Effects:
    """A snapshot of a cell and of the functions that run in its step."""

    def __init__(self, cell: Cell):
        self.codes: list[CodeType] = []
        self.kept: list[Any] = []  # ids are unique while the objects live
        self.before: dict[tuple[str, int], tuple[Callable[[], Any], Any]] = {}  # (name, id of holder) → value, snapshot
        self.attributes: list[tuple[str, dict[str, Any], dict[str, Any]]] = []  # prefix, those of a module, their copy
        self.of_classes: list[tuple[type, str, Any]] = []
        self.globals: list[tuple[dict[str, Any], str, Any]] = []
        self.containers: list[tuple[Any, Any]] = []  # and what they held
        for path, module in cell.named_modules():
            prefix = f"self.{path}." if path else "self."
            for holder in (vars(module), module._parameters, module._buffers):
                self.attributes.append((prefix, holder, dict(holder)))
                self._watch_all(prefix, holder)
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None:  # the user's attributes of a weight
                    self.attributes.append((f"{prefix}{name}.", vars(tensor), dict(vars(tensor))))
                    self._watch_all(f"{prefix}{name}.", vars(tensor))
        for base in type(cell).__mro__[: type(cell).__mro__.index(Cell)]:
            self._watch_all(f"{base.__name__}.", vars(base))
            self.of_classes += [(base, name, value) for name, value in vars(base).items() if not name.startswith("__")]
        step = getattr(cell.step, "__func__", cell.step)
        self.enclosing = [(v, v.cell_contents) for v in getattr(step, "__closure__", None) or () if not _is_empty(v)]
        self.drawn = _random_states()

    def enter(self, frame: FrameType) -> None:
        """A function of the user's begins: watch the globals and enclosing variables that it names."""
        code = frame.f_code
        if code in self.codes:
            return
        local = {name for other in self.codes for name in other.co_cellvars}  # variables of the step itself
        self.codes.append(code)
        for name in code.co_names:
            if name in frame.f_globals:
                self.globals.append((frame.f_globals, name, frame.f_globals[name]))
                self._add(name, frame.f_globals, lambda n=name: frame.f_globals.get(n, _MISSING))
        for name in code.co_freevars:
            if name in frame.f_locals and name not in local:
                self._add(name, frame, lambda n=name: frame.f_locals.get(n, _MISSING))

    def changed(self) -> list[str]:
        """The names of what has changed."""
        found = [
            prefix + name
            for prefix, now, before in self.attributes
            for name in sorted(now.keys() ^ before.keys())
            if name != CACHE
        ]
        found += [name for (name, _), (read, snapshot) in self.before.items() if self._snapshot(read()) != snapshot]
        return found + ["the state of a random number generator"] * (_random_states() != self.drawn)

    def line(self, name: str) -> str:
        """`file:line` of the code that changes a name; of the first function if that cannot be told."""
        attribute = name.rpartition(".")[2]
        found = [(c, i) for c in self.codes for i in dis.get_instructions(c) if i.argval == attribute]
        found.sort(key=lambda pair: not pair[1].opname.startswith(("STORE", "DELETE")))
        if found:
            code, instruction = found[0]
            at = instruction.positions.lineno if instruction.positions else code.co_firstlineno
            return f"{code.co_filename}:{at}"
        return f"{self.codes[0].co_filename}:{self.codes[0].co_firstlineno}" if self.codes else ""

    def undo(self) -> None:
        """Put back attributes, globals and enclosing variables, generators, and what lists and dictionaries held."""
        for _, now, before in self.attributes:
            now.clear()
            now.update(before)
        for place, name, value in self.globals:
            place[name] = value
        for owner, name, value in self.of_classes:
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)
        for variable, value in self.enclosing:
            variable.cell_contents = value
        _restore_random_states(self.drawn)
        for container, held in self.containers:
            if isinstance(container, (list, bytearray)):
                container[:] = held
            else:
                container.clear()
                container.extend(held) if isinstance(container, deque) else container.update(held)

    # ------------------------------------------------------------------------------------------ snapshots

    def _watch_all(self, prefix: str, holder: Any) -> None:
        for name in holder:
            if name not in _OF_EVERY_MODULE and not name.startswith("__"):
                self._add(prefix + name, holder, lambda n=name: holder.get(n, _MISSING))

    def _add(self, name: str, holder: Any, read: Callable[[], Any]) -> None:
        value = read()
        if isinstance(value, _CODE) or (name, id(holder)) in self.before:
            return
        self.kept.append(holder)
        self.before[name, id(holder)] = read, self._snapshot(value)
        if isinstance(value, _CONTAINERS):
            self.containers.append((value, copy.copy(value)))

    def _snapshot(self, value: Any) -> Any:
        """The identity of an object; of a container or a plain object, of all that it holds."""
        self.left = _ITEMS
        return self._identity(value, 0)

    def _identity(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind in _PLAIN:
            return kind, value if value == value else "nan"
        self.kept.append(value)
        self.left -= 1
        if isinstance(value, _BY_ID) or depth == _DEPTH or self.left < 0:
            return id(value)
        if kind.__module__ == "numpy" and hasattr(value, "tobytes"):
            return id(value), value.tobytes() if value.nbytes < 1 << 16 else None
        if isinstance(value, bytearray):
            return id(value), bytes(value)
        return id(value), [self._identity(part, depth + 1) for part in _parts(value)]


def _parts(value: Any) -> Iterator[Any]:
    """What a container or a plain object holds: its first items and their number."""
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        yield len(value)
        yield from islice(value, _ITEMS)
        return
    if isinstance(value, type):
        held = {n: v for n, v in vars(value).items() if not n.startswith("__") and not callable(v)}
    else:
        held = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    yield len(held)
    for key, item in islice(held.items(), _ITEMS):
        yield from (key, item)


def _is_empty(variable: CellType) -> bool:
    """Whether an enclosing variable has no value yet."""
    try:
        return variable.cell_contents is _MISSING
    except ValueError:
        return True


def _random_states() -> tuple[Any, ...]:
    """The states of the global generators of Python and NumPy. torch's draws are recorded as operations."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return (random.getstate(),)
    name, keys, *rest = numpy.random.get_state()
    return random.getstate(), name, keys.tobytes(), *rest


def _restore_random_states(states: tuple[Any, ...]) -> None:
    random.setstate(states[0])
    if len(states) > 1:
        numpy = sys.modules["numpy"]
        name, keys, *rest = states[1:]
        numpy.random.set_state((name, numpy.frombuffer(keys, dtype="uint32"), *rest))
