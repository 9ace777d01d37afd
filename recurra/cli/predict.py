"""`recurra predict MODEL DATA`: predictions as a table."""

from pathlib import Path
from typing import Annotated

import typer

from recurra.cli.options import NA, OUTPUT, Data, Encoding, Fill, Json, Missing, ModelFolder, Sort


def predict(
    model: ModelFolder,
    data: Data,
    missing: Missing = None,
    fill: Fill = None,
    sort: Sort = None,
    encoding: Encoding = None,
    na: NA = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Output file: .csv, .jsonl, .json, .parquet, …", rich_help_panel=OUTPUT
        ),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every class or tag.")] = False,
    horizon: Annotated[int | None, typer.Option(min=1, help="Forecasts only: steps to forecast.")] = None,
    interval: Annotated[float, typer.Option(help="Forecasts only: coverage of the interval.")] = 0.9,
    future: Annotated[
        str | None, typer.Option(metavar="FILE", help="Forecasts only: future values of known inputs.")
    ] = None,
    json: Json = False,
) -> None:
    """Predict with a model: a table on standard output or in a file.

    One class or number per sequence, or per step; for series the next steps with an interval; one tag per word; for a
    text the most likely next character of every line; for a source to translate its target.
    """
    from recurra.cli import model_folder, prediction_columns, printing, tables

    tables.check_suffix(out)
    saved = model_folder.load_model(model).cleaned(missing=missing, fill=fill, sort=sort, encoding=encoding, na=na)
    columns = prediction_columns.columns(saved, data, proba=proba, horizon=horizon, interval=interval, future=future)
    tables.write_table(columns, out, json)
    if out is not None:
        count = len(next(iter(columns.values())))
        message = f"Wrote {count:,} row{'s' if count != 1 else ''} to {printing.bold(out)}."
        printing.stderr_console().print(message, soft_wrap=True)
