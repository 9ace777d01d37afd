"""`recurra generate MODEL PROMPT`: text from a language model."""

import sys
from typing import Annotated

import typer

from recurra.cli.options import ModelFolder


def generate(
    model: ModelFolder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Start of the text.")] = "",
    length: Annotated[int, typer.Option("--length", "-n", min=1, help="Characters (or words) to generate.")] = 400,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the most likely tokens with this total probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
) -> None:
    """Generate text with a language model."""
    from recurra.cli import model_folder
    from recurra.cli.control_characters import write_visible

    saved = model_folder.load_model(model)
    saved.require_task("language")
    text = saved.estimator.generate(prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    write_visible(text + "\n", sys.stdout)
