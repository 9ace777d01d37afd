"""Memory: what a linear readout recalls of past inputs, and the time scales the gates set.

Recall at delay k is the squared correlation of u_{t-k} with its best linear estimate from the states at t, fitted to
one half of the rows and measured on the other: on the same rows, chance would count. Added up over the delays it is the
memory capacity, which for independent inputs is at most the number of state variables (Jaeger 2001).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError
from . import figures
from .inspected_model import Sample, Subject
from .result import Result, table
from .step_recorder import Heard

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class MemoryCurve(Result):
    recalled: dict[str, Tensor]  # cell → (delays,): squared correlation at delays 0, 1, …, averaged over the inputs
    time_scales: dict[str, Tensor]  # "cell · gate" → (units,): mean steps a unit keeps its memory, 1 / (1 - f)

    def capacity(self, name: str | None = None) -> float:
        """Σ_k of one cell's curve, the input of the same step included; of the first cell by default."""
        return float(self.recalled[name or next(iter(self.recalled))].sum())

    def summary(self) -> str:
        rows = [
            (name, f"{float(curve.sum()):.2f}", f"{int((curve > 0.5).sum())} steps", f"{float(curve[-1]):.2f}")
            for name, curve in self.recalled.items()
        ]
        lines = [table(rows, ("cell", "memory capacity", "recall above one half", "at the last delay"))]
        for name, scales in self.time_scales.items():
            middle, top = scales.median(), scales.max()
            lines.append(f"time scale of {name}: median {middle:.3g} steps, longest {top:.3g}")
        return "\n".join(lines)

    def figure(self) -> "Figure":
        made = figures.figure("How well the states recall an input k steps back", 360)
        for number, (name, curve) in enumerate(self.recalled.items()):
            made.add_trace(figures.line(name, list(range(len(curve))), curve, number))
        made.update_xaxes(title="delay k, steps")
        made.update_yaxes(title="squared correlation", range=[0, 1.05])
        return made

    def scales_figure(self) -> "Figure":
        """The units' time scales, longest first."""
        made = figures.figure("How long each unit keeps its memory", 360)
        for number, (name, scales) in enumerate(self.time_scales.items()):
            ordered = scales.sort(descending=True).values
            made.add_trace(figures.line(name, list(range(1, len(ordered) + 1)), ordered, number))
        made.update_xaxes(title="unit, longest first")
        everything = [value for scales in self.time_scales.values() for value in scales.tolist()]
        made.update_yaxes(title="steps, 1 / (1 - f)", **figures.decades(everything))
        return made


def memory_curve(
    model: Any, data: Any, *, delays: int = 40, sequences: int = 32, steps: int = 4000, ridge: float = 1e-9
) -> MemoryCurve:
    """Linear recall of the model's own inputs from its states, for delays 0 … `delays`, and its units' time scales."""
    subject = Subject(model, data, sequences=sequences, steps=steps)
    with torch.no_grad():
        heard = subject.listen(names=True)[1].results()
    usual = int(subject.sample.lengths.median())
    delays = min(delays, usual // 2)
    if delays < 1:
        raise InputError("data", f"sequences of {usual} steps", "longer ones: nothing lies in the past")
    recalled = {
        one.name: _recall(_states(one, subject.sample), subject.sample, delays, ridge)
        for one in heard
        if len(one) == len(subject.sample.inputs)
    }
    scales = {
        f"{one.name} · {gate}": value for one in heard for gate, value in time_scales(one, subject.sample).items()
    }
    return MemoryCurve(recalled, scales)


def _states(heard: Heard, sample: Sample) -> Tensor:
    """(T, B, p): every state of the cell side by side."""
    return torch.cat([heard.state(name, sample.lengths if sample.ragged else None) for name in heard.states], dim=-1)


def _recall(states: Tensor, sample: Sample, delays: int, ridge: float) -> Tensor:
    inputs, tokens = sample.inputs, sample.tokens
    if tokens is not None:  # is each of the most frequent ones recalled?
        common = tokens.flatten().bincount().argsort(descending=True)[:8]
        inputs = (tokens[..., None] == common).to(states.dtype)
    t = torch.arange(delays, len(states), device=states.device)
    real = t[:, None] < sample.lengths  # (T', B)
    rows = states[delays:][real]
    past = torch.stack([inputs[delays - k : len(inputs) - k][real] for k in range(delays + 1)], dim=1)  # (N, K+1, D)
    if len(rows) < 8:
        raise InputError("data", f"{len(rows)} steps after {delays} delays", "more or longer sequences")
    return _correlations(rows, past.flatten(1), ridge).view(delays + 1, -1).mean(dim=1)


def _correlations(rows: Tensor, wanted: Tensor, ridge: float) -> Tensor:
    """Squared correlations of the best linear estimates with what was wanted, (columns,), on the held-out half."""
    rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=-1)
    fit = torch.arange(len(rows), device=rows.device) < len(rows) // 2
    left, sigma, right = torch.linalg.svd(rows[fit], full_matrices=False)
    weights = right.T @ ((sigma / (sigma.square() + ridge))[:, None] * (left.T @ wanted[fit]))
    answers, truth = rows[~fit] @ weights, wanted[~fit]
    answers, truth = answers - answers.mean(dim=0), truth - truth.mean(dim=0)
    power = answers.square().sum(dim=0) * truth.square().sum(dim=0)
    return (answers * truth).sum(dim=0).square() / power.clamp_min(1e-300)


def time_scales(heard: Heard, sample: Sample) -> dict[str, Tensor]:
    """Mean steps a unit keeps its memory: 1 / (1 - f) of gates that keep, 1 / z of gates that write, τ of leaks."""
    lengths = sample.lengths if sample.ragged else None
    real = torch.arange(len(heard), device=sample.lengths.device)[:, None] < sample.lengths
    found = {}
    for gate in (*heard.cell.keep, *heard.cell.write, "tau"):
        if gate not in heard.values or (gate in heard.cell.write and heard.cell.keep):
            continue  # where a gate keeps, the one that writes sets no time scale
        mean = heard.value(gate, lengths)[real].mean(dim=0)
        if gate == "tau":
            found[gate] = mean
        else:
            found[gate] = 1 / (mean if gate in heard.cell.write else 1 - mean).clamp_min(1e-12)
    return found
