"""The operations of a planned step as ONNX operations, one table row each: (graph, argument names, attr) → name."""

from collections.abc import Callable
from math import log, pi
from typing import Any

from .graph import KINDS, Graph

Render = Callable[[Graph, list[str], Any], str]


def _op(name: str) -> Render:
    return lambda graph, args, attr: graph.add(name, *args)


def as_bool(graph: Graph, value: str) -> str:
    """A number as a truth value."""
    return graph.add("Cast", value, to=graph.proto.BOOL)


def as_number(graph: Graph, value: str) -> str:
    return graph.add("Cast", value, to=getattr(graph.proto, KINDS[graph.dtype]))


def _compare(name: str) -> Render:
    return lambda graph, args, attr: as_number(graph, graph.add(name, *args))


def _unequal(graph: Graph, args: list[str], attr: Any) -> str:
    return as_number(graph, graph.add("Not", graph.add("Equal", *args)))


def _logical(name: str) -> Render:
    return lambda graph, args, attr: as_number(graph, graph.add(name, *(as_bool(graph, a) for a in args)))


def _where(graph: Graph, args: list[str], attr: Any) -> str:
    return graph.add("Where", as_bool(graph, args[0]), args[1], args[2])


def _clamp(graph: Graph, args: list[str], attr: Any) -> str:
    low, high = attr
    value = args[0] if low is None else graph.add("Max", args[0], graph.number(low))
    return value if high is None else graph.add("Min", value, graph.number(high))


def _expm1(graph: Graph, args: list[str], attr: Any) -> str:
    """`tanh(x / 2) · (eˣ + 1)`: accurate near zero, unlike `eˣ - 1`."""
    half = graph.add("Tanh", graph.add("Mul", args[0], graph.number(0.5)))
    return graph.add("Mul", half, graph.add("Add", graph.add("Exp", args[0]), graph.number(1.0)))


def _log1p(graph: Graph, args: list[str], attr: Any) -> str:
    """`x · log(u) / (u - 1)` with u = 1 + x as it is rounded: the rounding of u cancels (Kahan)."""
    one, x = graph.number(1.0), args[0]
    u = graph.add("Add", x, one)
    ratio = graph.add("Div", graph.add("Log", u), graph.add("Sub", u, one))
    small = graph.add("Equal", u, one)
    return graph.add("Where", small, x, graph.add("Mul", x, ratio))


def _softplus(graph: Graph, args: list[str], attr: Any) -> str:
    """`max(x, 0) + log(1 + e^-|x|)`, which does not overflow."""
    small = graph.add("Exp", graph.add("Neg", graph.add("Abs", args[0])))
    return graph.add("Add", graph.add("Max", args[0], graph.number(0.0)), _log1p(graph, [small], None))


def _rsqrt(graph: Graph, args: list[str], attr: Any) -> str:
    return graph.add("Reciprocal", graph.add("Sqrt", args[0]))


def _fmod(graph: Graph, args: list[str], attr: Any) -> str:
    return graph.add("Mod", *args, fmod=1)


def _scaled(name: str, factor: float, before: bool) -> Render:
    """An operation on `factor · x`, or `factor` times the operation."""

    def render(graph: Graph, args: list[str], attr: Any) -> str:
        if before:
            return graph.add(name, graph.add("Mul", args[0], graph.number(factor)))
        return graph.add("Mul", graph.add(name, args[0]), graph.number(factor))

    return render


def _erfc(graph: Graph, args: list[str], attr: Any) -> str:
    return graph.add("Sub", graph.number(1.0), graph.add("Erf", args[0]))


def _is_negative(graph: Graph, value: str) -> str:
    """By the sign bit: -0 is, which 1 / x tells from 0."""
    zero = graph.number(0.0)
    below = graph.add("Less", value, zero)
    return graph.add("Or", below, graph.add("Less", graph.add("Reciprocal", value), zero))


def _copysign(graph: Graph, args: list[str], attr: Any) -> str:
    size = graph.add("Abs", args[0])
    return graph.add("Where", _is_negative(graph, args[1]), graph.add("Neg", size), size)


def _trunc(graph: Graph, args: list[str], attr: Any) -> str:
    return _copysign(graph, [graph.add("Floor", graph.add("Abs", args[0])), args[0]], None)


def _hypot(graph: Graph, args: list[str], attr: Any) -> str:
    squares = graph.add("Add", *(graph.add("Mul", a, a) for a in args))
    return graph.add("Sqrt", squares)


def _atan2(graph: Graph, args: list[str], attr: Any) -> str:
    """atan of the ratio of sizes, then the quadrant by the signs."""
    y, x = args
    ratio = graph.add("Div", graph.add("Abs", y), graph.add("Abs", x))
    ratio = graph.add("Where", graph.add("Equal", y, graph.number(0.0)), graph.number(0.0), ratio)
    angle = graph.add("Atan", ratio)
    left = graph.add("Sub", graph.number(pi), angle)
    return _copysign(graph, [graph.add("Where", _is_negative(graph, x), left, angle), y], None)


def _integer(graph: Graph, args: list[str], attr: Any) -> str:
    kind = graph.proto.INT32 if attr == 32 else graph.proto.INT64
    return as_number(graph, graph.add("Cast", args[0], to=kind))


def _pow(graph: Graph, args: list[str], attr: Any) -> str:
    return graph.add("Mul", args[0], args[0]) if attr == 2.0 else graph.add("Pow", args[0], graph.number(attr))


ONNX: dict[str, Render] = {
    "add": _op("Add"),
    "sub": _op("Sub"),
    "mul": _op("Mul"),
    "div": _op("Div"),
    "neg": _op("Neg"),
    "reciprocal": _op("Reciprocal"),
    "sigmoid": _op("Sigmoid"),
    "tanh": _op("Tanh"),
    "relu": _op("Relu"),
    "exp": _op("Exp"),
    "expm1": _expm1,
    "log": _op("Log"),
    "log1p": _log1p,
    "softplus": _softplus,
    "sin": _op("Sin"),
    "cos": _op("Cos"),
    "erf": _op("Erf"),
    "sqrt": _op("Sqrt"),
    "rsqrt": _rsqrt,
    "abs": _op("Abs"),
    "sign": _op("Sign"),
    "floor": _op("Floor"),
    "ceil": _op("Ceil"),
    "round": _op("Round"),
    "trunc": _trunc,
    "integer": _integer,
    "copysign": _copysign,
    "fmod": _fmod,
    "power": _op("Pow"),
    "hypot": _hypot,
    "exp2": _scaled("Exp", log(2.0), before=True),
    "log2": _scaled("Log", 1.0 / log(2.0), before=False),
    "log10": _scaled("Log", 1.0 / log(10.0), before=False),
    "erfc": _erfc,
    "tan": _op("Tan"),
    "asin": _op("Asin"),
    "acos": _op("Acos"),
    "atan": _op("Atan"),
    "atan2": _atan2,
    "sinh": _op("Sinh"),
    "cosh": _op("Cosh"),
    "asinh": _op("Asinh"),
    "acosh": _op("Acosh"),
    "atanh": _op("Atanh"),
    "pow": _pow,
    "maximum": _op("Max"),
    "minimum": _op("Min"),
    "clamp": _clamp,
    "where": _where,
    "eq": _compare("Equal"),
    "ne": _unequal,
    "lt": _compare("Less"),
    "le": _compare("LessOrEqual"),
    "gt": _compare("Greater"),
    "ge": _compare("GreaterOrEqual"),
    "and": _logical("And"),
    "or": _logical("Or"),
    "not": _logical("Not"),
    "spike": lambda graph, args, attr: as_number(graph, graph.add("Greater", args[0], graph.number(0.0))),
    "stop": lambda graph, args, attr: args[0],
}
