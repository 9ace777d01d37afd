"""`recurra evaluate MODEL DATA`: how good a model's answers are."""

from typing import Annotated

import typer

from recurra.cli.options import Data, Json, Model


def evaluate(
    model: Model,
    data: Data,
    windows: Annotated[
        int | None, typer.Option(min=1, help="Of a forecast: how many, one after the other, at the end of the data.")
    ] = None,
    json: Json = False,
) -> None:
    """Hold a model's answers against those a file has.

    The file should be one the model has not learned from. A forecast is judged on the last steps of the file, as many
    as were held out, and beside naive forecasts.
    """
    from recurra.cli import models, printing
    from recurra.cli.scores import judged

    held = models.load(model)
    found, count = judged(held, data, windows)
    if json:
        content = {"model": str(model), "data": data, "task": held.task, "metric": held.metric}
        printing.as_json(content | {"score": found.get(held.metric), "measures": found, "count": count})
        return
    printing.measures(found, held.metric, printing.Console(highlight=False))
