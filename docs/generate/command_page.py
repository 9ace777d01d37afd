"""The command line: every command with its arguments and options, as `recurra COMMAND --help` has them."""

from typing import Any

import typer
from rich.text import Text

from recurra.cli.app import PANELS, app

ABOUT = """The same text as `recurra COMMAND --help`. `recurra COMMAND DATA` reads every [format](../reading.md) that
`rc.infer_problem` reads. Install it with `pip install 'recurra[cli]'`. The exit code is 0 after success, 1 after a
failure, 2 for bad input, and 130 or 143 after an interruption; the same command resumes an interrupted run."""


def pages() -> dict[str, str]:
    group: Any = typer.main.get_command(app)
    parts = ["# The command line", ABOUT]
    for panel, names in PANELS.items():
        parts.append(f"## {panel}")
        parts += [_command(name, group.commands[name]) for name in names]
    return {"reference/command_line.md": "\n\n".join(parts) + "\n"}


def _command(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    words = [each.metavar or each.name.upper() for each in arguments]
    usage = " ".join(["recurra", name, *(w if a.required else f"[{w}]" for w, a in zip(words, arguments, strict=True))])
    rows = [f"| {word} | {_text(each)} |" for word, each in zip(words, arguments, strict=True)]
    rows += [
        f"| {', '.join(f'`{o}`' for o in (*each.opts, *each.secondary_opts))} | {_text(each)} |" for each in options
    ]
    table = "| argument | meaning |\n|---|---|\n" + "\n".join(rows)
    about = "\n\n".join(_paragraph(text) for text in command.help.split("\n\n"))
    return f"### recurra {name}\n\n```text\n{usage} [OPTIONS]\n```\n\n{about}\n\n{table}"


def _paragraph(text: str) -> str:
    """A dim paragraph of a help page is an example."""
    plain = Text.from_markup(text).plain
    return f"`{plain}`" if text.startswith("[dim]") else plain


def _text(parameter: Any) -> str:
    """The help of a parameter, and its default where it has one."""
    text = Text.from_markup(getattr(parameter, "help", None) or "").plain
    text = " ".join(text.split()).replace("|", "\\|").replace("[", "\\[")
    default = parameter.default
    shown = not callable(default) and default not in (None, False, True, "", ()) and not parameter.required
    return f"{text} Default: `{default}`." if shown and not isinstance(default, (list, tuple)) else text
