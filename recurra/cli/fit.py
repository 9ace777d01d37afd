"""`recurra fit DATA`: a model from a file."""

import json
import logging
import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.error_handling import command_line
from recurra.cli.options import (
    NETWORK,
    OUTPUT,
    TRAINING,
    Data,
    Horizon,
    Id,
    Inputs,
    Json,
    Missing,
    Season,
    Sort,
    Target,
    Task,
    Test,
    Time,
)

APART = 3.0  # seconds between checkpoints; Ctrl-C saves in any case
RUN = "run"  # inside the model's folder, while it learns


def fit(
    context: typer.Context,
    data: Data,
    task: Task = None,
    target: Target = None,
    id: Id = None,
    time: Time = None,
    inputs: Inputs = None,
    horizon: Horizon = None,
    season: Season = None,
    test: Test = None,
    missing: Missing = None,
    sort: Sort = None,
    cell: Annotated[
        str | None,
        typer.Option("--cell", "-c", help="`recurra cells` lists them. [dim]lstm[/]", rich_help_panel=NETWORK),
    ] = None,
    hidden_size: Annotated[int | None, typer.Option(min=1, help="Units a layer.", rich_help_panel=NETWORK)] = None,
    num_layers: Annotated[
        int | None, typer.Option("--num-layers", "--layers", min=1, help="Layers.", rich_help_panel=NETWORK)
    ] = None,
    bidirectional: Annotated[
        bool | None, typer.Option("--bidirectional", help="Read from both ends.", rich_help_panel=NETWORK)
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of the outputs.", rich_help_panel=NETWORK)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Times through the data.", rich_help_panel=TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sequences a step.", rich_help_panel=TRAINING)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=TRAINING)] = None,
    seed: Annotated[int | None, typer.Option(help="Of all that is drawn.", rich_help_panel=TRAINING)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda.", rich_help_panel=TRAINING)] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any option of the estimator.", rich_help_panel=TRAINING),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="All of these from a file; flags win.", rich_help_panel=TRAINING),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="The model's folder.", rich_help_panel=OUTPUT)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a model of this name.", rich_help_panel=OUTPUT)
    ] = False,
    json: Json = False,
) -> None:
    """Fit a model to a file and save it in a folder.

    What the file asks is found out from its columns and shown first. Ctrl-C keeps what was learned: the same command
    goes on.

    [dim]recurra fit sensors.csv --target label --cell gru[/]
    """
    from recurra.cli.settings import FitSettings, flags_of
    from recurra.problem.settings import settings_of

    _fit(data, settings_of(FitSettings, settings, flags_of(context, FitSettings)), force, json)


def _fit(source: str, chosen: Any, force: bool, as_json: bool) -> None:
    from recurra.cells import find
    from recurra.cli import models, printing
    from recurra.cli.devices import checked
    from recurra.cli.training_progress import Watch
    from recurra.errors import RecurraError
    from recurra.problem import ask, keep
    from recurra.train.checkpoint import Checkpoints
    from recurra.train.fit_context import surrounded
    from recurra.train.fit_errors import Interrupted

    console = printing.aside()
    find(chosen.cell)
    checked(chosen.device or "auto")
    question = ask(source, **chosen.asking())
    printing.facts(question.facts, console)
    estimator: Any = question.estimator(chosen.cell, **chosen.fitting())
    folder = Path(chosen.out) if chosen.out else Path(f"{_stem(source)}-{chosen.cell}")
    run = _prepared(folder, {"source": source, "settings": chosen.model_dump(exclude={"out"})}, force)
    console.print(f"\nLearning, with the cell [bold]{chosen.cell}[/].")
    watch = Watch(console)
    logging.getLogger("recurra.train").addHandler(logging.NullHandler())  # an interruption is told below
    try:
        with surrounded(Checkpoints(run / "checkpoints", apart=APART), [watch]):
            estimator.fit(*question.train)
    except Interrupted as stopped:
        console.print(f"\nInterrupted {watch.where}.", soft_wrap=True)
        if stopped.checkpoint is not None:
            console.print(f"What was learned is kept in {run}. The same command goes on:", soft_wrap=True, markup=False)
            console.print(f"  {command_line()}", soft_wrap=True, markup=False)
        raise
    except RecurraError:
        _tidy(folder, run)
        raise
    measures = question.measures(estimator, question.test) if question.test else {}
    keep(question, estimator, folder, measures)
    shutil.rmtree(run)
    count = models.weights(estimator)
    if as_json:
        printing.as_json(_summary(folder, question, chosen.cell, count, estimator, watch.seconds, measures))
        return
    epochs = len(estimator.history_)
    learned = f"{count:,} weights, {epochs} epoch{'s' if epochs > 1 else ''}, {watch.seconds:.1f} s"
    console.print(f"Learned: {learned}." + (" On what was held out:" if measures else ""))
    printing.measures(measures, question.metric, console)
    console.print(f"\nThe model is in {printing.place(folder)}. Next:", soft_wrap=True)
    for line in _next(question, folder, source):
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _stem(source: str) -> str:
    return Path(source).name.split(".")[0] or "model"


def _prepared(folder: Path, arguments: dict[str, Any], force: bool) -> Path:
    """The folder of the run: a new one, or the one an interrupted run of the same arguments left."""
    from recurra.errors import InputError

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}", "a file", "the name of a folder, new or empty")
    run = folder / RUN
    note = run / "arguments.json"
    written = json.loads(json.dumps(arguments))
    if force and run.is_dir():
        shutil.rmtree(run)
    if note.is_file():
        before = json.loads(note.read_text(encoding="utf-8"))
        if before != written:
            raise InputError(
                f"--out {folder}",
                f"an unfinished run with other settings ({_difference(before, written)})",
                "the same settings, to go on; or another folder; or --force, to begin anew",
            )
        return run
    if (folder / "config.json").exists() and not force:
        raise InputError(f"--out {folder}", "a folder that holds a model", "another folder, or --force, to replace it")
    run.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(written, indent=1), encoding="utf-8")
    return run


def _tidy(folder: Path, run: Path) -> None:
    """A run that failed before it learned anything leaves nothing behind."""
    if any(run.glob("checkpoints/*/checkpoint-*")):
        return
    shutil.rmtree(run)
    if not any(folder.iterdir()):
        folder.rmdir()


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    flat = [{"data": part["source"], **part["settings"]} for part in (before, now)]
    changed = [name for name in flat[1] if flat[0].get(name) != flat[1][name]]
    return ", ".join(f"{name} was {flat[0].get(name)}, now {flat[1][name]}" for name in changed) or "of another version"


def _summary(folder, question, cell, count, estimator, seconds, measures) -> dict[str, Any]:
    return {
        "model": str(folder),
        "task": question.task,
        "cell": cell,
        "weights": count,
        "epochs": len(estimator.history_),
        "seconds": round(seconds, 3),
        "metric": question.metric,
        "score": measures.get(question.metric),
        "measures": measures,
        "facts": dict(question.facts),
    }


def _next(question: Any, folder: Path, source: str) -> list[str]:
    name, data = shlex.quote(str(folder)), shlex.quote(source)
    if question.task == "language":
        first = shlex.join(question.train[0].split(maxsplit=1)[:1])  # a word whose letters the model knows
        return [f"recurra generate {name} {first}", f"recurra inspect {name} {data}"]
    return [f"recurra predict {name} {data} -o answers.csv", f"recurra inspect {name} {data}"]
