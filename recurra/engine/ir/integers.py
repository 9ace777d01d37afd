"""Ranges of the integers of a step. Rows hold floating-point numbers: an integer must fit into them exactly.

An interval per integer value tells which results are exact. Arithmetic that may leave the integers that a row holds
exactly, or those of torch's dtype, where torch wraps around, is refused; the plain loop runs it.
"""

import operator
from collections.abc import Callable
from math import inf, prod
from typing import Any

import torch
from torch import Tensor, fx

from .ops_view import INDEXED, MOVES, SIZED, VIEWS
from .values import Unsupported

Range = tuple[float, float]


def _corners(function: Callable[[float, float], float]) -> Callable[..., Range]:
    def found(a: Range, b: Range, **_: Any) -> Range:
        values = [function(x, y) for x in a for y in b]
        return min(values), max(values)

    return found


def _add(a: Range, b: Range, alpha: float = 1) -> Range:
    low, high = sorted((b[0] * alpha, b[1] * alpha))
    return a[0] + low, a[1] + high


def _sub(a: Range, b: Range, alpha: float = 1) -> Range:
    return _add(a, b, -alpha)


def _hull(*ranges: Range) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _abs(a: Range) -> Range:
    return 0, max(abs(a[0]), abs(a[1]))


def _power(a: Range, exponent: Range) -> Range:
    if exponent[0] < 0:
        raise Unsupported("an integer to a negative power")
    most = max(abs(a[0]), abs(a[1]), 1) ** exponent[1]
    return (0 if a[0] >= 0 else -most), most


def _quotient(a: Range, b: Range) -> Range:
    """torch raises an error for a divisor of zero."""
    if b[0] <= 0 <= b[1]:
        raise Unsupported("an integer division by what may be zero")
    return -_abs(a)[1], _abs(a)[1]


def _remainder(a: Range, b: Range) -> Range:
    return _quotient(b, b)


def _clamp(a: Range, low: Range = (-inf, inf), high: Range = (-inf, inf), **more: Range) -> Range:
    """A missing bound comes as all numbers."""
    low, high = more.get("min", low), more.get("max", high)
    at_least = max(a[0], low[0]), (max(a[1], low[1]) if low[1] < inf else a[1])
    return (min(at_least[0], high[0]) if high[0] > -inf else at_least[0]), min(at_least[1], high[1])


# By the name of the torch operation.
RANGES: dict[str, Callable[..., Range]] = {
    "add": _add,
    "sub": _sub,
    "rsub": lambda a, b, alpha=1: _sub(b, a, alpha),
    "mul": _corners(lambda x, y: x * y),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": _abs,
    "square": lambda a: _power(a, (2, 2)),
    "pow": _power,
    "maximum": _corners(max),
    "minimum": _corners(min),
    "clamp": _clamp,
    "clamp_min": _corners(max),
    "clamp_max": _corners(min),
    "relu": lambda a: (max(a[0], 0), max(a[1], 0)),
    "sign": lambda a: (-1, 1),
    "sgn": lambda a: (-1, 1),
    "div": _quotient,
    "floor_divide": _quotient,
    "remainder": _remainder,
    "fmod": _remainder,
    "where": lambda condition, a, b: _hull(a, b),
    "masked_fill": lambda a, mask, value: _hull(a, value),
}
# Results are numbers of the operands, up to the sign: exact if those are.
CHOICES = {"neg", "abs", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "relu", "where", "masked_fill"}
PASSED_ON = {"clone", "alias", "detach", "amax", "amin", "copy", "fill"}
FILLS = {"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "ones": 1.0, "ones_like": 1.0, "new_ones": 1.0}


class IntegerRanges:
    """The range of every integer value of a step that rows hold exactly; None stands for any size."""

    def __init__(self, dtype: torch.dtype):
        self.exact = 2.0**53 if dtype == torch.float64 else 2.0**24
        self.known: dict[fx.Node, Range | None] = {}

    def add_constant(self, node: fx.Node, value: Any) -> None:
        """A value that depends on no weight: it is the same at every call."""
        if is_integer(value) and value.numel() and float(value.abs().max()) <= self.exact:
            self.known[node] = float(value.min()), float(value.max())

    def check(self, node: fx.Node) -> None:
        """Note the range of a result. Raises `Unsupported` if a row may not hold it exactly."""
        result = node.meta.get("val")
        if not isinstance(result, Tensor) or result.is_floating_point() or result.is_complex():
            return
        if node.target is operator.getitem:
            self.known[node] = self._part(node)
            return
        ints = [a for a in node.all_input_nodes if is_integer(a.meta.get("val"))]
        numbers = [] if _moves(node) else [a for a in node.args if isinstance(a, int)]
        if ints and not (all(map(self._is_exact, ints)) and all(abs(n) <= self.exact for n in numbers)):
            raise Unsupported(f"{node.target} of integers that a row may not hold exactly")
        if result.dtype is not torch.bool:
            self.known[node] = self._result(node, result.dtype, ints)

    def _result(self, node: fx.Node, dtype: torch.dtype, ints: list[fx.Node]) -> Range | None:
        name, limits = _name(node.target), torch.iinfo(dtype)
        source: Any = node.all_input_nodes[0] if node.all_input_nodes else None
        if name == "_to_copy" and source.meta["val"].is_floating_point() and dtype in (torch.int32, torch.int64):
            return None
        low, high = self._bounds(node, name, ints, source)
        if max(limits.min, -self.exact) <= low and high <= min(limits.max, self.exact):
            return low, high
        if name in CHOICES or _moves(node) or (name == "_to_copy" and limits.min <= low and high <= limits.max):
            return None
        raise Unsupported(f"{node.target} of {dtype}, whose results a row may not hold exactly")

    def _bounds(self, node: fx.Node, name: str, ints: list[fx.Node], source: Any) -> Range:
        if name in FILLS or name in ("full", "full_like", "new_full", "scalar_tensor"):
            return self._range(FILLS.get(name, node.args[-1]))
        if name in ("sum", "cumsum"):
            return _corners(lambda x, y: x * y)(self._range(source), (1.0, _width(source)))
        if name == "_to_copy":
            return (-inf, inf) if source.meta["val"].is_floating_point() else self._range(source)
        if not ints and name not in RANGES:  # positions in a row: argmax, sort
            if not isinstance(source.meta.get("val"), Tensor):  # of sequences: arange(batch size)
                raise Unsupported(f"{node.target} of integers")
            return 0.0, _width(source)
        if _moves(node):
            return _hull((0.0, 0.0), *map(self._range, ints))  # padding is zero
        if name not in RANGES:
            raise Unsupported(f"{node.target} of integers")
        more = {
            k: v if k == "alpha" else self._range(v) for k, v in node.kwargs.items() if k in ("alpha", "min", "max")
        }
        return RANGES[name](*map(self._range, node.args), **more)  # pyrefly: ignore

    def _part(self, node: fx.Node) -> Range | None:
        """A part of what an operation with several results gives: sort's positions come second."""
        whole: Any = node.args[0]
        source = whole.all_input_nodes[0]
        if isinstance(whole.meta["val"], list) or (node.args[1] == 0 and is_integer(source.meta["val"])):
            if source not in self.known:
                raise Unsupported(f"{whole.target} of integers that a row may not hold exactly")
            return self.known[source]
        return 0.0, _width(source)

    def _is_exact(self, node: fx.Node) -> bool:
        """A weight of many bits may hold any integer."""
        return node in self.known or node.meta["val"].dtype.itemsize < 4

    def _range(self, argument: Any) -> Range:
        if isinstance(argument, fx.Node):
            dtype = argument.meta["val"].dtype
            limits = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
            return self.known.get(argument) or (float(limits[0]), float(limits[1]))
        return (-inf, inf) if argument is None else (float(argument), float(argument))


def is_integer(value: Any) -> bool:
    """Whether it is a tensor of integers; booleans are none."""
    return isinstance(value, Tensor) and not value.is_floating_point() and value.dtype is not torch.bool


def _moves(node: fx.Node) -> bool:
    """Whether the numbers of the result are those of the operands, in other places."""
    return node.target in {*SIZED, *INDEXED, *VIEWS, *MOVES} or _name(node.target) in PASSED_ON


def _name(target: Any) -> str:
    return target._schema.name.split("::")[1] if isinstance(target, torch._ops.OpOverload) else target.__name__


def _width(node: fx.Node) -> float:
    """At least the number of elements that a reduction combines."""
    return float(prod(node.meta["val"].shape[1:]) or 1)
