"""`recurra survey`: from the survey's sections, equations and figures to calls."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recurra.cli.options import Json

if TYPE_CHECKING:
    from recurra.guide import SurveyIndex


def survey_command(
    where: Annotated[
        str | None,
        typer.Argument(metavar="WHERE", help="A section (3.4), 'eq. 27', 'fig. 2', E7, 'errata', or a word."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with all figures drawn.")] = None,
    json: Json = False,
) -> None:
    """Find the call for a section, equation or figure of the survey, with its errata.

    [dim]recurra survey 3.4[/]
    """
    from dataclasses import asdict

    from recurra.cli import printing
    from recurra.guide import survey

    found = survey(where)
    if html is not None:
        found.page(html)
    if json:
        printing.print_json([asdict(entry) | {"names": entry.names} for entry in found])
    elif html is not None:
        typer.echo(f"wrote {html}")
    else:
        _print(found)


def _print(found: "SurveyIndex") -> None:
    from rich.console import Console
    from rich.text import Text

    from recurra.train import errata

    console, known = Console(highlight=False), {e.number: e for e in errata()}
    for entry in found:
        console.print(Text.assemble((entry.where, "bold"), "  ", entry.title or entry.says))
        if entry.title:
            console.print(Text(f"    {entry.says}"))
        for call in entry.calls:
            console.print(Text(f"    {call}", style="cyan"))
        for number in entry.errata:
            console.print(
                Text.assemble("    ", (number, "yellow"), f"  {known[number].printed}  →  {known[number].right}")
            )
    for name, value in found.names.items():
        console.print(Text.assemble("where ", (f"{name} = {value}", "cyan")))
