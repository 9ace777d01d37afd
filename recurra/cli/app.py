"""The `recurra` app and its list of commands."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from recurra.cli import (
    bench,
    cells,
    compare,
    demo,
    embed,
    evaluate,
    export,
    fit,
    generate,
    info,
    inspect,
    online,
    predict,
    pretrain,
    survey,
)
from recurra.cli.error_handling import (
    ErrorHandlingGroup,
    install_excepthook,
    install_sigterm_handler,
    install_warning_format,
    is_debugging,
)
from recurra.cli.import_option import with_import_option
from recurra.cli.launcher import first_process_only, silence_other_processes
from recurra.cli.plain_help import PlainHelpCommand

app = typer.Typer(
    name="recurra",
    cls=ErrorHandlingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Recurrent networks for sequence data: compare cells, fit a model, predict, inspect.",
    epilog="Start with [bold]recurra demo[/] or [bold]recurra compare DATA.csv[/]. Set RECURRA_DEBUG=1 for tracebacks.",
)


def _print_version(asked: bool) -> None:
    if asked:
        from recurra import __version__

        sys.stdout.write(f"recurra {__version__}\n")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Recurrent networks for sequence data: compare cells, fit a model, predict, inspect."""


PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Train": {
        "compare": compare.compare_command,
        "fit": fit.fit,
        "pretrain": pretrain.pretrain,
        "online": online.online,
        "demo": demo.demo,
    },
    "Use a model": {
        "predict": predict.predict,
        "evaluate": evaluate.evaluate,
        "generate": generate.generate,
        "embed": embed.embed,
        "inspect": inspect.inspect,
        "export": export.export,
    },
    "Reference": {"cells": cells.cells, "survey": survey.survey_command, "bench": bench.bench, "info": info.info},
}


def unwrap_paragraphs(text: str) -> str:
    """A docstring with each paragraph on one line, so that help wraps at the terminal width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


for panel, commands in PANELS.items():
    for name, command in commands.items():
        text = unwrap_paragraphs(command.__doc__ or "")
        run = command if name in ("fit", "pretrain") else first_process_only(command)
        app.command(name, cls=PlainHelpCommand, rich_help_panel=panel, help=text)(with_import_option(run))


def main() -> None:
    """The command `recurra`."""
    silence_other_processes(is_debugging())
    install_sigterm_handler()
    install_excepthook()
    install_warning_format()
    typer.main.get_command(app)(prog_name="recurra")
