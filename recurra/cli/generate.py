"""`recurra generate MODEL PROMPT`: text from a language model."""

import sys
from typing import Annotated

import typer

from recurra.cli.options import Model


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the text begins with.")] = "",
    length: Annotated[int, typer.Option("--length", "-n", min=1, help="Characters (or words) to write.")] = 400,
    temperature: Annotated[float, typer.Option(help="Below 1 more certain, above 1 more daring.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Only the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Only the likeliest, up to this probability together.")] = None,
    seed: Annotated[int | None, typer.Option(help="To get the same text again.")] = None,
) -> None:
    """Let a language model write."""
    from recurra.cli import models

    held = models.load(model)
    held.only("language")
    text = held.estimator.generate(prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    sys.stdout.write(text + "\n")
