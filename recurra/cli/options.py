"""Flags that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

COLUMNS, NETWORK, TRAINING, OUTPUT = "What the file asks", "The network", "Training", "Output"

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A file or folder of sequences, or [bold]japanese_vowels[/].")
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that [bold]recurra fit[/] wrote.")]

Task = Annotated[
    str | None,
    typer.Option(help="classify, regress, forecast, tag or language; found out if not given.", rich_help_panel=COLUMNS),
]
Target = Annotated[str | None, typer.Option(help="The column to predict.", rich_help_panel=COLUMNS)]
Id = Annotated[str | None, typer.Option(help="The column that tells sequences apart.", rich_help_panel=COLUMNS)]
Time = Annotated[str | None, typer.Option(help="The column that orders steps.", rich_help_panel=COLUMNS)]
Inputs = Annotated[
    str | None,
    typer.Option(help="Columns to read, a,b,c; of a forecast those known in advance.", rich_help_panel=COLUMNS),
]
Horizon = Annotated[int | None, typer.Option(min=1, help="Steps to forecast.", rich_help_panel=COLUMNS)]
Season = Annotated[
    int | None, typer.Option(min=1, help="Steps after which things repeat: 24, 7, 12.", rich_help_panel=COLUMNS)
]
Test = Annotated[
    str | None,
    typer.Option(metavar="FILE|SHARE", help="A file to test on, or the share to hold out.", rich_help_panel=COLUMNS),
]
Missing = Annotated[
    str | None, typer.Option(help="What to do about gaps: error, drop or fill.", rich_help_panel=COLUMNS)
]
Sort = Annotated[bool | None, typer.Option("--sort", help="Put rows in order first.", rich_help_panel=COLUMNS)]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.", rich_help_panel=OUTPUT)]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write.", rich_help_panel=OUTPUT)]
