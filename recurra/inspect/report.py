"""`rc.report`: all measurements of a model on data, its diagrams and equations, on one HTML page."""

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
from .health import Finding, Monitor, health, overfitting_finding
from .inspected_model import module_of, network_and_data
from .jacobians import jacobian_spectrum
from .mathml import cell_mathml
from .memory_curve import memory_curve
from .page import Block, Section, drawing_block, equations_block, figure_block, table_block, write_page
from .sample import Sample, sample
from .spectra import weight_spectrum
from .step_recorder import cells_of

History = Sequence[Mapping[str, Any]]
BOUNDS = " Dotted lines are upper bounds from the weights; above the plot they say nothing."
LOSS_NAMES = {"loss": "training", "valid_loss": "validation"}
TRAINING = {"line": {"dash": "solid"}, "marker": {"symbol": "circle", "size": 5}}
VALIDATION = {"line": {"dash": "dash"}, "marker": {"symbol": "circle-open", "size": 8}}
VISIBLE = 0.005  # share of saturated or dead values from which on a bar can be seen


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
    verdict: str = "",
    answers: Section | None = None,
) -> Path:
    """Write an HTML report about a model and its data: the answers, health, gradients, memory, gates, equations.

    The page is one self-contained file: it loads nothing from the network. A measurement that the data does not allow
    is replaced by a sentence that says why.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator, a training run as a
      callback gets it, or several by name, `{"lstm": …, "gru": …}`. Of several, the gradients are compared and the
      first is shown in full.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`; for a fitted estimator
      what its `predict` takes, such as an array (n, T, D), or a pair (X, y).
    - `path`: the file to write.
    - `title`: the heading of the page.
    - `history`: the result of `rc.train.fit`, its log file, its checkpoint folder, or several of these by name.
    - `leaderboard`: rows of a comparison, mappings with the same keys. The key `scores` holds the scores of all seeds,
      which are plotted.
    - `before`: the model before training; its spectra are shown for comparison.
    - `monitor`: the `rc.inspect.Monitor` that was a callback of the training.
    - `settings`: further settings to print with the versions.
    - `verdict`: a sentence that says what was found; the page begins with it.
    - `answers`: a section with the model's predictions, as `recurra.problem.answers` makes it; it comes after the
      leaderboard.

    **Returns** the path of the page.

    **Example**

        >>> import torch, recurra as rc
        >>> print(rc.report(rc.LSTM(3, 8), torch.randn(12, 2, 3), "report.html"))
        report.html
    """
    require("plotly", "jinja2", extra="report", what="rc.report")
    models = dict(model) if isinstance(model, Mapping) else {"": model}
    if not models:
        raise InputError("model", "an empty mapping", "at least one model")
    name, first = next(iter(models.items()))
    board = leaderboard_figure.leaderboard(leaderboard)
    if (own := _sections_without_network(first, data)) is not None:
        rows = [*(settings or {}).items(), *_run_settings(first)]
        sections = [board, answers or own[0], *own[1:], _settings_section(rows)]
        lead = f"{type(first).__name__}: random features and a linear readout, without a network to measure."
        return _write(path, title or f"{name or type(first).__name__}: model report", lead, sections, verdict)
    found = _Report(first, data, models, before)
    history = history if history is not None else _history_of(first)
    sections = [
        board,
        answers or Section("Predictions"),
        _training(_histories(history), monitor),
        found.overview(_histories(history)),
        found.gradients(),
        found.spectra(),
        found.dynamics(),
        found.gates(),
        found.diagrams(),
        found.equations(),
        found.settings(settings or {}),
    ]
    return _write(
        path, title or f"{name or type(found.module).__name__}: model report", found.lead(), sections, verdict
    )


class _Report:
    """Makes the sections about one model."""

    def __init__(self, model: Any, data: Any, models: Mapping[str, Any], before: Any):
        models = {name: network_and_data(each, data)[0] for name, each in models.items()}
        model, data = network_and_data(model, data)
        self.model, self.data, self.models, self.before = model, data, models, before
        self.name = next(iter(models))
        self.module = module_of(model)
        self.cells = cells_of(self.module)
        if not self.cells:
            raise InputError("model", type(self.module).__name__, "a model with a recurrent layer inside")
        self.sample: Sample = sample(data, batch_first=bool(getattr(self.module, "batch_first", False)))

    def lead(self) -> str:
        count = sum(p.numel() for p in self.module.parameters())
        kinds = ", ".join(dict.fromkeys(type(run.cell).__name__ for run in self.cells))
        steps, batch = self.sample.inputs.shape[:2]
        sequences = f"{batch} sequence{'s' if batch != 1 else ''}"
        source = f" from {self.sample.source}" if self.sample.source else ""
        return f"{kinds}; {count:,} parameters. Measured on {sequences} of up to {steps} steps{source}."

    def overview(self, histories: Mapping[str, History]) -> Section:
        found = _try(lambda: [health(self.model, self.data)])
        section = Section("Health")
        own = next((history for name, history in histories.items() if name in ("", self.name)), ())
        overfitting = overfitting_finding(own)
        for result in found:
            if isinstance(result, Block):
                section.blocks.append(result)
                continue
            section.blocks += _findings([*([overfitting] if overfitting else []), *result.findings])
            if max([*result.saturated.values(), *result.dead.values()], default=0.0) >= VISIBLE:
                caption = (
                    "Shares of saturated gates, which hardly react to their input, and of dead units, whose value is "
                    "constant. Above the dotted line recurra reports a finding."
                )
                section.blocks.append(figure_block(result.figure(), caption))
        return section

    def gradients(self) -> Section:
        section = Section("Gradient flow")

        def own() -> Iterable[Block]:
            flow = gradient_flow(self.model, self.data)
            caption = (
                "A falling straight line is a gradient that vanishes at a constant rate per step; a level line is a "
                "gradient that reaches far back."
            )
            bounded = any(each.bound is not None for each in flow.flows)
            yield figure_block(flow.figure(), caption + BOUNDS * bounded)
            if len(flow.times) > 1:
                caption = (
                    "Gradient of the loss at step t (row) with respect to the state at step s (column). "
                    "Bright cells are pairs of steps between which the network can learn."
                )
                yield figure_block(GradientFlow(flow.flows[:4], flow.times, flow.loss, flow.seconds).heatmap(), caption)
            yield Block("preformatted", flow.summary())

        section.blocks += _try(own)
        if len(self.models) > 1:
            section.blocks += _try(lambda: [_gradient_comparison(self.models, self.data)])
        return section

    def spectra(self) -> Section:
        def blocks() -> Iterable[Block]:
            weights = weight_spectrum(self.model, before=self.before)
            caption = "Components with eigenvalues outside the circle can grow over time; those well inside decay."
            yield figure_block(weights.figure(), caption)
            yield figure_block(
                weights.singular_figure(),
                "The first value is the largest factor by which the matrix can amplify a change of the state.",
            )
            yield Block("preformatted", weights.summary())
            jacobian = jacobian_spectrum(self.model, self.data, before=self.before, steps=_affordable_steps(self.cells))
            caption = (
                "How much a small change of the state is amplified over many steps of this data. "
                "The upper curve is the direction that is remembered best."
            )
            yield figure_block(jacobian.figure(), caption)
            caption = "Eigenvalues of single steps along the data; they change with the gates and activations."
            yield figure_block(jacobian.eigenvalue_figure(), caption)

        return Section("Spectra", _try(blocks))

    def dynamics(self) -> Section:
        def exponents() -> Iterable[Block]:
            result = lyapunov(self.model, self.data, steps=max(12, _affordable_steps(self.cells)))
            caption = (
                "Below zero, runs from different initial states converge: the network forgets its initial state. "
                "Above zero, it is chaotic."
            )
            yield figure_block(result.figure(), caption)
            yield Block("preformatted", result.summary())

        def memory() -> Iterable[Block]:
            result = memory_curve(self.model, self.data)
            yield figure_block(
                result.figure(),
                "Where the curve falls, a linear readout can no longer recover inputs that old from the state.",
            )
            if result.time_scales:
                caption = "How many steps each unit holds its state. A flat line means equal time scales."
                yield figure_block(result.scales_figure(), caption)
            yield Block("preformatted", result.summary())

        return Section("Dynamics and memory", [*_try(exponents), *_try(memory)])

    def gates(self) -> Section:
        def blocks() -> Iterable[Block]:
            result = gate_activity(self.model, self.data)
            caption = "One row per unit, the most selective on top. Hover over a cell to see the input of that step."
            yield figure_block(result.figure(units=24), caption)
            caption = "The units that depend most on the input; the number is the share of variance it explains."
            yield figure_block(result.selective_figure(), caption)
            yield Block("preformatted", result.summary())

        return Section("Gates over a sequence", _try(blocks))

    def diagrams(self) -> Section:
        section = Section("Diagrams")
        if not isinstance(self.model, nn.Module) and hasattr(self.model, "members_"):
            section.blocks.append(
                drawing_block(
                    diagram(self.model).svg, "Dashed connections are random and fixed, solid ones are learned."
                )
            )
        else:
            caption = "The network unrolled over three steps: time runs to the right, inputs enter at the bottom."
            section.blocks.append(drawing_block(diagram(self.module).svg, caption))
        for cell in _distinct(self.cells):
            drawn = diagram(cell).svg
            thick = " Thick lines are states that pass without a matrix product." if 'class="line belt' in drawn else ""
            section.blocks.append(drawing_block(drawn, f"One step of {type(cell).__name__}.{thick}"))
        return section

    def equations(self) -> Section:
        section = Section("Equations")
        for cell in _distinct(self.cells):
            origin = f"{cell.paper} ({cell.year})." if cell.paper else "User-defined cell."
            section.blocks.append(equations_block(type(cell).__name__, origin, cell_mathml(cell)))
        return section

    def settings(self, given: Mapping[str, Any]) -> Section:
        rows = [*given.items(), *_run_settings(self.model)]
        rows += [(f"data: {key}", value) for key, value in _describe_sample(self.sample).items()]
        section = _settings_section(rows)
        text = "\n\n".join(
            f"{name}: {module_of(one)}" if name else str(module_of(one)) for name, one in self.models.items()
        )
        section.blocks.append(Block("preformatted", text))
        return section


# ---------------------------------------------------------------------------------------------------- helpers


def _write(path: str | Path, heading: str, lead: str, sections: Sequence[Section], verdict: str) -> Path:
    """The page, without the sections that are empty."""
    return write_page(path, heading, lead, [section for section in sections if section.blocks], verdict)


def _sections_without_network(model: Any, data: Any) -> list[Section] | None:
    """The sections of an estimator without a network, its predictions first; None for all other models."""
    make = None if isinstance(model, nn.Module) else getattr(model, "report_sections", None)
    return None if make is None else make(data)


def _settings_section(rows: Iterable[tuple[str, Any]]) -> Section:
    from importlib.metadata import version

    from .. import __version__

    versions = [("recurra", __version__), ("torch", torch.__version__), ("plotly", version("plotly"))]
    versions += [("Python", platform.python_version()), ("machine", platform.platform())]
    return Section("Settings and versions", [table_block([(str(k), str(v)) for k, v in (*rows, *versions)])])


def _try(blocks: Callable[[], Iterable[Any]]) -> list[Any]:
    """The blocks of a measurement; if the data does not allow it, a sentence that says why."""
    done: list[Any] = []
    try:
        done.extend(blocks())  # keeps the blocks before an error
    except InputError as reason:
        done.append(Block("text", f"Not measured: {reason}."))
    return done


def _affordable_steps(cells: Sequence[Any]) -> int:
    """How many Jacobians can be computed in a few seconds."""
    size = max(sum(torch.Size(s.shape(1)[1:]).numel() for s in run.cell.carried) for run in cells)
    return max(2, min(100, int(2e9 / size**3)))


def _findings(findings: Sequence[Finding]) -> list[Block]:
    if not findings:
        fine = "No vanishing or exploding gradients, saturated gates or dead units."
        return [Block("finding", fine, "Healthy.", good=True)]
    return [
        Block("finding", f"{f.what}. Advice: {f.advice}.", f"{f.kind.capitalize()} in {f.place}:") for f in findings
    ]


def _distinct(cells: Sequence[Any]) -> list[Cell]:
    """One cell for each different set of equations."""
    found: dict[str, Cell] = {}
    for run in cells:
        found.setdefault(run.cell.equations(), run.cell)
    return list(found.values())


def _gradient_comparison(models: Mapping[str, Any], data: Any) -> Block:
    fig, values = figures.figure("Gradient flow of all models", 420), []
    for number, (name, one) in enumerate(models.items()):
        flow = gradient_flow(one, data).flows[-1]
        lags = list(range(len(flow.profile)))
        shown = [value if value > 0 else float("nan") for value in flow.profile.tolist()]
        values += shown
        fig.add_trace(figures.line(f"{name} · {flow.state}: {flow.rate:.3g} per step", lags, shown, number))
    fig.update_yaxes(title="remaining share of the gradient", **figures.log_axis(values))
    fig.update_xaxes(title="lag, steps")
    return figure_block(fig, "All models on the same data. The highest curve carries the gradient furthest back.")


def _training(histories: Mapping[str, History], monitor: Monitor | None) -> Section:
    section = Section("Training")
    curves = {name: history for name, history in histories.items() if history}
    if curves:
        fig = figures.figure("Loss after every epoch", 380)
        validated = False
        for number, (name, history) in enumerate(curves.items()):
            epochs = list(range(1, len(history) + 1))
            for key in _losses(history):
                valid = key.startswith("valid")
                validated |= valid
                label = f"{name} · {LOSS_NAMES.get(key, key)}" if name else LOSS_NAMES.get(key, key)
                losses = [_number(r.get(key)) for r in history]
                style = VALIDATION if valid else TRAINING
                fig.add_trace(figures.line(label, epochs, losses, number, mode="lines+markers", **style))
        fig.update_xaxes(title="epoch", **figures.count_axis(max(map(len, curves.values()))))
        fig.update_yaxes(title="loss")
        caption = "The loss on the training data after every epoch."
        if validated:
            caption = (
                "Solid with dots: training. Dashed with rings: validation; where it rises while the training loss "
                "still falls, the model overfits."
            )
        section.blocks.append(figure_block(fig, caption))
    if monitor is not None and monitor.history:
        fig = figures.figure("Gradient factor per step, during training", 340)
        keys = dict.fromkeys(key for _, found in monitor.history for key in found.rates)
        for number, key in enumerate(keys):
            epochs, rates = zip(
                *((epoch + 1, found.rates.get(key, float("nan"))) for epoch, found in monitor.history), strict=True
            )
            fig.add_trace(figures.line(key, list(epochs), list(rates), number, mode="lines+markers"))
        fig.add_hline(y=1.0, line={"color": figures.INK, "dash": "dot"})
        fig.update_xaxes(title="epoch", **figures.count_axis(monitor.history[-1][0] + 1))
        fig.update_yaxes(title="factor per step")
        section.blocks.append(figure_block(fig, "Close to one, gradients reach far back; far below one, they vanish."))
    return section


def _losses(history: History) -> list[str]:
    keys = dict.fromkeys(key for record in history for key, value in record.items() if isinstance(value, float))
    return [key for key in keys if "loss" in key] or [key for key in keys if key not in ("seconds", "rate")]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _history_of(model: Any) -> Any:
    """The training history of a run or a fitted estimator, if it has one."""
    progress = getattr(model, "progress", None)
    return progress.history if hasattr(progress, "history") else getattr(model, "history_", None)


def _histories(history: Any) -> dict[str, History]:
    if history is None:
        return {}
    named = history if isinstance(history, Mapping) else {"": history}
    return {
        str(name): _read_log(Path(one)) if isinstance(one, (str, Path)) else getattr(one, "history", one)
        for name, one in named.items()
    }


def _read_log(path: Path) -> History:
    """The epochs in a log of `rc.train.fit`, given as a file or as its checkpoint folder."""
    file = path / "log.jsonl" if path.is_dir() else path
    try:
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as reason:
        raise InputError("history", str(file), f"a log of rc.train.fit ({reason})") from reason
    return [record for record in records if isinstance(record, dict) and record.get("event") == "epoch"]


def _run_settings(model: Any) -> list[tuple[str, Any]]:
    """Settings of a training run, or parameters of an estimator."""
    if hasattr(model, "get_params"):
        return list(model.get_params(deep=False).items())
    if not hasattr(model, "optimizer"):
        return []
    keys = ("device", "precision", "processes", "epochs", "steps_per_epoch")
    rows = [(key, getattr(model, key)) for key in keys if hasattr(model, key)]
    return [("optimizer", str(model.optimizer)), *rows]


def _describe_sample(data: Sample) -> dict[str, Any]:
    found: dict[str, Any] = {"inputs": tuple(data.inputs.shape), "lengths": _range(data.lengths.tolist())}
    if data.targets is not None:
        found["targets"] = tuple(data.targets.shape)
    return found | ({"source": data.source} if data.source else {})


def _range(lengths: list[int]) -> str:
    return str(lengths[0]) if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)}"
