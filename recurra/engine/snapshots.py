"""What objects hold: a snapshot of all that can be reached from some values, its comparison, and the way back.

Lists, dictionaries, sets, arrays, generators of random numbers, objects with attributes or slots, and functions with
their attributes, defaults and enclosing variables are followed, each object once. What an iterator, or the system's
generator of random numbers, will give next cannot be read without taking it: the snapshot says where there is one.
"""

import array
import enum
import functools
import random
import sys
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from types import BuiltinFunctionType, CellType, FunctionType, GetSetDescriptorType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from ..cell import OF_ENGINE
from .guards import LIBRARIES
from .user_code import is_user_code

MAX_OBJECTS = 10_000  # that are followed; a cell that reads more is not compiled
MANY = 64  # entries from which on a list of numbers and strings is compared as a whole
WHOLE_ARRAY = 1 << 24  # bytes up to which the numbers of an array are kept; of a larger one a checksum is
MISSING = object()

_PLAIN = {type(None), bool, int, float, complex, str, bytes, range}
_UNFOLLOWED = (Tensor, ModuleType, BuiltinFunctionType, GetSetDescriptorType, enum.EnumMeta, enum.Enum)
_WRAPPERS = (property, classmethod, staticmethod, functools.partialmethod, functools.cached_property)
_SYSTEMS = {"asyncio", "concurrent", "logging", "multiprocessing", "threading", "torch", "_thread"}  # keep caches
_OF_MODULES = {*vars(nn.Module()), *OF_ENGINE} - {"training"}
_NOT_STATE = {"__dict__", "__weakref__", "__doc__"}


class Snapshot:
    """Start it empty and `add` values under the names they are known by."""

    def __init__(self) -> None:
        self.alive: dict[int, Any] = {}  # an id is unique only while its object lives
        self.followed: set[int] = set()
        self.held: list[tuple[str, Callable[[], Any], Any, Callable[[], None]]] = []  # name, reader, what it read, undo
        self.iterators: set[str] = set()  # the names under which there are some

    def add(self, name: str, value: Any) -> None:
        """Follow a value."""
        pending = [value]
        while pending and len(self.followed) < MAX_OBJECTS:
            one = pending.pop()
            if type(one) in _PLAIN or id(one) in self.followed:
                continue
            self.followed.add(id(one))
            self.alive[id(one)] = one
            pending += self._follow(name, one)

    def token(self, value: Any) -> Hashable:
        """What stands for a value: itself if it is a number or text, its identity otherwise."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value if value == value else "nan"
        self.alive.setdefault(id(value), value)
        return id(value)

    def changed(self) -> list[str]:
        """The names of what no longer holds what it held."""
        return list(dict.fromkeys(name for name, read, before, _ in self.held if read() != before))

    def undo(self) -> None:
        """Put everything back."""
        for _, read, before, put_back in self.held:
            if read() != before:
                put_back()

    # ------------------------------------------------------------------------------------------ objects

    def _hold(self, name: str, read: Callable[[], Any], put_back: Callable[[], None]) -> None:
        self.held.append((name, read, read(), put_back))

    def _follow(self, name: str, value: Any) -> list[Any]:
        """Keep what a value holds. Returns the parts to be followed."""
        kind = type(value)
        if isinstance(value, (list, tuple, set, frozenset, deque, bytearray, array.array)):
            return self._sequence(name, value)
        if isinstance(value, dict):
            return self._dictionary(name, value) + self._attributes(name, value)
        if isinstance(value, FunctionType):
            is_own = is_user_code(value.__code__)  # a decorator of a library gives its own function the user's name
            return self._function(name, value) if is_own else [getattr(value, "__wrapped__", None)]
        if isinstance(value, MethodType):
            return [value.__self__, value.__func__]
        if isinstance(value, CellType):
            return self._variable(name, value)
        if isinstance(value, _UNFOLLOWED):
            return []
        if isinstance(value, type):
            is_own = value.__module__.partition(".")[0] not in LIBRARIES
            return self._class(name, value) if is_own else []
        if isinstance(value, nn.Module):
            return [*self._module(name, value), kind]
        if isinstance(value, random.SystemRandom):
            self.iterators.add(name)
            return []
        if (reader := _state_of(value)) is not None:
            self._hold(name, *reader)
            return []
        if hasattr(kind, "__next__") and kind.__module__.partition(".")[0] in LIBRARIES | {"_io", "_csv"}:
            self.iterators.add(name)
            return []
        if kind.__module__.partition(".")[0] in _SYSTEMS:
            return []
        return [*self._attributes(name, value), kind]

    def _sequence(self, name: str, value: Any) -> list[Any]:
        numbers = isinstance(value, (bytearray, array.array))
        if numbers or (len(value) > MANY and set(map(type, value)) <= _PLAIN):
            kept, parts = value[:] if numbers else list(value), []
            read = (lambda: value[:]) if numbers else lambda: list(value)
        else:
            kept, parts = list(value), list(value)
            read = lambda: [self.token(each) for each in value]  # noqa: E731
        if isinstance(value, (set, frozenset)):
            read = lambda: set(map(self.token, value))  # noqa: E731

        def put_back() -> None:
            if isinstance(value, (list, bytearray, array.array)):
                value[:] = kept  # pyrefly: ignore
            elif isinstance(value, (set, deque)):
                value.clear()
                value.update(kept) if isinstance(value, set) else value.extend(kept)

        self._hold(name, read, put_back)
        return [*parts, *self._attributes(name, value)] if type(value).__module__ != "builtins" else parts

    def _dictionary(self, name: str, value: Any) -> list[Any]:
        kept = dict(value)

        def put_back() -> None:
            value.clear()
            value.update(kept)

        if len(kept) > MANY and set(map(type, kept.values())) <= _PLAIN:
            self._hold(name, lambda: dict(value), put_back)
            return []
        tokens = lambda: [(self.token(key), self.token(each)) for key, each in value.items()]  # noqa: E731
        self._hold(name, tokens, put_back)
        return [*kept, *kept.values()]

    def _attributes(self, name: str, value: Any) -> list[Any]:
        """The attributes of an object: those in its dictionary, and its slots."""
        parts, fields = [], getattr(value, "__dict__", None)
        if type(fields) is dict:
            self.followed.add(id(fields))
            self.alive[id(fields)] = fields
            parts += self._dictionary(name, fields)
        slots = {slot: MISSING for owner in type(value).__mro__ for slot in _slots(owner)}
        if slots:
            read = lambda: {slot: getattr(value, slot, MISSING) for slot in slots}  # noqa: E731
            kept = read()

            def put_back() -> None:
                for slot, one in kept.items():
                    _set(value, slot, one)

            self._hold(name, lambda: {slot: self.token(one) for slot, one in read().items()}, put_back)
            parts += kept.values()
        return parts

    def _function(self, name: str, value: FunctionType) -> list[Any]:
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return [*self._dictionary(name, value.__dict__), *defaults, *(value.__closure__ or ())]

    def _variable(self, name: str, cell: CellType) -> list[Any]:
        """An enclosing variable, which may have no value yet."""
        read = lambda: _content(cell)  # noqa: E731
        kept = read()

        def put_back() -> None:
            if kept is MISSING:
                del cell.cell_contents
            else:
                cell.cell_contents = kept

        self._hold(name, lambda: self.token(read()), put_back)
        return [kept]

    def _class(self, name: str, kind: type) -> list[Any]:
        """The attributes of a class, and the functions among them."""
        read = lambda: {n: v for n, v in vars(kind).items() if n[:2] != "__"}  # noqa: E731
        kept = read()

        def put_back() -> None:
            for attribute in {**read(), **kept}:
                _set(kind, attribute, kept.get(attribute, MISSING))

        self._hold(name, lambda: {n: self.token(v) for n, v in read().items()}, put_back)
        functions = [v for n, v in vars(kind).items() if n[:2] == "__" and isinstance(v, FunctionType)]
        wrappers = [v for v in kept.values() if isinstance(v, _WRAPPERS)]
        functions += [getattr(v, field, None) for v in wrappers for field in ("fget", "__func__", "func")]
        return [*kept.values(), *functions, *kind.__mro__[1:]]

    def _module(self, name: str, module: nn.Module) -> list[Any]:
        """The attributes of a module that is no part of the cell, but for those that the engine sets."""
        read = lambda: {n: v for n, v in vars(module).items() if n not in _OF_MODULES}  # noqa: E731
        kept = read()

        def put_back() -> None:
            for attribute in {**read(), **kept}:
                _set(module, attribute, kept.get(attribute, MISSING))

        self._hold(name, lambda: {n: self.token(v) for n, v in read().items()}, put_back)
        return [*kept.values(), module._modules, module._parameters, module._buffers]


def _set(owner: Any, name: str, value: Any) -> None:
    if value is not MISSING:
        setattr(owner, name, value)
    elif getattr(owner, name, MISSING) is not MISSING:
        delattr(owner, name)


def _state_of(value: Any) -> tuple[Callable[[], Any], Callable[[], None]] | None:
    """How to read and to put back the state of an array or of a generator of random numbers."""
    if isinstance(value, random.Random):
        state = value.getstate()
        return value.getstate, lambda: value.setstate(state)
    if isinstance(value, ContextVar):
        held = value.get(MISSING)
        return lambda: id(value.get(MISSING)), lambda: None if held is MISSING else value.set(held) and None
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.ndarray):
        kept = value.copy() if value.nbytes <= WHOLE_ARRAY else None
        return lambda: _numbers(value), lambda: None if kept is None else numpy.copyto(value, kept)
    if isinstance(value, (numpy.random.Generator, numpy.random.RandomState)):
        bits = value.bit_generator if isinstance(value, numpy.random.Generator) else value._bit_generator
        state = bits.state
        return lambda: repr(bits.state), lambda: setattr(bits, "state", state)
    return None


def _numbers(value: Any) -> Any:
    if value.dtype.hasobject or value.nbytes <= WHOLE_ARRAY:
        return value.shape, value.tobytes()
    return value.shape, zlib.crc32(value.data if value.flags.c_contiguous else value.tobytes())


def _slots(owner: type) -> Iterator[str]:
    slots = vars(owner).get("__slots__", ())
    for slot in (slots,) if isinstance(slots, str) else slots:
        if slot not in _NOT_STATE:
            yield f"_{owner.__name__.lstrip('_')}{slot}" if slot[:2] == "__" and slot[-2:] != "__" else slot


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING
