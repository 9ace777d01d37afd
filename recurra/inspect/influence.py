"""The influence matrix of online learning over time, and what its approximations leave of it.

The influence is ds_t/dw, the derivative of the state by every weight through all steps so far. RTRL carries it in full;
SnAp keeps what a few steps reach, e-prop and RFLO what a unit does to itself, UORO a product of two random vectors.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..engine.forward_mode.influence import CompiledInfluence, NotCompiled
from ..errors import InputError
from ..layers import Recurrent
from ..train.cost import CostError, readable
from ..train.online.compiled_step import influence_plan
from ..train.online.uoro import RankOneTracker
from ..train.step_function import StepFunction
from . import figures
from .inspected_model import InspectedModel
from .result import Result, table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LIMIT = 1 << 28  # bytes of the influence in full


@dataclass(frozen=True)
class Influence(Result):
    """The influence of weights on states over time, and the part that approximations leave out.

    **Example**

        >>> found = rc.inspect.influence(rc.GRU(2, 4), torch.randn(20, 1, 2))
        >>> sorted(found.norms), found.matrix.shape
        (['0.c.U', '0.c.W', '0.c.b', '0.r.U', '0.r.W', '0.r.b', '0.z.U', '0.z.W', '0.z.b'], torch.Size([4, 9]))
    """

    norms: dict[str, Tensor]  # parameter → (T,): norm of its influence on all states
    left_out: dict[str, Tensor]  # algorithm → (T,): norm of the error of its influence, relative to the exact one
    matrix: Tensor  # (states, parameters): norm of the influence of a parameter on each state after the last step
    states: tuple[str, ...]

    def summary(self) -> str:
        """Two tables: the influence of every parameter, and the error of every approximation."""
        rows = [(name, f"{float(v[-1]):.3g}", f"{float(v.max()):.3g}") for name, v in self.norms.items()]
        lost = [(name, f"{float(v[-1]):.1%}", f"{float(v.mean()):.1%}") for name, v in self.left_out.items()]
        return "\n".join(
            [
                table(rows, ("parameter", "influence after the last step", "largest")),
                "",
                table(lost, ("algorithm", "error after the last step", "mean")),
            ]
        )

    def figure(self) -> "Figure":
        """What each algorithm leaves out, step by step."""
        fig = figures.figure("Error of the influence matrix, relative to RTRL", 380)
        for number, (name, curve) in enumerate(self.left_out.items()):
            fig.add_trace(figures.line(name, list(range(1, len(curve) + 1)), curve, number))
        fig.update_xaxes(title="step")
        fig.update_yaxes(title="‖error‖ / ‖ds/dw‖", rangemode="tozero")
        return fig

    def matrix_figure(self) -> "Figure":
        """The influence of every parameter on every state after the last step."""
        fig = figures.figure(
            "Influence of parameters on states after the last step", 120 + 14 * min(len(self.states), 40)
        )
        go = figures.graph_objects()
        fig.add_trace(
            go.Heatmap(z=self.matrix.tolist(), x=list(self.norms), y=list(self.states), colorscale=figures.SEQUENTIAL)
        )
        fig.update_yaxes(autorange="reversed", title="state")
        return fig


def influence(model: Any, data: Any, *, steps: int = 100) -> Influence:
    """The influence matrix of a model over one sequence, and what SnAp, e-prop and UORO throw away.

    **Arguments**

    - `model`: a module with one recurrent layer, stacked or not, whose step is compiled; or what holds such a module.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`; the first sequence is used.
    - `steps`: the most steps to follow.

    **Returns** an `Influence`: `norms`, parameter → (T,); `left_out`, algorithm → (T,) relative errors; `matrix`.

    **Example**

        >>> import torch, recurra as rc
        >>> found = rc.inspect.influence(rc.LSTM(2, 4), torch.randn(20, 1, 2))
        >>> found.left_out["SnAp(1)"].shape, bool(found.left_out["SnAp(1)"][0] < 1e-12)
        (torch.Size([20]), True)
    """
    inspected = InspectedModel(model, data, sequences=1, steps=steps)
    layers = [part for part in inspected.module.modules() if isinstance(part, Recurrent)]
    if len(layers) != 1 or not inspected.sample.inputs.is_floating_point():
        raise InputError("model", f"{len(layers)} recurrent layers", "one recurrent layer that reads numbers")
    step_fn = StepFunction(layers[0])
    size = 8 * step_fn.state_size * step_fn.weight_count
    if size > LIMIT:
        raise CostError("model", f"an influence of {readable(size)}", f"at most {readable(LIMIT)}, or a smaller model")
    try:
        return _follow(step_fn, inspected.sample.inputs[: int(inspected.sample.lengths[0]), :1])
    except NotCompiled as reason:
        raise InputError("model", f"a step that is not compiled ({reason})", "another cell") from reason


def _follow(step_fn: StepFunction, x: Tensor) -> Influence:
    plans = {"RTRL": (None, False), "SnAp(1)": (1, False), "e-prop, RFLO": (None, True)}
    runs = {
        name: CompiledInfluence(influence_plan(step_fn, steps, local, by_any_backend=True), 1)
        for name, (steps, local) in plans.items()
    }
    start = step_fn.start(step_fn.flat()[0], 1)
    for run in runs.values():
        run.reset(start)
    rank_one = RankOneTracker(step_fn, 1, torch.Generator().manual_seed(0))
    rank_one.reset()
    exact = runs["RTRL"]
    names = _names(exact)
    norms: dict[str, list[Tensor]] = {name: [] for name in dict.fromkeys(names)}
    errors: dict[str, list[Tensor]] = {name: [] for name in (*runs, "UORO, one draw") if name != "RTRL"}
    full = torch.empty(0)
    for row in x:
        for run in runs.values():
            run.forward(row)
            run.learn(None)
        rank_one.output(row)
        rank_one.gradient(None)
        full = _whole(exact, exact)
        for name in norms:
            norms[name].append(full[:, [own == name for own in names]].norm())
        scale = full.norm().clamp_min(1e-300)
        for name in runs:
            if name != "RTRL":
                errors[name].append((_whole(runs[name], exact) - full).norm() / scale)
        draw = torch.outer(rank_one.state_part[0], rank_one.weight_part[0])
        errors["UORO, one draw"].append((draw - full).norm() / scale)
    matrix = torch.stack([full[:, [own == name for own in names]].norm(dim=1) for name in norms], 1)
    labels = tuple(f"{r.label}[{i}]" for r in exact.plan.structure.roots if r.carried for i in range(r.width))
    rows = [r.at + i for r in exact.plan.structure.roots if r.carried for i in range(r.width)]
    return Influence(_stack(norms), _stack(errors), matrix[rows], labels)


def _stack(found: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack(values) for name, values in found.items()}


def _names(run: CompiledInfluence) -> list[str]:
    """The parameter of every column."""
    return [f"{b.cell}.{b.weight.removeprefix('start:').lstrip('=')}" for b in run.plan.blocks for _ in range(b.size)]


def _whole(run: CompiledInfluence, like: CompiledInfluence) -> Tensor:
    """ds/dw in full, (n, P), in the order of the blocks of `like`; weights that a run does not know have none."""
    known = {(b.cell, b.weight, b.start): b for b in run.plan.blocks}
    full = torch.zeros(run.plan.structure.state_size, sum(b.size for b in like.plan.blocks), dtype=run.dtype)
    at = 0
    for place in like.plan.blocks:
        block = known.get((place.cell, place.weight, place.start))
        for root in run.plan.structure.roots:
            if block is not None and root.carried:
                full[root.at : root.at + root.width, at : at + place.size] = run.influence_of(block, root)[0]
        at += place.size
    return full
