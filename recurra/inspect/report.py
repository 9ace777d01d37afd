"""`report`: everything recurra can show about a model and its data, on one page."""

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..cell import Cell
from ..errors import InputError
from ..optional import require
from . import figures, leaderboard_figure
from .diagram import diagram
from .exponents import lyapunov
from .gates import gate_activity
from .gradients import GradientFlow, gradient_flow
from .health import Health, Monitor, health
from .inspected_model import Sample, module_of, sample
from .jacobians import jacobian_spectrum
from .mathml import cell_mathml
from .memory_curve import memory_curve
from .page import Block, Section, drawing, listing, mathematics, picture, write_page
from .spectra import weight_spectrum
from .step_recorder import cells_of

History = Sequence[Mapping[str, Any]]


def report(
    model: Any,
    data: Any,
    path: str | Path = "report.html",
    *,
    title: str | None = None,
    history: Any = None,
    leaderboard: Sequence[Mapping[str, Any]] = (),
    before: Any = None,
    monitor: Monitor | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Write the report and return its path.

    model        a module, a cell, an echo state network, a run of `rc.train` as a callback sees it, a fitted estimator,
                 or several by name, `{"lstm": …, "gru": …}`: their gradients are compared, the first is shown whole.
    data         what the model reads: a tensor, (inputs, targets), a Batch, a SequenceSet.
    history      the result of `rc.train.fit`, its log, its folder of checkpoints, or several of these by name.
    leaderboard  a row for every cell that competed, as mappings with the same keys; `scores` is drawn, not listed.
    before       the model as it was before training: spectra are shown beside.
    monitor      an `rc.inspect.Monitor` that watched the training.
    settings     what else was set; printed with the versions.
    """
    require("plotly", "jinja2", extra="report", what="rc.report")
    models = dict(model) if isinstance(model, Mapping) else {"": model}
    if not models:
        raise InputError("model", "an empty mapping", "at least one model")
    name, first = next(iter(models.items()))
    found = _Report(first, data, models, before)
    history = history if history is not None else _history_of(first)
    sections = [
        leaderboard_figure.leaderboard(leaderboard),
        found.overview(),
        _training(_histories(history), monitor),
        found.gradients(),
        found.spectra(),
        found.dynamics(),
        found.gates(),
        found.diagrams(),
        found.equations(),
        found.settings(settings or {}),
    ]
    heading = title or f"{name or type(found.module).__name__}: what it learned, and how"
    return write_page(path, heading, found.lead(), [section for section in sections if section.blocks])


class _Report:
    """The sections about one model."""

    def __init__(self, model: Any, data: Any, models: Mapping[str, Any], before: Any):
        self.model, self.data, self.models, self.before = model, data, models, before
        self.module = module_of(model)
        self.cells = cells_of(self.module)
        if not self.cells:
            raise InputError("model", type(self.module).__name__, "a model with a recurrent layer inside")
        self.sample: Sample = sample(data, batch_first=bool(getattr(self.module, "batch_first", False)))

    def lead(self) -> str:
        count = sum(p.numel() for p in self.module.parameters())
        kinds = ", ".join(dict.fromkeys(type(heard.cell).__name__ for heard in self.cells))
        steps, batch = self.sample.inputs.shape[:2]
        source = f" from {self.sample.source}" if self.sample.source else ""
        return f"{kinds}; {count:,} weights. Looked at on {batch} sequences of up to {steps} steps{source}."

    def overview(self) -> Section:
        found = _try(lambda: [health(self.model, self.data)])
        section = Section("Health")
        for result in found:
            if isinstance(result, Block):
                section.blocks.append(result)
                continue
            section.blocks += _findings(result)
            if result.saturated or result.dead:
                sentence = (
                    "Bars near the top are gates that no longer react to what they see, or units that never move; "
                    "the dotted line marks where recurra begins to warn."
                )
                section.blocks.append(picture(result.figure(), sentence))
        return section

    def gradients(self) -> Section:
        section = Section("Gradient flow")

        def own() -> Iterable[Block]:
            flow = gradient_flow(self.model, self.data)
            sentence = (
                "A straight line down is a gradient that vanishes at a constant rate; one that stays level reaches the "
                "past. Dotted lines are what the weights alone allow, where they allow a bound."
            )
            yield picture(flow.figure(), sentence)
            if len(flow.times) > 1:
                sentence = (
                    "Each row is the loss at one step, each column the state at an earlier one: "
                    "bright cells are pairs between which the network can learn."
                )
                yield picture(GradientFlow(flow.flows[:4], flow.times, flow.loss, flow.seconds).heatmap(), sentence)
            yield Block("preformatted", flow.summary())

        section.blocks += _try(own)
        if len(self.models) > 1:
            section.blocks += _try(lambda: [_compared(self.models, self.data)])
        return section

    def spectra(self) -> Section:
        def blocks() -> Iterable[Block]:
            weights = weight_spectrum(self.model, before=self.before)
            sentence = "Eigenvalues outside the circle can grow from step to step, those well inside are forgotten."
            yield picture(weights.figure(), sentence)
            yield picture(weights.singular_figure(), "The first value is the most one step can stretch a change.")
            yield Block("preformatted", weights.summary())
            jacobian = jacobian_spectrum(self.model, self.data, before=self.before, steps=_affordable(self.cells))
            sentence = (
                "How far a small change of the state is stretched over many steps of this data: "
                "the upper curve is the direction remembered best."
            )
            yield picture(jacobian.figure(), sentence)
            sentence = "The same for single steps: gates and squashing functions move the eigenvalues with the data."
            yield picture(jacobian.plane(), sentence)

        return Section("Spectra", _try(blocks))

    def dynamics(self) -> Section:
        def exponents() -> Iterable[Block]:
            result = lyapunov(self.model, self.data, steps=max(12, _affordable(self.cells)))
            sentence = (
                "Below zero, two runs that start differently become one: the network forgets. Above, it is chaotic."
            )
            yield picture(result.figure(), sentence)
            yield Block("preformatted", result.summary())

        def memory() -> Iterable[Block]:
            result = memory_curve(self.model, self.data)
            yield picture(
                result.figure(), "Where the curve falls, inputs that old can no longer be read off the state."
            )
            if result.time_scales:
                sentence = "Units to the left hold their memory longest; a flat line means that all units do alike."
                yield picture(result.scales_figure(), sentence)
            yield Block("preformatted", result.summary())

        return Section("Dynamics and memory", [*_try(exponents), *_try(memory)])

    def gates(self) -> Section:
        def blocks() -> Iterable[Block]:
            result = gate_activity(self.model, self.data)
            sentence = "One row a unit, the most selective on top; point at a cell to see what was read at that step."
            yield picture(result.figure(units=24), sentence)
            sentence = "The units that follow the input most closely; the number says how much of them it explains."
            yield picture(result.selective_figure(), sentence)
            yield Block("preformatted", result.summary())

        return Section("Gates over a sequence", _try(blocks))

    def diagrams(self) -> Section:
        section = Section("Diagrams")
        if not isinstance(self.model, nn.Module) and hasattr(self.model, "members_"):
            section.blocks.append(drawing(diagram(self.model).svg, "Dashed connections are fixed, solid ones learned."))
        else:
            sentence = "The network over three steps: states run along the rows, inputs come from below."
            section.blocks.append(drawing(diagram(self.module).svg, sentence))
        for cell in _distinct(self.cells):
            sentence = f"Inside {type(cell).__name__}: the thick belt carries memory that no matrix touches."
            section.blocks.append(drawing(diagram(cell).svg, sentence))
        return section

    def equations(self) -> Section:
        section = Section("Equations")
        for cell in _distinct(self.cells):
            origin = f"{cell.paper} ({cell.year})." if cell.paper else "A cell of your own."
            section.blocks.append(mathematics(type(cell).__name__, origin, cell_mathml(cell)))
        return section

    def settings(self, given: Mapping[str, Any]) -> Section:
        from importlib.metadata import version

        from .. import __version__

        rows: list[tuple[str, Any]] = [(str(key), value) for key, value in given.items()]
        rows += _run_settings(self.model)
        rows += [(f"data: {key}", value) for key, value in _described(self.sample).items()]
        rows += [("recurra", __version__), ("torch", torch.__version__), ("plotly", version("plotly"))]
        rows += [("Python", platform.python_version()), ("machine", platform.platform())]
        text = "\n\n".join(
            f"{name}: {module_of(one)}" if name else str(module_of(one)) for name, one in self.models.items()
        )
        return Section("Settings and versions", [listing([(k, str(v)) for k, v in rows]), Block("preformatted", text)])


# ---------------------------------------------------------------------------------------------------- helpers


def _try(blocks: Callable[[], Iterable[Any]]) -> list[Any]:
    """What can be measured; where the data does not allow a measurement, a sentence says so."""
    done: list[Any] = []
    try:
        done.extend(blocks())  # what came before a refusal stays
    except InputError as reason:
        done.append(Block("text", f"Not measured here: {reason}."))
    return done


def _affordable(cells: Sequence[Any]) -> int:
    """Steps whose Jacobians take a few seconds."""
    size = max(sum(torch.Size(s.shape(1)[1:]).numel() for s in heard.cell.carried) for heard in cells)
    return max(2, min(100, int(2e9 / size**3)))


def _findings(result: Health) -> list[Block]:
    if result.ok:
        return [
            Block(
                "finding", "No gradient vanishes or explodes, no gate is stuck, no unit is dead.", "Healthy.", good=True
            )
        ]
    return [
        Block("finding", f"{f.what}. Advice: {f.advice}.", f"{f.kind.capitalize()} in {f.place}:")
        for f in result.findings
    ]


def _distinct(cells: Sequence[Any]) -> list[Cell]:
    """One cell for every set of equations."""
    found: dict[str, Cell] = {}
    for heard in cells:
        found.setdefault(heard.cell.equations(), heard.cell)
    return list(found.values())


def _compared(models: Mapping[str, Any], data: Any) -> Block:
    made, everything = figures.figure("Gradient flow of all models", 420), []
    for number, (name, one) in enumerate(models.items()):
        flow = gradient_flow(one, data).flows[-1]
        lags = list(range(len(flow.profile)))
        shown = [value if value > 0 else float("nan") for value in flow.profile.tolist()]
        everything += shown
        made.add_trace(figures.line(f"{name} · {flow.state}: {flow.rate:.3g} a step", lags, shown, number))
    made.update_yaxes(title="share of the gradient left", **figures.decades(everything))
    made.update_xaxes(title="lag, steps")
    return picture(made, "The same data for every model: the curve that stays highest reaches furthest back.")


def _training(histories: Mapping[str, History], monitor: Monitor | None) -> Section:
    section = Section("Training")
    curves = {name: history for name, history in histories.items() if history}
    if curves:
        made = figures.figure("Loss after every epoch", 380)
        number = 0
        for name, history in curves.items():
            for key in _losses(history):
                label = f"{name} · {key}" if name else key
                made.add_trace(
                    figures.line(
                        label,
                        list(range(1, len(history) + 1)),
                        [_number(r.get(key)) for r in history],
                        number,
                        mode="lines+markers",
                    )
                )
                number += 1
        made.update_xaxes(title="epoch", **figures.counts(max(map(len, curves.values()))))
        made.update_yaxes(title="loss")
        section.blocks.append(
            picture(
                made, "Where the validation curve turns up while the training curve goes on down, the model overfits."
            )
        )
    if monitor is not None and monitor.history:
        made = figures.figure("Factor of the gradient a step, while training", 340)
        keys = dict.fromkeys(key for _, found in monitor.history for key in found.rates)
        for number, key in enumerate(keys):
            epochs, rates = zip(
                *((epoch + 1, found.rates.get(key, float("nan"))) for epoch, found in monitor.history), strict=True
            )
            made.add_trace(figures.line(key, list(epochs), list(rates), number, mode="lines+markers"))
        made.add_hline(y=1.0, line={"color": figures.INK, "dash": "dot"})
        made.update_xaxes(title="epoch", **figures.counts(monitor.history[-1][0] + 1))
        made.update_yaxes(title="factor a step")
        section.blocks.append(
            picture(made, "Close to one, gradients reach the past; far below, they vanish on the way.")
        )
    return section


def _losses(history: History) -> list[str]:
    keys = dict.fromkeys(key for record in history for key, value in record.items() if isinstance(value, float))
    return [key for key in keys if "loss" in key] or [key for key in keys if key not in ("seconds", "rate")]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _history_of(model: Any) -> Any:
    """Of a run or a fitted estimator, where it keeps one."""
    progress = getattr(model, "progress", None)
    return progress.history if hasattr(progress, "history") else getattr(model, "history_", None)


def _histories(history: Any) -> dict[str, History]:
    if history is None:
        return {}
    named = history if isinstance(history, Mapping) else {"": history}
    return {
        str(name): _logged(Path(one)) if isinstance(one, (str, Path)) else getattr(one, "history", one)
        for name, one in named.items()
    }


def _logged(path: Path) -> History:
    """The epochs of a log that `rc.train.fit` wrote, or of the one in a folder of checkpoints."""
    file = path / "log.jsonl" if path.is_dir() else path
    try:
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as reason:
        raise InputError("history", str(file), f"a log of rc.train.fit ({reason})") from reason
    return [record for record in records if isinstance(record, dict) and record.get("event") == "epoch"]


def _run_settings(model: Any) -> list[tuple[str, Any]]:
    """What a run of `rc.train`, or an estimator, says about itself."""
    if hasattr(model, "get_params"):
        return list(model.get_params(deep=False).items())
    if not hasattr(model, "optimizer"):
        return []
    keys = ("device", "precision", "processes", "epochs", "steps_per_epoch")
    rows = [(key, getattr(model, key)) for key in keys if hasattr(model, key)]
    return [("optimizer", str(model.optimizer)), *rows]


def _described(data: Sample) -> dict[str, Any]:
    found: dict[str, Any] = {"inputs": tuple(data.inputs.shape), "lengths": _range(data.lengths.tolist())}
    if data.targets is not None:
        found["targets"] = tuple(data.targets.shape)
    return found | ({"source": data.source} if data.source else {})


def _range(lengths: list[int]) -> str:
    return str(lengths[0]) if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)}"
