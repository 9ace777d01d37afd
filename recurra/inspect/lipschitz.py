"""How much a step can stretch a small change of its state, whatever the data: read off the traced step and its weights.

For h = tanh(W h + U x + b) this is the survey's γ σ_max(W). The same rule, applied operation by operation, gives the
constant of any cell whose step allows one: a product stretches by the matrix's largest singular value, tanh by 1, the
logistic function by 1/4, a sum by the sum. A gate times a state has no constant, for the state may be anything; then
there is no bound from the weights alone, and none is claimed.
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

SLOPES = {aten.tanh.default: 1.0, aten.relu.default: 1.0, aten.sigmoid.default: 0.25, aten.neg.default: 1.0}
SLOPES |= {aten.sin.default: 1.0, aten.cos.default: 1.0, aten.abs.default: 1.0, aten.clone.default: 1.0}
HEIGHTS = {aten.tanh.default: 1.0, aten.sigmoid.default: 1.0, aten.sin.default: 1.0, aten.cos.default: 1.0}


@dataclass
class Grown:
    """A value that depends on the data: its Lipschitz constant in each state it reads, and how large it can get."""

    slope: dict[str, float] = field(default_factory=dict)
    height: float = math.inf


class _Unbounded(Exception):
    """An operation without a constant."""


def step_bound(cell: Cell) -> dict[int, float] | None:
    """`{delay: constant}`: ‖∂h_t/∂h_{t-k}‖ ≤ constant[k] with the other delays held; None where there is no bound.

    For cells with one state. {1: γ σ_max(W)} is the survey's bound.
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
    """(lags + 1,) the bound on ‖∂h_t/∂h_{t-n}‖ for n = 0 … lags: β_n = Σ_k constant[k] β_{n-k}."""
    curve = [1.0]
    for n in range(1, lags + 1):
        curve.append(sum(constant * curve[n - k] for k, constant in constants.items() if k <= n))
    return torch.tensor(curve, dtype=torch.float64)


def _delay(name: str) -> int:
    return int(name.partition("[")[2].rstrip("]")) if "[" in name else 1


def _walk(step: Step, weights: dict[str, Tensor]) -> dict[str, float]:
    """The slopes of the new state in every old one."""
    known: dict[fx.Node, Any] = {}
    for name in step.inputs:
        known[step.node(name)] = Grown({} if name == "x" else {name: 1.0})
    for name in step.weights:
        known[step.node(name)] = weights[name].detach()
    wanted = step.results()[1]
    for node in step.graph.nodes:
        if node.op == "call_function":
            known[node] = _apply(node, lambda a: known.get(a, a) if isinstance(a, fx.Node) else a)
        if node is wanted:
            break
    found = known[wanted]
    return found.slope if isinstance(found, Grown) else {}


def _apply(node: fx.Node, read: Callable[[Any], Any]) -> Any:
    target: Any = node.target
    arguments: Any = fx.node.map_aggregate(node.args, read)
    if not any(isinstance(a, Grown) for a in _flat(arguments)):
        return target(*arguments, **fx.node.map_aggregate(node.kwargs, read))  # of weights alone: a number
    if product_of(node) is not None and isinstance(arguments[1], Tensor):
        return _scaled(arguments[0], float(torch.linalg.matrix_norm(arguments[1], 2)))
    if target in SLOPES:
        grown = _scaled(arguments[0], SLOPES[target])
        return Grown(grown.slope, HEIGHTS.get(target, arguments[0].height))
    if target in (aten.add.Tensor, aten.sub.Tensor, aten.add.Scalar, aten.sub.Scalar, aten.rsub.Scalar):
        return _sum(*arguments[:2])
    if target in (aten.mul.Tensor, aten.mul.Scalar):
        return _product(*arguments[:2])
    if target in (aten.div.Tensor, aten.div.Scalar) and not isinstance(arguments[1], Grown):
        return _scaled(arguments[0], _largest(1 / torch.as_tensor(arguments[1])))
    raise _Unbounded(str(target))


def _flat(arguments: Any) -> list[Any]:
    return [one for a in arguments for one in (_flat(a) if isinstance(a, (list, tuple)) else [a])]


def _largest(value: Any) -> float:
    return float(torch.as_tensor(value).abs().max())


def _scaled(value: Grown, factor: float) -> Grown:
    return Grown({name: factor * slope for name, slope in value.slope.items()}, factor * value.height)


def _sum(a: Any, b: Any) -> Grown:
    slopes: dict[str, float] = {}
    for part in (a, b):
        for name, slope in part.slope.items() if isinstance(part, Grown) else ():
            slopes[name] = slopes.get(name, 0.0) + slope
    heights = [part.height if isinstance(part, Grown) else _largest(part) for part in (a, b)]
    return Grown(slopes, sum(heights))


def _product(a: Any, b: Any) -> Grown:
    """|a b - a' b'| ≤ |a| |b - b'| + |b'| |a - a'|: a factor that can be anything leaves no constant."""
    if not isinstance(a, Grown) or not isinstance(b, Grown):
        fixed, moving = (a, b) if isinstance(b, Grown) else (b, a)
        return _scaled(moving, _largest(fixed))
    slopes: dict[str, float] = {}
    for one, other in ((a, b), (b, a)):
        for name, slope in one.slope.items():
            if slope and math.isinf(other.height):
                raise _Unbounded("a product of two values that depend on the state")
            slopes[name] = slopes.get(name, 0.0) + slope * other.height
    return Grown(slopes, a.height * b.height)
