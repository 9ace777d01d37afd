"""`recurra fit DATA`: train a model and save it."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.options import (
    NA,
    NETWORK,
    OUTPUT,
    TRAINING,
    AcceptChanges,
    Data,
    Dates,
    Decimal,
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
    Sheet,
    Sort,
    Static,
    Target,
    Task,
    Test,
    Time,
)


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
    decimal: Decimal = None,
    sheet: Sheet = None,
    encoding: Encoding = None,
    na: NA = None,
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
    embeddings: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Tagging: word vectors of [bold]recurra pretrain[/].", rich_help_panel=NETWORK
        ),
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
    accept_changes: AcceptChanges = False,
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
    from recurra.cli.run_folder import open_run
    from recurra.cli.training_progress import TrainingProgress
    from recurra.problem import save_problem

    folder = Path(chosen.out) if chosen.out else Path(f"{stem(source)}-{chosen.cell}")
    progress = TrainingProgress(printing.stderr_console())
    arguments = {"source": source, "settings": chosen.model_dump(exclude={"out"})}
    with open_run(folder, arguments, processes, force, accept_changes) as run:
        progress.console.print(f"\nTraining [bold]{chosen.cell}[/].")
        run.train(lambda: estimator.fit(*problem.train), progress)
        if not processes.first:
            return
        metrics = problem.evaluate(estimator, problem.test) if problem.test else {}
        save_problem(problem, estimator, folder, metrics)
        run.remove()
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


def stem(source: str) -> str:
    """The name of a file without its suffixes."""
    return Path(source).name.split(".")[0] or "model"


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
    future = " --future FILE" if problem.options.get("known") else ""
    return [f"recurra predict {name} {data}{future} -o predictions.csv", f"recurra inspect {name} {data}"]
