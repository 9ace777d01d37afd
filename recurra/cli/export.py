"""`recurra export MODEL FILE.onnx`: write a model as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from recurra.cli.error_handling import report_errors_as
from recurra.cli.options import ModelFolder


def export(
    model: ModelFolder,
    out: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.onnx", help="ONNX file. [dim]\\[default: model.onnx in the model folder][/]"),
    ] = None,
) -> None:
    """Export a model as one ONNX file, valid for any batch size and length.

    The file is checked in onnxruntime against the model, at sizes not used for the export, before it is written.
    """
    from recurra.cli import model_folder, printing
    from recurra.errors import InputError

    saved = model_folder.load_model(model)
    path = out or model / "model.onnx"
    if path.suffix.lower() != ".onnx":
        raise InputError("FILE.onnx", str(path), "a name that ends in .onnx")
    if not hasattr(saved.estimator, "export"):
        raise InputError(str(model), f"a model to {saved.task}", "a model to classify or regress")
    with report_errors_as(path):
        saved.estimator.export(path)
    size = path.stat().st_size
    message = f"Wrote {printing.bold(path)} ({size / 1e3:,.0f} kB), checked in onnxruntime."
    printing.stderr_console().print(message, soft_wrap=True)
