"""`recurra compare DATA`: rank cells and baselines on a data file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.options import (
    NA,
    NETWORK,
    OUTPUT,
    TRAINING,
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

PARALLEL = "Processes and machines"


def compare_command(
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
    cells: Annotated[
        str | None,
        typer.Option(help="Names a,b,c, gru-family, or all. [dim]\\[default: 12 cells][/]", rich_help_panel=NETWORK),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Equal budget: parameters or time. [dim]\\[default: parameters][/]", rich_help_panel=NETWORK),
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option(min=1, help="Units of the reference LSTM. [dim]\\[default: 32][/]", rich_help_panel=NETWORK),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per cell. [dim]\\[default: 3][/]", rich_help_panel=TRAINING)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Training epochs.", rich_help_panel=TRAINING)] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Seconds per fit, for --budget time. [dim]\\[default: 30][/]", rich_help_panel=TRAINING),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="TRIALS", help="Tune each cell first with this many trials.", rich_help_panel=TRAINING
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other estimator option.", rich_help_panel=TRAINING),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Settings file; flags override it.", rich_help_panel=TRAINING),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, help="Processes. [dim]\\[default: one per core][/]", rich_help_panel=PARALLEL
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Share the run with other machines: sqlite:///runs.db, postgresql://…, journal:FILE.",
            rich_help_panel=PARALLEL,
        ),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import", metavar="MODULE", help="Module or Python file that registers cells.", rich_help_panel=PARALLEL
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            "--out",
            "-o",
            metavar="FOLDER",
            help="Run folder. [dim]\\[default: below runs/][/]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier results.", rich_help_panel=OUTPUT)] = False,
    report: Annotated[bool, typer.Option(help="Write the HTML report.", rich_help_panel=OUTPUT)] = True,
    json: Json = False,
) -> None:
    """Train cells on a data file under an equal budget and rank them with baselines.

    Results, models and an HTML report are saved in a folder. After Ctrl-C, the same command resumes the run.

    [dim]recurra compare sensors.csv --target label --cells lstm,gru,mgu[/]
    """
    from recurra.cli.own_cells import import_named
    from recurra.cli.settings import given_flags
    from recurra.compare.settings import CompareSettings
    from recurra.problem.settings import load_settings

    chosen = load_settings(CompareSettings, settings, given_flags(context, CompareSettings))
    for module in modules or ():
        import_named(module)
    more = {"modules": tuple(modules or ()), "fresh": fresh, "report": report}
    run(data, chosen.problem_arguments(), {**chosen.compare_arguments(), **more}, json)


def run(data: str, problem: dict[str, Any], arguments: dict[str, Any], as_json: bool = False) -> Any:
    """Call `compare` and return its leaderboard; progress goes to standard error, the table to standard output."""
    from recurra.cli import printing
    from recurra.cli.error_handling import command_line
    from recurra.compare import RunInterrupted, compare

    stderr = printing.stderr_console()
    try:
        board = compare({"source": data, **problem}, **arguments, console=stderr)
    except RunInterrupted as stopped:
        done = f"{stopped.done} of {stopped.total} fits are done and saved in {stopped.folder}"
        stderr.print(f"\nInterrupted. {done}. The same command resumes:", soft_wrap=True, markup=False)
        stderr.print(f"  {command_line().replace(' --fresh', '')}", soft_wrap=True, markup=False)
        raise typer.Exit(128 + int(stopped.signum)) from None
    if as_json:
        printing.print_json(board.to_json())
        return board
    console = printing.stdout_console()
    console.print(printing.keep_units(board.verdict), markup=False, style="bold")
    console.print(board)
    for entry in board.entries:
        for error in entry.errors:
            stderr.print(f"{entry.name}: {error}", soft_wrap=True, markup=False)
    stderr.print(f"Models: {board.folder / 'models'}", soft_wrap=True, markup=False)
    if board.report is not None:
        stderr.print(f"Report: {printing.bold(board.report)} (open it in a browser)", soft_wrap=True)
    return board
