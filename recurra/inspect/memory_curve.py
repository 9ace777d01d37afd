"""Memory: linear recall of past inputs from the states, and the time scales set by the gates.

Recall at delay k is the squared correlation of u_{t-k} with its best linear estimate from the states at t. The estimate
is fitted on one half of the rows and measured on the other half, to exclude overfitting. The sum over all delays is the
memory capacity, for independent inputs at most the number of state variables (Jaeger 2001).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..argument_checks import finite_number, positive_int
from ..errors import InputError
from . import figures
from .inspected_model import InspectedModel
from .result import Result, table
from .sample import Sample
from .step_recorder import CellRun

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class MemoryCurve(Result):
    """Recall of past inputs over the delay for every cell, and the time scales of gated and leaky units.

    **Example**

        >>> found = rc.inspect.memory_curve(rc.GRU(1, 8), torch.rand(500, 1, 1), delays=10)
        >>> found.recalled["GRU"].shape, {name: scales.shape for name, scales in found.time_scales.items()}
        (torch.Size([11]), {'GRU · z': torch.Size([8])})
    """

    recalled: dict[str, Tensor]  # cell → (delays,): squared correlation at delays 0, 1, …, averaged over the inputs
    time_scales: dict[str, Tensor]  # "cell · gate" → (units,): mean steps a unit keeps its memory, 1 / (1 - f)

    def capacity(self, name: str | None = None) -> float:
        """The memory capacity of a cell, by default of the first: its recall summed over delays 0, 1, …"""
        return float(self.recalled[name or next(iter(self.recalled))].sum())

    def summary(self) -> str:
        """A table: memory capacity and reach of every cell, then the time scales."""
        rows = [
            (name, f"{float(curve.sum()):.2f}", f"{int((curve > 0.5).sum())} steps", f"{float(curve[-1]):.2f}")
            for name, curve in self.recalled.items()
        ]
        lines = [table(rows, ("cell", "memory capacity", "recall above 0.5", "recall at the last delay"))]
        for name, scales in self.time_scales.items():
            middle, top = scales.median(), scales.max()
            lines.append(f"time scale of {name}: median {middle:.3g} steps, longest {top:.3g}")
        return "\n".join(lines)

    def figure(self) -> "Figure":
        """The recall of every cell over the delay."""
        fig = figures.figure("Linear recall of the input k steps back", 360)
        for number, (name, curve) in enumerate(self.recalled.items()):
            fig.add_trace(figures.line(name, list(range(len(curve))), curve, number))
        fig.update_xaxes(title="delay k, steps")
        fig.update_yaxes(title="squared correlation", range=[0, 1.05])
        return fig

    def scales_figure(self) -> "Figure":
        """The time scales of the units, longest first."""
        fig = figures.figure("Time scales of the units", 360)
        for number, (name, scales) in enumerate(self.time_scales.items()):
            ordered = scales.sort(descending=True).values
            fig.add_trace(figures.line(name, list(range(1, len(ordered) + 1)), ordered, number))
        fig.update_xaxes(title="unit, longest first")
        values = [value for scales in self.time_scales.values() for value in scales.tolist()]
        fig.update_yaxes(title="steps, 1 / (1 - f)", **figures.log_axis(values))
        return fig


def memory_curve(
    model: Any, data: Any, *, delays: int = 40, sequences: int = 32, steps: int = 4000, ridge: float = 1e-9
) -> MemoryCurve:
    """Linear recall of the inputs of the model from its states, and the time scales of its units.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator or a training run.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`.
    - `delays`: the largest delay; at most half of the median length is used.
    - `sequences`, `steps`: the most sequences and steps of the data to use.
    - `ridge`: the penalty of the linear fit.

    **Returns** a `MemoryCurve`: `recalled`, cell → (delays + 1,) squared correlations, and `time_scales`.

    **Example**

        >>> import torch, recurra as rc
        >>> found = rc.inspect.memory_curve(rc.RNN(1, 8), torch.rand(500, 1, 1), delays=10)
        >>> len(found.recalled["RNN"]), 0 < found.capacity() < 9
        (11, True)
    """
    positive_int("delays", delays), finite_number("ridge", ridge, 0.0)
    inspected = InspectedModel(model, data, sequences=sequences, steps=steps)
    with torch.no_grad():
        runs = inspected.record(named_values=True)[1].runs()
    typical = int(inspected.sample.lengths.median())
    delays = min(delays, typical // 2)
    if delays < 1:
        raise InputError("data", f"sequences of {typical} steps", "longer ones, to have past inputs")
    recalled = {
        run.name: _recall(_states(run, inspected.sample), inspected.sample, delays, ridge)
        for run in runs
        if len(run) == len(inspected.sample.inputs)
    }
    scales = {
        f"{run.name} · {gate}": value for run in runs for gate, value in time_scales(run, inspected.sample).items()
    }
    return MemoryCurve(recalled, scales)


def _states(run: CellRun, sample: Sample) -> Tensor:
    """(T, B, p): all states of the cell, concatenated."""
    return torch.cat([run.state(name, sample.lengths if sample.ragged else None) for name in run.states], dim=-1)


def _recall(states: Tensor, sample: Sample, delays: int, ridge: float) -> Tensor:
    inputs, tokens = sample.inputs, sample.tokens
    if tokens is not None:  # the eight most frequent tokens, one-hot
        common = tokens.flatten().bincount().argsort(descending=True)[:8]
        inputs = (tokens[..., None] == common).to(states.dtype)
    t = torch.arange(delays, len(states), device=states.device)
    real = t[:, None] < sample.lengths  # (T', B)
    rows = states[delays:][real]
    past = torch.stack([inputs[delays - k : len(inputs) - k][real] for k in range(delays + 1)], dim=1)  # (N, K+1, D)
    if len(rows) < 8:
        raise InputError("data", f"{len(rows)} steps after {delays} delays", "more or longer sequences")
    return _correlations(rows, past.flatten(1), ridge).view(delays + 1, -1).mean(dim=1)


def _correlations(rows: Tensor, targets: Tensor, ridge: float) -> Tensor:
    """(columns,): squared correlations of linear estimates with the targets, on the half of the rows held out."""
    rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=-1)
    fit = torch.arange(len(rows), device=rows.device) < len(rows) // 2
    left, sigma, right = torch.linalg.svd(rows[fit], full_matrices=False)
    weights = right.T @ ((sigma / (sigma.square() + ridge))[:, None] * (left.T @ targets[fit]))
    estimate, truth = rows[~fit] @ weights, targets[~fit]
    estimate, truth = estimate - estimate.mean(dim=0), truth - truth.mean(dim=0)
    power = estimate.square().sum(dim=0) * truth.square().sum(dim=0)
    return (estimate * truth).sum(dim=0).square() / power.clamp_min(1e-300)


def time_scales(run: CellRun, sample: Sample) -> dict[str, Tensor]:
    """Mean steps that a unit holds its state: 1 / (1 - f) of forget gates, 1 / z of update gates, τ of leaky units."""
    lengths = sample.lengths if sample.ragged else None
    real = torch.arange(len(run), device=sample.lengths.device)[:, None] < sample.lengths
    found = {}
    for gate in (*run.cell.keep, *run.cell.write, "tau"):
        if gate not in run.values or (gate in run.cell.write and run.cell.keep):
            continue  # with a forget gate, the input gate sets no time scale
        mean = run.value(gate, lengths)[real].mean(dim=0)
        if gate == "tau":
            found[gate] = mean
        else:
            found[gate] = 1 / (mean if gate in run.cell.write else 1 - mean).clamp_min(1e-12)
    return found
