"""`recurra inspect MODEL DATA`: an HTML report about a trained model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.error_handling import report_errors_as
from recurra.cli.options import NA, OUTPUT, Data, Encoding, Fill, Missing, ModelFolder, Sort


def inspect(
    model: ModelFolder,
    data: Data,
    missing: Missing = None,
    fill: Fill = None,
    sort: Sort = None,
    encoding: Encoding = None,
    na: NA = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.html",
            help="Report file. [dim]\\[default: report.html in the model folder][/]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, help="Number of sequences to measure on.")] = 4,
) -> None:
    """Write an HTML report on a model: its score and answers, gradients, memory, gates, diagrams, equations.

    The report is one file that opens offline in any browser.
    """
    import recurra as rc
    from recurra.cli import model_folder, printing
    from recurra.cli.report_inputs import report_inputs
    from recurra.cli.scores import evaluate_file, held_out_windows, in_words, is_labelled
    from recurra.problem.answers import answers

    saved = model_folder.load_model(model).cleaned(missing=missing, fill=fill, sort=sort, encoding=encoding, na=na)
    loaded, note = saved.read_unseen(data)
    network, sample = report_inputs(saved, loaded, sequences)
    path = out or model / "report.html"
    cell = saved.estimator.get_params()["cell"]
    settings = {name: value for name, value in saved.estimator.get_params().items() if value is not None}
    title = f"{model.name}: {cell}, " + (
        "language model" if saved.task == "language" else f"to {saved.task.replace('_', ' ')}"
    )
    console = printing.stderr_console()
    shown: dict[str, Any] = {"title": title, "history": saved.estimator.history_, "settings": settings}
    with console.status("Measuring…"), report_errors_as(path):
        if is_labelled(saved, loaded):
            score = in_words(saved, *evaluate_file(saved, data, loaded))
            console.print(f"{score[0].upper()}{score[1:]}. {note}".rstrip())
            windows = held_out_windows(saved) if saved.task == "forecast" else 1
            ids = loaded.names if saved.schema.get("id") else [str(int(k) + 1) for k in loaded.names if k.isdigit()]
            ids = ids if len(ids) == len(loaded.X) else []
            given = saved.task, saved.estimator, loaded.X, loaded.y, saved.schema
            shown["answers"] = answers(*given, windows, ids)
            shown["verdict"] = f"{cell}: {score} in {Path(data).name}. {note}".rstrip()
        rc.report(network, sample, path, **shown)
    console.print(f"Wrote {printing.bold(path)}. Open it in a browser.", soft_wrap=True)
