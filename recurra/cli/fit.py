"""`recurra fit DATA`: train a model and save it."""

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
    Dates,
    Encoding,
    Fill,
    Horizon,
    Id,
    Ignore,
    Inputs,
    Json,
    Missing,
    Observed,
    Season,
    Sort,
    Static,
    Target,
    Task,
    Test,
    Time,
)

CHECKPOINT_SECONDS = 3.0  # between checkpoints; Ctrl-C saves one in any case
RUN = "run"  # folder inside the model folder, during training
ARGUMENTS, CHECKPOINTS = "arguments.json", "checkpoints"  # inside the run folder


def fit(
    context: typer.Context,
    data: Data,
    task: Task = None,
    target: Target = None,
    id: Id = None,
    time: Time = None,
    inputs: Inputs = None,
    observed: Observed = None,
    static: Static = None,
    ignore: Ignore = None,
    horizon: Horizon = None,
    season: Season = None,
    test: Test = None,
    missing: Missing = None,
    fill: Fill = None,
    sort: Sort = None,
    dates: Dates = None,
    encoding: Encoding = None,
    cell: Annotated[
        str | None,
        typer.Option(
            "--cell", "-c", help="Cell; see `recurra cells`. [dim]\\[default: lstm][/]", rich_help_panel=NETWORK
        ),
    ] = None,
    hidden_size: Annotated[int | None, typer.Option(min=1, help="Units per layer.", rich_help_panel=NETWORK)] = None,
    num_layers: Annotated[
        int | None, typer.Option("--num-layers", "--layers", min=1, help="Number of layers.", rich_help_panel=NETWORK)
    ] = None,
    bidirectional: Annotated[
        bool | None, typer.Option("--bidirectional", help="Bidirectional layers.", rich_help_panel=NETWORK)
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(min=0, max=1, help="Dropout probability.", rich_help_panel=NETWORK)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Training epochs.", rich_help_panel=TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Batch size.", rich_help_panel=TRAINING)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=TRAINING)] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed. [dim]\\[default: 0][/]", rich_help_panel=TRAINING)
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.", rich_help_panel=TRAINING)] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other estimator option.", rich_help_panel=TRAINING),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Settings file; flags override it.", rich_help_panel=TRAINING),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Model folder.", rich_help_panel=OUTPUT)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model.", rich_help_panel=OUTPUT)] = False,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes", help="Resume with other settings or data than before.", rich_help_panel=OUTPUT
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Train a model on a data file and save it in a folder.

    Task and columns are inferred from the file and printed. After Ctrl-C, the same command resumes training. Under
    torchrun, all processes train the one model together.

    [dim]recurra fit sensors.csv --target label --cell gru[/]

    [dim]torchrun --nproc-per-node 2 -m recurra fit sensors.csv[/]
    """
    from recurra.cli.settings import FitSettings, given_flags
    from recurra.problem.settings import load_settings
    from recurra.train.distributed import Processes

    processes = Processes()
    with processes.all_or_none():
        chosen = load_settings(FitSettings, settings, given_flags(context, FitSettings))
        prepared = _prepare(data, chosen)
    _fit(data, chosen, *prepared, force, accept_changes, json, processes)


def _prepare(source: str, chosen: Any) -> tuple[Any, Any]:
    """The problem in the data, which is printed, and an estimator for it."""
    from recurra.cells import find
    from recurra.cli import printing
    from recurra.cli.devices import check_device
    from recurra.problem import infer_problem
    from recurra.problem.column_table import print_columns

    find(chosen.cell)
    check_device(chosen.device or "auto")
    problem = infer_problem(source, **chosen.problem_arguments())
    printing.print_pairs(problem.summary, printing.stderr_console())
    print_columns(problem.columns, printing.stderr_console())
    return problem, problem.estimator(chosen.cell, **chosen.estimator_arguments())


def _fit(
    source: str,
    chosen: Any,
    problem: Any,
    estimator: Any,
    force: bool,
    accept_changes: bool,
    as_json: bool,
    processes: Any,
) -> None:
    """Train in all processes; the first one writes the folder and prints."""
    from recurra.cli import printing
    from recurra.cli.training_progress import TrainingProgress
    from recurra.problem import save_problem
    from recurra.train.checkpoint import Checkpoints
    from recurra.train.run_lock import run_lock

    folder = Path(chosen.out) if chosen.out else Path(f"{_stem(source)}-{chosen.cell}")
    run, progress = folder / RUN, TrainingProgress(printing.stderr_console())
    with processes.all_or_none():
        if processes.first:
            _make_run_folder(folder, force)
    with run_lock(run, processes):
        with processes.all_or_none():
            if processes.first:
                arguments = {"source": source, "settings": chosen.model_dump(exclude={"out"})}
                _check_arguments(run, arguments, force, accept_changes)
        progress.console.print(f"\nTraining [bold]{chosen.cell}[/].")
        checkpoints = Checkpoints(run / CHECKPOINTS, apart=CHECKPOINT_SECONDS, accept_changes=accept_changes)
        _train(estimator, problem, folder, run, checkpoints, progress, processes.first)
        if not processes.first:
            return
        metrics = problem.evaluate(estimator, problem.test) if problem.test else {}
        save_problem(problem, estimator, folder, metrics)
        shutil.rmtree(run)
    _report(source, chosen.cell, problem, estimator, folder, metrics, progress, as_json)


def _report(
    source: str, cell: str, problem: Any, estimator: Any, folder: Path, metrics: Any, progress: Any, as_json: bool
) -> None:
    """What was trained, its metrics, and what can be done with it."""
    from recurra.cli import model_folder, printing

    console = progress.console
    count = model_folder.count_weights(estimator)
    if as_json:
        printing.print_json(_summary(folder, problem, cell, count, estimator, progress.seconds, metrics))
        return
    epochs = f"{len(estimator.history_)} epoch{'s' if len(estimator.history_) != 1 else ''}"
    trained = f"Trained {count:,} weights for {epochs} in {progress.seconds:.1f} s."
    console.print(trained + (" Test metrics:" if metrics else ""))
    printing.print_metrics(metrics, problem.metric, console)
    console.print(f"\nSaved to {printing.bold(folder)}. Next steps:", soft_wrap=True)
    for line in _next_steps(problem, folder, source):
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _train(estimator: Any, problem: Any, folder: Path, run: Path, checkpoints: Any, progress: Any, first: bool) -> None:
    from recurra.errors import RecurraError
    from recurra.train.fit_context import fit_context
    from recurra.train.fit_errors import Interrupted

    console = progress.console
    logging.getLogger("recurra.train").addHandler(logging.NullHandler())  # interruptions are reported below
    try:
        with fit_context(checkpoints, [progress]):
            estimator.fit(*problem.train)
    except Interrupted as stopped:
        console.print(f"\nInterrupted {progress.where}.", soft_wrap=True)
        if stopped.checkpoint is not None:
            console.print(f"The checkpoint is in {run}. The same command resumes:", soft_wrap=True, markup=False)
            console.print(f"  {command_line()}", soft_wrap=True, markup=False)
        raise
    except RecurraError:
        if first:
            _remove_empty_run(folder, run)
        raise


def _stem(source: str) -> str:
    return Path(source).name.split(".")[0] or "model"


def _make_run_folder(folder: Path, force: bool) -> None:
    """Create the run folder if needed; a folder with a model and no unfinished run needs --force."""
    from recurra.errors import InputError

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}", "a file", "a new or empty folder")
    run = folder / RUN
    if (folder / "config.json").exists() and not (run / ARGUMENTS).is_file() and not force:
        raise InputError(
            f"--out {folder}", "a folder that contains a model", "another folder, or --force to replace it"
        )
    run.mkdir(parents=True, exist_ok=True)


def _check_arguments(run: Path, arguments: dict[str, Any], force: bool, accept_changes: bool) -> None:
    """Write the arguments of a new run; those of an unfinished one must be the same. With `force` it starts over."""
    from recurra.errors import InputError

    note, written = run / ARGUMENTS, json.loads(json.dumps(arguments))
    if force:
        shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    elif note.is_file() and not accept_changes:
        before = json.loads(note.read_text(encoding="utf-8"))
        if before != written:
            raise InputError(
                f"--out {run.parent}",
                f"an unfinished run with other settings ({_difference(before, written)})",
                "the same settings, --accept-changes to resume with the new ones, or --force to start over",
            )
    note.write_text(json.dumps(written, indent=1), encoding="utf-8")


def _remove_empty_run(folder: Path, run: Path) -> None:
    """Remove the folders of a run that failed before its first checkpoint."""
    if any(run.glob(f"{CHECKPOINTS}/*/checkpoint-*")):
        return
    shutil.rmtree(run)
    if not any(folder.iterdir()):
        folder.rmdir()


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    flat = [{"data": part["source"], **part["settings"]} for part in (before, now)]
    changed = [name for name in flat[1] if flat[0].get(name) != flat[1][name]]
    return (
        ", ".join(f"{name} was {flat[0].get(name)}, now {flat[1][name]}" for name in changed) or "from another version"
    )


def _summary(folder, problem, cell, count, estimator, seconds, metrics) -> dict[str, Any]:
    return {
        "model": str(folder),
        "task": problem.task,
        "cell": cell,
        "weights": count,
        "epochs": len(estimator.history_),
        "seconds": round(seconds, 3),
        "metric": problem.metric,
        "score": metrics.get(problem.metric),
        "measures": metrics,
        "summary": dict(problem.summary),
        "columns": [{"name": c.name, "type": c.type, "role": c.role, "why": c.why} for c in problem.columns],
    }


def _next_steps(problem: Any, folder: Path, source: str) -> list[str]:
    name, data = shlex.quote(str(folder)), shlex.quote(source)
    if problem.task == "language":
        first = shlex.join(problem.train[0].split(maxsplit=1)[:1])  # a word in the vocabulary
        return [f"recurra generate {name} {first}", f"recurra inspect {name} {data}"]
    return [f"recurra predict {name} {data} -o predictions.csv", f"recurra inspect {name} {data}"]
