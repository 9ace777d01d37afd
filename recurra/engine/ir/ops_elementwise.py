"""Lowers torch's elementwise operations to nodes: one table row each."""

from collections.abc import Callable
from math import log
from typing import Any

import torch

from .nodes import Builder, Node
from .values import Unsupported

aten = torch.ops.aten


def _lift(builder: Builder, value: Node | float) -> Node:
    return builder.lift(value)


def operation(op: str) -> Callable[..., Node]:
    """The lowering of an operation that is a row of the table in nodes.py itself."""
    return lambda b, *args: b.make(op, *(_lift(b, a) for a in args))


def _scaled(op: str) -> Callable[..., Node]:
    """add or sub, with torch's factor `alpha` for the second operand."""
    return lambda b, x, y, alpha=1: b.make(op, _lift(b, x), _lift(b, y) if alpha == 1 else _lift(b, y) * float(alpha))


def _division(b: Builder, x: Any, y: Any, rounding_mode: str | None = None) -> Node:
    if rounding_mode not in (None, "floor"):
        raise Unsupported(f"a division with rounding_mode={rounding_mode!r}")
    quotient = b.make("div", _lift(b, x), _lift(b, y))
    return b.make("floor", quotient) if rounding_mode else quotient


def _power(b: Builder, x: Node, exponent: Any) -> Node:
    if not isinstance(exponent, (int, float)):
        raise Unsupported("aten.pow with an exponent that is not a number")
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


def _exponential(b: Builder, base: float, x: Node) -> Node:
    if base <= 0.0:
        raise Unsupported(f"powers of {base}")
    return b.make("exp", x * log(base))


def _clamp(b: Builder, x: Node, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Node:
    bounds = (low if low is not None else min, high if high is not None else max)
    return b.make("clamp", x, attr=tuple(None if bound is None else float(bound) for bound in bounds))


def _clamp_between(b: Builder, x: Any, low: Any = None, high: Any = None) -> Node:
    """clamp with tensors as bounds, which receive the gradient where they are active."""
    x = _lift(b, x)
    for bound, beyond in ((low, "lt"), (high, "gt")):
        if bound is not None:
            x = b.make("where", b.make(beyond, x, _lift(b, bound)), _lift(b, bound), x)
    return x


def _softplus(b: Builder, x: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    scaled = x * float(beta)
    return b.make("where", b.make("gt", scaled, b.const(threshold)), x, b.make("softplus", scaled) / float(beta))


def _elu(b: Builder, x: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Node:
    low = b.make("expm1", x * float(input_scale)) * (float(alpha) * float(scale))
    return b.make("where", b.make("gt", x, b.const(0.0)), x * float(scale), low)


def _leaky(b: Builder, x: Node, slope: float = 0.01) -> Node:
    return b.make("where", b.make("gt", x, b.const(0.0)), x, x * float(slope))


def _gelu(b: Builder, x: Node, approximate: str = "none") -> Node:
    if approximate != "none":
        raise Unsupported("aten.gelu with approximate='tanh'")
    return x * 0.5 * (b.make("erf", x * 0.7071067811865476) + 1.0)


def _lerp(b: Builder, x: Any, y: Any, weight: Any) -> Node:
    x, y = _lift(b, x), _lift(b, y)
    return x + _lift(b, weight) * (y - x)


def _with_product(b: Builder, x: Any, y: Any, z: Any, value: float = 1.0) -> Node:
    return _lift(b, x) + b.make("mul", _lift(b, y), _lift(b, z)) * float(value)


def _with_quotient(b: Builder, x: Any, y: Any, z: Any, value: float = 1.0) -> Node:
    return _lift(b, x) + b.make("div", _lift(b, y), _lift(b, z)) * float(value)


def _hard_sigmoid(b: Builder, x: Node) -> Node:
    return _clamp(b, x + 3.0, 0.0, 6.0) * (1.0 / 6.0)


def _threshold(b: Builder, x: Node, bound: float, low: Any) -> Node:
    """x where it is above the bound, else `low`."""
    return b.make("where", b.make("gt", x, b.const(bound)), x, _lift(b, low))


def _cast(b: Builder, x: Node, *, dtype: torch.dtype | None = None, **_: Any) -> Node:
    """Casts to bool and integers are computed; casts between floating-point types are ignored."""
    if dtype is torch.bool:
        return b.make("ne", x, b.const(0.0))
    if dtype in (torch.int16, torch.int32, torch.int64):  # towards zero
        return b.make("sign", x) * b.make("floor", b.make("abs", x))
    if dtype is not None and not dtype.is_floating_point:
        raise Unsupported(f"a cast to {dtype}")
    return x


def _identity(b: Builder, x: Node, *_: Any, **__: Any) -> Node:
    return x


ELEMENTWISE: dict[Any, Callable[..., Node]] = {
    aten.add.Tensor: _scaled("add"),
    aten.add.Scalar: _scaled("add"),
    aten.sub.Tensor: _scaled("sub"),
    aten.sub.Scalar: _scaled("sub"),
    aten.rsub.Scalar: lambda b, x, y, alpha=1: _lift(b, y) - (x if alpha == 1 else x * float(alpha)),
    aten.mul.Tensor: operation("mul"),
    aten.mul.Scalar: operation("mul"),
    aten.div.Tensor: _division,
    aten.div.Scalar: _division,
    aten.div.Tensor_mode: _division,
    aten.pow.Tensor_Scalar: _power,
    aten.pow.Scalar: _exponential,
    aten.square.default: lambda b, x: x * x,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp_between,
    aten.clamp_min.Tensor: _clamp_between,
    aten.clamp_max.Tensor: lambda b, x, high: _clamp_between(b, x, None, high),
    aten.clamp_min.default: lambda b, x, low: _clamp(b, x, low, None),
    aten.clamp_max.default: lambda b, x, high: _clamp(b, x, None, high),
    aten.hardtanh.default: lambda b, x, low=-1.0, high=1.0: _clamp(b, x, low, high),
    aten.softplus.default: _softplus,
    aten.elu.default: _elu,
    aten.leaky_relu.default: _leaky,
    aten.gelu.default: _gelu,
    aten.silu.default: lambda b, x: x * b.make("sigmoid", x),
    aten.lerp.Tensor: _lerp,
    aten.lerp.Scalar: _lerp,
    aten.addcmul.default: _with_product,
    aten.addcdiv.default: _with_quotient,
    aten.hardsigmoid.default: _hard_sigmoid,
    aten.hardswish.default: lambda b, x: x * _hard_sigmoid(b, x),
    aten.mish.default: lambda b, x: x * b.make("tanh", b.make("softplus", x)),
    aten.celu.default: lambda b, x, alpha=1.0: _elu(b, x, alpha, 1.0, 1.0 / alpha),
    aten.threshold.default: _threshold,
    aten._prelu_kernel.default: lambda b, x, slope: _threshold(b, x, 0.0, _lift(b, slope) * x),
    aten.clone.default: _identity,
    aten.alias.default: _identity,
    aten._to_copy.default: _cast,
    aten.detach.default: operation("stop"),
    aten.logical_and.default: operation("and"),
    aten.logical_or.default: operation("or"),
    aten.logical_not.default: operation("not"),
    aten.masked_fill.Scalar: lambda b, x, mask, value: b.make("where", mask, _lift(b, value), x),
    aten.masked_fill.Tensor: lambda b, x, mask, value: b.make("where", mask, _lift(b, value), x),
    aten.where.self: operation("where"),
    aten.where.ScalarSelf: operation("where"),
    aten.where.ScalarOther: operation("where"),
    aten.where.Scalar: operation("where"),
    aten.remainder.Tensor: operation("remainder"),
    aten.remainder.Scalar: operation("remainder"),
    torch.ops.recurra.spike.default: lambda b, v, *attr: b.make("spike", v, attr=attr),
}
ELEMENTWISE |= {
    getattr(aten, name).default: operation(name)
    for name in [
        "neg",
        "reciprocal",
        "sigmoid",
        "tanh",
        "relu",
        "exp",
        "expm1",
        "log",
        "log1p",
        "sin",
        "cos",
        "erf",
        "sqrt",
        "rsqrt",
        "abs",
        "sign",
        "floor",
        "maximum",
        "minimum",
    ]
}
ELEMENTWISE |= {
    getattr(getattr(aten, name), kind): operation(name)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
}

# Operations with another meaning, or their only one, on boolean tensors.
BOOLEAN: dict[Any, Callable[..., Node]] = {
    aten.add.Tensor: lambda b, x, y, alpha=1: b.make("or", _lift(b, x), _lift(b, y)),
    aten.bitwise_and.Tensor: operation("and"),
    aten.bitwise_or.Tensor: operation("or"),
    aten.bitwise_not.default: operation("not"),
}
