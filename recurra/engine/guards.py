"""What a traced step read besides its tensors, and whether all of it is still the same.

A graph holds the values that `step` read while it was traced: attributes of the cell and of objects it refers to, class
attributes, globals, closures, and the code of every function it called. `Guards` records them as torch.compile's guards
do: code objects tell which names are read, and the values under these names are followed through containers, objects
and functions of the user's code. `is_current` compares them with what is there now.

Values are compared by identity, arrays and sets by content. What is not seen: state inside objects of C extensions,
and the libraries themselves (torch, NumPy, the standard library, installed packages other than the cell's own).
"""

import array
import collections
import dis
import functools
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from operator import attrgetter, getitem, is_, methodcaller
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ..affine import Affine
from ..cell import OF_ENGINE, Cell
from . import dropouts
from .graph_constants import guard_graph

LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "recurra", "triton"}
ENGINE_READS = ("step", "forward", "rewrite", "initial_state", "_initial", "masks", "starts", "carried", "__wrapped__")
DYNAMIC_READS = {"getattr", "vars", "globals", "eval", "exec", "attrgetter", "methodcaller", "__dict__"}
ASK_KINDS = {"isinstance", "issubclass", "type", "__class__", "singledispatch", "match"}
ASK_IDENTITY = {"is", "in", "is_", "is_not", "contains"}
MAX_VALUES = 10_000  # that are followed; a cell that reads more is not compiled
MANY = 64  # entries from which on a container of numbers and strings is compared by content, not entry by entry
SMALL_TENSOR = 4096  # numbers up to which a tensor that is no weight is compared by content

_OF_EVERY_MODULE = set(vars(nn.Module())) - {"training"}
_STATELESS = {"builtins", "enum", "logging", "numpy", "recurra", "threading", "typing"}  # their methods read no numbers
_UNCALLED = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)  # modules without a `forward`
_SIZES = ("input_size", "hidden_size", "output_size")  # of recurra's own cells: no step reads them
_BOILERPLATE = {"__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__", "__init__"}
_BOILERPLATE |= {"__firstlineno__", "__static_attributes__", "__slots__", "__hash__", "__repr__", "__match_args__"}
_OF_CODE = (type, types.FunctionType, types.ModuleType)
_PLAIN = {type(None), bool, int, float, complex, str, bytes, range, torch.dtype, torch.device}


class Guards:
    """The values that a cell's step can read, as they were when this was made."""

    def __init__(self, cell: Cell, tensors: Iterable[Tensor] = ()):
        """`tensors`: the parameters and buffers of the cell, whose numbers are no part of a graph."""
        weights = {id(tensor) for tensor in tensors}
        found = _Collector(cell, weights, set(ENGINE_READS))
        while not found.names_were_known:  # a function found late may read more of an object found early
            found = _Collector(cell, weights, found.names)
        self.places, self.keys, self.values = _columns(found.items)
        self.objects, self.names, self.attributes = _columns(found.attributes)
        self.sized = [cell.modifiers._modules, *found.sized]
        self.lengths = [len(each) for each in self.sized]
        self.readers, self.contents = found.readers, [read() for read in found.readers]
        self.form = found.form, self.lengths, self.contents
        self.overflow = found.count > MAX_VALUES
        self.may_drop = found.drops or bool(found.names & {"*", *dropouts.NAMES})  # the step may call dropout
        self.asks_kinds = found.asks_kinds  # the step may ask whether a weight is a parameter
        self.asks_identity = found.asks_identity  # the step may ask whether two names are of one object
        self.code = [each for each in found.seen.values() if isinstance(each, _OF_CODE)]
        self.read_names = found.names
        self.follows_code = found.names > set(ENGINE_READS)  # the user's: what it reads is not known beforehand

    def is_current(self) -> bool:
        """Whether every value is what it was."""
        try:
            return all(map(is_, map(getitem, self.places, self.keys), self.values)) and self.rest_is_current()
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):  # a value is gone
            return False

    def rest_is_current(self) -> bool:
        """The same for all but the entries of dictionaries and lists; may raise if a value is gone."""
        return (
            list(map(len, self.sized)) == self.lengths
            and (not self.objects or all(map(is_, map(getattr, self.objects, self.names), self.attributes)))
            and (not self.readers or [read() for read in self.readers] == self.contents)
        )

    def read_by_code(self, cell: Cell) -> dict[int, Any]:
        """What functions and classes refer to by themselves, and not by way of the cell: by id."""
        return _Collector(cell, set(), self.read_names, self.code).seen if self.follows_code else {}

    def add_constants(self, cell: Cell, names: Iterable[str]) -> None:
        """Compare the numbers of these buffers, too: a plan holds them as indices."""
        for name in names:
            path, _, leaf = name.rpartition(".")
            self.readers.append(functools.partial(_buffer_content, cell.get_submodule(path)._buffers, leaf))
            self.contents.append(self.readers[-1]())

    def guard_graph(self) -> bool:
        """Make the graph that torch.compile traces now depend on these values; False if that is not possible."""
        alive = ref(self)
        return guard_graph(lambda: (guards := alive()) is not None and guards.is_current())


def constant_buffers(cell: Cell, names: Iterable[str]) -> dict[str, Tensor]:
    """Those of the named buffers that may be indices: few integers in the memory of the CPU."""
    buffers = dict(cell.named_buffers())
    found = {name: buffers[name] for name in names if name in buffers}
    return {name: tensor for name, tensor in found.items() if _may_be_indices(tensor)}


def _may_be_indices(tensor: Tensor) -> bool:
    is_plain = type(tensor) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    if not is_plain or not tensor.is_cpu or tensor.layout is not torch.strided or not tensor.dim():
        return False
    return tensor.dtype in (torch.int64, torch.int32) and tensor.numel() <= SMALL_TENSOR


def _columns(rows: list[tuple[Any, Any, Any]]) -> tuple[list, list, list]:
    """As three lists, so that no Python loop is needed to compare them."""
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


class _Collector:
    """One walk over everything that a cell's step can reach by names that are read somewhere in its code."""

    def __init__(self, cell: Cell, weights: set[int], names: set[str], roots: Iterable[Any] | None = None):
        """`roots`: where to begin instead of the cell."""
        self.weights, self.names, before = weights, set(names), len(names)
        self.own = {_package(kind) for module in cell.modules() for kind in type(module).__mro__} - LIBRARIES
        self.items: list[tuple[Any, Any, Any]] = []  # (dictionary or sequence, key, value)
        self.attributes: list[tuple[Any, str, Any]] = []  # (object, attribute, value)
        self.sized: list[Any] = []
        self.readers: list[Callable[[], Any]] = []
        self.form: list[Any] = []  # what a graph depends on: equal for equal numbers, whichever objects hold them
        self.seen: dict[Any, Any] = {}  # an id is unique only while its object lives
        self.count, self.modifiers = 0, cell.modifiers
        self.drops = any(isinstance(module, _DropoutNd) for module in cell.modules())
        self.asks_kinds = self.asks_identity = False
        for root in roots or ():
            self.visit(root)
        for module in cell.modules() if roots is None else ():
            self.module(module)
        if roots is None and self.names > set(ENGINE_READS):  # code of the user's may read attributes of tensors
            for tensor in (*cell.parameters(), *cell.buffers()):
                self.fields(vars(tensor))
        self.names_were_known = len(self.names) == before

    # ------------------------------------------------------------------------------------------ what is read

    def wants(self, name: Any) -> bool:
        """Whether some code reads an attribute of this name."""
        return name in self.names or ("*" in self.names and not str(name).startswith("__"))

    def item(self, place: Any, key: Any, value: Any) -> None:
        self.items.append((place, key, value))
        self.visit(value)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        self.attributes.append((owner, name, value))
        self.visit(value)

    def is_library(self, kind: Any) -> bool:
        """Whether a class, function or module belongs to a library, whose code is not followed."""
        package = _package(kind)
        return package not in self.own and (package in LIBRARIES or _is_installed(package))

    # ------------------------------------------------------------------------------------------ values

    def visit(self, value: Any) -> None:
        """Follow a value whose identity is guarded already."""
        kind = type(value)
        if kind in _PLAIN:
            self.form.append((kind, repr(value) if kind in (float, complex) else value))  # 0.0 is not -0.0, NaN is NaN
            return
        if id(value) in self.seen or self.count > MAX_VALUES:
            return
        self.seen[id(value)] = value
        self.count += 1
        follow = next((method for kinds, method in _FOLLOW if isinstance(value, kinds)), _Collector.object)
        follow(self, value)

    def sequence(self, value: Any) -> None:
        self.form.append((type(value), len(value)))
        if isinstance(value, list):
            self.sized.append(value)
        if len(value) > MANY and all(type(each) in _PLAIN for each in value):
            self.readers.append(functools.partial(list, value))
            return
        for index, each in enumerate(value):
            self.item(value, index, each) if isinstance(value, list) else self.visit(each)

    def dictionary(self, value: dict) -> None:
        self.form.append((type(value), list(value)))
        self.sized.append(value)
        if type(fields := getattr(value, "__dict__", None)) is dict:  # of a subclass
            self.fields(fields)
        if len(value) > MANY and all(type(each) in _PLAIN for each in value.values()):
            self.readers.append(functools.partial(dict, value))
            return
        for key, each in list(value.items()):
            self.item(value, key, each)

    def copied(self, value: Any) -> None:
        self.readers.append(functools.partial(_COPIES[type(value)], value) if type(value) in _COPIES else value.copy)

    def numpy_array(self, value: Any) -> None:
        self.form.append((value.shape, value.dtype))
        self.readers.append(value.tobytes)
        for each in value.ravel().tolist() if value.dtype.hasobject else ():
            self.visit(each)

    def tensor(self, value: Tensor) -> None:
        self.form.append((value.shape, value.dtype))
        is_data = type(value) is Tensor and not value.requires_grad and id(value) not in self.weights
        if is_data and not torch._C._functorch.is_functorch_wrapped_tensor(value):
            self.readers.append(functools.partial(_tensor_content, value))

    # ------------------------------------------------------------------------------------------ code

    def function(self, value: types.FunctionType) -> None:
        if self.is_library(value):
            self.drops |= value in dropouts.FUNCTIONS
            self.form.append(value)
            return
        self.form.append(value.__code__)
        self.attributes.append((value, "__code__", value.__code__))
        for name in ("__defaults__", "__kwdefaults__"):
            if (defaults := getattr(value, name)) is not None:
                self.attribute(value, name, defaults)
        for cell in value.__closure__ or ():
            if (content := _content(cell)) is not cell:
                self.attribute(cell, "cell_contents", content)
        attributes, global_names, modules = _names(value.__code__)
        self.names |= attributes
        self.asks_kinds |= bool(ASK_KINDS & (attributes | global_names))
        self.asks_identity |= bool(ASK_IDENTITY & (attributes | global_names))
        if (attributes | global_names) & DYNAMIC_READS:
            self.names.add("*")
        for name in sorted(global_names):
            if name in value.__globals__:
                self.item(value.__globals__, name, value.__globals__[name])
        if attributes & {"environ", "getenv"}:
            self.visit(os.environ)
        for name in sorted(modules & sys.modules.keys()):
            self.visit(sys.modules[name])
        if value.__dict__:
            self.fields(value.__dict__)

    def named_read(self, value: Any) -> None:
        """An attrgetter or methodcaller does not tell its names."""
        self.form.append(value)
        self.names.add("*")

    def leaf(self, value: Any) -> None:
        self.drops |= isinstance(value, types.BuiltinFunctionType) and value in dropouts.FUNCTIONS
        self.form.append(value)

    def method(self, value: types.MethodType) -> None:
        self.visit(value.__func__)
        self.visit(value.__self__)

    def partial(self, value: functools.partial) -> None:
        for part in (value.func, value.args, value.keywords):
            self.visit(part)

    def context_variable(self, value: ContextVar) -> None:
        held = value.get(None)
        self.readers.append(lambda: value.get(None) is held)
        self.visit(held)

    def weak_reference(self, value: ref) -> None:
        target, again = value(), ref(value()) if value() is not None else None
        self.readers.append(lambda: value() is (again and again()))
        self.visit(target)

    def descriptor(self, value: Any) -> None:
        """A property, classmethod, staticmethod or cached property: the functions inside."""
        for name in ("fget", "__func__", "func"):
            self.visit(_read(value, name))

    # ------------------------------------------------------------------------------------------ objects

    def python_module(self, value: types.ModuleType) -> None:
        self.form.append(value)
        if not self.is_library(value):
            self.fields(vars(value), sized=False)  # a module gets names while it runs

    def fields(self, place: dict, sized: bool = True) -> None:
        """The entries of an object's dictionary that are read."""
        if sized:
            self.sized.append(place)
        for name in [name for name in place if self.wants(name)]:
            self.form.append(name)
            self.item(place, name, place[name])

    def kind(self, value: type) -> None:
        """The class attributes that are read, and the special methods, which Python calls without naming them."""
        self.form.append(value)
        owners = [owner for owner in value.__mro__ if not self.is_library(owner)]
        self.sized += map(vars, owners)  # a subclass may come to hide an attribute
        names = {name for owner in owners for name in vars(owner) if self.wants(name) or _is_special(name)}
        names |= {name for name in ENGINE_READS if owners and hasattr(value, name)}
        for name in sorted(names):
            self.class_attribute(value, name)

    def class_attribute(self, kind: type, name: str) -> None:
        """The attribute in every class that has it, down to the first of a library: `super()` reads hidden ones."""
        for owner in (owner for owner in kind.__mro__ if name in vars(owner)):
            if (id(owner), name) not in self.seen:
                self.seen[id(owner), name] = owner
                self.item(vars(owner), name, vars(owner)[name])
            if self.is_library(owner):
                return

    def library_methods(self, kind: type) -> None:
        """Names that methods of a library's class read, of those the step may call: `scheduler.get_last_lr()`."""
        if kind.__module__.partition(".")[0] in _STATELESS:
            return
        for owner in (owner for owner in kind.__mro__ if self.is_library(owner)):
            for name, member in vars(owner).items():
                if self.wants(name) or _is_special(name):
                    for code in _codes(member):
                        self.names |= {each for each in _names(code)[0] if each.isidentifier() and each[:2] != "__"}

    def object(self, value: Any) -> None:
        fields = _read(value, "__dict__")
        if type(fields) is dict:
            is_read = any(map(self.wants, fields)) or not self.is_library(type(value))
            self.fields(fields) if is_read else self.form.append(value)
        else:
            self.form.append(value if fields is None and not hasattr(type(value), "__slots__") else type(value))
        slots = [name for owner in type(value).__mro__ for name in _slots(owner) if self.wants(name)]
        for name in slots:
            if (held := _read(value, name, value)) is not value:
                self.attribute(value, name, held)
        if isinstance(value, nn.Module):  # not a part of the cell
            self.visit(value._modules)
        elif fields is not None or slots:
            self.library_methods(type(value))
        self.visit(type(value))

    def module(self, module: nn.Module) -> None:
        """A module of the cell: all plain attributes, followed if they are read; its class."""
        if id(module) in self.seen:
            return
        self.seen[id(module)] = module
        place, kind = vars(module), type(module)
        is_library = self.is_library(kind)
        if not (is_library and isinstance(module, (Affine, Cell))) and module is not self.modifiers:
            held = [name for name in ("_modules", "_parameters", "_buffers") if type(place.get(name)) is dict]
            self.sized += [place[name] for name in held]  # a list of layers may grow
            self.items += [(place, name, place[name]) for name in held]
        if is_library and isinstance(module, _UNCALLED):
            return
        self.sized.append(place)
        if is_library:
            self.class_attribute(kind, "step" if isinstance(module, Cell) else "forward")
        known = {*_OF_EVERY_MODULE, *OF_ENGINE, *(_SIZES if is_library and isinstance(module, Cell) else ())}
        if is_library and isinstance(module, (Affine, nn.Sequential)):  # tensors, or modules, alone
            known |= place.keys() - {"forward"}
        for name in [name for name in place if name not in known]:
            self.form.append(name)
            if self.wants(name) or is_library:
                self.item(place, name, place[name])
            else:
                self.items.append((place, name, place[name]))
        self.visit(kind)


# torch imports NumPy where it is installed; a layer needs torch alone.
_NUMPY_ARRAY = sys.modules["numpy"].ndarray if "numpy" in sys.modules else ()
_FOLLOW: list[tuple[Any, Callable[[_Collector, Any], None]]] = [
    (Tensor, _Collector.tensor),
    (_NUMPY_ARRAY, _Collector.numpy_array),
    (dict, _Collector.dictionary),
    ((list, tuple), _Collector.sequence),
    ((set, bytearray, array.array, collections.deque), _Collector.copied),
    ((types.BuiltinFunctionType, types.CodeType), _Collector.leaf),
    ((attrgetter, methodcaller), _Collector.named_read),
    (types.FunctionType, _Collector.function),
    (types.MethodType, _Collector.method),
    (functools.partial, _Collector.partial),
    (ContextVar, _Collector.context_variable),
    (ref, _Collector.weak_reference),
    ((property, classmethod, staticmethod, functools.cached_property), _Collector.descriptor),
    (types.ModuleType, _Collector.python_module),
    (type, _Collector.kind),
]
_COPIES: dict[type, Callable[[Any], Any]] = {bytearray: bytes, array.array: array.array.tobytes}


def _package(kind: Any) -> str:
    """The top-level package of a class, function or module."""
    name = getattr(kind, "__name__" if isinstance(kind, types.ModuleType) else "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


@functools.cache
def _is_installed(package: str) -> bool:
    """Whether a package was installed beside torch, and is not the user's own file."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _BOILERPLATE


def _slots(owner: type) -> tuple[str, ...]:
    slots = vars(owner).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _read(value: Any, name: str, default: Any = None) -> Any:
    """An attribute; the default where there is none, or where the object's own code for it fails."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def _codes(member: Any) -> Iterator[types.CodeType]:
    """The code of a function, of what wraps one, or of a property."""
    for name in ("fget", "__func__", "func"):
        member = _read(member, name) or member
    code = _read(member, "__code__")
    if isinstance(code, types.CodeType):
        yield code


def _content(cell: Any) -> Any:
    """What a closure's cell holds; the cell itself if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _tensor_content(tensor: Tensor) -> Any:
    """What tells that a tensor was written to: its version, and the bytes of a small one."""
    version = 0 if tensor.is_inference() else tensor._version
    if tensor.layout is not torch.strided:
        return version
    is_small = tensor.is_cpu and tensor.numel() <= SMALL_TENSOR
    content = tensor.reshape(-1).resolve_neg().resolve_conj().view(torch.uint8).numpy().tobytes() if is_small else b""
    return version, tensor.data_ptr(), content


def _buffer_content(buffers: dict[str, Tensor | None], name: str) -> Any:
    tensor = buffers[name]
    return None if tensor is None else _tensor_content(tensor)


@functools.lru_cache(4096)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Names of attributes, globals and imported modules that some code reads, that of its inner functions included.
    Strings count as attributes: `getattr(self, "name")`; so do the operators `is`, unless of a constant, and `in`."""
    attributes, global_names, modules = set(), set(), set()
    before = ""
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname == "CONTAINS_OP" or (instruction.opname == "IS_OP" and before != "LOAD_CONST"):
            attributes.add("in" if instruction.opname == "CONTAINS_OP" else "is")
        before = instruction.opname
        if instruction.opname == "LOAD_GLOBAL":
            global_names.add(name)
        elif instruction.opname in ("IMPORT_NAME", "IMPORT_FROM"):
            (modules if instruction.opname == "IMPORT_NAME" else attributes).add(name)
        elif instruction.opname == "MATCH_CLASS":
            attributes.add("match")
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            attributes.add(name)
    attributes |= {constant for constant in code.co_consts if isinstance(constant, str)}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more = _names(inner)
            attributes, global_names, modules = attributes | more[0], global_names | more[1], modules | more[2]
    return frozenset(attributes), frozenset(global_names), frozenset(modules)
