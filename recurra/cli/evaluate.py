"""`recurra evaluate MODEL DATA`: metrics of a model on labelled data."""

from typing import Annotated

import typer

from recurra.cli.options import Data, Encoding, Fill, Json, Missing, ModelFolder, Sort

SCORE_NAMES = ("class", "precision", "recall", "f1", "count")


def evaluate(
    model: ModelFolder,
    data: Data,
    missing: Missing = None,
    fill: Fill = None,
    sort: Sort = None,
    encoding: Encoding = None,
    windows: Annotated[
        int | None,
        typer.Option(min=1, help="Forecasts only: consecutive windows at the end of the data to score."),
    ] = None,
    json: Json = False,
) -> None:
    """Evaluate a model on labelled data: all metrics, and the scores of every class.

    Use data the model was not trained on. A forecast is scored on the last steps of the file, as many as were held out
    for training, next to naive forecasts.
    """
    from recurra.cli import model_folder, printing
    from recurra.cli.scores import evaluate_file
    from recurra.problem.answers import score_rows

    saved = model_folder.load_model(model).cleaned(missing=missing, fill=fill, sort=sort, encoding=encoding)
    loaded = saved.read(data)
    metrics, count = evaluate_file(saved, data, loaded, windows)
    rows = score_rows(saved.task, saved.estimator, loaded.X, loaded.y)
    if json:
        content = {"model": str(model), "data": data, "task": saved.task, "metric": saved.metric}
        content |= {"score": metrics.get(saved.metric), "measures": metrics, "count": count}
        classes = [dict(zip(SCORE_NAMES, row, strict=True)) for row in rows]
        printing.print_json(content | ({"classes": classes} if rows else {}))
        return
    console = printing.stdout_console()
    printing.print_metrics(metrics, saved.metric, console)
    if rows:
        console.print()
        printing.print_scores(rows, console)
