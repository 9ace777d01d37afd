"""`recurra evaluate MODEL DATA`: metrics of a model on labelled data."""

from typing import Annotated

import typer

from recurra.cli.options import Data, Json, ModelFolder


def evaluate(
    model: ModelFolder,
    data: Data,
    windows: Annotated[
        int | None,
        typer.Option(min=1, help="Forecasts only: consecutive windows at the end of the data to score."),
    ] = None,
    json: Json = False,
) -> None:
    """Evaluate a model on labelled data.

    Use data the model was not trained on. A forecast is scored on the last steps of the file, as many as were held out
    for training, next to naive forecasts.
    """
    from recurra.cli import model_folder, printing
    from recurra.cli.scores import evaluate_file

    saved = model_folder.load_model(model)
    metrics, count = evaluate_file(saved, data, windows)
    if json:
        content = {"model": str(model), "data": data, "task": saved.task, "metric": saved.metric}
        printing.print_json(content | {"score": metrics.get(saved.metric), "measures": metrics, "count": count})
        return
    printing.print_metrics(metrics, saved.metric, printing.Console(highlight=False))
