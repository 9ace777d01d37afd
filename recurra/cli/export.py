"""`recurra export MODEL FILE.onnx`: a file other programs run."""

from pathlib import Path
from typing import Annotated

import typer

from recurra.cli.error_handling import writing
from recurra.cli.options import Model


def export(
    model: Model,
    out: Annotated[
        Path | None, typer.Argument(metavar="FILE.onnx", help="By default model.onnx in the model's folder.")
    ] = None,
) -> None:
    """Write a model as one ONNX file, for any batch size and any length.

    The file is run in onnxruntime beside the model, at sizes the export never saw, and appears only if both agree.
    """
    from recurra.cli import models, printing
    from recurra.errors import InputError

    held = models.load(model)
    path = out or model / "model.onnx"
    if path.suffix.lower() != ".onnx":
        raise InputError("FILE.onnx", str(path), "a name that ends in .onnx")
    if not hasattr(held.estimator, "export"):
        raise InputError(str(model), f"a model to {held.task}", "one to classify or to regress")
    with writing(path):
        held.estimator.export(path)
    size = path.stat().st_size
    printing.aside().print(f"{printing.place(path)}, {size / 1e3:,.0f} kB, checked in onnxruntime.", soft_wrap=True)
