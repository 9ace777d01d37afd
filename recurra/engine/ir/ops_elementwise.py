"""Lowers torch's elementwise operations to nodes: one table row each."""

from collections.abc import Callable
from math import e, pi
from typing import Any

import torch

from .nodes import Builder, Node

aten = torch.ops.aten


def _lift(builder: Builder, value: Node | float) -> Node:
    return builder.lift(value)


def operation(op: str) -> Callable[..., Node]:
    """The lowering of an operation that is a row of the table itself."""
    return lambda b, *args: b.make(op, *(_lift(b, a) for a in args))


def _with_attributes(op: str, *defaults: float) -> Callable[..., Node]:
    """The lowering of a row whose attributes are numbers after the operand, with torch's defaults."""

    def lower(b: Builder, x: Any, *given: float) -> Node:
        numbers = tuple(float(n) for n in (*given, *defaults[len(given) :]))
        return b.make(op, _lift(b, x), attr=numbers if len(numbers) > 1 else numbers[0])

    return lower


def _scaled(op: str) -> Callable[..., Node]:
    """add or sub, with torch's factor `alpha` for the second operand."""
    return lambda b, x, y, alpha=1: b.make(op, _lift(b, x), _lift(b, y) if alpha == 1 else _lift(b, y) * float(alpha))


# ---------------------------------------------------------------------------------------------------- division, powers


def _division(b: Builder, x: Any, y: Any, rounding_mode: str | None = None) -> Node:
    x, y = _lift(b, x), _lift(b, y)
    if rounding_mode == "floor":
        return b.make("floor_divide", x, y)
    quotient = b.make("div", x, y)
    return quotient if rounding_mode is None else b.make("trunc", quotient)


def _round(b: Builder, x: Node, *, decimals: int = 0) -> Node:
    unit = b.const(10.0 ** abs(decimals))
    up, down = ("mul", "div") if decimals > 0 else ("div", "mul")
    return b.make(down, b.make("round", b.make(up, x, unit)), unit)


def _power(b: Builder, x: Any, exponent: Any) -> Node:
    if isinstance(exponent, Node):
        return _exponential(b, x, exponent)
    known = {
        0.0: lambda: b.expand(b.const(1.0), x.width),
        1.0: lambda: x,
        2.0: lambda: x * x,
        3.0: lambda: x * x * x,
        -1.0: lambda: b.make("reciprocal", x),
        0.5: lambda: b.make("sqrt", x),
        -0.5: lambda: b.make("rsqrt", x),
    }
    return known[float(exponent)]() if float(exponent) in known else b.make("pow", x, attr=float(exponent))


def _exponential(b: Builder, base: Any, x: Node) -> Node:
    if base in (2.0, e):
        return b.make("exp2" if base == 2.0 else "exp", x)
    return b.make("power", _lift(b, base), x)


# ---------------------------------------------------------------------------------------------------- bounds


def _clamp(b: Builder, x: Node, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Node:
    bounds = (low if low is not None else min, high if high is not None else max)
    return b.make("clamp", x, attr=tuple(None if bound is None else float(bound) for bound in bounds))


def _clamp_between(b: Builder, x: Any, low: Any = None, high: Any = None) -> Node:
    """clamp with tensors as bounds, which receive the gradient where they are active."""
    if low is None:
        return b.make("clamp_max", _lift(b, x), _lift(b, high))
    if high is None:
        return b.make("clamp_min", _lift(b, x), _lift(b, low))
    return b.make("clamp_between", _lift(b, x), _lift(b, low), _lift(b, high))


def _nan_to_num(b: Builder, x: Node, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Node:
    limits = torch.finfo(b.dtype)
    found = (0.0 if nan is None else nan, limits.max if posinf is None else posinf)
    return b.make("nan_to_num", x, attr=(*map(float, found), float(limits.min if neginf is None else neginf)))


def _threshold(b: Builder, x: Node, bound: float, low: Any) -> Node:
    """x where it is above the bound, or NaN; else `low`."""
    return b.make("where", b.make("le", x, b.const(bound)), _lift(b, low), x)


def _heaviside(b: Builder, x: Node, at_zero: Any) -> Node:
    """0 for negative numbers and NaN, 1 for positive ones. It has no derivative, and torch raises an error."""
    return b.make("where", b.make("eq", x, b.const(0.0)), b.make("stop", _lift(b, at_zero)), _is_above(b, x, 0.0))


def _is_above(b: Builder, x: Node, bound: float) -> Node:
    return b.make("gt", x, b.const(bound))


# ---------------------------------------------------------------------------------------------------- activations


def _leaky(b: Builder, x: Node, slope: float = 0.01) -> Node:
    return b.make("where", _is_above(b, x, 0.0), x, x * float(slope))


def _gelu(b: Builder, x: Node, *, approximate: str = "none") -> Node:
    if approximate == "none":
        return x * 0.5 * (b.make("erf", x * 0.7071067811865476) + 1.0)
    inner = (x + x * x * x * 0.044715) * (2.0 / pi) ** 0.5
    return x * 0.5 * (b.make("tanh", inner) + 1.0)


def _with_product(b: Builder, x: Any, y: Any, z: Any, *, value: float = 1.0) -> Node:
    return _lift(b, x) + b.make("mul", _lift(b, y) * float(value), _lift(b, z))


def _with_quotient(b: Builder, x: Any, y: Any, z: Any, *, value: float = 1.0) -> Node:
    return b.make("addcdiv", _lift(b, x), _lift(b, y), _lift(b, z), attr=float(value))


# ---------------------------------------------------------------------------------------------------- casts


def _cast(b: Builder, x: Node, *, dtype: torch.dtype | None = None, **_: Any) -> Node:
    """Casts to bool and integers are computed; casts between floating-point types are ignored."""
    if dtype is torch.bool:
        return b.make("ne", x, b.const(0.0))
    if dtype is not None and not dtype.is_floating_point:  # integers.py refuses one from floats to fewer bits
        return b.make("integer", x, attr=32.0 if torch.iinfo(dtype).bits <= 32 else 64.0)
    return x


def _identity(b: Builder, x: Node, *_: Any, **__: Any) -> Node:
    return x


def _is_infinite(b: Builder, x: Node) -> Node:
    return b.make("eq", b.make("abs", x), b.const(float("inf")))


ELEMENTWISE: dict[Any, Callable[..., Node]] = {
    aten.add.Tensor: _scaled("add"),
    aten.add.Scalar: _scaled("add"),
    aten.sub.Tensor: _scaled("sub"),
    aten.sub.Scalar: _scaled("sub"),
    aten.rsub.Scalar: lambda b, x, y, alpha=1: _lift(b, y) - (x if alpha == 1 else x * float(alpha)),
    aten.div.Tensor: _division,
    aten.div.Scalar: _division,
    aten.div.Tensor_mode: _division,
    aten.div.Scalar_mode: _division,
    aten.floor_divide.default: operation("floor_divide"),
    aten.floor_divide.Scalar: operation("floor_divide"),
    aten.round.decimals: _round,
    aten.frac.default: lambda b, x: x - b.make("trunc", x),
    aten.deg2rad.default: lambda b, x: x * (pi / 180.0),
    aten.rad2deg.default: lambda b, x: x * (180.0 / pi),
    aten.pow.Tensor_Scalar: _power,
    aten.pow.Tensor_Tensor: _power,
    aten.pow.Scalar: _exponential,
    aten.square.default: lambda b, x: x * x,
    aten.special_xlog1py.default: operation("xlog1py"),
    aten.special_xlog1py.self_scalar: operation("xlog1py"),
    aten.special_xlog1py.other_scalar: operation("xlog1py"),
    aten.xlogy.Tensor: operation("xlogy"),
    aten.xlogy.Scalar_Self: operation("xlogy"),
    aten.xlogy.Scalar_Other: operation("xlogy"),
    aten.logit.default: lambda b, x, eps=None: b.make("logit", x, attr=None if eps is None else float(eps)),
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp_between,
    aten.clamp_min.Tensor: _clamp_between,
    aten.clamp_max.Tensor: lambda b, x, high: _clamp_between(b, x, None, high),
    aten.clamp_min.default: lambda b, x, low: _clamp(b, x, low, None),
    aten.clamp_max.default: lambda b, x, high: _clamp(b, x, None, high),
    aten.nan_to_num.default: _nan_to_num,
    aten.isnan.default: lambda b, x: b.make("ne", x, x),
    aten.isinf.default: _is_infinite,
    aten.isposinf.default: lambda b, x: b.make("eq", x, b.const(float("inf"))),
    aten.isneginf.default: lambda b, x: b.make("eq", x, b.const(float("-inf"))),
    aten.sgn.default: operation("sign"),
    aten.signbit.default: lambda b, x: b.make("lt", b.make("copysign", b.const(1.0), x), b.const(0.0)),
    aten.copysign.Tensor: operation("copysign"),
    aten.copysign.Scalar: operation("copysign"),
    aten.heaviside.default: _heaviside,
    aten.hardtanh.default: _with_attributes("hardtanh", -1.0, 1.0),
    aten.softplus.default: _with_attributes("softplus_of", 1.0, 20.0),
    aten.elu.default: _with_attributes("elu", 1.0, 1.0, 1.0),
    aten.celu.default: lambda b, x, alpha=1.0: b.make("elu", x, attr=(float(alpha), 1.0, 1.0 / alpha)),
    aten.hardshrink.default: _with_attributes("hardshrink", 0.5),
    aten.softshrink.default: _with_attributes("softshrink", 0.5),
    aten.leaky_relu.default: _leaky,
    aten.gelu.default: _gelu,
    aten.silu.default: lambda b, x: x * b.make("sigmoid", x),
    aten.mish.default: lambda b, x: x * b.make("tanh", b.make("softplus", x)),
    aten.threshold.default: _threshold,
    aten._prelu_kernel.default: operation("prelu"),
    aten.lerp.Tensor: operation("lerp"),
    aten.lerp.Scalar: operation("lerp"),
    aten.addcmul.default: _with_product,
    aten.addcdiv.default: _with_quotient,
    aten.clone.default: _identity,
    aten.alias.default: _identity,
    aten._to_copy.default: _cast,
    aten.detach.default: operation("stop"),
    aten.logical_and.default: operation("and"),
    aten.logical_or.default: operation("or"),
    aten.logical_not.default: operation("not"),
    aten.logical_xor.default: lambda b, x, y: b.make("ne", b.make("not", _lift(b, x)), b.make("not", _lift(b, y))),
    aten.masked_fill.Scalar: lambda b, x, mask, value: b.make("where", mask, _lift(b, value), x),
    aten.masked_fill.Tensor: lambda b, x, mask, value: b.make("where", mask, _lift(b, value), x),
    torch.ops.recurra.spike.default: lambda b, v, *attr: b.make("spike", v, attr=attr),
}
# Rows of the table under their own name, by the overloads of the torch operation.
ELEMENTWISE |= {
    getattr(getattr(aten, name), overload): operation(name)
    for overloads, names in {
        "default": "neg reciprocal sigmoid tanh relu exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 erf erfc "
        "sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh sinc sqrt rsqrt hypot abs sign floor ceil trunc "
        "round maximum minimum fmax fmin hardsigmoid hardswish",
        "Tensor Scalar": "mul fmod remainder eq ne lt le gt ge",
        "Scalar_Tensor": "remainder",
        "self ScalarSelf ScalarOther Scalar": "where",
    }.items()
    for name in names.split()
    for overload in overloads.split()
}

# Operations with another meaning, or their only one, on boolean tensors.
BOOLEAN: dict[Any, Callable[..., Node]] = {
    aten.add.Tensor: lambda b, x, y, alpha=1: b.make("or", _lift(b, x), _lift(b, y)),
    aten.bitwise_and.Tensor: operation("and"),
    aten.bitwise_or.Tensor: operation("or"),
    aten.bitwise_xor.Tensor: operation("ne"),
    aten.bitwise_not.default: operation("not"),
}
