"""`recurra cells`: the list of cells, or one cell in detail."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.options import Json

FILE_WIDTH = 160  # columns, when the list is not printed to a terminal


def cells(
    name: Annotated[str | None, typer.Argument(metavar="CELL", help="Show this cell.")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print only the equations, as LaTeX.")] = False,
    diagram: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the cell to a file.")] = None,
    input_size: Annotated[int, typer.Option(min=1, help="Input size for the parameter count.")] = 64,
    hidden_size: Annotated[int, typer.Option(min=1, help="Hidden size for the parameter count.")] = 128,
    json: Json = False,
) -> None:
    """List all cells, or show one with its equations, paper and parameters.

    [dim]recurra cells lstm --diagram lstm.svg[/]
    """
    from recurra.cli import printing
    from recurra.errors import OptionError

    if name is None:
        if latex or diagram:
            raise OptionError(
                "--latex" if latex else "--diagram", "no cell", "the name of a cell; `recurra cells` lists them"
            )
        found = list_cells(input_size, hidden_size)
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

    sizes = found[0]["input_size"], found[0]["hidden_size"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("cell", no_wrap=True)
    table.add_column("year", justify="right")
    table.add_column("parameters", justify="right")
    table.add_column("description", no_wrap=True, overflow="ellipsis")
    for about in found:
        year = str(about["year"] or "")
        table.add_row(Text(about["name"], "bold"), year, f"{about['parameters']:,}", Text(about["about"]))
    console = Console(highlight=False)
    console.width = console.width if console.is_terminal else FILE_WIDTH
    console.print(table)
    console.print(f"\n{len(found)} cells; parameters for input size {sizes[0]} and hidden size {sizes[1]}.")
    console.print("`recurra cells lstm` shows one cell.")


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
    rows += [("diagram", str(diagram))] if diagram else []
    console.print()
    print_pairs(rows, console)
