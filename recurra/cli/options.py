"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

COLUMNS, NETWORK, TRAINING, OUTPUT = "Data (inferred unless given)", "Network", "Training", "Output"

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A data file or folder, or a built-in set: [bold]japanese_vowels[/], [bold]open_quotes[/]."
    ),
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder written by [bold]recurra fit[/].")]

Task = Annotated[
    str | None,
    typer.Option(
        help="classify, regress, classify-steps, regress-steps, forecast, tag, language or translate.",
        rich_help_panel=COLUMNS,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column to predict. A forecast may have several: A,B,C.", rich_help_panel=COLUMNS
    ),
]
Id = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN[,…]",
        help="Column that identifies a sequence, or several; none: the file is one.",
        rich_help_panel=COLUMNS,
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN[,…]",
        help="Column that orders the steps; several, such as year,month, are one date; none: the order of the rows.",
        rich_help_panel=COLUMNS,
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Input columns. For a forecast: columns known in advance.",
        rich_help_panel=COLUMNS,
    ),
]
Observed = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="For a forecast: columns known until it is made, but not in advance.",
        rich_help_panel=COLUMNS,
    ),
]
Static = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Columns that are constant within a sequence; in a file with one row per sequence: no steps.",
        rich_help_panel=COLUMNS,
    ),
]
Ignore = Annotated[str | None, typer.Option(metavar="A,B,C", help="Columns to leave out.", rich_help_panel=COLUMNS)]
Horizon = Annotated[int | None, typer.Option(min=1, help="Steps to forecast.", rich_help_panel=COLUMNS)]
Season = Annotated[
    int | None,
    typer.Option(min=1, help="Season length in steps, e.g. 7 for daily data.", rich_help_panel=COLUMNS),
]
Test = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|FRACTION",
        help="Test file, or fraction to hold out. [dim]\\[default: 0.2][/]",
        rich_help_panel=COLUMNS,
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(help="Missing values: error, drop or fill. [dim]\\[default: error][/]", rich_help_panel=COLUMNS),
]
Fill = Annotated[
    str | None,
    typer.Option(
        help="Fill missing values and missing rows of a series: forward, interpolate or none. "
        "[dim]\\[default: none][/]",
        rich_help_panel=COLUMNS,
    ),
]
Sort = Annotated[bool | None, typer.Option("--sort", help="Sort rows by id and time.", rich_help_panel=COLUMNS)]
Dates = Annotated[
    str | None,
    typer.Option(help="day-first or month-first, for dates like 01/02/2012.", rich_help_panel=COLUMNS),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        help="point or comma, for numbers like 1.234 in a file delimited by semicolons.", rich_help_panel=COLUMNS
    ),
]
Sheet = Annotated[str | None, typer.Option(help="Sheet of an Excel workbook.", rich_help_panel=COLUMNS)]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding of a text file, such as latin-1 or utf-16. [dim]\\[default: utf-8][/]", rich_help_panel=COLUMNS
    ),
]
NA = Annotated[
    list[str] | None,
    typer.Option(
        "--na", metavar="VALUE[,…]", help="Values that mean a missing one, such as -999.", rich_help_panel=COLUMNS
    ),
]

AcceptChanges = Annotated[
    bool,
    typer.Option("--accept-changes", help="Resume with other settings or data than before.", rich_help_panel=OUTPUT),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Module or Python file that registers cells."),
]
