"""Forward accumulation of ds/dw, the influence of weights on states; used by RTRL and DEKF.

`Dense` keeps the full ds/dw, (B, n, P). `Rows` is for cells where row j of each weight affects only unit j, so that one
number per state and weight suffices, (B, m, P): exact where states interact element by element (IndRNN, minGRU), and
SnAp-1 of Menick et al. 2021 where they interact through products. `Masked` is SnAp-1 for all other cells: ds/dw is kept
where a weight reaches a state within one step.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import jacrev, vjp, vmap

from recurra.cell import TIME, Cell
from recurra.engine.operations import MEANING
from recurra.engine.trace import Step, trace
from recurra.train.cost import check_cost
from recurra.train.every_branch import EveryBranch
from recurra.train.step_function import StepFunction

aten = torch.ops.aten


class Sensitivity(ABC):
    """The state of B sequences and its derivative by the recurrent weights, advanced step by step."""

    def __init__(self, step_fn: StepFunction):
        self.step_fn = step_fn
        self.state = torch.empty(0)  # (B, n)
        self.influence = torch.empty(0)  # (B, rows, P)

    def reset(self, batch: int) -> None:
        weights, _ = self.step_fn.flat()
        self.state = self.step_fn.start(weights, batch)
        self.influence = self._initial_influence(weights, batch)

    def advance(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (B, q) of the step that reads x (B, D), and their derivatives by recurrent and head weights."""
        weights, readout = self.step_fn.flat()
        given = (weights, readout, self.state, x)
        y, self.state, self.influence, by_weights, by_readout = self._advance(*given)
        return y, by_weights, by_readout

    @abstractmethod
    def _initial_influence(self, weights: Tensor, batch: int) -> Tensor:
        """The influence before the first step: zero, unless the start is learned."""

    @abstractmethod
    def _advance(self, weights: Tensor, readout: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        """y, s', influence', dy/dw (B, q, P), dy/dr (B, q, R)."""

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "influence": self.influence}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state, self.influence = state["state"], state["influence"]


class Dense(Sensitivity):
    """P_t = J P_{t-1} + ∂⁺s/∂w in full: exact for every cell."""

    def _initial_influence(self, weights: Tensor, batch: int) -> Tensor:
        first = jacrev(lambda w: self.step_fn.start(w, 1)[0])(weights)  # (n, P)
        return first.expand(batch, *first.shape).contiguous()

    def _advance(self, weights: Tensor, readout: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        given = (weights, readout, state, x)
        jacobians = self.step_fn.function("dense", self.step_fn.jacobians, *given)
        y, new, by_weights, by_readout, by_state = jacobians(*given)
        total = torch.baddbmm(by_weights, by_state, self.influence) if state.shape[1] else by_weights  # (B, n + q, P)
        total, n = self._keep(total), state.shape[1]
        return y, new, total[:, :n], total[:, n:], by_readout[:, n:]

    def _keep(self, influence: Tensor) -> Tensor:
        return influence


class Masked(Dense):
    """SnAp-1: only entries where a weight reaches a state within one step; outputs that are no state are not masked."""

    def __init__(self, step_fn: StepFunction):
        super().__init__(step_fn)
        self.pattern = _pattern(step_fn)  # (n + q, P) bool

    def _keep(self, influence: Tensor) -> Tensor:
        return influence * self.pattern


class Rows(Sensitivity):
    """One number per state and weight, for cells where row j of each weight affects only unit j."""

    def __init__(self, step_fn: StepFunction):
        super().__init__(step_fn)
        cell = step_fn.cells[0]
        self.width, self.states = cell.carried[0].size, len(cell.carried)
        owners = [
            torch.arange(len(p)).view(-1, *[1] * (p.dim() - 1)).expand(p.shape) for p in step_fn.recurrent.values()
        ]
        self.owner = torch.cat([unit.reshape(-1) for unit in owners]).to(
            step_fn.like.device
        )  # (P,), the unit of each weight
        self.reach = self._reach_mask()

    def _initial_influence(self, weights: Tensor, batch: int) -> Tensor:
        start, pull = vjp(lambda w: self.step_fn.start(w, 1)[0], weights)  # pyrefly: ignore
        first = vmap(pull)(self._ones(start))[0]  # (m, P); no weight is shared, so sums over units are exact
        return first.expand(batch, *first.shape).contiguous()

    def _reach_mask(self) -> Tensor | None:
        """(m, P): whether a weight reaches this state of its unit in one step, probed at random points."""
        found = torch.zeros(self.states, self.step_fn.weight_count, dtype=torch.bool, device=self.step_fn.like.device)
        for weights, readout, state, x in _probes(self.step_fn):
            with EveryBranch():
                new, pull = vjp(lambda w, at=(readout, state, x): self.step_fn.step(w, *at)[1], weights)  # pyrefly: ignore
                found |= vmap(pull)(self._ones(new))[0] != 0
        return found

    def _ones(self, like: Tensor) -> Tensor:
        """(m, n): one row per state, ones at all its units."""
        eye = torch.eye(self.states, dtype=like.dtype, device=like.device)
        return eye.repeat_interleave(self.width, dim=1)

    def _derivatives(self, weights: Tensor, readout: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        (y, new), pull = vjp(lambda w, r, s: self.step_fn.step(w, r, s, x), weights, readout, state)  # pyrefly: ignore
        zero_y, zero_s = torch.zeros_like(y), torch.zeros_like(new)
        eye = torch.eye(len(y), dtype=y.dtype, device=y.device)
        y_weights, y_readout, y_state = vmap(lambda e: pull((e, zero_s)))(eye)
        s_weights = vmap(lambda e: pull((zero_y, e))[0])(self._ones(new))  # (m, P)
        by_state = vmap(lambda e: pull((zero_y, e))[2])(torch.eye(len(new), dtype=y.dtype, device=y.device))
        m, width = self.states, self.width
        blocks = by_state.view(m, width, m, width).diagonal(dim1=1, dim2=3)  # (m, m, H), unit j by unit j
        return y, new, y_weights, y_readout, y_state.view(-1, m, width), s_weights, blocks

    def _advance(self, weights: Tensor, readout: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        given = (weights, readout, state, x)
        function = self.step_fn.function("rows", self._derivatives, *given)
        y, new, y_weights, y_readout, y_state, s_weights, blocks = function(*given)
        past = self.influence
        influence = s_weights + torch.einsum("bklp,blp->bkp", blocks[..., self.owner], past)
        influence = influence if self.reach is None else influence * self.reach
        by_weights = y_weights + torch.einsum("bqlp,blp->bqp", y_state[..., self.owner], past)
        return y, new, influence, by_weights, y_readout


class Elementwise(Rows):
    """`Rows` for states that interact element by element: exact, and without the full Jacobian."""

    def _reach_mask(self) -> None:
        """No mask: all entries are exact."""

    def _derivatives(self, weights: Tensor, readout: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        (y, new), pull = vjp(lambda w, r, s: self.step_fn.step(w, r, s, x), weights, readout, state)  # pyrefly: ignore
        zero_y, zero_s = torch.zeros_like(y), torch.zeros_like(new)
        eye = torch.eye(len(y), dtype=y.dtype, device=y.device)
        y_weights, y_readout, y_state = vmap(lambda e: pull((e, zero_s)))(eye)
        s_weights, _, by_state = vmap(lambda e: pull((zero_y, e)))(self._ones(new))  # (m, P), (m, n)
        m, width = self.states, self.width
        return y, new, y_weights, y_readout, y_state.view(-1, m, width), s_weights, by_state.view(m, m, width)


# ---------------------------------------------------------------------------------------------------- choosing


def exact(step_fn: StepFunction, batch: int, memory_limit: int, algorithm: str = "RTRL") -> Sensitivity:
    """The cheapest exact form for this model; raises `CostError` if it exceeds the limit."""
    cheap = is_elementwise(step_fn)
    rows = len(step_fn.cells[0].carried) if cheap else step_fn.state_size
    numbers = batch * rows * step_fn.weight_count * (1 if cheap else 2)
    _check(step_fn, batch, numbers, rows, memory_limit, algorithm, "derivatives='snap1'" if algorithm == "DEKF" else "")
    return Elementwise(step_fn) if cheap else Dense(step_fn)


def snap1(step_fn: StepFunction, batch: int, memory_limit: int, algorithm: str = "RTRL") -> Sensitivity:
    """SnAp-1 by rows where the cell allows it, else as a masked full matrix."""
    by_rows = has_rows(step_fn)
    rows = len(step_fn.cells[0].carried) if by_rows else 2 * step_fn.state_size
    _check(step_fn, batch, batch * rows * step_fn.weight_count, rows, memory_limit, algorithm, "")
    return Elementwise(step_fn) if is_elementwise(step_fn) else Rows(step_fn) if by_rows else Masked(step_fn)


def _check(
    step_fn: StepFunction, batch: int, numbers: float, rows: int, memory_limit: int, algorithm: str, other: str
) -> None:
    what = f"{step_fn.state_size} states × {step_fn.weight_count:,} weights for {batch} sequence{'s' * (batch != 1)}"
    approximation = other or "RTRL(approximation='snap1')"
    instead = f"{approximation} keeps less, BPTT(k1=…, k2=…) learns from long streams without it"
    check_cost(algorithm, what, numbers, 2.0 * numbers * rows, step_fn.like.dtype, memory_limit, instead)


def is_elementwise(step_fn: StepFunction) -> bool:
    """Whether states interact element by element, and row j of each weight affects only unit j."""
    return _weights_have_rows(step_fn) and _is_unitwise(step_fn.cells[0], products_of_states=False)


def has_rows(step_fn: StepFunction) -> bool:
    """Whether within one step row j of each weight affects only unit j."""
    return _weights_have_rows(step_fn) and _is_unitwise(step_fn.cells[0], products_of_states=True)


def _weights_have_rows(step_fn: StepFunction) -> bool:
    if len(step_fn.cells) != 1:
        return False
    cell = step_fn.cells[0]
    width = cell.carried[0].size
    plain = all(s.size == width and s.delays is None and s.name != TIME for s in cell.carried)
    return plain and not cell.derived() and all(p.dim() and len(p) == width for p in step_fn.recurrent.values())


NONE, OWN, MIXED = 0, 1, 2  # a value depends on no unit, on its own unit, on several units


def _is_unitwise(cell: Cell, products_of_states: bool) -> bool:
    """Data-flow analysis: whether each unit of the new states depends only on its own weights and states."""
    step = trace(cell)
    width = cell.carried[0].size
    learned = {n for n, p in cell.named_parameters() if p.requires_grad}
    marks: dict[fx.Node, tuple[int, int]] = {}  # (by weights, by states)
    for node, name in zip(step.placeholders(), (*step.inputs, *step.weights), strict=True):
        is_state = name in step.inputs and name in cell.states
        marks[node] = (OWN if name in learned else NONE, OWN if is_state else NONE)
    for node in step.graph.nodes:
        if node.op == "call_function":
            marks[node] = _mark(node, marks, step, width)
    ends = [marks[result] for result in step.results()[1 : len(step.outputs)]]
    return all(w < MIXED and (s < MIXED or products_of_states) for w, s in ends)


def _mark(node: fx.Node, marks: dict[fx.Node, tuple[int, int]], step: Step, width: int) -> tuple[int, int]:
    sources = node.all_input_nodes
    by_weights = max((marks[s][0] for s in sources if s in marks), default=NONE)
    by_states = max((marks[s][1] for s in sources if s in marks), default=NONE)
    if node.target is aten.linear.default:
        value, matrix = node.args[0], node.args[1]
        bare = matrix in step.placeholders() and marks[value][0] == NONE  # pyrefly: ignore
        own = OWN if bare and _width(node) == width else MIXED
        return max(own, marks[value][0]), MIXED if by_states else NONE  # pyrefly: ignore
    meaning = MEANING.get(node.target)
    if meaning is not None and meaning.kind == "elementwise" and all(_width(s) == width for s in sources):
        return by_weights, by_states
    return (MIXED if by_weights else NONE), (MIXED if by_states else NONE)


def _width(node: fx.Node) -> int:
    value = node.meta.get("val")
    return int(value.shape[-1]) if isinstance(value, Tensor) and value.dim() else 1


def _pattern(step_fn: StepFunction) -> Tensor:
    """(n + q, P): where the derivatives of [s'; y] by the weights are not zero, probed at random points.

    An output that is no state is not carried, so nothing of it is left out.
    """
    n = step_fn.state_size
    found = torch.zeros((), dtype=torch.bool, device=step_fn.like.device)
    is_state = ~found  # (q,), whether an output equals a state at all points
    for weights, readout, state, x in _probes(step_fn):

        def both(w: Tensor, at: tuple[Tensor, ...] = (readout, state, x)) -> tuple[Tensor, Tensor]:
            values = torch.cat(step_fn.step(w, *at)[::-1])
            return values, values

        with EveryBranch():
            by_weights, values = jacrev(both, has_aux=True)(weights)
        found = found | (by_weights != 0)
        is_state = is_state & torch.isin(values[n:], values[:n])
    found[n:] |= ~is_state[:, None]
    return found


def _probes(step_fn: StepFunction, count: int = 8) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Random weights near the current ones, with random states and inputs.

    Several, because `EveryBranch` does not see into a surrogate derivative, which may be zero at a point.
    """
    step_fn.prepare()
    generator = torch.Generator().manual_seed(0)

    def draw(size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(step_fn.like)

    weights, readout = step_fn.flat()
    for _ in range(count):
        moved = weights + 0.5 * draw(len(weights))
        yield moved, readout, draw(step_fn.state_size), draw(step_fn.cells[0].input_size)
