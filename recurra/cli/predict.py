"""`recurra predict MODEL DATA`: answers."""

from pathlib import Path
from typing import Annotated

import typer

from recurra.cli.options import OUTPUT, Data, Json, Model


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help=".csv, .jsonl, .json, .parquet.", rich_help_panel=OUTPUT),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="The probability of every class or tag.")] = False,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps to forecast.")] = None,
    interval: Annotated[float, typer.Option(help="Of a forecast: the probability that its interval holds.")] = 0.9,
    future: Annotated[
        str | None, typer.Option(metavar="FILE", help="Of a forecast: columns known in advance, for the steps to come.")
    ] = None,
    json: Json = False,
) -> None:
    """A model's answers for a file, as a table on standard output or in a file.

    A class or a number for every sequence; the steps after the end of every series, with an interval; a tag for every
    word; the likeliest next characters of every line of a text.
    """
    from recurra.cli import models, prediction_columns, printing, tables

    tables.check_suffix(out)
    held = models.load(model)
    columns = prediction_columns.columns(held, data, proba=proba, horizon=horizon, interval=interval, future=future)
    tables.put(columns, out, json)
    if out is not None:
        count = len(next(iter(columns.values())))
        printing.aside().print(f"{count:,} rows in {printing.place(out)}.", soft_wrap=True)
