"""`recurra inspect MODEL DATA`: one page about what a model learned."""

from pathlib import Path
from typing import Annotated

import typer

from recurra.cli.error_handling import writing
from recurra.cli.options import OUTPUT, Data, Model


def inspect(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.html", help="The page.", rich_help_panel=OUTPUT)
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, help="How many sequences to look at.")] = 4,
) -> None:
    """Gradients, spectra, memory, gates, diagrams and equations of a model on data, on one page.

    The page needs nothing from outside: it opens in any browser, without a network.
    """
    import recurra as rc
    from recurra.cli import models, printing
    from recurra.cli.network_input import in_sight

    held = models.load(model)
    network, seen = in_sight(held, data, sequences)
    path = out or model / "report.html"
    cell = held.estimator.get_params()["cell"]
    settings = {name: value for name, value in held.estimator.get_params().items() if value is not None}
    title = f"{model.name}: {cell}, to {held.task}" if held.task != "language" else f"{model.name}: {cell}, a text"
    console = printing.aside()
    with console.status("Looking…"), writing(path):
        rc.report(network, seen, path, title=title, history=held.estimator.history_, settings=settings)
    console.print(f"The page is {printing.place(path)}. Open it in a browser.", soft_wrap=True)
