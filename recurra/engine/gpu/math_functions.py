"""Elementwise functions as source text for kernels: expressions over `L`, Triton's or Gluon's language module.

`EXPRESSIONS` has one entry for each row of the operation table. Functions of more than one line are defined below;
their source is put in front of the kernel.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.values import Unsupported

L: Any = None  # the language module, in generated kernels


def exp(x):
    """Splits off the integer part of the exponent: the hardware function rounds x·log₂e and loses digits of large x."""
    x = L.where(x < -110.0, -110.0, L.where(x > 110.0, 110.0, x))
    whole = L.floor(x * 1.4426950408889634 + 0.5)
    rest = (x - whole * 0.693145751953125) - whole * 1.428606765330187e-06
    half = L.floor(whole * 0.5)
    return L.exp2(rest * 1.4426950408889634) * L.exp2(half) * L.exp2(whole - half)


def sigmoid(x):
    return L.div_rn(L.where(x == x, 1.0, x), 1.0 + exp(-x))


def tanh(x):
    """Cephes' polynomial near zero (S. Moshier 1989), where the difference of exponentials would cancel."""
    z = x * x
    p = -5.70498872745e-3 * z + 2.06390887954e-2
    p = p * z - 5.37397155531e-2
    p = p * z + 1.33314422036e-1
    p = p * z - 3.33332819422e-1
    near = x + x * z * p
    far = 1.0 - L.div_rn(L.where(x == x, 2.0, x), exp(2.0 * L.abs(x)) + 1.0)
    return L.where(L.abs(x) < 0.625, near, L.where(x < 0.0, -far, far))


def exp_of_16_bits(x):
    return L.exp(x)


def sigmoid_of_16_bits(x):
    return 1.0 / (1.0 + L.exp(-x))


def tanh_of_16_bits(x):
    """Its error is far below the resolution of 16 bits."""
    return 2.0 / (1.0 + L.exp(-2.0 * x)) - 1.0


def expm1(x):
    """The series near zero, where the difference would cancel."""
    p = x * 1.98412698e-4 + 1.38888889e-3
    p = p * x + 8.33333333e-3
    p = p * x + 4.16666667e-2
    p = p * x + 1.66666667e-1
    p = p * x + 0.5
    return L.where(L.abs(x) < 0.3, x + x * x * p, exp(x) - 1.0)


def log1p(x):
    """W. Kahan's correction for what 1 + x rounds away."""
    y = 1.0 + x
    rest = y - 1.0
    return L.where(rest == 0.0, x, L.where(y < 1e30, L.log(y) * (x / L.where(rest == 0.0, 1.0, rest)), L.log(y)))


def softplus(x):
    return L.where(x < 0.0, 0.0, x) + log1p(exp(-L.abs(x)))


def maximum(a, b):
    """NaN if either is."""
    return L.where((a > b) | (a != a), a, b)


def minimum(a, b):
    return L.where((a < b) | (a != a), a, b)


def truth(condition):
    return L.where(condition, 1.0, 0.0)


FUNCTIONS: tuple[Callable, ...] = (exp, sigmoid, tanh, expm1, log1p, softplus, maximum, minimum, truth)

EXPRESSIONS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "reciprocal": "1.0 / {0}",
    "sigmoid": "sigmoid({0})",
    "tanh": "tanh({0})",
    "relu": "L.where({0} < 0.0, 0.0, {0})",
    "exp": "exp({0})",
    "expm1": "expm1({0})",
    "log": "L.log({0})",
    "log1p": "log1p({0})",
    "softplus": "softplus({0})",
    "sin": "L.sin({0})",
    "cos": "L.cos({0})",
    "erf": "L.erf({0})",
    "sqrt": "L.sqrt({0})",
    "rsqrt": "1.0 / L.sqrt({0})",
    "abs": "L.abs({0})",
    "sign": "truth({0} > 0.0) - truth({0} < 0.0)",
    "floor": "L.floor({0})",
    "remainder": "{0} - {1} * L.floor({0} / {1})",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "where": "L.where({0} != 0.0, {1}, {2})",
    "eq": "truth({0} == {1})",
    "ne": "truth({0} != {1})",
    "lt": "truth({0} < {1})",
    "le": "truth({0} <= {1})",
    "gt": "truth({0} > {1})",
    "ge": "truth({0} >= {1})",
    "and": "truth(({0} != 0.0) & ({1} != 0.0))",
    "or": "truth(({0} != 0.0) | ({1} != 0.0))",
    "not": "truth({0} == 0.0)",
    "spike": "truth({0} > 0.0)",
    "stop": "{0}",
}


def expression(op: str, attr: Any, args: Sequence[str]) -> str:
    """The expression of an operation on variables of these names."""
    if op == "clamp":
        return clamp(args[0], *attr)
    if op == "pow":
        return power(args[0], attr)
    if op not in EXPRESSIONS:
        raise Unsupported(f"the operation {op}")
    return EXPRESSIONS[op].format(*(f"({a})" if a.startswith("-") else a for a in args))


def power(x: str, exponent: float) -> str:
    """Small integer exponents become products; others go through the logarithm and need a non-negative base."""
    whole = int(exponent)
    if whole == exponent and 0 < abs(whole) <= 8:
        product = " * ".join([x] * abs(whole))
        return product if whole > 0 else f"1.0 / ({product})"
    return f"exp({number(exponent)} * L.log({x}))"


def clamp(x: str, low: float | None, high: float | None) -> str:
    """NaN passes."""
    inner = x if low is None else f"L.where({x} < {number(low)}, {number(low)}, {x})"
    return inner if high is None else f"L.where({x} > {number(high)}, {number(high)}, {inner})"


def number(value: float) -> str:
    return repr(float(value)) if abs(value) != float("inf") else f'float("{value}")'


SHORT = {"exp": exp_of_16_bits, "sigmoid": sigmoid_of_16_bits, "tanh": tanh_of_16_bits}


def preamble(exact: bool) -> str:
    """Source of the functions in front of a kernel; unless `exact`, faster ones with 16-bit accuracy."""
    texts = []
    for function in FUNCTIONS:
        name = function.__name__
        chosen = function if exact else SHORT.get(name, function)
        texts.append(f"@jit\n{inspect.getsource(chosen)}".replace(chosen.__name__ + "(x)", name + "(x)"))
    return "\n\n".join(texts)
