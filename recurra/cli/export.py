"""`recurra export MODEL FILE.onnx`: write a model as an ONNX file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.error_handling import report_errors_as
from recurra.cli.options import ModelFolder


def export(
    model: ModelFolder,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.onnx",
            help="ONNX file; for a model to translate, a folder. [dim]\\[default: in the model folder][/]",
        ),
    ] = None,
) -> None:
    """Export a model as one ONNX file, valid for any batch size and length.

    A model to translate becomes two: encoder.onnx and decoder.onnx. A file is checked in onnxruntime against the model,
    at sizes not used for the export, before it is written.
    """
    from recurra.cli import model_folder
    from recurra.errors import InputError

    saved = model_folder.load_model(model)
    if saved.task == "translate":
        _export_both(saved.estimator, out or model)
        return
    path = out or model / "model.onnx"
    if path.suffix.lower() != ".onnx":
        raise InputError("FILE.onnx", str(path), "a name that ends in .onnx")
    if not hasattr(saved.estimator, "export"):
        raise InputError(str(model), f"a model to {saved.task}", "a model to classify or regress")
    with report_errors_as(path):
        saved.estimator.export(path)
    _say(path)


def _export_both(estimator: Any, folder: Path) -> None:
    """Encoder and decoder as two files in a folder, which is made if needed."""
    from recurra.errors import InputError

    if folder.suffix.lower() == ".onnx" or folder.is_file():
        raise InputError("FILE.onnx", str(folder), "a folder: a model to translate becomes encoder.onnx, decoder.onnx")
    with report_errors_as(folder):
        folder.mkdir(parents=True, exist_ok=True)
        written = estimator.export(folder)
    for path in written:
        _say(path)


def _say(path: Path) -> None:
    from recurra.cli import printing

    message = f"Wrote {printing.bold(path)} ({path.stat().st_size / 1e3:,.0f} kB), checked in onnxruntime."
    printing.stderr_console().print(message, soft_wrap=True)
