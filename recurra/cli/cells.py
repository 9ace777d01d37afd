"""`recurra cells`: the list of cells, or one cell in detail."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.options import Json

FILE_WIDTH = 160  # columns, when the list is not printed to a terminal


def cells(
    name: Annotated[str | None, typer.Argument(metavar="CELL", help="Show this cell.")] = None,
    family: Annotated[str | None, typer.Option(help="Only cells of this family.")] = None,
    year: Annotated[str | None, typer.Option(metavar="YEAR[-YEAR]", help="Only cells of these years.")] = None,
    gated: Annotated[bool, typer.Option("--gated", help="Only cells with gates.")] = False,
    spiking: Annotated[bool, typer.Option("--spiking", help="Only spiking neurons.")] = False,
    scan: Annotated[bool, typer.Option("--scan", help="Only cells a parallel scan could run.")] = False,
    search: Annotated[str | None, typer.Option(metavar="TEXT", help="Only cells whose entry has this text.")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print only the equations, as LaTeX.")] = False,
    diagram: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the cell to a file.")] = None,
    input_size: Annotated[int, typer.Option(min=1, help="Input size for the parameter count.")] = 64,
    hidden_size: Annotated[int, typer.Option(min=1, help="Hidden size for the parameter count.")] = 128,
    json: Json = False,
) -> None:
    """List all cells by family, or show one with its equations, paper and parameters.

    [dim]recurra cells --gated --year 2016-2018[/]

    [dim]recurra cells lstm --diagram lstm.svg[/]
    """
    from recurra.cli import printing
    from recurra.errors import OptionError

    if name is None:
        if latex or diagram:
            raise OptionError(
                "--latex" if latex else "--diagram", "no cell", "the name of a cell; `recurra cells` lists them"
            )
        found = select_cells(list_cells(input_size, hidden_size), family, year, search)
        found = [about for about in found if has_traits(about["name"], gated, spiking, scan)]
        printing.print_json(found) if json else _print_list(found)
        return
    about = describe_cell(name, input_size, hidden_size)
    if diagram is not None:
        _draw(name, diagram)
    if json:
        printing.print_json(about)
    elif latex:
        sys.stdout.write(about["latex"] + "\n")
    else:
        _print_one(about, diagram)


def list_cells(input_size: int, hidden_size: int) -> list[dict[str, Any]]:
    """One record per cell, oldest first; other names of a cell are in `also`."""
    from recurra import registry

    names: dict[type, list[str]] = {}
    for name, kind in registry().items():
        names.setdefault(kind, []).append(name)
    found = [_describe(kind, known, input_size, hidden_size) for kind, known in names.items()]
    return sorted(found, key=lambda about: (about["year"] or 9999, about["name"]))


def select_cells(
    found: list[dict[str, Any]], family: str | None, year: str | None, search: str | None
) -> list[dict[str, Any]]:
    """The records of a family, of a year or a range of years, and with a text anywhere."""
    from recurra.errors import UnknownNameError

    if family is not None:
        families = {about["family"] for about in found}
        if family.removesuffix("-family") not in families:
            raise UnknownNameError("family", repr(family), sorted(families))
        found = [about for about in found if about["family"] == family.removesuffix("-family")]
    if year is not None:
        first, last = _years(year)
        found = [about for about in found if about["year"] and first <= about["year"] <= last]
    if search is not None:
        shown = [" ".join(map(str, about.values())).casefold() for about in found]
        found = [about for about, text in zip(found, shown, strict=True) if search.casefold() in text]
    return found


def _years(text: str) -> tuple[int, int]:
    """`2016`, `2016-2018`, `2016-` or `-2016`."""
    from recurra.errors import InputError

    first, dash, last = text.partition("-")
    if not all(part.isdigit() for part in (first, last) if part) or not (first or last):
        raise InputError("--year", repr(text), "a year such as 2016, or a range such as 2016-2018")
    return int(first or 0), int(last or (9999 if dash else first))


def has_traits(name: str, gated: bool, spiking: bool, scan: bool) -> bool:
    """Whether a cell has all traits that are asked for."""
    from recurra.cells import find

    if not (gated or spiking or scan):
        return True
    from recurra.cli.cell_traits import is_gated, is_scan, is_spiking

    asked = ((gated, is_gated), (spiking, is_spiking), (scan, is_scan))
    return all(test(find(name)) for wanted, test in asked if wanted)


def describe_cell(name: str, input_size: int, hidden_size: int) -> dict[str, Any]:
    """The record of one cell, with its equations."""
    from recurra import registry
    from recurra.cells import find
    from recurra.cli.equations import plain_equations

    kind = find(name)
    known = [other for other, each in registry().items() if each is kind]
    latex = kind.equations()
    return _describe(kind, known, input_size, hidden_size) | {"equations": plain_equations(latex), "latex": latex}


def _describe(kind: type[Any], names: list[str], input_size: int, hidden_size: int) -> dict[str, Any]:
    cell = kind(input_size, hidden_size)
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return {
        "name": names[0],
        "also": names[1:],
        "family": kind.__module__.rpartition(".")[2],
        "about": text,
        "paper": kind.paper,
        "year": kind.year,
        "states": list(kind.states),
        "parameters": sum(parameter.numel() for parameter in cell.parameters()),
        "input_size": input_size,
        "hidden_size": hidden_size,
    }


def _draw(name: str, path: Path) -> None:
    from recurra.errors import InputError
    from recurra.inspect import diagram

    if path.suffix.lower() != ".svg":
        raise InputError("--diagram", str(path), "a name that ends in .svg")
    diagram(name).save(path)


def _print_list(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not found:
        console.print("No cell matches.")
        return
    sizes = found[0]["input_size"], found[0]["hidden_size"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("cell", no_wrap=True)
    table.add_column("year", justify="right")
    table.add_column("parameters", justify="right")
    table.add_column("description", no_wrap=True, overflow="ellipsis")
    family = None
    for about in sorted(found, key=lambda about: _family_year(found, about["family"])):
        if about["family"] != family:
            family = about["family"]
            table.add_row(Text(family, "dim italic"))
        year = str(about["year"] or "")
        table.add_row(Text(f"  {about['name']}", "bold"), year, f"{about['parameters']:,}", Text(about["about"]))
    console.width = console.width if console.is_terminal else FILE_WIDTH
    console.print(table)
    console.print(f"\n{len(found)} cells; parameters for input size {sizes[0]} and hidden size {sizes[1]}.")
    console.print("`recurra cells lstm` shows one cell.")


def _family_year(found: list[dict[str, Any]], family: str) -> tuple[int, str]:
    """Families in the order of their oldest cell."""
    return min(about["year"] or 9999 for about in found if about["family"] == family), family


def _print_one(about: dict[str, Any], diagram: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from recurra.cli.printing import print_pairs

    console = Console(highlight=False)
    also = f" (also {', '.join(about['also'])})" if about["also"] else ""
    console.print(Text.assemble((about["name"], "bold"), f"{also}: {about['about']}\n"))
    lines = Table.grid(padding=(0, 1))
    lines.add_column(justify="right", no_wrap=True)
    lines.add_column(overflow="fold")
    for line in about["equations"]:
        left, _, right = line.partition(" = ")
        lines.add_row(Text(f"  {left.strip()} ="), Text(right))
    console.print(lines)
    sizes = f"{about['parameters']:,} for input size {about['input_size']} and hidden size {about['hidden_size']}"
    year = f", {about['year']}" if about["year"] else ""
    rows = [("paper", f"{about['paper']}{year}"), ("states", ", ".join(about["states"])), ("parameters", sizes)]
    rows.insert(0, ("family", about["family"]))
    rows.append(
        ("diagram", str(diagram) if diagram else f"recurra cells {about['name']} --diagram {about['name']}.svg")
    )
    console.print()
    print_pairs(rows, console)
