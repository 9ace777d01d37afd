"""What a cell is: named states, parameters, one step of equations; and the registry of all cells.

A cell says three things, and nothing about time, batches, directions or devices:

    states = ("h", "c")                         what is carried from one step to the next
    self.f = self.affine("x", "h")              parameters: W h + U x + b, called as self.f(x, h)
    def step(self, x, h, c): ...                the equations; it returns the new states

Rules of `step`: rows are sequences, so it sees `(B, size)`. It returns the new states in order; one value more in front
of them is the output (otherwise the first state is). A state declared with delays arrives as a tuple, one entry each.
Keyword-only arguments ask for more: `t`, the time index since the sequence began, or the name of a declared mask.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import init
from .errors import InputError, OptionError, UnknownNameError
from .extensions import implementation

TIME = "t"
RESERVED = "x", TIME  # what a step is given beside states and masks
KNOWN = "_known"  # the attribute of a cell where the engine keeps what it knows of it


@dataclass(frozen=True)
class State:
    """A carried quantity: `(B, size)`, or its last `depth` values `(B, depth, size)`, newest first, if delayed."""

    name: str
    size: int
    delays: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        return max(self.delays) if self.delays else 1

    def shape(self, batch: int) -> tuple[int, ...]:
        return (batch, self.depth, self.size) if self.delays else (batch, self.size)


@dataclass(frozen=True)
class Mask:
    """An inverted-dropout mask with mean 1: drawn in training, all ones in evaluation."""

    size: int
    rate: float
    each: str = "sequence"  # or "step"

    def draw(self, steps: int, batch: int, like: Tensor, training: bool) -> Tensor:
        shape = (steps, batch, self.size) if self.each == "step" else (batch, self.size)
        ones = like.new_ones(())
        if not training or self.rate == 0.0:
            return ones.expand(shape)
        if self.rate == 1.0:  # 1 / (1 - rate) has no value; everything is dropped
            return torch.zeros_like(ones).expand(shape)
        kept = torch.full(shape, 1.0 - self.rate, dtype=like.dtype, device=like.device).bernoulli()
        return kept / (1.0 - self.rate)


class Regulariser(nn.Module):
    """A derivation that is no part of the cell's equations, such as a weight with entries dropped."""


class Affine(nn.Module):
    """`W h + U x + b` over any operands: the weight of "x" is `U`, that of a lone state `W`, else `W_<state>`."""

    U: nn.Parameter
    W: nn.Parameter
    b: Any  # a parameter, or None

    def __init__(self, operands: Mapping[str, int], size: int, bias: bool):
        super().__init__()
        self.operands = dict(zip(_weight_names(tuple(operands)), operands, strict=True))  # weight name → operand name
        for name, width in zip(self.operands, operands.values(), strict=True):
            weight = nn.Parameter(torch.empty(size, width))
            init.glorot_(weight) if name == "U" else init.orthogonal_(weight)
            self.register_parameter(name, weight)
        self.register_parameter("b", nn.Parameter(torch.zeros(size)) if bias else None)

    def forward(self, *values: Tensor) -> Tensor:
        products = zip(values, (getattr(self, name) for name in self.operands), strict=True)
        total = F.linear(*next(products), self.b)
        for value, weight in products:
            total = total + F.linear(value, weight)
        return total

    def derive(self, name: str, derivation: nn.Module, raw: nn.Parameter | None = None) -> None:
        """From now on tensor `name` is `derivation(name_raw)`, computed once a call, outside the time loop.

        torch.nn.utils.parametrize does the same with a class property, which no functional call can replace;
        here the engines bind the derived tensor over the attribute for the length of a call.
        """
        if name not in self.derivations:
            raw = getattr(self, name) if raw is None else raw
            delattr(self, name)
            self.register_parameter(f"{name}_raw", raw)
            self._modules.setdefault("derivations", nn.ModuleDict())[name] = nn.Sequential()  # pyrefly: ignore
        self.derivations[name].append(derivation)  # pyrefly: ignore

    @property
    def derivations(self) -> Mapping[str, nn.Module]:
        """Tensor → how it is derived. Most affines derive none, and have no module that every walk would visit."""
        return self.__dict__.get("_modules", {}).get("derivations", {})

    def __getattr__(self, name: str) -> Any:
        if name in (derivations := self.derivations):
            return derivations[name](getattr(self, f"{name}_raw"))
        return super().__getattr__(name)

    def stored(self, name: str) -> nn.Parameter:
        """The parameter behind a weight: the weight itself, or what it is derived from."""
        return getattr(self, f"{name}_raw" if name in self.derivations else name)

    def drop_bias(self) -> None:
        if "b" in self.derivations:
            del self._modules["derivations"]["b"], self.b_raw  # pyrefly: ignore
        self.register_parameter("b", None)

    def recurrent(self) -> tuple[str, ...]:
        """Names of the weights that multiply something other than x."""
        return tuple(name for name, operand in self.operands.items() if operand != "x")

    def __repr__(self) -> str:
        """One line: what is added up."""
        terms = [f"{weight} {operand}" for weight, operand in self.operands.items()]
        return f"Affine({' + '.join(terms if self.b is None else [*terms, 'b'])})"


def _weight_names(operands: tuple[str, ...]) -> tuple[str, ...]:
    states = [name for name in operands if name != "x"]
    return tuple("U" if name == "x" else "W" if len(states) == 1 else f"W_{_plain(name)}" for name in operands)


def _plain(operand: str) -> str:
    """`h[3]` → `3`: a weight of a delayed state is named after the delay."""
    return operand.split("[")[1].rstrip("]") if "[" in operand else operand


class _OnClassAndInstance:
    """A method that takes the class or the instance, whichever it was looked up on."""

    def __init__(self, function: Callable):
        self.function, self.__doc__ = function, function.__doc__

    def __get__(self, instance: object, owner: type) -> Callable:
        return self.function.__get__(owner if instance is None else instance)


class Cell(nn.Module):
    """One recurrent cell. Subclass it, declare parameters in `__init__`, and write `step`."""

    states: ClassVar[tuple[str, ...]] = ("h",)
    paper: ClassVar[str] = ""
    year: ClassVar[int | None] = None
    keep: ClassVar[tuple[str, ...]] = ()  # affines whose gate, when open, keeps the memory
    write: ClassVar[tuple[str, ...]] = ()  # affines whose gate, when open, overwrites the memory
    candidate: ClassVar[str | None] = None  # the named value a step proposes as new memory
    memory: ClassVar[str | None] = None  # the state that is read through a squashing function

    step: Callable[..., Any]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        sizes: Mapping[str, int] | None = None,
        delays: Mapping[str, Sequence[int]] | None = None,
        output_size: int | None = None,
    ):
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        for name in self.states:
            if name in RESERVED:
                raise OptionError("states", repr(name), "other names: x is the input, t the time")
        sizes, delays = dict(sizes or {}), dict(delays or {})
        for name in (*sizes, *delays):
            if name not in self.states:
                raise UnknownNameError("state", name, self.states)
        self.carried = tuple(
            State(
                name,
                positive_int(name, sizes.get(name, hidden_size)),
                _delays(delays[name]) if name in delays else None,
            )
            for name in self.states
        )
        if TIME in self._asks_for():
            self.carried += (State(TIME, 1),)
        self.output_size = output_size or self.carried[0].size
        self.masks: dict[str, Mask] = {}
        self.starts: dict[str, float | str] = {}
        self.modifiers = nn.ModuleList()

    # ------------------------------------------------------------------------------------------ declaring parameters

    def affine(self, *operands: str | int, size: int | None = None, bias: bool = True) -> Affine:
        """`Σ W v + b` over the operands named: "x", a state, a delayed state "h[3]", or a plain size."""
        widths: dict[str, int] = {}
        for place, operand in enumerate(operands):
            before = operands[:place].count(operand)  # of two plain sizes that are equal, the second is "5_2"
            widths[f"{operand}_{before + 1}" if before else str(operand)] = self._width(operand)
        return Affine(widths, size or self.hidden_size, bias)

    def vector(self, size: int | None = None, fill: float = 0.0) -> nn.Parameter:
        """A parameter with one number a unit: a peephole, a time constant, a gain."""
        return nn.Parameter(torch.full((size or self.hidden_size,), fill))

    def mask(self, name: str, size: str | int, rate: float, each: str = "sequence") -> None:
        """Ask for a dropout mask as a keyword-only argument of `step`, drawn once a sequence or once a step."""
        if not 0.0 <= rate <= 1.0:
            raise InputError(name, rate, "a rate between 0 and 1")
        if each not in ("sequence", "step"):
            raise InputError("each", each, "'sequence' or 'step'")
        if name in (*self.masks, *self.states, *RESERVED):
            raise OptionError("mask", name, "a name not used before")
        self.masks[name] = Mask(self._width(size), rate, each)

    def start(self, state: str, value: float | str) -> None:
        """The state before the first step: a number, or the name of the parameter that holds it (default 0)."""
        self.starts[state] = value

    def learn_start(self) -> None:
        """Make the state before the first step a parameter, `<state>_0`, starting where the state started before."""
        for state in self.carried:
            if state.name != TIME and not isinstance(self.starts.get(state.name), str):
                value = torch.full(state.shape(1)[1:], float(self.starts.get(state.name, 0.0)))
                self.register_parameter(f"{state.name}_0", nn.Parameter(value))
                self.start(state.name, f"{state.name}_0")

    def _width(self, operand: str | int) -> int:
        if isinstance(operand, int):
            return operand
        name = operand.split("[")[0]
        widths = {"x": self.input_size} | {state.name: state.size for state in self.carried}
        if name not in widths:
            raise UnknownNameError("operand", operand, widths)
        return widths[name]

    # ------------------------------------------------------------------------------------------ what the engines ask

    def initial_state(self, batch: int, like: Tensor) -> tuple[Tensor, ...]:
        """The carried states before the first step, in `like`'s dtype and on its device."""
        return tuple(self._initial(state, batch, like) for state in self.carried)

    def _initial(self, state: State, batch: int, like: Tensor) -> Tensor:
        start = self.starts.get(state.name, 0.0)
        if isinstance(start, str):
            return getattr(self, start).to(like.dtype).expand(state.shape(batch))
        return like.new_full(state.shape(batch), start)

    def draw_masks(self, steps: int, batch: int, like: Tensor) -> dict[str, Tensor]:
        return {name: mask.draw(steps, batch, like, self.training) for name, mask in self.masks.items()}

    def weights(self) -> dict[str, Tensor]:
        """Every tensor `step` may read, by dotted name; derived weights stand in for what they derive from."""
        found: dict[str, Tensor] = {}
        for path, module in self.named_modules():
            derived = tuple(module.derivations) if isinstance(module, Affine) else ()
            hidden = {f"{name}_raw" for name in derived}
            own = [n for n, p in (*module._parameters.items(), *module._buffers.items()) if p is not None]
            if ".derivations." not in f".{path}.":
                for name in (*(n for n in own if n not in hidden), *derived):
                    found[f"{path}.{name}" if path else name] = getattr(module, name)
        return found

    def derived(self) -> dict[str, Tensor]:
        """The weights that are computed from others, by dotted name."""
        named = ((path, module) for path, module in self.named_modules() if isinstance(module, Affine))
        return {f"{path}.{name}": getattr(module, name) for path, module in named for name in module.derivations}

    def affines(self) -> Iterator[Affine]:
        return (module for module in self.modules() if isinstance(module, Affine))

    def recurrent_matrices(self) -> list[Tensor]:
        """The square matrices that multiply a state (their generators, where a matrix is derived; each head's own)."""
        raw = [affine.stored(name) for affine in self.affines() for name in affine.recurrent()]
        blocks = [block for matrix in raw for block in (matrix.unbind(0) if matrix.dim() == 3 else (matrix,))]
        return [matrix for matrix in blocks if matrix.shape[0] == matrix.shape[1]]

    def drop_biases(self) -> None:
        """Remove the bias of every affine: torch.nn's `bias=False`, for any cell."""
        for affine in self.affines():
            affine.drop_bias()

    @classmethod
    def _asks_for(cls) -> tuple[str, ...]:
        """Names of the keyword-only arguments of `step`."""
        parameters = inspect.signature(cls.step).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def __getstate__(self) -> dict[str, Any]:
        """What goes into copies and files: not what the engine knows of this cell."""
        return {name: value for name, value in self.__dict__.items() if name != KNOWN}

    # ------------------------------------------------------------------------------------------ conveniences

    def forward(self, x: Tensor, *states: Any, **extras: Tensor) -> Any:
        """`step`, with the cell's modifiers applied."""
        if not self.modifiers:
            return self.step(x, *states, **extras)
        return implementation("bind_step")(self)(x, states, extras)[0]

    @_OnClassAndInstance
    def equations(self_or_class) -> str:
        """The cell's equations as LaTeX, derived from `step` itself."""
        cell = self_or_class if isinstance(self_or_class, Cell) else self_or_class(3, 4)
        return implementation("equations")(cell)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


def positive_int(argument: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(argument, value, "a whole number of at least 1")
    return value


def _delays(delays: Sequence[int]) -> tuple[int, ...]:
    if not delays or any(k < 1 for k in delays) or len(set(delays)) != len(delays):
        raise InputError("delays", tuple(delays), "different whole numbers of at least 1")
    return tuple(delays)


# ---------------------------------------------------------------------------------------------------- the registry

REGISTRY: dict[str, type[Cell]] = {}  # name → class; `recurra/cells/__init__.py` fills it and looks names up
_C = TypeVar("_C", bound=type[Cell])


def register(*names: str) -> Callable[[_C], _C]:
    """Class decorator: make a cell known under one or more names."""

    def decorate(cell_class: _C) -> _C:
        for name in names:
            if name in REGISTRY:
                raise InputError("name", repr(name), f"a name not taken yet; it is {REGISTRY[name].__name__}'s")
            REGISTRY[name] = cell_class
        return cell_class

    return decorate
