"""The app: its commands, in the order of a first day."""

from collections.abc import Callable

import typer

from recurra.cli import bench, cells, compare, demo, embed, evaluate, export, fit, generate, info, inspect, predict
from recurra.cli.error_handling import Guarded, on_surprise, on_terminate, on_warning

app = typer.Typer(
    name="recurra",
    cls=Guarded,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Recurrent networks from a file of sequences: compare cells, fit a model, ask it, look inside.",
    epilog="Start with [bold]recurra demo[/], or [bold]recurra compare YOUR.csv[/]. "
    "Errors are one paragraph; RECURRA_DEBUG=1 shows where they came from.",
)

PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "From a file to a model": {"compare": compare.compare_command, "fit": fit.fit, "demo": demo.demo},
    "Use a model": {
        "predict": predict.predict,
        "evaluate": evaluate.evaluate,
        "generate": generate.generate,
        "embed": embed.embed,
        "inspect": inspect.inspect,
        "export": export.export,
    },
    "Look around": {"cells": cells.cells, "bench": bench.bench, "info": info.info},
}


def reflowed(text: str) -> str:
    """A docstring whose paragraphs are as wide as the terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


for panel, commands in PANELS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel, help=reflowed(command.__doc__ or ""))(command)


def main() -> None:
    """The command `recurra`."""
    on_terminate()
    on_surprise()
    on_warning()
    typer.main.get_command(app)(prog_name="recurra")
