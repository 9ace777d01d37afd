"""Vector-Jacobian products of the operation table, as torch's `derivatives.yaml` defines them.

A rule takes a node and the cotangent of its result and returns a cotangent per argument. The expressions are torch's
own, so that the derivative agrees at kinks, at infinity and at NaN too: `where(c, g, 0)` and `g * c` differ there.
"""

from collections.abc import Callable
from math import pi
from typing import TYPE_CHECKING

from ...cells.surrogates import DERIVATIVES

if TYPE_CHECKING:
    from .nodes import Node

Vjp = Callable[["Node", "Node"], tuple["Node | None", ...]]  # (the node, its cotangent) → a cotangent per argument


def unary(rule: "Callable[[Node, Node, Node], Node]") -> Vjp:
    """The vjp of a unary operation, from `(cotangent, argument, result)` → cotangent."""
    return lambda node, g: (rule(g, node.args[0], node),)


def no_gradient(node: "Node", g: "Node") -> tuple[None, ...]:
    return (None,) * len(node.args)


def apply(op: str, *args: "Node | float") -> "Node":
    """An operation of the table; numbers become constants."""
    builder = next(a.builder for a in args if not isinstance(a, (int, float)))
    return builder.make(op, *(builder.lift(a) for a in args))


def pick(condition: "Node", yes: "Node | float", no: "Node | float") -> "Node":
    return apply("where", condition, yes, no)


# ---------------------------------------------------------------------------------------------------- arithmetic


def mul(node: "Node", g: "Node") -> "tuple[Node, Node]":
    a, b = node.args
    return g * b, g * a


def div(node: "Node", g: "Node") -> "tuple[Node, Node]":
    b = node.args[1]
    return g / b, -(g * (node / b))


def remainder(node: "Node", g: "Node") -> "tuple[Node, Node]":
    return g, -(g * apply("floor_divide", *node.args))


def fmod(node: "Node", g: "Node") -> "tuple[Node, Node]":
    return g, -(g * apply("trunc", node.args[0] / node.args[1]))


def addcdiv(node: "Node", g: "Node") -> "tuple[Node, Node, Node]":
    (_, a, b), value = node.args, node.attr
    return g, g * (node.builder.const(value) / b), -(g * (a * value / (b * b)))


def lerp(node: "Node", g: "Node") -> "tuple[Node, Node, Node]":
    start, end, weight = node.args
    return g * (1.0 - weight), g * weight, g * (end - start)


def where(node: "Node", g: "Node") -> "tuple[None, Node, Node]":
    return None, pick(node.args[0], g, 0.0), pick(node.args[0], 0.0, g)


# ---------------------------------------------------------------------------------------------------- powers


def pow_by_number(node: "Node", g: "Node") -> "tuple[Node]":
    x, exponent = node.args[0], node.attr
    if exponent == 2.0:
        return (g * x * 2.0,)
    return (g * (node.builder.make("pow", x, attr=exponent - 1.0) * exponent),)


def power(node: "Node", g: "Node") -> "tuple[Node, Node]":
    base, exponent = node.args
    of_base = pick(apply("eq", exponent, 0.0), 0.0, g * (exponent * apply("power", base, exponent - 1.0)))
    flat = apply("and", apply("eq", base, 0.0), apply("ge", exponent, 0.0))
    return of_base, g * pick(flat, 0.0, node * apply("log", base))


def hypot(node: "Node", g: "Node") -> "tuple[Node, Node]":
    a, b = node.args
    return g * a / node, g * b / node


def atan2(node: "Node", g: "Node") -> "tuple[Node, Node]":
    a, b = node.args
    squares = a * a + b * b
    recip = pick(apply("eq", squares, 0.0), 0.0, apply("reciprocal", squares))
    return g * (b * recip), g * (-a * recip)


def logaddexp(power_of_base: str) -> Vjp:
    def rule(node: "Node", g: "Node") -> "tuple[Node, Node]":
        a, b = node.args
        return g / (apply(power_of_base, b - a) + 1.0), g / (apply(power_of_base, a - b) + 1.0)

    return rule


def xlogy(node: "Node", g: "Node") -> "tuple[Node, Node]":
    x, y = node.args
    undefined = apply("and", apply("eq", x, 0.0), apply("le", y, 0.0))
    return pick(undefined, 0.0, apply("xlogy", g, y)), g * x / y


def xlog1py(node: "Node", g: "Node") -> "tuple[Node, Node]":
    x, y = node.args
    undefined = apply("and", apply("eq", x, 0.0), apply("le", y, -1.0))
    return pick(undefined, 0.0, apply("xlog1py", g, y)), g * x / (y + 1.0)


def logit(node: "Node", g: "Node") -> "tuple[Node]":
    x, eps = node.args[0], node.attr
    low, outside = (0.0, float("nan")) if eps is None else (eps, 0.0)
    inside = apply("and", apply("ge", x, low), apply("le", x, 1.0 - low))
    slope = pick(inside, g / (x * (1.0 - x)), outside)
    return (slope if eps is None else pick(apply("ne", x, x), float("nan"), slope),)


def sinc(node: "Node", g: "Node") -> "tuple[Node]":
    x = node.args[0]
    angle, square = x * pi, x * x * pi
    slope = (angle * apply("cos", angle) - apply("sin", angle)) / square
    return (pick(apply("eq", square, 0.0), 0.0, g * slope),)


# ---------------------------------------------------------------------------------------------------- extrema, bounds


def extremum(node: "Node", g: "Node") -> "tuple[Node, Node]":
    """maximum and minimum: equal ones share the cotangent; with a NaN both get it."""
    a, b = node.args
    beaten, beats = ("lt", "gt") if node.op == "maximum" else ("gt", "lt")
    shared = pick(apply("eq", a, b), g * 0.5, g)
    return pick(apply(beaten, a, b), 0.0, shared), pick(apply(beats, a, b), 0.0, shared)


def fmax_fmin(node: "Node", g: "Node") -> "tuple[Node, Node]":
    a, b = node.args
    first = apply("or", apply("ge" if node.op == "fmax" else "le", a, b), apply("ne", b, b))
    return pick(first, g, 0.0), pick(first, 0.0, g)


def clamp(node: "Node", g: "Node") -> "tuple[Node]":
    low, high = node.attr
    for bound, inside in ((low, "ge"), (high, "le")):
        if bound is not None:
            g = pick(apply(inside, node.args[0], bound), g, 0.0)
    return (g,)


def clamp_min(node: "Node", g: "Node") -> "tuple[Node, Node]":
    x, low = node.args
    return pick(apply("ge", x, low), g, 0.0), pick(apply("lt", x, low), g, 0.0)


def clamp_max(node: "Node", g: "Node") -> "tuple[Node, Node]":
    x, high = node.args
    return pick(apply("le", x, high), g, 0.0), pick(apply("gt", x, high), g, 0.0)


def clamp_between(node: "Node", g: "Node") -> "tuple[Node, Node, Node]":
    x, low, high = node.args
    inside = apply("and", apply("ge", x, low), apply("le", x, high))
    below = apply("and", apply("lt", low, high), apply("lt", x, low))
    above = apply("or", apply("gt", x, high), apply("lt", high, low))
    return pick(inside, g, 0.0), pick(below, g, 0.0), pick(above, g, 0.0)


def nan_to_num(node: "Node", g: "Node") -> "tuple[Node]":
    return (g * apply("lt", apply("abs", node.args[0]), float("inf")),)


def copysign(node: "Node", g: "Node") -> "tuple[Node, None]":
    x = node.args[0]
    return g * pick(apply("eq", x, 0.0), 0.0, node / x), None


# ---------------------------------------------------------------------------------------------------- activations


def relu(node: "Node", g: "Node") -> "tuple[Node]":
    return (pick(apply("le", node, 0.0), 0.0, g),)


def hardtanh(node: "Node", g: "Node") -> "tuple[Node]":
    x, (low, high) = node.args[0], node.attr
    return (pick(apply("or", apply("le", x, low), apply("ge", x, high)), 0.0, g),)


def hardsigmoid(node: "Node", g: "Node") -> "tuple[Node]":
    """torch has 1 / 6 in single precision here, for float64 as well."""
    x = node.args[0]
    return (pick(apply("and", apply("gt", x, -3.0), apply("lt", x, 3.0)), g * 0.16666667163372040, 0.0),)


def hardswish(node: "Node", g: "Node") -> "tuple[Node]":
    x = node.args[0]
    inner = pick(apply("lt", x, 3.0), g * (x / 3.0 + 0.5), g)
    return (pick(apply("le", x, -3.0), 0.0, inner),)


def shrink(node: "Node", g: "Node") -> "tuple[Node]":
    x, size = node.args[0], node.attr
    return (pick(apply("and", apply("ge", x, -size), apply("le", x, size)), 0.0, g),)


def elu(node: "Node", g: "Node") -> "tuple[Node]":
    x, (alpha, scale, input_scale) = node.args[0], node.attr
    low = g * (input_scale * alpha * scale) * apply("exp", x * input_scale)
    return (pick(apply("le", x, 0.0), low, g * scale),)


def prelu(node: "Node", g: "Node") -> "tuple[Node, Node]":
    x, slope = node.args
    positive = apply("gt", x, 0.0)
    return pick(positive, g, slope * g), pick(positive, 0.0, x * g)


def softplus(node: "Node", g: "Node") -> "tuple[Node]":
    x, (beta, threshold) = node.args[0], node.attr
    return (pick(apply("gt", x * beta, threshold), g, g * apply("sigmoid", x * beta)),)


def surrogate(node: "Node", g: "Node") -> tuple[None, "Node", None]:
    """Of a value, an argument and the slope by that argument: see custom_vjp.py."""
    return None, g * node.args[2], None


def spike(node: "Node", g: "Node") -> "tuple[Node]":
    surrogate, slope, scale = node.attr
    return (DERIVATIVES[surrogate](g * scale, apply("abs", node.args[0]), slope, lambda v: apply("relu", v)),)
