"""Elementwise functions as source text for kernels: expressions over `L`, Triton's or Gluon's language module.

`EXPRESSIONS` has one entry for each row of the operation table that is not expanded. Functions of more than one line
are defined below; the source of those that a kernel uses is put in front of it.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch

from ..ir.table import attributes
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
    return L.where(L.abs(x) < 0.3, x * (1.0 + x * p), exp(x) - 1.0)


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


# The functions below compute in double precision. Their formulas would lose digits in single precision, and they are
# rare in cells.


def spread(x, other):
    """x in the shape of both; a number in the kernel's text becomes a value."""
    return L.where(other == other, x, x)


def double(x):
    return spread(x, x).to(L.float64)


def is_negative(x):
    """By the sign bit: -0 is."""
    return (x < 0.0) | (1.0 / x < 0.0)


def copysign(size, sign):
    found = L.abs(spread(size, sign))
    return L.where(is_negative(spread(sign, size)), found * -1.0, found)  # `-0.0` would be 0 in Triton


def trunc(x):
    return copysign(L.floor(L.abs(x)), x)


def nearest(x):
    """Round half to even; a zero keeps the sign of x."""
    below = L.floor(x)
    rest = x - below
    odd = below - 2.0 * L.floor(0.5 * below) != 0.0
    whole = L.where((rest > 0.5) | ((rest == 0.5) & odd), below + 1.0, below)
    return L.where(L.abs(x) < 8388608.0, copysign(whole, x), x)


def integer(x, limit):
    """A cast to a signed integer saturates, as the hardware's does."""
    whole = L.where(x == x, trunc(x), 0.0)
    return L.where(whole >= limit, limit, L.where(whole < -limit, -limit, whole)) + 0.0


def fmod(a, b):
    """Subtracts multiples of b, 28 bits of the quotient at a time: each product is exact in double precision."""
    x = spread(a, b).to(L.float64)
    size = L.abs(spread(b, a).to(L.float64))
    rest = L.abs(x)
    part = size * 7.237005577332262e75  # 2^252
    for _ in range(10):
        rest = L.where(rest >= part, rest - L.floor(rest / part) * part, rest)
        rest = L.where(rest < 0.0, rest + part, L.where(rest >= part, rest - part, rest))
        part = part * 3.725290298461914e-09  # 2^-28
    undefined = (x != x) | (size != size) | (size == 0.0) | (L.abs(x) == float("inf"))
    found = L.where(undefined, float("nan"), L.where(size == float("inf"), L.abs(x), rest))
    return copysign(found, x).to(L.float32)


def power(base, exponent, rest):
    """base ** (exponent + rest): a number in the kernel's text has 24 bits, `rest` holds those below."""
    x = spread(base, exponent).to(L.float64)
    y = spread(exponent, base).to(L.float64) + spread(rest, base).to(L.float64)
    size = L.where(L.abs(x) == 1.0, 1.0, L.exp2(y * L.log2(L.abs(x))))
    whole = L.floor(y) == y
    odd = whole & (L.abs(y) != float("inf")) & (y - 2.0 * L.floor(0.5 * y) != 0.0)
    undefined = (x < 0.0) & ~whole & (L.abs(x) != float("inf"))
    result = L.where(undefined, float("nan"), L.where(is_negative(x) & odd, size * -1.0, size))
    return L.where((y == 0.0) | (x == 1.0), 1.0, result).to(L.float32)


def hypot(a, b):
    x = spread(a, b).to(L.float64)
    y = spread(b, a).to(L.float64)
    infinite = (L.abs(x) == float("inf")) | (L.abs(y) == float("inf"))
    return L.where(infinite, float("inf"), L.sqrt(x * x + y * y)).to(L.float32)


def log2(x):
    return L.log2(double(x)).to(L.float32)


def log10(x):
    return (L.log(double(x)) * 0.4342944819032518).to(L.float32)


def double_atan(x):
    """Cephes' polynomial (S. Moshier 1989) after reduction to |x| <= tan(π / 8)."""
    size = L.abs(x)
    far = size > 2.414213562373095
    middle = (size > 0.4142135623730950) & ~far
    inner = L.where(far, -1.0 / L.where(far, size, 1.0), L.where(middle, (size - 1.0) / (size + 1.0), size))
    start = L.where(far, 1.5707963267948966, L.where(middle, 0.7853981633974483, 0.0))
    z = inner * inner
    p = 8.05374449538e-2 * z - 1.38776856032e-1
    p = p * z + 1.99777106478e-1
    p = p * z - 3.33329491539e-1
    found = start + (p * z * inner + inner)
    return L.where(is_negative(x), found * -1.0, found)


def atan(x):
    return double_atan(double(x)).to(L.float32)


def atan2(a, b):
    y = spread(a, b).to(L.float64)
    x = spread(b, a).to(L.float64)
    both = (L.abs(y) == float("inf")) & (L.abs(x) == float("inf"))
    ratio = L.where(both, 1.0, L.where(y == 0.0, 0.0, L.abs(y) / L.abs(x)))
    angle = double_atan(ratio)
    angle = L.where(is_negative(x), 3.141592653589793 - angle, angle)
    angle = L.where((y != y) | (x != x), float("nan"), angle)
    return L.where(is_negative(y), angle * -1.0, angle).to(L.float32)


def asin(x):
    y = double(x)
    return double_atan(y / L.sqrt((1.0 - y) * (1.0 + y))).to(L.float32)


def acos(x):
    y = double(x)
    return (2.0 * double_atan(L.sqrt((1.0 - y) / (1.0 + y)))).to(L.float32)


def tan(x):
    return L.sin(x) / L.cos(x)


def sinh(x):
    power_of_e = L.exp(double(x))
    return L.where(L.abs(x) < 1e-4, x, (0.5 * (power_of_e - 1.0 / power_of_e)).to(L.float32))


def cosh(x):
    power_of_e = L.exp(double(x))
    return (0.5 * (power_of_e + 1.0 / power_of_e)).to(L.float32)


def asinh(x):
    size = L.abs(double(x))
    found = L.log(size + L.sqrt(size * size + 1.0)).to(L.float32)
    return L.where(L.abs(x) < 1e-4, x, copysign(found, x))


def acosh(x):
    y = double(x)
    return L.log(y + L.sqrt(y - 1.0) * L.sqrt(y + 1.0)).to(L.float32)


def atanh(x):
    y = double(x)
    return L.where(L.abs(x) < 1e-4, x, (0.5 * L.log((1.0 + y) / (1.0 - y))).to(L.float32))


def erfc(x):
    """W. Press et al., Numerical Recipes, section 6.2: a Chebyshev fit, relative error 1.2e-7."""
    size = L.abs(double(x))
    t = 1.0 / (1.0 + 0.5 * size)
    p = 0.17087277 * t - 0.82215223
    p = p * t + 1.48851587
    p = p * t - 1.13520398
    p = p * t + 0.27886807
    p = p * t - 0.18628806
    p = p * t + 0.09678418
    p = p * t + 0.37409196
    p = p * t + 1.00002368
    p = p * t - 1.26551223
    tail = L.where(size == float("inf"), 0.0, t * L.exp(p - size * size))
    return L.where(x < 0.0, 2.0 - tail, tail).to(L.float32)


FUNCTIONS: tuple[Callable, ...] = (
    *(exp, sigmoid, tanh, expm1, log1p, softplus, maximum, minimum, truth),
    *(spread, double, is_negative, copysign, trunc, nearest, integer, fmod, power, hypot, log2, log10),
    *(double_atan, atan, atan2, asin, acos, tan, sinh, cosh, asinh, acosh, atanh, erfc),
)

EXPRESSIONS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "{0} * -1.0",  # `-x` is `0 - x` in Triton, which makes 0 of 0
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
    "ceil": "L.floor({0} * -1.0) * -1.0",
    "round": "nearest({0})",
    "exp2": "L.exp2({0})",
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
for called in (trunc, log2, log10, atan, asin, acos, tan, sinh, cosh, asinh, acosh, atanh, erfc):
    EXPRESSIONS[called.__name__] = f"{called.__name__}({{0}})"
for called in (copysign, fmod, hypot, atan2):
    EXPRESSIONS[called.__name__] = f"{called.__name__}({{0}}, {{1}})"
EXPRESSIONS["power"] = "power({0}, {1}, 0.0)"


def expression(op: str, attr: Any, args: Sequence[str]) -> str:
    """The expression of an operation on variables of these names."""
    if op in WRITERS:
        return WRITERS[op](args[0], *attributes(attr))
    if op == "copysign" and args[1].startswith("-"):  # in the kernel's text, `-0.0` is 0
        args = [args[0], "-1.0"]
    if op not in EXPRESSIONS:
        raise Unsupported(f"the operation {op}")
    return EXPRESSIONS[op].format(*(f"({a})" if a.startswith("-") else a for a in args))


def power_by_number(x: str, exponent: float) -> str:
    """Small integer exponents become products."""
    whole = int(exponent)
    if whole == exponent and 0 < abs(whole) <= 8:
        product = " * ".join([x] * abs(whole))
        return product if whole > 0 else f"1.0 / ({product})"
    near = torch.tensor(exponent, dtype=torch.float32).item()
    return f"power({x}, {number(near)}, {number(exponent - near if isfinite(near) else 0.0)})"


def cast_to_integer(x: str, bits: float) -> str:
    return f"integer({x}, {2.0 ** (bits - 1)})"


def clamp(x: str, low: float | None, high: float | None) -> str:
    """min(max(x, low), high): the upper bound wins. NaN passes."""
    inner = x if low is None else f"L.where({x} < {number(low)}, {number(low)}, {x})"
    return inner if high is None else f"L.where({inner} > {number(high)}, {number(high)}, {inner})"


WRITERS = {"clamp": clamp, "pow": power_by_number, "integer": cast_to_integer}  # whose text depends on attributes


def can_write(op: str) -> bool:
    """Whether there is an expression of an operation."""
    return op in EXPRESSIONS or op in WRITERS


def number(value: float) -> str:
    return repr(float(value)) if isfinite(value) else f'float("{value}")'


SHORT = {"exp": exp_of_16_bits, "sigmoid": sigmoid_of_16_bits, "tanh": tanh_of_16_bits}


def preamble(exact: bool, kernel: str) -> str:
    """Source of the functions that a kernel calls; unless `exact`, faster ones with 16-bit accuracy."""
    texts = _texts(exact)
    used: set[str] = set()
    todo = [kernel]
    while todo:
        called = set(re.findall(r"(?<![\w.])(\w+)\(", todo.pop())) & (texts.keys() - used)
        used |= called
        todo += [texts[name].partition("\n")[2].partition("\n")[2] for name in called]
    return "\n\n".join(text for name, text in texts.items() if name in used)


@functools.cache
def _texts(exact: bool) -> dict[str, str]:
    """Name → source of each function."""
    texts = {}
    for function in FUNCTIONS:
        name = function.__name__
        chosen = function if exact else SHORT.get(name, function)
        texts[name] = f"@jit\n{inspect.getsource(chosen)}".replace(chosen.__name__ + "(x)", name + "(x)")
    return texts
