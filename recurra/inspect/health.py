"""Health check: vanishing and exploding gradients, saturated gates, dead units, NaN; with advice for each.

Thresholds: a gradient vanishes if it shrinks below 1e-6 over the sequence, and explodes if it grows by more than ten
times the sequence length. A gate is saturated where its pre-activation is outside [-4, 4], where its slope is
below 2 %. A unit is dead if its value is constant.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..engine.trace import trace
from . import figures
from .gradients import gradient_flow
from .inspected_model import InspectedModel
from .result import Result
from .sample import Sample
from .step_recorder import CellRun

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from ..train.run import Event, Run

SATURATED = 4.0  # pre-activations |a| above this
WARN_SHARE = 0.3  # of the values of a gate
OVERFITTED = 1.1  # last validation loss over the lowest one

REMEDIES = {
    "nan": "lower the learning rate, clip the gradient (rc.train.fit(clip=1.0)), and look for the cause at this place",
    "exploding": "clip the gradient (rc.train.fit(clip=1.0)), or use orthogonal recurrent matrices (rc.OrthogonalRNN)",
    "vanishing": "use a gated cell (rc.LSTM, rc.GRU), leaky units (rc.LeakyRNN) or orthogonal ones (rc.OrthogonalRNN)",
    "vanishing gated": "initialise forget gates open: init=rc.init.chrono(longest), or a larger rc.init.forget_bias",
    "saturated": "use smaller initial weights, layer norm (modifiers=rc.LayerNorm()) or a lower learning rate",
    "shut": "initialise it open: rc.init.forget_bias(1.0) or rc.init.chrono(longest) for forget gates",
    "overfitting": "stop earlier (patience=…), use dropout or a smaller network, or train on more data",
    "dead": "lower the learning rate, initialise at the identity (rc.IRNN), or use tanh units",
}


@dataclass(frozen=True)
class Finding:
    """One problem: its kind, where it is, a measurement, and advice.

    **Example**

        >>> layer = rc.RNN(3, 8)
        >>> _ = layer.cells[0].a.W.data.mul_(0.1)
        >>> finding = rc.inspect.health(layer, torch.randn(60, 4, 3)).findings[0]
        >>> finding.kind, finding.place
        ('vanishing', 'RNN · h')
    """

    kind: str
    place: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.place}: {self.what}. Advice: {self.advice}."


@dataclass(frozen=True)
class Health(Result):
    """The findings of a health check, and the measurements behind them.

    **Example**

        >>> layer = rc.RNN(3, 8)
        >>> _ = layer.cells[0].a.W.data.mul_(0.1)
        >>> found = rc.inspect.health(layer, torch.randn(60, 4, 3))
        >>> [finding.kind for finding in found.findings], found.dead
        (['vanishing'], {'RNN · h': 0.0})
    """

    findings: tuple[Finding, ...]
    rates: dict[str, float]  # "cell · state" → factor of the gradient per step
    saturated: dict[str, float]  # "cell · gate" → share of |a| > 4
    dead: dict[str, float]  # "cell · state" → share of units with a constant value

    @property
    def ok(self) -> bool:
        return not self.findings

    def summary(self) -> str:
        """Every finding with its advice, or that there is none."""
        return "\n".join(map(str, self.findings)) if self.findings else "No problems found."

    def figure(self) -> "Figure":
        """Shares of saturated gates and of dead units."""
        go = figures.graph_objects()
        fig = figures.figure("Saturated gates and dead units", 340)
        for name, shares, number in (("saturated, |a| > 4", self.saturated, 0), ("dead", self.dead, 1)):
            if not any(shares.values()):
                continue
            fig.add_trace(
                go.Bar(
                    name=name,
                    x=[figures.escape(key) for key in shares],
                    y=figures.rounded(list(shares.values())),
                    marker={"color": figures.PALETTE[number], "pattern": {"shape": ("", "/")[number]}},
                )
            )
        fig.add_hline(y=WARN_SHARE, line={"color": figures.INK, "dash": "dot"})
        fig.update_yaxes(title="share", range=[0, 1], tickformat=".0%")
        return fig


def overfitting_finding(history: Sequence[Mapping[str, Any]]) -> Finding | None:
    """A finding if the validation loss rose again while the training loss fell; from the records of the epochs."""
    epochs = [(r["valid_loss"], r["loss"]) for r in history if "valid_loss" in r and "loss" in r]
    if len(epochs) < 3:
        return None
    best = min(range(len(epochs)), key=lambda k: epochs[k][0])
    lowest, last = epochs[best][0], epochs[-1][0]
    if not (lowest > 0 and last > OVERFITTED * lowest and epochs[-1][1] < epochs[best][1]):
        return None
    what = f"the validation loss rose from {lowest:.3g} in epoch {best + 1} to {last:.3g} in epoch {len(epochs)}"
    return Finding("overfitting", "the training", f"{what} while the training loss fell", REMEDIES["overfitting"])


def health(model: Any, data: Any, *, sequences: int = 4, steps: int = 500, losses: int = 8) -> Health:
    """Check a model for vanishing or exploding gradients, saturated gates, dead units and values that are not finite.

    One forward and one backward pass over a few sequences, on a copy of the model: it can be called in training.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator or a training run.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`.
    - `sequences`, `steps`: the most sequences and steps of the data to use.
    - `losses`: loss times of the gradient flow.

    **Returns** a `Health`: `ok`, the `findings` with advice, and the shares behind them.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.RNN(3, 16)
        >>> with torch.no_grad():
        ...     _ = layer.cells[0].a.W.mul_(0.3)
        >>> [finding.kind for finding in rc.inspect.health(layer, torch.randn(40, 2, 3)).findings]
        ['vanishing']
    """
    inspected = InspectedModel(
        model, data, sequences=sequences, steps=steps, dtype=None
    )  # own dtype: overflow depends on it
    with torch.no_grad():
        output, recorder = inspected.record(named_values=True)
    runs = recorder.runs()
    if (first := _first_nan(inspected, runs, output)) is not None:
        return Health((first,), {}, {}, {})
    saturated = {key: share for run in runs for key, share in _saturation(run, inspected.sample).items()}
    dead = {key: share for run in runs for key, share in _dead(run, inspected.sample).items()}
    flow = gradient_flow(model, data, sequences=sequences, steps=steps, losses=losses)
    gated = {run.name: bool(run.cell.keep or run.cell.write) for run in runs}
    findings = [
        *(found for each in flow.flows if (found := _gradient_finding(each, gated[each.name])) is not None),
        *_saturation_findings(runs, saturated, inspected.sample),
        *(_dead_finding(key, share) for key, share in dead.items() if share > WARN_SHARE),
    ]
    return Health(tuple(findings), {each.label: each.rate for each in flow.flows}, saturated, dead)


# ---------------------------------------------------------------------------------------------------- not finite


def _first_nan(inspected: InspectedModel, runs: list[CellRun], output: Tensor) -> Finding | None:
    """The first value that is not finite, in the order weights, data, steps, output."""
    advice = REMEDIES["nan"]
    for name, weight in inspected.module.named_parameters():
        if not bool(weight.isfinite().all()):
            return Finding("not a number", f"the weights {name}", _count(weight), advice)
    if inspected.sample.inputs.is_floating_point() and not bool(inspected.sample.inputs.isfinite().all()):
        return Finding("not a number", "the data", _count(inspected.sample.inputs), "clean the data before training")
    firsts = []
    for order, run in enumerate(runs):
        for name, values in {**run.states, **run.values}.items():
            bad = [t for t, value in enumerate(values) if not bool(value.isfinite().all())]
            if bad:
                firsts.append((order, bad[0], name, run, values[bad[0]]))
    if firsts:
        _, step, name, run, value = min(firsts, key=lambda found: found[:2])
        return Finding("not a number", f"{run.name} · {name}", f"{_count(value)}, first at step {step + 1}", advice)
    return None if bool(output.isfinite().all()) else Finding("not a number", "the output", _count(output), advice)


def _count(value: Tensor) -> str:
    return f"{int((~value.isfinite()).sum())} of {value.numel()} values are not finite"


def _gradient_finding(flow: Any, gated: bool) -> Finding | None:
    steps, far = len(flow.profile) - 1, float(flow.profile[-1])
    if flow.exploded:
        what = f"the gradient grows by {flow.rate:.3g} per step, by {far:.3g} over {steps} steps"
        return Finding("exploding", flow.label, what, REMEDIES["exploding"])
    if flow.vanished:
        what = f"the gradient shrinks by {flow.rate:.3g} per step, to {far:.2g} of it after {steps} steps"
        return Finding("vanishing", flow.label, what, REMEDIES["vanishing gated" if gated else "vanishing"])
    return None


# ---------------------------------------------------------------------------------------------------- gates and units


def activation_kinds(run: CellRun) -> dict[str, str]:
    """The named values that are outputs of a sigmoid or tanh: name → "sigmoid" or "tanh"."""
    step = trace(run.cell)
    kinds: dict[Any, str] = {torch.ops.aten.sigmoid.default: "sigmoid", torch.ops.aten.tanh.default: "tanh"}
    found = {name: kinds[node.target] for name in step.named if (node := step.node(name)).target in kinds}
    for name, node in zip(step.outputs[1:], step.results()[1:], strict=False):
        if node.target in kinds:
            found.setdefault(name, kinds[node.target])
    return found


def _saturation(run: CellRun, sample: Sample) -> dict[str, float]:
    """Share of values with |a| > 4, from the activation itself: σ(4) = 0.982, tanh(4) = 0.9993."""
    shares = {}
    for name, kind in activation_kinds(run).items():
        value = _valid_rows(run, name, sample)
        edge = 1 / (1 + math.exp(-SATURATED)) if kind == "sigmoid" else math.tanh(SATURATED)
        beyond = (value > edge) | (value < 1 - edge) if kind == "sigmoid" else value.abs() > edge
        shares[f"{run.name} · {name}"] = float(beyond.double().mean())
    return shares


def _dead(run: CellRun, sample: Sample) -> dict[str, float]:
    """Share of the units of a state that vary by less than 1e-6 over all steps of all sequences."""
    shares = {}
    for name in run.states:
        value = _valid_rows(run, name, sample)
        shares[f"{run.name} · {name}"] = float((value.amax(dim=0) - value.amin(dim=0) < 1e-6).double().mean())
    return shares


def _valid_rows(run: CellRun, name: str, sample: Sample) -> Tensor:
    """(N, units): the values at all steps that are not padding."""
    value = torch.stack(run.values[name] if name in run.values else run.states[name]).detach()
    if len(value) != len(sample.inputs):
        return value.flatten(0, 1)
    real = torch.arange(len(value), device=value.device)[:, None] < sample.lengths
    return value[real].flatten(1)


def _saturation_findings(runs: list[CellRun], saturated: dict[str, float], sample: Sample) -> list[Finding]:
    found = []
    for run in runs:
        kinds = activation_kinds(run)
        for name in kinds:
            share = saturated[f"{run.name} · {name}"]
            if share > WARN_SHARE:
                shut = name in run.cell.keep and float(_valid_rows(run, name, sample).mean()) < 0.1
                what = f"{share:.0%} of pre-activations have |a| > {SATURATED:g}" + (
                    ", most of them closed" if shut else ""
                )
                found.append(
                    Finding("saturated", f"{run.name} · {name}", what, REMEDIES["shut" if shut else "saturated"])
                )
    return found


def _dead_finding(place: str, share: float) -> Finding:
    return Finding("dead", place, f"{share:.0%} of the units have a constant value", REMEDIES["dead"])


# ---------------------------------------------------------------------------------------------------- in training


@dataclass
class Monitor:
    """A callback of `rc.train.fit` that checks the health every `every` epochs and prints each new finding once.

    `monitor.history` is a list of `(epoch, Health)`; `rc.report(..., monitor=monitor)` plots it.

    **Arguments**

    - `data`: what `health` takes.
    - `every`: epochs between two checks.
    - `quiet`: print nothing.

    **Example**

        >>> import torch, recurra as rc
        >>> data = rc.data.SequenceSet.from_arrays(torch.randn(4, 6, 2), torch.randn(4, 6, 3), "transduction")
        >>> monitor = rc.inspect.Monitor(data, quiet=True)
        >>> _ = rc.train.fit(rc.GRU(2, 3), data, epochs=2, progress=False, callbacks=[monitor])
        >>> [epoch for epoch, _ in monitor.history]
        [0, 1]
    """

    data: Any
    every: int = 1
    quiet: bool = False
    history: list[tuple[int, Health]] = field(default_factory=list)

    def __call__(self, event: "Event", run: "Run", /) -> None:
        if event != "epoch" or run.rank or run.progress.epoch % self.every:
            return
        found = health(run.model, self.data)
        known = {(finding.kind, finding.place) for _, earlier in self.history for finding in earlier.findings}
        self.history.append((run.progress.epoch, found))
        if not self.quiet:
            for finding in found.findings:
                if (finding.kind, finding.place) not in known:
                    print(f"epoch {run.progress.epoch}: {finding}")
