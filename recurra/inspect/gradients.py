"""Gradient flow: the norm of ∂L_t/∂h_s for all pairs of loss time t and step s (survey section 3).

One forward pass of the plain loop, then one backward pass for all loss times together (torch's batched vjp), in parts
that fit a memory budget. The derivative is total: through time, depth and direction. The cost is about one training
step on `losses` sequences: 1000 steps of an LSTM with 256 units and 64 loss times take about three seconds on one core.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..argument_checks import positive_int
from ..data.sequences import IGNORE
from ..errors import InputError, ShapeError
from ..ragged import reverse
from ..train.objective import nll_of_probabilities, output_kind
from . import figures
from .inspected_model import InspectedModel
from .lipschitz import bound_curve, step_bound
from .result import Result, table
from .sample import Sample
from .step_recorder import CellRun

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BUDGET = 512 << 20  # bytes of gradients held at a time
VANISHED, EXPLODED = 1e-6, 10.0  # remaining share of a gradient over the whole sequence
COLUMNS = 160  # of a heat map, at most; more steps are averaged


@dataclass(frozen=True)
class Flow:
    """The gradient that reaches one state of one cell."""

    name: str  # of the cell
    state: str
    norms: Tensor  # (n, T): ‖∂L_t/∂h_s‖ for loss time n and step s, averaged over the sequences; NaN where undefined
    profile: Tensor  # (lags,): ‖∂L_t/∂h_{t-k}‖ / ‖∂L_t/∂h_t‖, the geometric mean of the nonzero ones
    largest: Tensor  # (lags,): the largest of those ratios
    bound: Tensor | None  # (lags,): the Lipschitz bound, for cells that have one
    rate: float  # the factor per step, fitted to the profile

    @property
    def label(self) -> str:
        return f"{self.name} · {self.state}"

    @property
    def vanished(self) -> bool:
        return len(self.profile) > 1 and float(self.profile[-1]) < VANISHED

    @property
    def exploded(self) -> bool:
        """Growth beyond the factor T that a sum of T equal losses has by itself."""
        return self.rate > 1.0 and float(self.profile[-1]) > EXPLODED * len(self.profile)

    @property
    def half_life(self) -> float:
        """Steps after which half of the gradient remains; infinite if it does not shrink."""
        return math.log(0.5) / math.log(self.rate) if 0.0 < self.rate < 1.0 else math.inf if self.rate >= 1 else 0.0


@dataclass(frozen=True)
class GradientFlow(Result):
    """‖∂L_t/∂h_s‖ for every state of every cell.

    **Example**

        >>> found = rc.inspect.gradient_flow(rc.GRU(3, 4), torch.randn(20, 2, 3))
        >>> [flow.state for flow in found.flows], found.flows[0].rate < 1
        (['h'], True)
    """

    flows: tuple[Flow, ...]
    times: tuple[int, ...]  # the loss times t; one loss per sequence counts at its last step
    loss: str
    seconds: float

    def __getitem__(self, state: str) -> Flow:
        """The flow of a state of the first cell that has it: `flow["c"]`."""
        for flow in self.flows:
            if flow.state == state:
                return flow
        raise KeyError(state)

    def summary(self) -> str:
        """A table: factor per step, half-life and what remains, for every state."""
        rows = [
            (flow.label, f"{flow.rate:.4g}", _steps(flow.half_life), _left(flow), _verdict(flow)) for flow in self.flows
        ]
        header = ("state", "factor per step", "half-life", "remaining", "")
        return f"Gradient flow of {self.loss}\n" + table(rows, header)

    def figure(self) -> "Figure":
        """The profile of every state over the lag; the legend has the fitted rate, dotted lines are bounds."""
        fig = figures.figure("Remaining gradient, k steps back", 420)
        for number, flow in enumerate(self.flows):
            lags = list(range(len(flow.profile)))
            shown = [value if value > 0 else float("nan") for value in flow.profile.tolist()]
            fig.add_trace(figures.line(f"{flow.label}: {flow.rate:.3g} per step", lags, shown, number))
            if flow.bound is not None:
                dotted = {"dash": "dot", "width": 1.5}
                fig.add_trace(
                    figures.line(f"{flow.label}: bound", lags, _clip_to_plot(flow.bound), number, line=dotted)
                )
        values = [value for flow in self.flows for value in flow.profile.tolist()]
        title = "‖∂L<sub>t</sub>/∂h<sub>t-k</sub>‖ / ‖∂L<sub>t</sub>/∂h<sub>t</sub>‖"
        fig.update_yaxes(title=title, **figures.log_axis(values))
        fig.update_xaxes(title="lag k = t - s, steps")
        return fig

    def heatmap(self) -> "Figure":
        """Heat map of log₁₀ ‖∂L_t/∂h_s‖ for all pairs (t, s)."""
        go = figures.graph_objects()
        fig = figures.panels([flow.label for flow in self.flows], height=300)
        logs = [flow.norms.clamp_min(1e-300).log10().masked_fill(flow.norms == 0, float("nan")) for flow in self.flows]
        finite = torch.cat([log[log.isfinite()] for log in logs])
        high = float(finite.max()) if len(finite) else 0.0
        low = max(float(finite.min()), high - 16) if len(finite) else -1.0
        for number, log in enumerate(logs):
            shown, stride = _downsample(log)
            fig.add_trace(
                go.Heatmap(
                    z=figures.rounded(shown),
                    x=[k * stride + 1 for k in range(shown.shape[1])],
                    y=[f"{t + 1}" for t in self.times],
                    coloraxis="coloraxis",
                    hovertemplate="loss at t = %{y}<br>state at s = %{x}<br>log₁₀ norm %{z:.2f}<extra></extra>",
                ),
                row=number + 1,
                col=1,
            )
        fig.update_layout(
            coloraxis={
                "colorscale": figures.SEQUENTIAL,
                "cmin": low,
                "cmax": high,
                "colorbar": {"title": "log₁₀", "thickness": 12},
            }
        )
        fig.update_xaxes(title="step s of the state")
        fig.update_yaxes(title="step t of the loss", type="category", nticks=8)
        return fig


def gradient_flow(
    model: Any,
    data: Any,
    *,
    losses: int = 64,
    sequences: int = 4,
    steps: int = 1000,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> GradientFlow:
    """‖∂L_t/∂h_s‖ along data, for every state of every cell of the model: vanishing and exploding gradients.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator or a training run.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`.
    - `losses`: how many loss times t to use, evenly spaced. One target per sequence gives one loss, at its end.
    - `sequences`, `steps`: the most sequences and steps of the data to use.
    - `loss`: a function of (output, target). By default the cross-entropy for classes, half the squared error for
      numbers, and without targets a fixed sum of the outputs with random signs.

    **Returns** a `GradientFlow`: `flows` has a `Flow` for each state, with `norms` (losses, T), the `profile` over the
    lag, the fitted `rate` per step and, for cells that have one, the `bound`.

    **Example**

        >>> import torch, recurra as rc
        >>> flow = rc.inspect.gradient_flow(rc.LSTM(3, 4), torch.randn(20, 2, 3))
        >>> flow["c"].norms.shape, len(flow["c"].profile)
        (torch.Size([20, 20]), 20)
    """
    began = time.perf_counter()
    positive_int("losses", losses)
    inspected = InspectedModel(model, data, sequences=sequences, steps=steps)
    output, recorder = inspected.record()
    runs = recorder.runs()
    probabilities = output_kind(inspected.module) == "softmax"
    times, values, what = _losses(output, inspected.sample, losses, loss, probabilities)
    handles = [tensor for run in runs for states in run.states.values() for tensor in states]
    norms = _norms(values, handles)  # (n, handles, B)
    flows, only_forward = [], _is_only_forward_cell(runs)
    owners = [(run, state) for run in runs for state in run.states]
    for (run, state), part in zip(owners, norms.split([len(run) for run, _ in owners], dim=1), strict=True):
        if len(run) == len(inspected.sample.inputs) or not inspected.sample.ragged:
            flows.append(_flow(run, state, part, times, inspected.sample, only_forward))
    if not flows:
        raise InputError(
            "model", type(inspected.module).__name__, "a model with a cell that runs once at every step of x"
        )
    return GradientFlow(tuple(flows), tuple(int(t) for t in times.amax(dim=1)), what, time.perf_counter() - began)


# ---------------------------------------------------------------------------------------------------- the loss


def _loss_function(
    targets: Tensor | None, size: int, loss: Callable[..., Tensor] | None, probabilities: bool
) -> tuple[Callable[..., Tensor], str]:
    """The loss of outputs (B, q) and targets, one value per sequence, and its name."""
    if targets is None:
        signs = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
        return lambda out, _: (out * signs.to(out)).sum(dim=-1) / math.sqrt(size), "a random sum of the outputs"
    if loss is not None:
        return loss, getattr(loss, "__name__", type(loss).__name__)
    if targets.is_floating_point():
        return lambda out, target: 0.5 * (out - target).square().flatten(1).sum(dim=1), "half the squared error"
    item = functools.partial(nll_of_probabilities if probabilities else F.cross_entropy, reduction="none")
    return item, "the cross-entropy"


def _losses(
    output: Tensor,
    sample: Sample,
    count: int,
    loss: Callable[[Tensor, Tensor], Tensor] | None,
    probabilities: bool,
) -> tuple[Tensor, Tensor, str]:
    """Loss times (n, B), -1 where a sequence has no loss then; the losses (n,), summed over the batch; their name."""
    targets, steps, batch = sample.targets, *sample.inputs.shape[:2]
    stepwise = output.dim() == 3 and output.shape[:2] == (steps, batch)
    item, what = _loss_function(targets, output.shape[-1], loss, probabilities)
    if not stepwise or (targets is not None and not sample.per_step):
        if stepwise:  # one target per sequence: the output of its last step counts
            output = output[sample.lengths - 1, torch.arange(batch)]
        if len(output) != batch:
            raise ShapeError("model output", tuple(output.shape), f"(T, B, …) or (B, …) with B = {batch}")
        total = item(output, targets).sum() * (1 if loss is None else batch)
        return (sample.lengths - 1)[None], total[None], what
    chosen = torch.linspace(0, steps - 1, min(count, steps)).round().long()
    times, values = [], []
    picked = output[chosen].unbind(0)  # in one operation: indexing step by step would make backward quadratic
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
    learned = [handle for handle in handles if handle.requires_grad]  # others are constants, such as a zero start
    for rows in every.split(at_once):
        given = torch.autograd.grad(losses, learned, rows, retain_graph=True, allow_unused=True, is_grads_batched=True)
        of = dict(zip(map(id, learned), given, strict=True))
        found = [of.get(id(handle)) for handle in handles]
        empty = [handle.new_zeros(len(rows), len(handle)) for handle in handles]
        norms = [zero if g is None else g.flatten(2).norm(dim=-1) for g, zero in zip(found, empty, strict=True)]
        parts.append(torch.stack(norms, dim=1))
    return torch.cat(parts)


def _flow(run: CellRun, state: str, norms: Tensor, times: Tensor, sample: Sample, only_forward: bool) -> Flow:
    """From norms (n, T, B), in the order the cell ran, to a flow in the order of the sequence."""
    norms, times, lengths = _align_to_sequence(run, norms, times, sample)
    count = norms.shape[1]
    s = torch.arange(count, device=norms.device)[None, :, None]
    lags = s - times[:, None] if run.backward else times[:, None] - s  # (n, T, B)
    real = (s < lengths) & (times[:, None] >= 0)
    start = norms.masked_fill(lags != 0, 0.0).sum(dim=1, keepdim=True)  # ‖∂L_t/∂h_t‖
    ratios = torch.where(real & (lags >= 0) & (start > 0), norms / start, float("nan"))
    profile, largest = _by_lag(ratios, lags, count)
    sequences = real.sum(dim=-1)
    heat = torch.where(sequences > 0, (norms * real).sum(dim=-1) / sequences.clamp_min(1), float("nan"))
    constants = step_bound(run.cell) if only_forward and len(run.states) == 1 else None
    bound = None if constants is None else bound_curve(constants, count - 1)
    return Flow(run.name, state, heat, profile, largest, bound, fitted_rate(profile))


def _align_to_sequence(run: CellRun, norms: Tensor, times: Tensor, sample: Sample) -> tuple[Tensor, Tensor, Tensor]:
    """Norms in the order of the sequence, the step of the cell that each loss reads (-1 for none), and lengths.

    A cell with its own step count (a slow level of a hierarchy, a sentence with its boundaries) is read at the last
    step that the loss depends on; its lags count its own steps.
    """
    own = norms.shape[1] != len(sample.inputs)
    lengths = torch.full_like(sample.lengths, norms.shape[1]) if own else sample.lengths
    if run.backward:
        norms = torch.stack([reverse(one, lengths) for one in norms])
    if own:
        steps = torch.arange(norms.shape[1], device=norms.device)[None, :, None].expand_as(norms)
        seen = norms > 0
        times = (
            steps.masked_fill(~seen, norms.shape[1]).amin(dim=1)
            if run.backward
            else steps.masked_fill(~seen, -1).amax(dim=1)
        )
        times = times.masked_fill(~seen.any(dim=1), -1)
    elif run.backward and sample.targets is not None and not sample.per_step:
        times = torch.zeros_like(times)  # a backward cell ends at the first step
    return norms, times, lengths


def _by_lag(ratios: Tensor, lags: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The geometric mean of the nonzero ratios and the largest ratio at every lag: (count,) each; zero if all are."""
    real = ratios.isfinite()
    values, index = ratios[real], lags.expand_as(ratios)[real]
    zeros = torch.zeros(count, dtype=values.dtype, device=values.device)
    arrives = (values > 0).to(values.dtype)  # a closed rectifier would make the mean of all zero
    arrived = zeros.index_add(0, index, arrives)
    logs = zeros.index_add(0, index, values.clamp_min(1e-300).log() * arrives)
    mean = torch.where(arrived > 0, (logs / arrived.clamp_min(1)).exp(), 0.0)
    last = int(index.max()) + 1 if len(index) else 1
    return mean[:last], zeros.scatter_reduce(0, index, values, "amax")[:last]


def fitted_rate(profile: Tensor) -> float:
    """The factor per step of the line fitted to the log profile; 0 if no gradient arrives."""
    lags = (profile > 1e-290).nonzero().flatten()
    lags = lags[lags > 0]
    if len(lags) < 1:
        return 0.0
    k, logs = lags.double(), profile[lags].double().log()
    if len(lags) == 1:
        return float((logs[0] / k[0]).exp())
    k0, l0 = k - k.mean(), logs - logs.mean()
    return float(((k0 * l0).sum() / k0.square().sum()).exp())


def _is_only_forward_cell(runs: list[CellRun]) -> bool:
    """Whether exactly one cell of the model reads forwards: only then does the bound of the cell hold."""
    return sum(not run.backward for run in runs) == 1


# ---------------------------------------------------------------------------------------------------- texts


def _verdict(flow: Flow) -> str:
    if flow.exploded:
        return "explodes"
    return "vanishes" if flow.vanished else "stable"


def _left(flow: Flow) -> str:
    return f"{float(flow.profile[-1]):.3g} after {len(flow.profile) - 1} steps"


def _steps(count: float) -> str:
    return "never" if math.isinf(count) else f"{count:.3g} steps"


def _clip_to_plot(bound: Tensor) -> list[float]:
    """The bound with NaN outside the range that a figure shows."""
    return [value if 1e-300 < value < 1e30 else float("nan") for value in bound.tolist()]


def _downsample(log: Tensor) -> tuple[Tensor, int]:
    """Columns averaged to at most `COLUMNS`, and how many steps each stands for."""
    stride = -(-log.shape[1] // COLUMNS)
    if stride == 1:
        return log, 1
    padded = F.pad(log, (0, -log.shape[1] % stride), value=float("nan"))
    return padded.view(len(log), -1, stride).nanmean(dim=-1), stride
