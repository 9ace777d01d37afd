"""Every operation of the table in one or a few cells, on numbers where operations tend to be wrong.

`cases()` lists the rows of the table and torch functions that lower to several of them. A `TableCell` applies each to
columns of its own of x, so one compiled step tests many operations on many numbers.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recurra.cell import Cell
from recurra.engine.ir.table import TABLE, attributes, evaluate

INF, NAN = float("inf"), float("nan")
KINKS = [0.5, -0.5, 0.25, -0.25, 0.1, -0.1, 2.0, -2.0, 3.0, -3.0, 6.0, 20.0]
EXTREMES = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-40, -1e-40, 1e30, -1e30, 1e-30, -1e-30]
LARGE = [16777216.0, -16777215.0, 2147483648.0, 123456789.0, 1e10]  # integers, some beyond the precision of float32
BETWEEN = [1.5, -1.5, 2.5, -2.5, 0.7, -0.7, 0.9, 1e-5, 9.0, -9.0, 87.0, -87.0, -100.0, 4.0, -40.0]
VALUES = [*EXTREMES, *KINKS, *LARGE, *BETWEEN]
FEW = [0.0, -0.0, 1.0, -0.5, 0.5, 0.3, INF, -INF, NAN, 1e30, -1e-30, 3.0]  # for three operands
COLUMNS = 61  # a few vectors of floats and a part of one

# The attributes of the rows that have some.
ATTRIBUTES: dict[str, list[Any]] = {
    "pow": [1.7, -2.0, 4.0, 5.0],
    "clamp": [(-0.5, 0.5), (0.5, -0.5), (None, 2.0), (-2.0, None)],
    "logit": [None, 0.1],
    "nan_to_num": [(0.5, 7.0, -7.0)],
    "hardtanh": [(-1.0, 1.0), (0.0, 6.0)],
    "softshrink": [0.5],
    "hardshrink": [0.5],
    "elu": [(1.0, 1.0, 1.0), (1.6732632423543772, 1.0507009873554805, 1.0), (2.0, 1.0, 0.5)],
    "softplus_of": [(1.0, 20.0), (2.0, 4.0)],
    "addcdiv": [0.7],
    "integer": [32, 64],
    "spike": [("atan", 2.0, 0.3), ("triangle", 1.0, 1.0), ("fast_sigmoid", 25.0, 1.0)],
}
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "relu6": F.relu6,
    "selu": F.selu,
    "celu": lambda a: F.celu(a, 2.0),
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu by tanh": lambda a: F.gelu(a, approximate="tanh"),
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda a: F.threshold(a, 1.0, 5.0),
    "softplus": F.softplus,
    "nan_to_num": torch.nan_to_num,
    "isnan": lambda a: torch.isnan(a).to(a.dtype),
    "isinf": lambda a: torch.isinf(a).to(a.dtype),
    "isfinite": lambda a: torch.isfinite(a).to(a.dtype),
    "isposinf": lambda a: torch.isposinf(a).to(a.dtype),
    "isneginf": lambda a: torch.isneginf(a).to(a.dtype),
    "signbit": lambda a: torch.signbit(a).to(a.dtype),
    "frac": torch.frac,
    "round to decimals": lambda a: torch.round(a, decimals=2),
    "deg2rad": torch.deg2rad,
    "square": torch.square,
    "cube": lambda a: a**3,
    "to the power 0.5": lambda a: a**0.5,
    "2 to a power": lambda a: 2.0**a,
    "3 to a power": lambda a: 3.0**a,
    "0 to a power": lambda a: 0.0**a,
    "remainder of a number": lambda a: torch.remainder(a, 0.1),
    "atan2 of a number": lambda a: torch.atan2(a, torch.full_like(a, -2.0)),
    "hypot of a number": lambda a: torch.hypot(torch.full_like(a, 2.0), a),
    "copysign of a number": lambda a: torch.copysign(a, torch.full_like(a, -0.0)),
    "number over": lambda a: 1.0 / a,
    "plus zero": lambda a: a + 0.0,
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_divide": lambda a, b: torch.floor_divide(a.detach(), b.detach()),  # torch has no derivative
    "heaviside": lambda a, b: torch.heaviside(a.detach(), b.detach()),
    "logical_xor": lambda a, b: torch.logical_xor(a, b).to(a.dtype),
    "bitwise_xor": lambda a, b: ((a > 0) ^ (b > 0)).to(a.dtype),
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.7),
    "clamp above": lambda a, b: torch.clamp(a, max=b),
    "lerp by a number": lambda a, b: torch.lerp(a, b, 0.7),
    "sgn": torch.sgn,
    "detach": lambda a: a.detach() * a,
}  # fmt: skip


# Cases whose rounding errors are larger, in units of the last place: (of the result, of 1), and why.
ROUNDING: dict[str, tuple[float, float]] = {
    "lerp by a number": (4, 16),  # the sum cancels, and may be fused
    "mish": (16, 8),  # torch's derivative cancels
    "logaddexp": (4, 2),  # the sum cancels, in one order or another
    "logaddexp2": (4, 2),
    "lerp": (4, 2),
    "gelu by tanh": (16, 16),  # 1 + tanh cancels
    "tanhshrink": (4, 2),  # x - tanh(x) cancels
    "gelu": (4, 1),  # 1 + erf cancels, and torch's erf for a GPU is less exact
    "addcmul": (4, 1),  # the sum cancels, and may be fused
    "pow 1.7": (16, 0),  # of numbers beyond 1e7, on a GPU: a logarithm that is rounded once, times 1.7
}
# Of 0 and -0 either is the larger one, also in torch.
UNSIGNED = ("maximum", "minimum", "fmax", "fmin", "clamp_min", "clamp_max", "clamp_between", "clamp above")
# On a GPU the sign of a zero may be lost: tanh adds a product to x; a value that is only passed on is added to zero; of
# x and 0 either is the larger one.
UNSIGNED_ON_A_GPU = ("tanh", "tanhshrink", "stop", "relu", "relu6", "hardtanh (0.0, 6.0)", "softshrink 0.5")


@dataclass(frozen=True)
class Case:
    """A function of one to three rows."""

    name: str
    function: Callable[..., Tensor]
    operands: int


def cases() -> list[Case]:
    """Every row of the table, with every attribute, and the functions."""
    rows = [
        Case(op if attr is None else f"{op} {attr}", _row(op, attr), _operands(op, attr))
        for op in TABLE
        for attr in ATTRIBUTES.get(op, [None])
    ]
    functions = [
        Case(name, f, f.__code__.co_argcount if f.__name__ == "<lambda>" else 1) for name, f in FUNCTIONS.items()
    ]
    return [*rows, *functions]


def _row(op: str, attr: Any) -> Callable[..., Tensor]:
    return lambda *args: evaluate(op, args, attr)


def _operands(op: str, attr: Any) -> int:
    rule = TABLE[op]
    if rule.expansion is not None:
        return len(inspect.signature(rule.expansion).parameters) - max(len(attributes(attr)), op in ATTRIBUTES)
    return 1 + max((i for i in range(3) if f"{{{i}}}" in rule.cpp), default=0)


def operand_values(operands: int, dtype: torch.dtype) -> list[Tensor]:
    """For each operand (rows, COLUMNS): all numbers, all pairs, or all triples of fewer numbers, then repeated."""
    grid = list(product(*[FEW if operands == 3 else VALUES] * operands))
    rows = -(-max(len(VALUES) ** 2, len(FEW) ** 3) // COLUMNS)
    numbers = torch.tensor(grid, dtype=torch.float64).to(dtype).T  # (operands, count)
    repeats = -(-rows * COLUMNS // numbers.shape[1])
    return list(numbers.repeat(1, repeats)[:, : rows * COLUMNS].reshape(operands, rows, COLUMNS))


class TableCell(Cell):
    """Applies each case to its own columns of x; the output is all results."""

    states = ("h",)

    def __init__(self, chosen: Sequence[Case]):
        super().__init__(sum(c.operands for c in chosen) * COLUMNS, 1, output_size=len(chosen) * COLUMNS)
        self.chosen, self.w = tuple(chosen), self.vector(fill=1.0)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        found, first = [], 0
        for case in self.chosen:
            last = first + case.operands * COLUMNS
            found.append(case.function(*x[:, first:last].split(COLUMNS, 1)))
            first = last
        return torch.cat(found, 1), h * self.w

    def values(self, dtype: torch.dtype) -> Tensor:
        """x: (1, B, input_size)."""
        return torch.cat([v for case in self.chosen for v in operand_values(case.operands, dtype)], 1)[None]


def cotangent(like: Tensor) -> Tensor:
    """Cotangents of several sizes and both signs."""
    return (
        torch.tensor([0.75, -1.25, 2.0], dtype=torch.float64)
        .to(like)
        .repeat(like.numel() // 3 + 1)[: like.numel()]
        .view_as(like)
    )


@dataclass(frozen=True)
class Expected:
    """What torch computes for a case."""

    result: Tensor
    gradients: list[Tensor]


def by_torch(case: Case, operands: Sequence[Tensor], g: Tensor, spread: bool) -> Expected:
    """The result and gradients by torch alone; `spread`: of numbers apart in memory, which torch takes one by one."""
    stored = [torch.stack([v, v], -1)[..., 0] if spread else v.contiguous() for v in (*operands, g)]
    leaves = [v.detach().requires_grad_() for v in stored[:-1]]
    found: Sequence[Tensor | None] = [None] * len(leaves)
    with torch.enable_grad():
        result = case.function(*leaves)
        if result.requires_grad:
            found = torch.autograd.grad(result, leaves, stored[-1], allow_unused=True)
    zero = torch.zeros_like(result)
    return Expected(result.detach(), [zero if d is None else zero + d for d in found])


def differences(
    cell: TableCell, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor, unsigned_zeros: Collection[str] = ()
) -> list[str]:
    """Where results and gradients differ from torch's, as text, one line per case and number. `unsigned_zeros`: cases
    whose zeros may have any sign.

    Torch's vector code and its code for single numbers differ here and there (NaN in hardtanh's derivative, fmod of far
    numbers): either is accepted.
    """
    found, first = [], 0
    for case, mine, g in zip(cell.chosen, y[0].split(COLUMNS, 1), dy[0].split(COLUMNS, 1), strict=True):
        last = first + case.operands * COLUMNS
        operands, slopes = (v[0, :, first:last].split(COLUMNS, 1) for v in (x, dx))
        vector, scalar = (by_torch(case, operands, g, spread) for spread in (False, True))
        first = last
        for what, got, one, other in [
            ("value", mine, vector.result, scalar.result),
            *((f"gradient {i}", d, vector.gradients[i], scalar.gradients[i]) for i, d in enumerate(slopes)),
        ]:
            bad = ~(_agree(got, one, case.name, what) | _agree(got, other, case.name, what))
            bad &= _is_defined(case.name, operands)
            if case.name in (*UNSIGNED, *unsigned_zeros):
                bad &= (got != 0) | (one != 0)
            for row, column in bad.nonzero().tolist()[:4]:
                at = ", ".join(f"{o[row, column].item():.9g}" for o in operands)
                values = f"{got[row, column].item():.9g}, torch {one[row, column].item():.9g}"
                found.append(f"{case.name}({at}) {what}: {values}")
    return found


def _is_defined(name: str, operands: Sequence[Tensor]) -> Tensor:
    """Whether torch defines the result: it does not for a cast to an integer out of range."""
    if not name.startswith("integer"):
        return torch.ones_like(operands[0], dtype=torch.bool)
    return operands[0].abs() < 2.0 ** (int(name.split()[1]) - 1)


def _agree(got: Tensor, expected: Tensor, name: str, what: str) -> Tensor:
    """NaN equals NaN, infinities too, other numbers agree to a few units in the last place; zeros have torch's sign.

    A denormal number may become zero. Derivatives such as 1 - y² cancel, to the precision of 1.
    """
    kind, is_value = torch.finfo(expected.dtype), what == "value"
    of_result, of_one = ROUNDING.get(name, (4, 0))
    of_one = of_one if is_value else max(of_one, 8)
    limit = kind.eps * (of_result * expected.abs() + of_one) + 2 * kind.tiny
    close = (got.double() - expected.double()).abs() <= limit.double()
    zeros = (got == 0) & (expected == 0)
    same_sign = ~zeros | (got.signbit() == expected.signbit()) if is_value else True
    return ((close | (got == expected)) & same_sign) | (got.isnan() & expected.isnan())
