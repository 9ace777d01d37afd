"""The app: its commands, in the order of a first day."""

import typer

from recurra.cli import bench, cells, compare, demo, embed, evaluate, export, fit, generate, info, inspect, predict
from recurra.cli.guard import Guarded, on_surprise, on_terminate

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

TRAIN, USE, LOOK = "From a file to a model", "Use a model", "Look around"
app.command("compare", rich_help_panel=TRAIN)(compare.compare_command)
app.command("fit", rich_help_panel=TRAIN)(fit.fit)
app.command("demo", rich_help_panel=TRAIN)(demo.demo)
app.command("predict", rich_help_panel=USE)(predict.predict)
app.command("evaluate", rich_help_panel=USE)(evaluate.evaluate)
app.command("generate", rich_help_panel=USE)(generate.generate)
app.command("embed", rich_help_panel=USE)(embed.embed)
app.command("inspect", rich_help_panel=USE)(inspect.inspect)
app.command("export", rich_help_panel=USE)(export.export)
app.command("cells", rich_help_panel=LOOK)(cells.cells)
app.command("bench", rich_help_panel=LOOK)(bench.bench)
app.command("info", rich_help_panel=LOOK)(info.info)


def main() -> None:
    """The command `recurra`."""
    on_terminate()
    on_surprise()
    typer.main.get_command(app)(prog_name="recurra")
