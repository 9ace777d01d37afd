"""A Lipschitz bound on one step of a cell, from the traced step and its weights alone.

For h = tanh(W h + U x + b) the bound is γ σ_max(W) of the survey. The same rule, applied operation by operation, bounds
other cells: a matrix product multiplies by the largest singular value, tanh by 1, the logistic function by 1/4, and the
constants of a sum add up. A gate times an unbounded state has no constant; such a cell has no bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from ..cell import Cell
from ..engine.operations import product_of
from ..engine.trace import Step, trace

aten = torch.ops.aten

LIPSCHITZ = {aten.tanh.default: 1.0, aten.relu.default: 1.0, aten.sigmoid.default: 0.25, aten.neg.default: 1.0}
LIPSCHITZ |= {aten.sin.default: 1.0, aten.cos.default: 1.0, aten.abs.default: 1.0, aten.clone.default: 1.0}
MAGNITUDES = {aten.tanh.default: 1.0, aten.sigmoid.default: 1.0, aten.sin.default: 1.0, aten.cos.default: 1.0}


@dataclass
class LipschitzValue:
    """A value that depends on the data: its Lipschitz constant in each state, and the largest magnitude it can have."""

    lipschitz: dict[str, float] = field(default_factory=dict)
    magnitude: float = math.inf


class _Unbounded(Exception):
    """An operation without a Lipschitz constant."""


def step_bound(cell: Cell) -> dict[int, float] | None:
    """`{delay: constant}` with ‖∂h_t/∂h_{t-k}‖ ≤ constant[k] for fixed other delays, or None without a bound.

    Only cells with one state have a bound. {1: γ σ_max(W)} is the bound of the survey.
    """
    if len(cell.carried) != 1:
        return None
    step = trace(cell)
    try:
        slopes = _walk(step, cell.weights())
    except _Unbounded:
        return None
    return {_delay(name): slope for name, slope in slopes.items() if slope > 0.0 and name in step.inputs}


def bound_curve(constants: dict[int, float], lags: int) -> Tensor:
    """(lags + 1,): the bound on ‖∂h_t/∂h_{t-n}‖ for n = 0 … lags, β_n = Σ_k constant[k] β_{n-k}."""
    curve = [1.0]
    for n in range(1, lags + 1):
        curve.append(sum(constant * curve[n - k] for k, constant in constants.items() if k <= n))
    return torch.tensor(curve, dtype=torch.float64)


def _delay(name: str) -> int:
    return int(name.partition("[")[2].rstrip("]")) if "[" in name else 1


def _walk(step: Step, weights: dict[str, Tensor]) -> dict[str, float]:
    """The Lipschitz constants of the new state in every old one."""
    known: dict[fx.Node, Any] = {}
    for name in step.inputs:
        known[step.node(name)] = LipschitzValue({} if name == "x" else {name: 1.0})
    for name in step.weights:
        known[step.node(name)] = weights[name].detach()
    new_state = step.results()[1]
    for node in step.graph.nodes:
        if node.op == "call_function":
            known[node] = _apply(node, lambda a: known.get(a, a) if isinstance(a, fx.Node) else a)
        if node is new_state:
            break
    found = known[new_state]
    return found.lipschitz if isinstance(found, LipschitzValue) else {}


def _apply(node: fx.Node, read: Callable[[Any], Any]) -> Any:
    target: Any = node.target
    arguments: Any = fx.node.map_aggregate(node.args, read)
    if not any(isinstance(a, LipschitzValue) for a in _flat(arguments)):
        return target(*arguments, **fx.node.map_aggregate(node.kwargs, read))  # depends on weights alone: a constant
    if product_of(node) is not None and isinstance(arguments[1], Tensor):
        return _scaled(arguments[0], float(torch.linalg.matrix_norm(arguments[1], 2)))
    if target in LIPSCHITZ:
        value = _scaled(arguments[0], LIPSCHITZ[target])
        return LipschitzValue(value.lipschitz, MAGNITUDES.get(target, arguments[0].magnitude))
    if target in (aten.add.Tensor, aten.sub.Tensor, aten.add.Scalar, aten.sub.Scalar, aten.rsub.Scalar):
        return _sum(*arguments[:2])
    if target in (aten.mul.Tensor, aten.mul.Scalar):
        return _product(*arguments[:2])
    if target in (aten.div.Tensor, aten.div.Scalar) and not isinstance(arguments[1], LipschitzValue):
        return _scaled(arguments[0], _largest(1 / torch.as_tensor(arguments[1])))
    raise _Unbounded(str(target))


def _flat(arguments: Any) -> list[Any]:
    return [item for a in arguments for item in (_flat(a) if isinstance(a, (list, tuple)) else [a])]


def _largest(value: Any) -> float:
    return float(torch.as_tensor(value).abs().max())


def _scaled(value: LipschitzValue, factor: float) -> LipschitzValue:
    return LipschitzValue({name: factor * slope for name, slope in value.lipschitz.items()}, factor * value.magnitude)


def _sum(a: Any, b: Any) -> LipschitzValue:
    slopes: dict[str, float] = {}
    for part in (a, b):
        for name, slope in part.lipschitz.items() if isinstance(part, LipschitzValue) else ():
            slopes[name] = slopes.get(name, 0.0) + slope
    heights = [part.magnitude if isinstance(part, LipschitzValue) else _largest(part) for part in (a, b)]
    return LipschitzValue(slopes, sum(heights))


def _product(a: Any, b: Any) -> LipschitzValue:
    """|a b - a' b'| ≤ |a| |b - b'| + |b'| |a - a'|: an unbounded factor leaves no constant."""
    if not isinstance(a, LipschitzValue) or not isinstance(b, LipschitzValue):
        fixed, moving = (a, b) if isinstance(b, LipschitzValue) else (b, a)
        return _scaled(moving, _largest(fixed))
    slopes: dict[str, float] = {}
    for one, other in ((a, b), (b, a)):
        for name, slope in one.lipschitz.items():
            if slope and math.isinf(other.magnitude):
                raise _Unbounded("a product of two unbounded values that depend on the state")
            slopes[name] = slopes.get(name, 0.0) + slope * other.magnitude
    return LipschitzValue(slopes, a.magnitude * b.magnitude)
