"""`recurra compare DATA`: cells against each other and against baselines."""

from pathlib import Path
from typing import Annotated, Any

import typer

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

SHARING = "Processes and machines"


def compare_command(
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
    cells: Annotated[
        str | None,
        typer.Option(help="Names with commas, families (gru-family), or all. [dim]a dozen[/]", rich_help_panel=NETWORK),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="What all cells share: parameters or time. [dim]parameters[/]", rich_help_panel=NETWORK),
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option(min=1, help="Units of the LSTM whose parameters all match. [dim]32[/]", rich_help_panel=NETWORK),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Times each is trained. [dim]3[/]", rich_help_panel=TRAINING)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Times through the data.", rich_help_panel=TRAINING)] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Of training, with the budget time. [dim]30[/]", rich_help_panel=TRAINING)
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(min=0, metavar="TRIALS", help="Search rate, depth, dropout first.", rich_help_panel=TRAINING),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any option of the estimator.", rich_help_panel=TRAINING),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="All of these from a file; flags win.", rich_help_panel=TRAINING),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes. [dim]one a core[/]", rich_help_panel=SHARING)
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Share the run with other machines: sqlite:///x.db, postgresql://…, journal:FILE.",
            rich_help_panel=SHARING,
        ),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="A module with cells of your own.", rich_help_panel=SHARING),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", "--out", "-o", help="Of the run. [dim]below runs/[/]", rich_help_panel=OUTPUT),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin again, whatever is there.", rich_help_panel=OUTPUT)
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report page.", rich_help_panel=OUTPUT)] = True,
    json: Json = False,
) -> None:
    """Train cells on a file under equal parameters or equal time, and rank them, baselines among them.

    The run is kept in a folder, with a report page to open in a browser. After Ctrl-C the same command goes on.

    [dim]recurra compare sensors.csv --target label --cells lstm,gru,mgu[/]
    """
    from recurra.cli.settings import flags_of
    from recurra.compare.settings import Comparison
    from recurra.problem.settings import settings_of

    chosen = settings_of(Comparison, settings, flags_of(context, Comparison))
    more = {"modules": tuple(modules or ()), "fresh": fresh, "report": report}
    run(data, chosen.asking(), {**chosen.comparing(), **more}, json)


def run(data: str, asking: dict[str, Any], own: dict[str, Any], as_json: bool = False) -> None:
    """Compare, with progress on standard error and the leaderboard on standard output."""
    from rich.console import Console

    from recurra.cli import printing
    from recurra.cli.error_handling import command_line
    from recurra.compare import Stopped, compare

    aside = printing.aside()
    try:
        board = compare({"source": data, **asking}, **own, console=aside)
    except Stopped as stopped:
        aside.print(f"\nInterrupted. {stopped}:", soft_wrap=True)
        aside.print(f"  {command_line().replace(' --fresh', '')}", soft_wrap=True, markup=False)
        raise typer.Exit(128 + int(stopped.signum)) from None
    if as_json:
        printing.as_json(board.to_json())
        return
    Console().print(board)
    for one in board.standings:
        for error in one.errors:
            aside.print(f"{one.name}: {error}", soft_wrap=True, markup=False)
    models = board.folder / "models"
    aside.print(f"The models are in {models}.", soft_wrap=True, markup=False)
    if board.report is not None:
        aside.print(f"The report is {printing.place(board.report)}; open it in a browser.", soft_wrap=True)
