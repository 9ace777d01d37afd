"""Health: what is wrong with a network right now, where, and what in the library helps.

Thresholds: a gradient that shrinks below 1e-6 over the sequence vanishes, one that grows ten times as much as its
sequence is long explodes; a gate is saturated where its pre-activation leaves [-4, 4], where its slope is below 2 %; a
unit is dead when it does not move.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..engine.trace import trace
from . import figures
from .gradients import gradient_flow
from .inspected_model import Sample, Subject
from .result import Result
from .step_recorder import Heard

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from ..train.run import Event, Run

SATURATED = 4.0  # |a| beyond this
WARN_SHARE = 0.3  # of a gate's values

REMEDIES = {
    "nan": "lower the learning rate, clip the gradient (rc.train.fit(clip=1.0)), and start from the place named here",
    "exploding": "clip the gradient (rc.train.fit(clip=1.0)), or keep the matrix orthogonal (rc.OrthogonalRNN)",
    "vanishing": "use a gated cell (rc.LSTM, rc.GRU), leaky units (rc.LeakyRNN) or orthogonal ones (rc.OrthogonalRNN)",
    "vanishing gated": "start the forget gates open: init=rc.init.chrono(longest), or a larger rc.init.forget_bias",
    "saturated": "start with smaller weights or normalise (modifiers=rc.LayerNorm()), and lower the learning rate",
    "shut": "open it at the start: rc.init.forget_bias(1.0) or rc.init.chrono(longest) for gates that keep the memory",
    "dead": "lower the learning rate, start at the identity (rc.IRNN), or use tanh units",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what, where, how much, and what helps."""

    kind: str
    place: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.place}: {self.what}. Advice: {self.advice}."


@dataclass(frozen=True)
class Health(Result):
    findings: tuple[Finding, ...]
    rates: dict[str, float]  # "cell · state" → factor of the gradient a step
    saturated: dict[str, float]  # "cell · gate" → share of |a| > 4
    dead: dict[str, float]  # "cell · state" → share of units that do not move

    @property
    def ok(self) -> bool:
        return not self.findings

    def summary(self) -> str:
        return "\n".join(map(str, self.findings)) if self.findings else "Nothing is wrong."

    def figure(self) -> "Figure":
        """Shares of saturated gates and of dead units."""
        go = figures.graph_objects()
        made = figures.figure("Saturated gates and units that do not move", 340)
        for name, shares, number in (("saturated, |a| > 4", self.saturated, 0), ("dead", self.dead, 1)):
            made.add_trace(
                go.Bar(
                    name=name,
                    x=[figures.text(key) for key in shares],
                    y=figures.numbers(list(shares.values())),
                    marker={"color": figures.PALETTE[number], "pattern": {"shape": ("", "/")[number]}},
                )
            )
        made.add_hline(y=WARN_SHARE, line={"color": figures.INK, "dash": "dot"})
        made.update_yaxes(title="share", range=[0, 1], tickformat=".0%")
        return made


def health(model: Any, data: Any, *, sequences: int = 4, steps: int = 500, losses: int = 8) -> Health:
    """Look for gradients that vanish or explode, saturated gates, dead units and numbers that are not finite.

    One forward and one backward pass of a few sequences; the model is not touched, so it may be called while training.
    """
    subject = Subject(model, data, sequences=sequences, steps=steps, dtype=None)  # where the numbers end matters
    with torch.no_grad():
        output, listener = subject.listen(names=True)
    heard = listener.results()
    if (first := _first_nan(subject, heard, output)) is not None:
        return Health((first,), {}, {}, {})
    saturated = {key: share for one in heard for key, share in _saturation(one, subject.sample).items()}
    dead = {key: share for one in heard for key, share in _dead(one, subject.sample).items()}
    flow = gradient_flow(model, data, sequences=sequences, steps=steps, losses=losses)
    gated = {one.name: bool(one.cell.keep or one.cell.write) for one in heard}
    findings = [
        *(found for each in flow.flows if (found := _gradient(each, gated[each.name])) is not None),
        *_gates(heard, saturated, subject.sample),
        *(_idle(key, share) for key, share in dead.items() if share > WARN_SHARE),
    ]
    return Health(tuple(findings), {each.label: each.rate for each in flow.flows}, saturated, dead)


# ---------------------------------------------------------------------------------------------------- numbers


def _first_nan(subject: Subject, heard: list[Heard], output: Tensor) -> Finding | None:
    """The first thing not finite on the way from the weights and the data to the output."""
    advice = REMEDIES["nan"]
    for name, weight in subject.module.named_parameters():
        if not bool(weight.isfinite().all()):
            return Finding("not a number", f"the weights {name}", _count(weight), advice)
    if subject.sample.inputs.is_floating_point() and not bool(subject.sample.inputs.isfinite().all()):
        return Finding("not a number", "the data", _count(subject.sample.inputs), "mend the data before training on it")
    firsts = []
    for order, one in enumerate(heard):
        for name, values in {**one.states, **one.values}.items():
            bad = [t for t, value in enumerate(values) if not bool(value.isfinite().all())]
            if bad:
                firsts.append((order, bad[0], name, one, values[bad[0]]))
    if firsts:
        _, step, name, one, value = min(firsts, key=lambda found: found[:2])
        return Finding("not a number", f"{one.name} · {name}", f"{_count(value)}, first at step {step + 1}", advice)
    return None if bool(output.isfinite().all()) else Finding("not a number", "the output", _count(output), advice)


def _count(value: Tensor) -> str:
    return f"{int((~value.isfinite()).sum())} of {value.numel()} values are not finite"


def _gradient(flow: Any, gated: bool) -> Finding | None:
    steps, far = len(flow.profile) - 1, float(flow.profile[-1])
    if flow.exploded:
        what = f"the gradient grows {flow.rate:.3g} times a step, {far:.3g} times over {steps} steps"
        return Finding("exploding", flow.label, what, REMEDIES["exploding"])
    if flow.vanished:
        what = f"the gradient shrinks to {flow.rate:.3g} of itself a step; {far:.2g} of it is left after {steps} steps"
        return Finding("vanishing", flow.label, what, REMEDIES["vanishing gated" if gated else "vanishing"])
    return None


# ---------------------------------------------------------------------------------------------------- gates and units


def squashed(heard: Heard) -> dict[str, str]:
    """The named values that come straight out of a squashing function: name → "sigmoid" or "tanh"."""
    step = trace(heard.cell)
    kinds: dict[Any, str] = {torch.ops.aten.sigmoid.default: "sigmoid", torch.ops.aten.tanh.default: "tanh"}
    found = {name: kinds[node.target] for name in step.named if (node := step.node(name)).target in kinds}
    for name, node in zip(step.outputs[1:], step.results()[1:], strict=False):
        if node.target in kinds:
            found.setdefault(name, kinds[node.target])
    return found


def _saturation(heard: Heard, sample: Sample) -> dict[str, float]:
    """Share of |a| > 4, read off the value: sig(4) = 0.982, tanh(4) = 0.9993."""
    shares = {}
    for name, kind in squashed(heard).items():
        value = _real(heard, name, sample)
        edge = 1 / (1 + math.exp(-SATURATED)) if kind == "sigmoid" else math.tanh(SATURATED)
        beyond = (value > edge) | (value < 1 - edge) if kind == "sigmoid" else value.abs() > edge
        shares[f"{heard.name} · {name}"] = float(beyond.double().mean())
    return shares


def _dead(heard: Heard, sample: Sample) -> dict[str, float]:
    """Share of a state's units that are the same at all steps of all sequences, to within 1e-6."""
    shares = {}
    for name in heard.states:
        value = _real(heard, name, sample)
        shares[f"{heard.name} · {name}"] = float((value.amax(dim=0) - value.amin(dim=0) < 1e-6).double().mean())
    return shares


def _real(heard: Heard, name: str, sample: Sample) -> Tensor:
    """(N, units) at the steps that are data."""
    value = torch.stack(heard.values[name] if name in heard.values else heard.states[name]).detach()
    if len(value) != len(sample.inputs):
        return value.flatten(0, 1)
    real = torch.arange(len(value), device=value.device)[:, None] < sample.lengths
    return value[real].flatten(1)


def _gates(heard: list[Heard], saturated: dict[str, float], sample: Sample) -> list[Finding]:
    found = []
    for one in heard:
        kinds = squashed(one)
        for name in kinds:
            share = saturated[f"{one.name} · {name}"]
            if share > WARN_SHARE:
                shut = name in one.cell.keep and float(_real(one, name, sample).mean()) < 0.1
                what = f"{share:.0%} of |a| > {SATURATED:g}" + (", most of them closed" if shut else "")
                found.append(
                    Finding("saturated", f"{one.name} · {name}", what, REMEDIES["shut" if shut else "saturated"])
                )
    return found


def _idle(place: str, share: float) -> Finding:
    return Finding("dead", place, f"{share:.0%} of the units do not move", REMEDIES["dead"])


# ---------------------------------------------------------------------------------------------------- while training


@dataclass
class Monitor:
    """A callback of `rc.train.fit`: health after every so many epochs, said once for each new finding.

    `monitor.history` holds one `(epoch, Health)` each; the report draws it.
    """

    data: Any
    every: int = 1
    quiet: bool = False
    history: list[tuple[int, Health]] = field(default_factory=list)

    def __call__(self, event: "Event", run: "Run", /) -> None:
        if event != "epoch" or run.rank or run.progress.epoch % self.every:
            return
        found = health(run.model, self.data)
        known = {(one.kind, one.place) for _, earlier in self.history for one in earlier.findings}
        self.history.append((run.progress.epoch, found))
        if not self.quiet:
            for finding in found.findings:
                if (finding.kind, finding.place) not in known:
                    print(f"epoch {run.progress.epoch}: {finding}")
