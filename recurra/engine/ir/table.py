"""The table of elementwise operations: for each its C++, torch function and vjp.

A row has a C++ template, or an expansion into rows that have one. Expansions take place when a program is scheduled:
the derivative of a composite row is torch's for that function, not the chain rule through its parts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..custom_vjp import surrogate
from . import derivatives as d
from .derivatives import Vjp, apply, no_gradient, pick, unary

if TYPE_CHECKING:
    from .nodes import Node


@dataclass(frozen=True)
class Rule:
    """One elementwise operation: a C++ template, the torch function, and the vector-Jacobian product."""

    cpp: str  # empty if the operation is expanded
    torch: Callable[..., Tensor]
    vjp: Vjp
    costly: bool = False  # storing the result is cheaper than recomputing it
    expansion: "Callable[..., Node] | None" = None  # (arguments, attributes) → the same value in other rows


def evaluate(op: str, args: "tuple[Tensor, ...] | list[Tensor]", attr: Any) -> Tensor:
    """The operation by torch; the attributes are further arguments."""
    return TABLE[op].torch(*args, *attributes(attr))


def attributes(attr: Any) -> tuple:
    return () if attr is None else attr if isinstance(attr, tuple) else (attr,)


# ---------------------------------------------------------------------------------------------------- torch functions


def _compare(symbol: str, function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return Rule(f"truth({{0}} {symbol} {{1}})", lambda a, b: function(a, b).to(a.dtype), no_gradient)


def _boolean(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: function(*(a != 0 for a in args)).to(args[0].dtype)


def _broadcast(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """For functions of torch that do not broadcast their arguments."""
    return lambda *args: function(*torch.broadcast_tensors(*args))


def _divide(rounding: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: torch.div(a, b, rounding_mode=rounding)


def _round_to_integer(x: Tensor, bits: float) -> Tensor:
    return x.detach().to(torch.int32 if bits == 32 else torch.int64).to(x.dtype)


def _softplus(x: Tensor, beta: float, threshold: float) -> Tensor:
    return F.softplus(x, beta, threshold)


def _elu(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    return torch.ops.aten.elu(x, alpha, scale, input_scale)


# ---------------------------------------------------------------------------------------------------- expansions


def _remainder(a: "Node", b: "Node") -> "Node":
    """The sign of the divisor, as in Python."""
    rest = apply("fmod", a, b)
    return pick(_has_other_sign(rest, b), rest + b, rest)


def _floor_divide(a: "Node", b: "Node") -> "Node":
    """torch's: `floor(a / b)` would be wrong where the quotient rounds up to a whole number."""
    rest = apply("fmod", a, b)
    quotient = (a - rest) / b
    quotient = pick(_has_other_sign(rest, b), quotient - 1.0, quotient)
    whole = apply("floor", quotient)
    whole = pick(apply("gt", quotient - whole, 0.5), whole + 1.0, whole)
    zero = apply("copysign", a.builder.const(0.0), a / b)
    return pick(apply("eq", b, 0.0), a / b, pick(apply("ne", quotient, 0.0), whole, zero))


def _has_other_sign(rest: "Node", b: "Node") -> "Node":
    return apply("and", apply("ne", rest, 0.0), apply("ne", apply("lt", b, 0.0), apply("lt", rest, 0.0)))


def _logaddexp(power: str, log_base: float) -> "Callable[[Node, Node], Node]":
    def expanded(a: "Node", b: "Node") -> "Node":
        """`max + log(1 + base^-|a - b|)`; equal infinities are the result themselves."""
        high, same = apply("maximum", a, b), apply("eq", a, b)
        distance = pick(same, 0.0, apply("abs", a - b))
        more = apply("log1p", apply(power, -distance)) * (1.0 / log_base)
        infinite = apply("and", same, apply("eq", apply("abs", a), float("inf")))
        return pick(infinite, a, high + more)

    return expanded


def _times_log(log: str) -> "Callable[[Node, Node], Node]":
    def expanded(x: "Node", y: "Node") -> "Node":
        product = pick(apply("eq", x, 0.0), 0.0, x * apply(log, y))
        return pick(apply("ne", y, y), float("nan"), product)

    return expanded


def _logit(x: "Node", eps: float | None = None) -> "Node":
    z = x if eps is None else x.builder.make("clamp", x, attr=(eps, 1.0 - eps))
    return apply("log", z / (1.0 - z))


def _sinc(x: "Node") -> "Node":
    angle = x * pi
    return pick(apply("eq", x, 0.0), 1.0, apply("sin", angle) / angle)


def _nan_to_num(x: "Node", nan: float, high: float, low: float) -> "Node":
    finite = pick(apply("eq", x, float("-inf")), low, pick(apply("eq", x, float("inf")), high, x))
    return pick(apply("ne", x, x), nan, finite)


def _fmax_fmin(beats: str) -> "Callable[[Node, Node], Node]":
    def expanded(a: "Node", b: "Node") -> "Node":
        return pick(apply("or", apply(beats, a, b), apply("ne", b, b)), a, b)

    return expanded


def _clamped(x: "Node", low: float | None, high: float | None) -> "Node":
    return x.builder.make("clamp", x, attr=(low, high))


def _hardsigmoid(x: "Node") -> "Node":
    return _clamped(x + 3.0, 0.0, 6.0) / 6.0


def _hardswish(x: "Node") -> "Node":
    return x * _clamped(x + 3.0, 0.0, 6.0) / 6.0


def _softshrink(x: "Node", size: float) -> "Node":
    inner = pick(apply("lt", x, -size), x + size, x * 0.0)
    return pick(apply("gt", x, size), x - size, inner)


def _hardshrink(x: "Node", size: float) -> "Node":
    return pick(apply("and", apply("ge", x, -size), apply("le", x, size)), 0.0, x)


def _expanded_elu(x: "Node", alpha: float, scale: float, input_scale: float) -> "Node":
    low = apply("expm1", x * input_scale) * (alpha * scale)
    return pick(apply("lt", x, 0.0), low, x * scale)


def _expanded_softplus(x: "Node", beta: float, threshold: float) -> "Node":
    scaled = x * beta
    return pick(apply("gt", scaled, threshold), x, apply("softplus", scaled) / beta)


def _lerp(start: "Node", end: "Node", weight: "Node") -> "Node":
    """From the nearer end, so that weight 1 gives `end` itself."""
    step = end - start
    return pick(apply("lt", apply("abs", weight), 0.5), start + weight * step, end - step * (1.0 - weight))


def _addcdiv(x: "Node", a: "Node", b: "Node", value: float) -> "Node":
    return x + a * value / b


# ---------------------------------------------------------------------------------------------------- the table


def _composite(function: Callable[..., Tensor], vjp: Vjp, expansion: Callable, costly: bool = False) -> Rule:
    return Rule("", function, vjp, costly, expansion)


def _library(name: str, function: Callable[..., Tensor], rule: "Callable[[Node, Node, Node], Node]") -> Rule:
    """A function of one argument from the C library."""
    return Rule(f"{name}_({{0}})", function, unary(rule), costly=True)


TABLE: dict[str, Rule] = {
    "add": Rule("{0} + {1}", torch.add, lambda node, g: (g, g)),
    "sub": Rule("{0} - {1}", torch.sub, lambda node, g: (g, -g)),
    "mul": Rule("{0} * {1}", torch.mul, d.mul),
    "div": Rule("{0} / {1}", torch.div, d.div),
    "neg": Rule("-{0}", torch.neg, unary(lambda g, x, y: -g)),
    "reciprocal": Rule("splat(1) / {0}", torch.reciprocal, unary(lambda g, x, y: -(g * (y * y)))),
    "sigmoid": Rule("sigmoid({0})", torch.sigmoid, unary(lambda g, x, y: g * (y * (1.0 - y))), True),
    "tanh": Rule("tanh_({0})", torch.tanh, unary(lambda g, x, y: g * (1.0 - y * y)), True),
    "relu": Rule("pick({0} < splat(0), splat(0), {0})", torch.relu, d.relu),
    # exponentials and logarithms
    "exp": _library("exp", torch.exp, lambda g, x, y: g * y),
    "exp2": _library("exp2", torch.exp2, lambda g, x, y: g * y * 0.6931471805599453),
    "expm1": _library("expm1", torch.expm1, lambda g, x, y: g * (y + 1.0)),
    "log": _library("log", torch.log, lambda g, x, y: g / x),
    "log2": _library("log2", torch.log2, lambda g, x, y: g / (x * 0.6931471805599453)),
    "log10": _library("log10", torch.log10, lambda g, x, y: g / (x * 2.3025850929940456)),
    "log1p": _library("log1p", torch.log1p, lambda g, x, y: g / (x + 1.0)),
    "softplus": Rule(
        "softplus({0})",
        lambda x: torch.clamp(x, min=0) + torch.log1p(torch.exp(-torch.abs(x))),
        unary(lambda g, x, y: g * apply("sigmoid", x)),
        True,
    ),
    "logaddexp": _composite(torch.logaddexp, d.logaddexp("exp"), _logaddexp("exp", 1.0), True),
    "logaddexp2": _composite(torch.logaddexp2, d.logaddexp("exp2"), _logaddexp("exp2", 0.6931471805599453), True),
    "xlogy": _composite(torch.xlogy, d.xlogy, _times_log("log"), True),
    "xlog1py": _composite(torch.special.xlog1py, d.xlog1py, _times_log("log1p"), True),
    "logit": _composite(torch.logit, d.logit, _logit, True),
    "erf": _library("erf", torch.erf, lambda g, x, y: g * apply("exp", -(x * x)) * 1.1283791670955126),
    "erfc": _library("erfc", torch.erfc, lambda g, x, y: g * apply("exp", -(x * x)) * -1.1283791670955126),
    # trigonometric and hyperbolic functions
    "sin": _library("sin", torch.sin, lambda g, x, y: g * apply("cos", x)),
    "cos": _library("cos", torch.cos, lambda g, x, y: g * -apply("sin", x)),
    "tan": _library("tan", torch.tan, lambda g, x, y: g * (y * y + 1.0)),
    "asin": _library("asin", torch.asin, lambda g, x, y: g * apply("rsqrt", 1.0 - x * x)),
    "acos": _library("acos", torch.acos, lambda g, x, y: g * -apply("rsqrt", 1.0 - x * x)),
    "atan": _library("atan", torch.atan, lambda g, x, y: g / (x * x + 1.0)),
    "atan2": Rule("atan2_({0}, {1})", torch.atan2, d.atan2, True),
    "sinh": _library("sinh", torch.sinh, lambda g, x, y: g * apply("cosh", x)),
    "cosh": _library("cosh", torch.cosh, lambda g, x, y: g * apply("sinh", x)),
    "asinh": _library("asinh", torch.asinh, lambda g, x, y: g * apply("rsqrt", x * x + 1.0)),
    "acosh": _library("acosh", torch.acosh, lambda g, x, y: g * apply("rsqrt", x * x - 1.0)),
    "atanh": _library("atanh", torch.atanh, lambda g, x, y: g / (1.0 - x * x)),
    "sinc": _composite(torch.sinc, d.sinc, _sinc, True),
    # powers
    "sqrt": _library("sqrt", torch.sqrt, lambda g, x, y: g / (y * 2.0)),
    "rsqrt": Rule("splat(1) / sqrt_({0})", torch.rsqrt, unary(lambda g, x, y: g * -0.5 * (y * y * y)), True),
    "pow": Rule("pow_({0}, {attr})", torch.pow, d.pow_by_number, True),
    "power": Rule("power_({0}, {1})", torch.pow, d.power, True),  # the exponent is a row as well
    "hypot": Rule("hypot_({0}, {1})", _broadcast(torch.hypot), d.hypot, True),
    # rounding and division
    "abs": Rule("abs_({0})", torch.abs, unary(lambda g, x, y: g * apply("sign", x))),
    "sign": Rule("truth({0} > splat(0)) - truth({0} < splat(0))", torch.sign, no_gradient),
    "copysign": Rule("copysign_({0}, {1})", torch.copysign, d.copysign),
    "floor": Rule("floor_({0})", torch.floor, no_gradient),
    "ceil": Rule("ceil_({0})", torch.ceil, no_gradient),
    "trunc": Rule("trunc_({0})", torch.trunc, no_gradient),
    "round": Rule("round_({0})", torch.round, no_gradient),
    "integer": Rule("integer_({0}, {attr})", _round_to_integer, no_gradient),  # a cast; the attribute is 32 or 64 bits
    "fmod": Rule("fmod_({0}, {1})", torch.fmod, d.fmod, True),
    "remainder": _composite(torch.remainder, d.remainder, _remainder, True),
    "floor_divide": _composite(_divide("floor"), no_gradient, _floor_divide, True),
    # extrema and bounds
    "maximum": Rule("maximum({0}, {1})", torch.maximum, d.extremum),
    "minimum": Rule("minimum({0}, {1})", torch.minimum, d.extremum),
    "fmax": _composite(torch.fmax, d.fmax_fmin, _fmax_fmin("ge")),
    "fmin": _composite(torch.fmin, d.fmax_fmin, _fmax_fmin("le")),
    "clamp": Rule("{clamp}", torch.clamp, d.clamp),
    "clamp_min": _composite(torch.clamp_min, d.clamp_min, lambda x, low: apply("maximum", x, low)),
    "clamp_max": _composite(torch.clamp_max, d.clamp_max, lambda x, high: apply("minimum", x, high)),
    "clamp_between": _composite(
        torch.clamp, d.clamp_between, lambda x, low, high: apply("minimum", apply("maximum", x, low), high)
    ),
    "nan_to_num": _composite(torch.nan_to_num, d.nan_to_num, _nan_to_num),
    # activations
    "hardtanh": _composite(F.hardtanh, d.hardtanh, _clamped),
    "hardsigmoid": _composite(F.hardsigmoid, d.hardsigmoid, _hardsigmoid),
    "hardswish": _composite(F.hardswish, d.hardswish, _hardswish),
    "softshrink": _composite(F.softshrink, d.shrink, _softshrink),
    "hardshrink": _composite(F.hardshrink, d.shrink, _hardshrink),
    "elu": _composite(_elu, d.elu, _expanded_elu, True),
    "softplus_of": _composite(_softplus, d.softplus, _expanded_softplus, True),  # with beta and threshold
    "prelu": _composite(
        _broadcast(torch.ops.aten._prelu_kernel), d.prelu, lambda x, a: pick(apply("gt", x, 0.0), x, a * x)
    ),
    "lerp": _composite(torch.lerp, d.lerp, _lerp),
    "addcdiv": _composite(lambda x, a, b, value: torch.addcdiv(x, a, b, value=value), d.addcdiv, _addcdiv),
    # choice
    "where": Rule("pick({0} != splat(0), {1}, {2})", lambda c, a, b: torch.where(c != 0, a, b), d.where),
    "eq": _compare("==", torch.eq),
    "ne": _compare("!=", torch.ne),
    "lt": _compare("<", torch.lt),
    "le": _compare("<=", torch.le),
    "gt": _compare(">", torch.gt),
    "ge": _compare(">=", torch.ge),
    "and": Rule("truth(({0} != splat(0)) & ({1} != splat(0)))", _boolean(torch.logical_and), no_gradient),
    "or": Rule("truth(({0} != splat(0)) | ({1} != splat(0)))", _boolean(torch.logical_or), no_gradient),
    "not": Rule("truth({0} == splat(0))", _boolean(torch.logical_not), no_gradient),
    "spike": Rule("truth({0} > splat(0))", lambda v, *attr: torch.ops.recurra.spike(v, *attr), d.spike),
    "stop": Rule("{0}", lambda x: x, no_gradient),  # detach
    "surrogate": _composite(surrogate, d.surrogate, lambda value, of, slope: apply("stop", value)),
}
