"""Gate activity: every state and gate at every step of the data, and how selective each unit is.

The selectivity of a unit is the share of its variance that the input explains: for tokens, the variance between tokens;
for numbers, the largest squared correlation with a feature.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError, UnknownNameError
from . import figures
from .inspected_model import InspectedModel
from .result import Result, table
from .sample import Sample
from .step_recorder import CellRun

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STEPS, UNITS = 240, 64  # the most that a heat map shows


@dataclass(frozen=True)
class Activity:
    """One named value of one cell: a state, a gate, a candidate."""

    cell: str
    name: str
    values: Tensor  # (T, B, units), in the order of the sequence; NaN at padding
    selectivity: Tensor  # (units,) from 0 to 1

    @property
    def label(self) -> str:
        return f"{self.cell} · {self.name}"

    @property
    def ranking(self) -> list[int]:
        """Unit numbers, the most selective first."""
        return self.selectivity.argsort(descending=True).tolist()


@dataclass(frozen=True)
class GateActivity(Result):
    """All states and named values of all cells on a sample of the data.

    **Example**

        >>> found = rc.inspect.gate_activity(rc.LSTM(3, 4), torch.randn(20, 2, 3))
        >>> [activity.name for activity in found.activities]
        ['h', 'c', 'i', 'f', 'g', 'o']
    """

    activities: tuple[Activity, ...]
    sample: Sample

    def __getitem__(self, name: str) -> Activity:
        """A value by its name: `activity["f"]`, or `activity["lstm · layer 2 · f"]`."""
        for activity in self.activities:
            if name in (activity.name, activity.label):
                return activity
        raise UnknownNameError("name", repr(name), [activity.label for activity in self.activities])

    def summary(self) -> str:
        """A table: mean, deviation and most selective units of every value."""
        rows = []
        for activity in self.activities:
            real = activity.values[activity.values.isfinite()]
            best = ", ".join(f"{unit} ({activity.selectivity[unit]:.2f})" for unit in activity.ranking[:3])
            rows.append((activity.label, f"{real.mean():+.3f}", f"{real.std():.3f}", best))
        return table(rows, ("value", "mean", "std", "most selective units"))

    def figure(self, name: str | None = None, sequence: int = 0, units: int = UNITS) -> "Figure":
        """Heat maps over one sequence, the most selective units on top: the value `name`, or all of the first cell."""
        go = figures.graph_objects()
        chosen = [self[name]] if name else [a for a in self.activities if a.cell == self.activities[0].cell]
        if not 0 <= sequence < len(self.sample.lengths):
            raise InputError("sequence", sequence, f"0 to {len(self.sample.lengths) - 1}")
        length = min(int(self.sample.lengths[sequence]), STEPS)
        labels = [figures.escape(self.sample.label(sequence, t)) for t in range(length)]
        fig = figures.panels([a.label for a in chosen], height=190)
        for row, activity in enumerate(chosen, start=1):
            order = activity.ranking[:units]
            shown = activity.values[:length, sequence][:, order].T  # (units, T)
            low, high = float(shown.min()), float(shown.max())
            signed = low < 0
            edge = max(abs(low), abs(high), 1e-12)
            fig.add_trace(
                go.Heatmap(
                    z=figures.rounded(shown),
                    x=list(range(1, length + 1)),
                    y=[f"{unit}" for unit in order],
                    customdata=[[f"step {t + 1}: {label}" for t, label in enumerate(labels)]] * len(order),
                    colorscale=figures.DIVERGING if signed else figures.SEQUENTIAL,
                    zmin=-edge if signed else min(low, 0.0),
                    zmax=edge if signed else max(high, 1.0),
                    colorbar={"thickness": 10, "len": 0.9 / len(chosen), "y": 1 - (row - 0.5) / len(chosen)},
                    hovertemplate="%{customdata}<br>unit %{y}: %{z:.3f}<extra></extra>",
                ),
                row=row,
                col=1,
            )
        fig.update_yaxes(type="category", autorange="reversed", title="unit", nticks=6)
        fig.update_xaxes(title="step", row=len(chosen), col=1)
        if self.sample.labels and length <= 60:
            fig.update_xaxes(tickvals=list(range(1, length + 1)), ticktext=labels, tickangle=0 if length < 40 else -90)
        return fig

    def selective_figure(self, name: str | None = None, sequence: int = 0, units: int = 4) -> "Figure":
        """Curves of the most selective units of a value over one sequence."""
        activity = self[name] if name else max(self.activities, key=lambda a: float(a.selectivity.max()))
        length = min(int(self.sample.lengths[sequence]), STEPS)
        labels = [figures.escape(self.sample.label(sequence, t)) for t in range(length)]
        fig = figures.figure(f"The most selective units of {figures.escape(activity.label)}", 360)
        for number, unit in enumerate(activity.ranking[:units]):
            curve = figures.line(
                f"unit {unit}: {activity.selectivity[unit]:.2f}",
                list(range(1, length + 1)),
                activity.values[:length, sequence, unit],
                number,
                text=labels,
                hovertemplate="step %{x}: %{text}<br>%{y:.3f}",
            )
            fig.add_trace(curve)
        fig.update_xaxes(title="step")
        fig.update_yaxes(title=figures.escape(activity.name))
        return fig


def gate_activity(model: Any, data: Any, *, sequences: int = 8, steps: int = 1000) -> GateActivity:
    """Every state and named value (gate, candidate) of every cell while the model reads the data.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator or a training run.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`.
    - `sequences`, `steps`: the most sequences and steps of the data to use.

    **Returns** a `GateActivity`: `activity["f"]` is a value by its name, with `values` (T, B, units) and `selectivity`
    (units,).

    **Example**

        >>> import torch, recurra as rc
        >>> found = rc.inspect.gate_activity(rc.LSTM(3, 4), torch.randn(10, 2, 3))
        >>> [activity.name for activity in found.activities]
        ['h', 'c', 'i', 'f', 'g', 'o']
        >>> found["f"].values.shape
        torch.Size([10, 2, 4])
    """
    inspected = InspectedModel(model, data, sequences=sequences, steps=steps)
    with torch.no_grad():
        runs = inspected.record(named_values=True)[1].runs()
    found = [
        Activity(run.name, name, values, _selectivity(values, inspected.sample))
        for run in runs
        if len(run) == len(inspected.sample.inputs)
        for name, values in _values(run, inspected.sample).items()
    ]
    if not found:
        raise InputError("model", type(model).__name__, "a model with a cell that runs at every step")
    return GateActivity(tuple(found), inspected.sample)


def _values(run: CellRun, sample: Sample) -> dict[str, Tensor]:
    """States first, then the named values of the step; NaN at padding."""
    past = torch.arange(len(run), device=sample.lengths.device)[:, None] >= sample.lengths
    lengths = sample.lengths if sample.ragged else None
    names = [*run.states, *(n for n in run.values if n not in (*run.states, "t", "tau"))]
    found = {}
    for name in names:
        value = run.value(name, lengths) if name in run.values else run.state(name, lengths)
        if not value.is_complex():
            found[name] = value.detach().flatten(2).masked_fill(past[..., None], float("nan"))
    return found


def _selectivity(values: Tensor, sample: Sample) -> Tensor:
    """(units,): the share of the variance of a unit that its input explains."""
    real = torch.arange(len(values), device=values.device)[:, None] < sample.lengths
    rows = values[real]  # (N, units)
    rows = rows - rows.mean(dim=0)
    total = rows.square().sum(dim=0).clamp_min(1e-300)
    if sample.tokens is not None:
        inputs = sample.tokens[real]
        size = int(inputs.max()) + 1
        counts = torch.zeros(size, dtype=rows.dtype, device=rows.device).index_add(
            0, inputs, torch.ones_like(rows[:, 0])
        )
        sums = torch.zeros(size, rows.shape[1], dtype=rows.dtype, device=rows.device).index_add(0, inputs, rows)
        return (sums.square() / counts.clamp_min(1)[:, None]).sum(dim=0) / total
    inputs = sample.inputs[real] - sample.inputs[real].mean(dim=0)
    power = inputs.square().sum(dim=0).clamp_min(1e-300)
    return ((inputs.T @ rows).square() / power[:, None] / total).amax(dim=0).clamp_max(1.0)
