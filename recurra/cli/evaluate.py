"""`recurra evaluate MODEL DATA`: metrics of a model on labelled data."""

from typing import Annotated

import typer

from recurra.cli.options import NA, Data, Encoding, Fill, Json, Missing, ModelFolder, Sort

SCORE_NAMES = ("class", "precision", "recall", "f1", "count")


def evaluate(
    model: ModelFolder,
    data: Data,
    missing: Missing = None,
    fill: Fill = None,
    sort: Sort = None,
    encoding: Encoding = None,
    na: NA = None,
    windows: Annotated[
        int | None,
        typer.Option(min=1, help="Forecasts only: consecutive windows at the end of the data to score."),
    ] = None,
    json: Json = False,
) -> None:
    """Evaluate a model on labelled data: all metrics, and the scores of every class.

    Use data the model was not trained on; of its training file, only what was held out is scored. A forecast is scored
    on the last steps of the file, as many as were held out when it was trained, next to naive forecasts, with the share
    of values inside its intervals by steps ahead.
    """
    from recurra.cli import model_folder, printing
    from recurra.cli.scores import backtest_file, coverage_rows, evaluate_file, forecast_scores
    from recurra.problem.answers import score_rows

    saved = model_folder.load_model(model).cleaned(missing=missing, fill=fill, sort=sort, encoding=encoding, na=na)
    loaded, note = saved.read_unseen(data)
    forecasts = backtest_file(saved, loaded, windows) if saved.task == "forecast" else None
    metrics, count = forecast_scores(forecasts) if forecasts else evaluate_file(saved, data, loaded)
    widths, covered = coverage_rows(forecasts) if forecasts else ([], [])
    rows = score_rows(saved.task, saved.estimator, loaded.X, loaded.y)
    if json:
        content = {"model": str(model), "data": data, "task": saved.task, "metric": saved.metric}
        content |= {"score": metrics.get(saved.metric), "measures": metrics, "count": count}
        classes = [dict(zip(SCORE_NAMES, row, strict=True)) for row in rows]
        coverage = [{"steps": name, **dict(zip(widths, shares, strict=True))} for name, shares in covered]
        more = {"classes": classes} if rows else {"coverage": coverage} if widths else {}
        more |= {"note": note} if note else {}
        printing.print_json(content | more)
        return
    console = printing.stdout_console()
    if note:
        printing.stderr_console().print(note)
    printing.print_metrics(metrics, saved.metric, console)
    if rows:
        console.print()
        printing.print_scores(rows, console)
    if forecasts and widths:
        console.print()
        printing.print_coverage(widths, covered, forecasts.origins, console)
