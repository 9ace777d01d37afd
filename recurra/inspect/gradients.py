"""Gradient flow: how much of the gradient of the loss at t reaches the states at s, for all pairs (survey section 3).

One forward pass of the plain loop, one backward pass for all loss times at once (torch's batched vjp), in parts that
fit a memory budget. The cost is that of `losses` sequences trained for a step: 1000 steps of an LSTM with 256 units and
64 loss times take about three seconds of one core. The derivative is the total one: through time, depth and direction.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.sequences import IGNORE
from ..errors import InputError, ShapeError
from ..ragged import reverse
from . import figures
from .inspected_model import Sample, Subject
from .lipschitz import bound_curve, step_bound
from .result import Result, table
from .step_recorder import Heard

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BUDGET = 512 << 20  # bytes of gradients held at a time
VANISHED, EXPLODED = 1e-6, 10.0  # what is left of a gradient over the whole sequence
ROWS = 160  # heat maps are averaged down to so many cells a side


@dataclass(frozen=True)
class Flow:
    """What reaches one state of one cell."""

    name: str  # of the cell
    state: str
    norms: Tensor  # (n, T): ‖∂L_t/∂h_s‖ for loss time n and step s, averaged over the sequences; NaN where undefined
    profile: Tensor  # (lags,): ‖∂L_t/∂h_{t-k}‖ / ‖∂L_t/∂h_t‖, the geometric mean of those that arrive
    largest: Tensor  # (lags,): the largest of those ratios
    bound: Tensor | None  # (lags,): what the weights alone allow, where they do
    rate: float  # the factor a step, fitted to the profile

    @property
    def label(self) -> str:
        return f"{self.name} · {self.state}"

    @property
    def vanished(self) -> bool:
        return len(self.profile) > 1 and float(self.profile[-1]) < VANISHED

    @property
    def exploded(self) -> bool:
        """Beyond what a loss that averages over all steps adds up to by itself."""
        return self.rate > 1.0 and float(self.profile[-1]) > EXPLODED * len(self.profile)

    @property
    def half_life(self) -> float:
        """Steps after which half of the gradient is left; infinite where it does not shrink."""
        return math.log(0.5) / math.log(self.rate) if 0.0 < self.rate < 1.0 else math.inf if self.rate >= 1 else 0.0


@dataclass(frozen=True)
class GradientFlow(Result):
    """‖∂L_t/∂h_s‖ for every cell and state."""

    flows: tuple[Flow, ...]
    times: tuple[int, ...]  # the loss times t; a loss a sequence stands at its last step
    loss: str
    seconds: float

    def __getitem__(self, state: str) -> Flow:
        """The first flow of a state: `flow["c"]`."""
        for flow in self.flows:
            if flow.state == state:
                return flow
        raise KeyError(state)

    def summary(self) -> str:
        rows = [
            (flow.label, f"{flow.rate:.4g}", _steps(flow.half_life), _left(flow), _verdict(flow)) for flow in self.flows
        ]
        return f"Gradient flow of {self.loss}\n" + table(rows, ("state", "factor a step", "half-life", "left", ""))

    def figure(self) -> "Figure":
        """The profile of every state against the lag, the fitted rate in the legend, the bound dotted."""
        made = figures.figure("What is left of the gradient, k steps back", 420)
        for number, flow in enumerate(self.flows):
            lags = list(range(len(flow.profile)))
            shown = [value if value > 0 else float("nan") for value in flow.profile.tolist()]
            made.add_trace(figures.line(f"{flow.label}: {flow.rate:.3g} a step", lags, shown, number))
            if flow.bound is not None:
                dotted = {"dash": "dot", "width": 1.5}
                made.add_trace(figures.line(f"{flow.label}: bound", lags, _capped(flow.bound), number, line=dotted))
        everything = [value for flow in self.flows for value in flow.profile.tolist()]
        title = "‖∂L<sub>t</sub>/∂h<sub>t-k</sub>‖ / ‖∂L<sub>t</sub>/∂h<sub>t</sub>‖"
        made.update_yaxes(title=title, **figures.decades(everything))
        made.update_xaxes(title="lag k = t - s, steps")
        return made

    def heatmap(self) -> "Figure":
        """log₁₀ ‖∂L_t/∂h_s‖ for all pairs."""
        go = figures.graph_objects()
        made = figures.panels([flow.label for flow in self.flows], height=300)
        logs = [flow.norms.clamp_min(1e-300).log10().masked_fill(flow.norms == 0, float("nan")) for flow in self.flows]
        finite = torch.cat([log[log.isfinite()] for log in logs])
        high = float(finite.max()) if len(finite) else 0.0
        low = max(float(finite.min()), high - 16) if len(finite) else -1.0
        for number, log in enumerate(logs):
            shown, stride = _shrunk(log)
            made.add_trace(
                go.Heatmap(
                    z=figures.numbers(shown),
                    x=[k * stride + 1 for k in range(shown.shape[1])],
                    y=[f"{t + 1}" for t in self.times],
                    coloraxis="coloraxis",
                    hovertemplate="loss at t = %{y}<br>state at s = %{x}<br>log₁₀ norm %{z:.2f}<extra></extra>",
                ),
                row=number + 1,
                col=1,
            )
        made.update_layout(
            coloraxis={
                "colorscale": figures.SEQUENTIAL,
                "cmin": low,
                "cmax": high,
                "colorbar": {"title": "log₁₀", "thickness": 12},
            }
        )
        made.update_xaxes(title="s, the step of the state")
        made.update_yaxes(title="t, the step of the loss", type="category", nticks=8)
        return made


def gradient_flow(
    model: Any,
    data: Any,
    *,
    losses: int = 64,
    sequences: int = 4,
    steps: int = 1000,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> GradientFlow:
    """‖∂L_t/∂h_s‖ along real data, for every cell and state of the model.

    `losses` loss times, spread evenly, are followed back; at most `sequences` sequences of `steps` steps are used. L_t
    is cross-entropy where targets are classes, half the squared error where they are numbers, `loss(output, target)`
    where one is given, and without targets a fixed sum of the outputs with random signs. With one target a sequence
    there is one loss, at its end. The model itself is not touched.
    """
    began = time.perf_counter()
    if losses < 1:
        raise InputError("losses", losses, "at least one loss time")
    subject = Subject(model, data, sequences=sequences, steps=steps)
    output, listener = subject.listen()
    heard = listener.results()
    times, values, what = _losses(output, subject.sample, losses, loss)
    handles = [tensor for one in heard for states in one.states.values() for tensor in states]
    norms = _norms(values, handles)  # (n, handles, B)
    flows, alone = [], _alone(heard)
    owners = [(one, state) for one in heard for state in one.states]
    for (one, state), part in zip(owners, norms.split([len(one) for one, _ in owners], dim=1), strict=True):
        if len(one) == len(subject.sample.inputs) or not subject.sample.ragged:
            flows.append(_flow(one, state, part, times, subject.sample, alone))
    if not flows:
        raise InputError(
            "model", type(subject.module).__name__, "a model with a cell that runs once at every step of x"
        )
    return GradientFlow(tuple(flows), tuple(int(t) for t in times.amax(dim=1)), what, time.perf_counter() - began)


# ---------------------------------------------------------------------------------------------------- the loss


def _item(targets: Tensor | None, size: int, loss: Callable[..., Tensor] | None) -> tuple[Callable[..., Tensor], str]:
    """The loss of outputs (B, q) and targets, one value a sequence, and what it is called."""
    if targets is None:
        signs = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
        return lambda out, _: (out * signs.to(out)).sum(dim=-1) / math.sqrt(size), "a random sum of the outputs"
    if loss is not None:
        return loss, getattr(loss, "__name__", type(loss).__name__)
    if targets.is_floating_point():
        return lambda out, target: 0.5 * (out - target).square().flatten(1).sum(dim=1), "half the squared error"
    return lambda out, target: F.cross_entropy(out, target, reduction="none"), "the cross-entropy"


def _losses(
    output: Tensor, sample: Sample, count: int, loss: Callable[[Tensor, Tensor], Tensor] | None
) -> tuple[Tensor, Tensor, str]:
    """Loss times (n, B), -1 where a sequence has no loss then; the losses (n,), summed over the batch; their name."""
    targets, steps, batch = sample.targets, *sample.inputs.shape[:2]
    stepwise = output.dim() == 3 and output.shape[:2] == (steps, batch)
    item, what = _item(targets, output.shape[-1], loss)
    if not stepwise or (targets is not None and not sample.per_step):
        if stepwise:  # one target a sequence, read off its last step
            output = output[sample.lengths - 1, torch.arange(batch)]
        if len(output) != batch:
            raise ShapeError("model output", tuple(output.shape), f"(T, B, …) or (B, …) with B = {batch}")
        total = item(output, targets).sum() * (1 if loss is None else batch)
        return (sample.lengths - 1)[None], total[None], what
    chosen = torch.linspace(0, steps - 1, min(count, steps)).round().long()
    times, values = [], []
    picked = output[chosen].unbind(0)  # at once: picking one by one would make backward quadratic
    for t, out in zip(chosen.tolist(), picked, strict=True):
        real = sample.lengths > t
        if targets is not None and not targets.is_floating_point():
            real = real & (targets[t] != IGNORE)
        if bool(real.any()):
            value = item(out[real], None if targets is None else targets[t][real])
            values.append(value.sum() if value.dim() else value * int(real.sum()))
            times.append(torch.where(real, t, -1))
    return torch.stack(times), torch.stack(values), what


# ---------------------------------------------------------------------------------------------------- the norms


def _norms(losses: Tensor, handles: list[Tensor]) -> Tensor:
    """‖∂L_n/∂handle‖ for every loss, handle and sequence: (n, handles, B)."""
    size = sum(handle.numel() * handle.element_size() for handle in handles)
    at_once = max(1, BUDGET // max(1, size))
    every, parts = torch.eye(len(losses), dtype=losses.dtype, device=losses.device), []
    for rows in every.split(at_once):
        found = torch.autograd.grad(losses, handles, rows, retain_graph=True, allow_unused=True, is_grads_batched=True)
        empty = [handle.new_zeros(len(rows), len(handle)) for handle in handles]
        norms = [zero if g is None else g.flatten(2).norm(dim=-1) for g, zero in zip(found, empty, strict=True)]
        parts.append(torch.stack(norms, dim=1))
    return torch.cat(parts)


def _flow(heard: Heard, state: str, norms: Tensor, times: Tensor, sample: Sample, alone: bool) -> Flow:
    """From norms (n, T, B), in the order the cell ran, to a flow in the order of the sequence."""
    norms, times, lengths = _aligned(heard, norms, times, sample)
    count = norms.shape[1]
    s = torch.arange(count, device=norms.device)[None, :, None]
    lags = s - times[:, None] if heard.backward else times[:, None] - s  # (n, T, B)
    real = (s < lengths) & (times[:, None] >= 0)
    start = norms.masked_fill(lags != 0, 0.0).sum(dim=1, keepdim=True)  # ‖∂L_t/∂h_t‖
    ratios = torch.where(real & (lags >= 0) & (start > 0), norms / start, float("nan"))
    profile, largest = _by_lag(ratios, lags, count)
    sequences = real.sum(dim=-1)
    heat = torch.where(sequences > 0, (norms * real).sum(dim=-1) / sequences.clamp_min(1), float("nan"))
    constants = step_bound(heard.cell) if alone and len(heard.states) == 1 else None
    bound = None if constants is None else bound_curve(constants, count - 1)
    return Flow(heard.name, state, heat, profile, largest, bound, fitted_rate(profile))


def _aligned(heard: Heard, norms: Tensor, times: Tensor, sample: Sample) -> tuple[Tensor, Tensor, Tensor]:
    """Norms in the order of the sequence, and the step each loss reads off the cell, -1 where it reads none.

    A cell with steps of its own (a level that ticks slowly, a sentence with its boundaries) is read where the gradient
    begins; its lags count its own steps.
    """
    own = norms.shape[1] != len(sample.inputs)
    lengths = torch.full_like(sample.lengths, norms.shape[1]) if own else sample.lengths
    if heard.backward:
        norms = torch.stack([reverse(one, lengths) for one in norms])
    if own:
        steps = torch.arange(norms.shape[1], device=norms.device)[None, :, None].expand_as(norms)
        seen = norms > 0
        times = (
            steps.masked_fill(~seen, norms.shape[1]).amin(dim=1)
            if heard.backward
            else steps.masked_fill(~seen, -1).amax(dim=1)
        )
        times = times.masked_fill(~seen.any(dim=1), -1)
    elif heard.backward and sample.targets is not None and not sample.per_step:
        times = torch.zeros_like(times)  # what reads backwards ends at the first step
    return norms, times, lengths


def _by_lag(ratios: Tensor, lags: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The geometric mean and the largest of the ratios at every lag: (count,) each; zero where nothing arrives."""
    real = ratios.isfinite()
    values, index = ratios[real], lags.expand_as(ratios)[real]
    nothing = torch.zeros(count, dtype=values.dtype, device=values.device)
    arrives = (values > 0).to(
        values.dtype
    )  # a path that is cut (a closed rectifier) would drown the mean of the others
    arrived = nothing.index_add(0, index, arrives)
    logs = nothing.index_add(0, index, values.clamp_min(1e-300).log() * arrives)
    mean = torch.where(arrived > 0, (logs / arrived.clamp_min(1)).exp(), 0.0)
    last = int(index.max()) + 1 if len(index) else 1
    return mean[:last], nothing.scatter_reduce(0, index, values, "amax")[:last]


def fitted_rate(profile: Tensor) -> float:
    """The factor a step of the straight line through log profile; 0 where nothing arrives at all."""
    lags = (profile > 1e-290).nonzero().flatten()
    lags = lags[lags > 0]
    if len(lags) < 1:
        return 0.0
    k, logs = lags.double(), profile[lags].double().log()
    if len(lags) == 1:
        return float((logs[0] / k[0]).exp())
    k0, l0 = k - k.mean(), logs - logs.mean()
    return float(((k0 * l0).sum() / k0.square().sum()).exp())


def _alone(heard: list[Heard]) -> bool:
    """Whether no other recurrent layer carries gradients back in time beside this one."""
    return sum(not one.backward for one in heard) == 1


# ---------------------------------------------------------------------------------------------------- words


def _verdict(flow: Flow) -> str:
    if flow.exploded:
        return "explodes"
    return "vanishes" if flow.vanished else "arrives"


def _left(flow: Flow) -> str:
    return f"{float(flow.profile[-1]):.3g} after {len(flow.profile) - 1} steps"


def _steps(count: float) -> str:
    return "never" if math.isinf(count) else f"{count:.3g} steps"


def _capped(bound: Tensor) -> list[float]:
    """A bound that leaves the numbers leaves the picture."""
    return [value if 1e-300 < value < 1e30 else float("nan") for value in bound.tolist()]


def _shrunk(log: Tensor) -> tuple[Tensor, int]:
    """Columns averaged down to what a screen shows, and how many steps a column stands for."""
    stride = -(-log.shape[1] // ROWS)
    if stride == 1:
        return log, 1
    padded = F.pad(log, (0, -log.shape[1] % stride), value=float("nan"))
    return padded.view(len(log), -1, stride).nanmean(dim=-1), stride
