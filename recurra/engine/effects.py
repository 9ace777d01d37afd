"""What a step changes outside of itself: attributes of the cell, globals, enclosing variables, lists it appends to.

A graph has no such effects. `Effects` takes a snapshot of all that the traced functions can reach before they run, and
compares it afterwards.
"""

import dis
import random
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from ..cell import CACHE, OF_ENGINE, Cell
from .guards import LIBRARIES
from .snapshots import MISSING, Snapshot

_OF_EVERY_MODULE = {*vars(nn.Module()), *OF_ENGINE} - {"training", "_modules"}
_CODE = (FunctionType, BuiltinFunctionType, MethodType, ModuleType)


class Effects:
    """A snapshot of a cell and of the functions that run in its step."""

    def __init__(self, cell: Cell):
        self.codes: list[CodeType] = []
        self.modules: dict[str, ModuleType] = {}
        self.snapshot = Snapshot()
        self.kept: list[Any] = []  # ids are unique only while the objects live
        self.before: dict[
            tuple[str, int], tuple[Callable[[], Any], Any]
        ] = {}  # (name, id of holder) → value, its token
        self.attributes: list[tuple[str, dict[str, Any], dict[str, Any]]] = []  # prefix, those of a module, their copy
        self.globals: list[tuple[dict[str, Any], str, Any]] = []
        self.snapshot.followed |= set(map(id, cell.modules()))
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
            self.snapshot.add(base.__name__, base)
        self.drawn = _random_states()

    def enter(self, frame: FrameType) -> str:
        """A function of the user's begins: watch the globals and enclosing variables that it names.

        Returns the name of what it may take a value from that nothing puts back, such as an iterator.
        """
        code = frame.f_code
        if code in self.codes:
            return ""
        local = {name for other in self.codes for name in other.co_cellvars}  # variables of the step itself
        self.codes.append(code)
        for name in code.co_names:
            if name in frame.f_globals:
                self._watch_global(frame.f_globals, name, name)
                self._note_module(name, frame.f_globals[name])
        self._watch_modules()
        for name in _assigned_globals(code):
            self._watch_global(frame.f_globals, name, name)
        for name in code.co_freevars:
            if name in frame.f_locals and name not in local:
                self._add(name, frame, lambda n=name: frame.f_locals.get(n, MISSING))
        named = {*code.co_names, *code.co_freevars}
        return next((name for name in self.snapshot.iterators if name.rpartition(".")[2] in named), "")

    def changed(self) -> list[str]:
        """The names of what has changed."""
        found = [
            prefix + name
            for prefix, now, before in self.attributes
            for name in sorted(now.keys() ^ before.keys())
            if name != CACHE
        ]
        found += [name for (name, _), (read, token) in self.before.items() if self.snapshot.token(read()) != token]
        found += [name for name in self.snapshot.changed() if name not in found]
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
        """Put back attributes, globals, what objects held, and generators."""
        self.snapshot.undo()
        for _, now, before in self.attributes:
            now.clear()
            now.update(before)
        for place, name, value in self.globals:
            if value is not MISSING:
                place[name] = value
            else:
                place.pop(name, None)
        _restore_random_states(self.drawn)

    # ------------------------------------------------------------------------------------------ what is watched

    def _watch_all(self, prefix: str, holder: Any) -> None:
        for name in holder:
            if name not in _OF_EVERY_MODULE and not name.startswith("__"):
                self._add(prefix + name, holder, lambda n=name: holder.get(n, MISSING))

    def _watch_global(self, place: dict[str, Any], key: str, name: str) -> None:
        if (name, id(place)) not in self.before:
            self.globals.append((place, key, place.get(key, MISSING)))
            self._add(name, place, lambda: place.get(key, MISSING))

    def _note_module(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in LIBRARIES:
            self.modules[name] = value

    def _watch_modules(self) -> None:
        """The names in modules of the user's own that some code may read or set."""
        for attribute in {name for code in self.codes for name in code.co_names} if self.modules else ():
            for name, module in self.modules.items():
                self._watch_global(vars(module), attribute, f"{name}.{attribute}")

    def _add(self, name: str, holder: Any, read: Callable[[], Any]) -> None:
        value = read()
        if (name, id(holder)) in self.before:
            return
        self.kept.append(holder)
        if not isinstance(value, _CODE):
            self.before[name, id(holder)] = read, self.snapshot.token(value)
        self.snapshot.add(name, value)


def _assigned_globals(code: CodeType) -> list[str]:
    return [each.argval for each in dis.get_instructions(code) if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")]


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
