"""`recurra online DATA`: learn from a stream of rows, one at a time."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.options import COLUMNS, NETWORK, OUTPUT


def online(
    context: typer.Context,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A CSV file with a header, or - for standard input.")],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column to predict. [dim]\\[default: the last][/]", rich_help_panel=COLUMNS
        ),
    ] = None,
    ignore: Annotated[str, typer.Option(metavar="A,B,C", help="Columns to leave out.", rich_help_panel=COLUMNS)] = "",
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C|N",
            help="Predict one of these labels, or of at most so many, instead of a number.",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    cell: Annotated[
        str, typer.Option("--cell", "-c", help="Cell; see `recurra cells`.", rich_help_panel=NETWORK)
    ] = "gru",
    hidden_size: Annotated[int, typer.Option(min=1, help="Units.", rich_help_panel=NETWORK)] = 32,
    algorithm: Annotated[str, typer.Option(help="rtrl, snap1, uoro or eprop.", rich_help_panel=NETWORK)] = "rtrl",
    lr: Annotated[float, typer.Option(help="Learning rate.", rich_help_panel=NETWORK)] = 3e-3,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Go on with the model of an earlier --out.", rich_help_panel=NETWORK),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="Save the model, also in between.", rich_help_panel=OUTPUT),
    ] = None,
    every: Annotated[
        int, typer.Option(min=1, help="Rows between two lines of progress, and two saves.", rich_help_panel=OUTPUT)
    ] = 500,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Errors over time as HTML.", rich_help_panel=OUTPUT)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no predictions.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Learn from a stream of rows, one at a time, and predict each row before it is learned.

    Predictions go to standard output as CSV, the error so far to standard error. The network is never trained twice on
    a row, and memory does not grow: DATA may be a pipe that does not end. A model saved by --out goes on by --resume.
    """
    import csv
    import sys

    from recurra.cli import printing
    from recurra.cli.online_rows import read_rows
    from recurra.estimators.prequential import Prequential, predictions

    options = {"cell": cell, "hidden_size": hidden_size, "algorithm": algorithm, "lr": lr}
    labels = None if classes is None else _labels(classes)
    model = _new(labels, options) if resume is None else _saved(resume, context)
    labels = getattr(model, "classes", None)
    result, seen = Prequential(every), []
    stream = read_rows(data, target, [name.strip() for name in ignore.split(",") if name.strip()], labels, seen)
    writer, console = csv.writer(sys.stdout), printing.stderr_console()
    if not quiet:
        writer.writerow(["row", "prediction", "target"])
    for predicted in predictions(model, stream, result):
        if not quiet:
            shown = (predicted or "") if labels is not None else f"{predicted:.6g}"
            writer.writerow([result.count, shown, seen[-1]])
            sys.stdout.flush()
        if result.count % every == 0:
            console.print(result.summary(), soft_wrap=True, highlight=False)
            if out is not None:
                model.save(out)
        del seen[:-1]
    console.print(result.summary(), soft_wrap=True, highlight=False)
    if out is not None and result.count:
        model.save(out)
    if figure is not None:
        result.figure().write_html(figure)


def _labels(text: str) -> list[str] | int:
    """Labels, or the largest number of them."""
    return int(text) if text.strip().isdecimal() else [label.strip() for label in text.split(",")]


def _new(labels: list[str] | int | None, options: dict[str, Any]) -> Any:
    from recurra.estimators import OnlineClassifier, OnlineForecaster

    return OnlineForecaster(**options) if labels is None else OnlineClassifier(labels, **options)


def _saved(folder: Path, context: typer.Context) -> Any:
    """The model in a folder, which has its own classes, cell and rate."""
    from recurra import estimators
    from recurra.cli.own_cells import import_kept_cells
    from recurra.errors import OptionError
    from recurra.storage import read_config

    for name in ("classes", "cell", "hidden_size", "algorithm", "lr"):
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            flag = f"--{name.replace('_', '-')}"
            raise OptionError("--resume", f"{flag} beside it", f"no {flag}: the saved model has its own")
    config = read_config(folder, "OnlineForecaster", "OnlineClassifier")
    import_kept_cells(folder, config)
    return getattr(estimators, config["kind"]).load(folder)
