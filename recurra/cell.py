"""The base class of all cells: named states, parameters, and one step of equations; and the table of registered cells.

A cell declares three things, and nothing about time, batches, directions or devices:

    states = ("h", "c")                         what is carried from one step to the next
    self.f = self.affine("x", "h")              parameters: W h + U x + b, called as self.f(x, h)
    def step(self, x, h, c): ...                the equations; it returns the new states
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from .affine import Affine
from .argument_checks import positive_int, probability
from .draws import Draw, Mask, Noise
from .errors import InputError, OptionError, UnknownNameError
from .extensions import implementation

TIME = "t"
RESERVED = "x", TIME  # arguments of `step` besides states and masks
CACHE = "_cache"  # the attribute of a cell that holds its engine cache
OF_ENGINE = {CACHE, "found_dropouts"}  # attributes that the engine sets


@dataclass(frozen=True)
class State:
    """A state carried between steps: `(B, size)`, or with delays `(B, depth, size)`, newest value first.

    A state may have axes of its own, such as a matrix per head: `step` and the caller of a layer see `(B, *axes)`.
    The engines carry its `size` numbers as one row.
    """

    name: str
    size: int
    delays: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        """The number of past values that are kept."""
        return max(self.delays) if self.delays else 1

    def shape(self, batch: int) -> tuple[int, ...]:
        """The shape of the carried tensor, each value as one row."""
        return (batch, self.depth, self.size) if self.delays else (batch, self.size)

    def full_shape(self, batch: int) -> tuple[int, ...]:
        """The shape of the carried tensor with the state's own axes."""
        return (*self.shape(batch)[:-1], *self.axes) if self.axes else self.shape(batch)

    def with_axes(self, row: Any) -> Any:
        """`(…, size)` → `(…, *axes)`; of a tuple, every tensor."""
        if self.axes is None:
            return row
        return row.unflatten(-1, self.axes) if isinstance(row, Tensor) else tuple(map(self.with_axes, row))

    def as_row(self, value: Any) -> Any:
        """`(…, *axes)` → `(…, size)`; of a tuple, every tensor."""
        if self.axes is None:
            return value
        return value.flatten(-len(self.axes)) if isinstance(value, Tensor) else tuple(map(self.as_row, value))


class _OnClassAndInstance:
    """Descriptor: a method that receives the class or the instance, whichever it is called on."""

    def __init__(self, function: Callable):
        self.function, self.__doc__ = function, function.__doc__

    def __get__(self, instance: object, owner: type) -> Callable:
        return self.function.__get__(owner if instance is None else instance)


class Cell(nn.Module):
    """A recurrent cell: the equations of one time step. Base class of all cells.

    To define a cell, declare its `states`, create its parameters in `__init__`, and write `step`. `rc.Recurrent` runs
    the cell over sequences; gradients, lengths, directions and compiled kernels need nothing more from the cell.

    **Arguments**

    - `input_size`: D, the number of input features.
    - `hidden_size`: H, the number of units, and the size of every state unless `sizes` says otherwise.
    - `sizes`: the sizes of states, by name: a number, or the shape of a state with several axes, such as
      `{"S": (heads, keys, values)}` for a matrix per head.
    - `delays`: for a state, the steps back at which `step` reads it, such as `{"h": (1, 3)}`.
    - `output_size`: the size of the output, by default that of the first state.

    Keyword arguments that a subclass adds to its own `__init__` are options of the layer: `rc.Recurrent(MyCell, 3, 4,
    option=…)`.

    **Returns**, when called as `cell(x, *states)`, what `step` returns, with the cell's modifiers applied.

    **The step** is called as `step(x, *states)`. Rows are sequences: `x` is (B, D), a state (B, size) or (B, *shape); a
    state with delays is a tuple with one tensor per delay. It returns the new states in order, shaped as they came, and
    optionally the output (B, `output_size`) before them; without it, the first state is the output. Keyword-only
    arguments are filled by name: `t`, the time index since the sequence began, (B, 1), a mask declared with
    `self.mask`, or random numbers declared with `self.noise`. The step may call torch's dropout functions and modules,
    whose masks are drawn for every step before the layer runs. It must not branch on values of tensors or on the batch
    size. Its local variables appear by name in traces and in `equations()`.

    **Parameters** are made by `self.affine(...)` for `W h + U x + b`, `self.vector()` for one number per unit, or as
    any `nn.Parameter`. `self.start(...)` sets the state before the first step, which is 0 otherwise.

    **Class attributes** describe the cell to initialisers and modifiers: `keep` and `write` name the affines of the
    gates that keep and overwrite the memory; `candidate` the local variable that is proposed as new memory; `memory`
    the state that is read through a squashing function. `paper` and `year` cite the source.

    **Example**

        >>> import torch, recurra as rc
        >>> class Leaky(rc.Cell):
        ...     def __init__(self, input_size, hidden_size, leak=0.5):
        ...         super().__init__(input_size, hidden_size)
        ...         self.a, self.leak = self.affine("x", "h"), leak
        ...     def step(self, x, h):
        ...         return (1 - self.leak) * h + self.leak * torch.tanh(self.a(x, h))
        >>> layer = rc.Recurrent(Leaky, 3, 4, num_layers=2, leak=0.1)
        >>> y, h = layer(torch.randn(5, 2, 3))
        >>> y.shape, h.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 2, 4]))
    """

    states: ClassVar[tuple[str, ...]] = ("h",)
    paper: ClassVar[str] = ""
    year: ClassVar[int | None] = None
    keep: ClassVar[tuple[str, ...]] = ()
    write: ClassVar[tuple[str, ...]] = ()
    candidate: ClassVar[str | None] = None
    memory: ClassVar[str | None] = None

    parallel = "auto"  # "scan" if its layer asks for a scan over time

    step: Callable[..., Any]
    found_dropouts: Mapping[str, Draw] = {}  # set by the engine, see engine/dropouts.py

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        sizes: Mapping[str, int | Sequence[int]] | None = None,
        delays: Mapping[str, Sequence[int]] | None = None,
        output_size: int | None = None,
    ):
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        states = _state_names(self.states)
        self._check_step()
        sizes, delays = dict(sizes or {}), dict(delays or {})
        for name in (*sizes, *delays):
            if name not in states:
                raise UnknownNameError("state", name, states)
        self.carried = tuple(
            _state(name, sizes.get(name, hidden_size), _delays(delays[name]) if name in delays else None)
            for name in states
        )
        if TIME in self._asks_for():
            self.carried += (State(TIME, 1),)
        self.output_size = output_size or self.carried[0].size
        self.masks: dict[str, Mask | Noise] = {}  # declared, by name
        self.found_dropouts = {}
        self.starts: dict[str, float | str] = {}
        self.modifiers = nn.ModuleList()

    # ------------------------------------------------------------------------------------------ declaring parameters

    def affine(self, *operands: str | int, size: int | None = None, bias: bool = True) -> Affine:
        """`Σ W v + b` over the named operands, (B, size).

        **Arguments**

        - `*operands`: "x", a state, a delayed state such as "h[3]", or the size of any other value.
        - `size`: the number of rows of each weight, by default `hidden_size`.
        - `bias`: whether to add b.

        **Returns** an `Affine`, called with one value per operand. Its weights are `U` (of x), `W` (of a single state)
        and `b`; `U` starts Glorot uniform, `W` orthogonal, `b` zero.

        **Example**

            >>> cell = rc.registry()["rnn"](3, 4)
            >>> cell.affine("x", "h")
            Affine(U x + W h + b)
            >>> cell.affine("x", "h")(torch.zeros(2, 3), torch.zeros(2, 4)).shape
            torch.Size([2, 4])
        """
        widths: dict[str, int] = {}
        shaped = {state.name: state.axes for state in self.carried if state.axes}
        for operand in operands:
            if isinstance(operand, str) and (axes := shaped.get(operand.split("[")[0])):
                raise OptionError("operand", f"{operand!r}, of shape {axes}", "a state with one size, or a number")
        for place, operand in enumerate(operands):
            before = operands[:place].count(operand)  # the second of two equal sizes is called "5_2"
            widths[f"{operand}_{before + 1}" if before else str(operand)] = self._width(operand)
        return Affine(widths, self.hidden_size if size is None else positive_int("size", size), bias)

    def vector(self, size: int | None = None, fill: float = 0.0) -> nn.Parameter:
        """A parameter with one number per unit, (size,), filled with `fill`: a peephole, a time constant, a gain."""
        return nn.Parameter(torch.full((self.hidden_size if size is None else positive_int("size", size),), fill))

    def mask(self, name: str, size: str | int, rate: float, each: str = "sequence") -> None:
        """Declare a dropout mask (B, size), which `step` receives as the keyword-only argument `name`.

        `size` is a number, "x" or a state; `each` is "sequence" or "step": how often the mask is drawn.
        """
        probability(f"rate of {name}", rate)
        if each not in ("sequence", "step"):
            raise InputError("each", each, "'sequence' or 'step'")
        self._declare(name, Mask(self._width(size), rate, each))

    def noise(self, name: str, size: str | int, distribution: str = "normal") -> None:
        """Declare random numbers (B, size), which `step` receives as the keyword-only argument `name`.

        For sampling inside a step: exploration, noisy rate networks, categorical latents by the Gumbel-max trick.
        The numbers are drawn anew for every step and sequence by torch's global generator, so `torch.manual_seed` sets
        them. No gradient flows to them.

        **Arguments**

        - `name`: the keyword-only argument of `step`.
        - `size`: a number, "x" or a state.
        - `distribution`: "normal" (mean 0, variance 1), or "uniform" (0 ≤ u < 1).

        **When they are drawn.** Noise is part of the model: it is drawn in training and in evaluation. A step that
        wants it in training only multiplies it by `float(self.training)`. A call draws all steps at once, before it
        runs; that holds T · B · size numbers. They depend on the state of the generator, on the shape, dtype and device
        of x, and on nothing else: every engine, with or without gradients, lengths, resets and checkpoints, computes
        with the same numbers. TorchInductor draws others, as it does for dropout. Layers and directions draw in order,
        each its own; the backward direction reads them from the end of the sequence. On the CPU, a layer with one cell
        and one uniform noise draws the same numbers for a sequence in pieces, or by `layer.step`, as in one call;
        nothing else is promised across calls of other shapes. Fixed points, exponents and other measures of the
        dynamics hold the noise at its mean.

        **Example**

            >>> class Noisy(rc.Cell):
            ...     def __init__(self, input_size, hidden_size):
            ...         super().__init__(input_size, hidden_size)
            ...         self.a = self.affine("x", "h")
            ...         self.noise("n", "h")
            ...     def step(self, x, h, *, n):
            ...         return torch.tanh(self.a(x, h) + 0.1 * n)
            >>> layer, x = rc.Recurrent(Noisy, 3, 4), torch.zeros(5, 2, 3)
            >>> torch.equal(layer(x)[0], layer(x)[0])
            False
        """
        if distribution not in ("normal", "uniform"):
            raise InputError("distribution", repr(distribution), "'normal' or 'uniform'")
        self._declare(
            name, Noise(positive_int("size", self._width(size) if isinstance(size, str) else size), distribution)
        )

    def _declare(self, name: str, drawn: Mask | Noise) -> None:
        if name in (*self.masks, *self.states, *RESERVED):
            raise OptionError(type(drawn).__name__.lower(), name, "a name not used before")
        self.masks[name] = drawn

    def start(self, state: str, value: float | str) -> None:
        """Set a state before the first step: to a number, or to the parameter with this path (default 0)."""
        self.starts[state] = value

    def learn_start(self) -> None:
        """Make the states before the first step parameters, `<state>_0`, with their present values."""
        for state in self.carried:
            if state.name != TIME and not isinstance(self.starts.get(state.name), str):
                name = f"{state.name}_0"
                if "." in name or hasattr(self, name):
                    expected = f"a cell whose start of {state.name!r} can be called {name!r}: no other attribute is"
                    raise OptionError("initial", "'learned'", expected)
                value = torch.full(state.full_shape(1)[1:], float(self.starts.get(state.name, 0.0)))
                self.register_parameter(name, nn.Parameter(value))
                self.start(state.name, name)

    def _width(self, operand: str | int) -> int:
        if not isinstance(operand, str):
            return positive_int("operand", operand)
        name = operand.split("[")[0]
        widths = {"x": self.input_size} | {state.name: state.size for state in self.carried}
        if name not in widths:
            raise UnknownNameError("operand", operand, widths)
        return widths[name]

    # ------------------------------------------------------------------------------------------ read by the engines

    def initial_state(self, batch: int, like: Tensor) -> tuple[Tensor, ...]:
        """The carried states before the first step, in `like`'s dtype and on its device."""
        return tuple(self._initial(state, batch, like) for state in self.carried)

    def _initial(self, state: State, batch: int, like: Tensor) -> Tensor:
        start = self.starts.get(state.name, 0.0)
        if isinstance(start, str):
            return state.as_row(attrgetter(start)(self).to(like.dtype).expand(state.full_shape(batch)))
        return like.new_full(state.shape(batch), start)

    def drawn_inputs(self) -> dict[str, Draw]:
        """What is declared as drawn, and the dropout calls found in `step` when it was last traced, by name."""
        return {**self.masks, **self.found_dropouts}

    def draw_masks(self, steps: int, batch: int, like: Tensor) -> dict[str, Tensor]:
        """The masks and noise of one call, by name, in `like`'s dtype and on its device."""
        return {name: mask.draw(steps, batch, like, self.training) for name, mask in self.drawn_inputs().items()}

    def mean_masks(self, batch: int, like: Tensor) -> dict[str, Tensor]:
        """The masks and noise of one step at their mean, (B, size) each: the cell as a deterministic system."""
        return {name: like.new_full((batch, mask.size), mask.mean) for name, mask in self.drawn_inputs().items()}

    def weights(self) -> dict[str, Tensor]:
        """Every tensor that `step` may read, by dotted name; a derived weight replaces what it is derived from."""
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
        """The derived weights, by dotted name."""
        named = ((path, module) for path, module in self.named_modules() if isinstance(module, Affine))
        return {f"{path}.{name}": getattr(module, name) for path, module in named for name in module.derivations}

    def affines(self) -> Iterator[Affine]:
        """Every affine inside the cell."""
        return (module for module in self.modules() if isinstance(module, Affine))

    def recurrent_matrices(self) -> list[Tensor]:
        """The square matrices that multiply a state, one per head; for a derived matrix, the stored parameter."""
        raw = [affine.stored(name) for affine in self.affines() for name in affine.recurrent()]
        blocks = [block for matrix in raw for block in (matrix.unbind(0) if matrix.dim() == 3 else (matrix,))]
        return [matrix for matrix in blocks if matrix.shape[0] == matrix.shape[1]]

    def drop_biases(self) -> None:
        """Remove the bias of every affine, as `bias=False` does in torch.nn."""
        for affine in self.affines():
            affine.drop_bias()

    def check_draws(self) -> None:
        """Raise an OptionError unless the keyword-only arguments of `step` are `t` and what is declared as drawn.

        One with a default may be left undeclared: an option of the cell may decide whether it draws.
        """
        asked = {*self._asks_for()} - {TIME}
        expected = "t, or a name declared with self.mask or self.noise"
        for name in sorted(asked - {*self.masks} - {*self._asks_for(optional=True)}):
            raise OptionError(f"{type(self).__name__}.step", f"the keyword-only argument {name}", expected)
        for name in sorted({*self.masks} - asked):
            declared = type(self.masks[name]).__name__.lower()
            raise OptionError(declared, repr(name), f"a keyword-only argument of {type(self).__name__}.step")

    def keyword_inputs(self) -> list[str]:
        """The keyword-only arguments that `step` is given: `t` if it asks for it, and what is declared as drawn."""
        absent = {*self._asks_for(optional=True)} - {*self.masks}
        return [name for name in self._asks_for() if name == TIME or name not in absent]

    @classmethod
    def _check_step(cls) -> None:
        """Raise an error unless `step` is there and takes x and every state."""
        step, states = getattr(cls, "step", None), ", ".join(("x", *cls.states))
        if not callable(step):
            raise OptionError(f"{cls.__name__}.step", "no such method", f"def step(self, {states})")
        try:
            inspect.signature(step).bind_partial(None, "x", *cls.states)
        except TypeError:
            got = f"step{inspect.signature(step)}"
            raise OptionError(f"{cls.__name__}.step", got, f"def step(self, {states}), an argument a state") from None

    @classmethod
    def _asks_for(cls, optional: bool = False) -> tuple[str, ...]:
        """Names of the keyword-only arguments of `step`, all or those with a default."""
        parameters = [p for p in inspect.signature(cls.step).parameters.values() if p.kind is p.KEYWORD_ONLY]
        return tuple(p.name for p in parameters if not optional or p.default is not p.empty)

    def __getstate__(self) -> dict[str, Any]:
        """What goes into copies and files: not what the engine has derived from this cell."""
        return {name: value for name, value in self.__dict__.items() if name != CACHE}

    # ------------------------------------------------------------------------------------------ conveniences

    def forward(self, x: Tensor, *states: Any, **extras: Tensor) -> Any:
        """`step`, with the cell's modifiers applied."""
        if not self.modifiers:
            return self.step(x, *states, **extras)
        specs = [state for state in self.carried if state.name != TIME]
        rows = [spec.as_row(state) for spec, state in zip(specs, states, strict=True)]
        output, *new = implementation("bind_step")(self)(x, rows, extras)[0]
        return (output, *(spec.with_axes(row) for spec, row in zip(specs, new, strict=True)))

    @_OnClassAndInstance
    def equations(self_or_class) -> str:
        """The cell's equations as LaTeX, one `aligned` block, printed from the traced `step`. The class has it, too.

        stop(a) is a, through which no gradient flows (`a.detach()`).
        """
        cell = self_or_class if isinstance(self_or_class, Cell) else self_or_class(3, 4)
        return implementation("equations")(cell)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


def _state_names(states: Any) -> tuple[str, ...]:
    """The names of the states of a class, if they are different identifiers."""
    named = isinstance(states, (tuple, list)) and all(isinstance(name, str) for name in states)
    if not named or not states or len(set(states)) < len(states):
        raise InputError("states", repr(states), 'a tuple of different names, such as ("h", "c")')
    for name in states:
        if name in RESERVED:
            raise OptionError("states", repr(name), "other names: x is the input, t the time")
    return tuple(states)


def _state(name: str, size: Any, delays: tuple[int, ...] | None) -> State:
    """A state from its size, which is a number or a shape."""
    if not isinstance(size, (tuple, list)):
        return State(name, positive_int(name, size), delays)
    if not size:
        raise InputError(name, repr(size), "a size, or a tuple of sizes")
    axes = tuple(positive_int(name, axis) for axis in size)
    return State(name, math.prod(axes), delays, axes)


def _delays(delays: Sequence[int]) -> tuple[int, ...]:
    if not delays or not all(isinstance(k, int) and k >= 1 for k in delays) or len(set(delays)) != len(delays):
        raise InputError("delays", tuple(delays), "different whole numbers of at least 1")
    return tuple(delays)


# ---------------------------------------------------------------------------------------------------- the registry

REGISTRY: dict[str, type[Cell]] = {}  # name → class, filled by `register`; `recurra/cells` looks names up
_C = TypeVar("_C", bound=type[Cell])


def register(*names: str) -> Callable[[_C], _C]:
    """Class decorator: register a cell under one or more names, for `rc.layer`, estimators and the command line.

    **Arguments**

    - `*names`: names that are not in `rc.registry()` yet.

    **Returns** a decorator that returns the class unchanged.

    **Example**

        >>> import torch, recurra as rc
        >>> @rc.register("decay")
        ... class Decay(rc.Cell):
        ...     def __init__(self, input_size, hidden_size):
        ...         super().__init__(input_size, hidden_size)
        ...         self.a = self.affine("x")
        ...     def step(self, x, h):
        ...         return 0.9 * h + self.a(x)
        >>> rc.layer("decay", 3, 4)(torch.ones(5, 2, 3))[0].shape
        torch.Size([5, 2, 4])
    """

    def decorate(cell_class: _C) -> _C:
        if not (isinstance(cell_class, type) and issubclass(cell_class, Cell)):
            raise InputError("cell", repr(cell_class), "a subclass of rc.Cell")
        for name in names:
            if not isinstance(name, str) or not name:
                raise InputError("name", repr(name), "a text that is not empty")
            if name in REGISTRY:
                raise InputError("name", repr(name), f"a new name; {REGISTRY[name].__name__} has this one")
            REGISTRY[name] = cell_class
        return cell_class

    return decorate
