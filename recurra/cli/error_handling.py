"""Error messages and exit codes: 0 success, 1 failure, 2 bad input, 130 and 143 interrupted."""

import os
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from recurra.cli.launcher import error_stream, launched_as, name_of_process, place
from recurra.cli.plain_help import simplify_types
from recurra.errors import InputError, MissingPackageError, RecurraError, UnknownNameError

FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 1, 2, 130, 143
MAX_LISTED = 24  # names listed in a message
PATH_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
#: Python arguments whose option has another name
OPTION_NAMES = {"modules": "--import", "cell": "cell", "source": "DATA"}
#: an argument in the advice of an error message: `sort=True`, `missing="drop"`, `target=`
ARGUMENT = re.compile(r'\b([a-z_]+)=(?:True|"([^"]+)"|(\w+))?')


def is_debugging() -> bool:
    return os.environ.get("RECURRA_DEBUG", "") not in ("", "0")


def command_line() -> str:
    """The command as it was typed."""
    return f"{launched_as()} {shlex.join(sys.argv[1:])}"


class ErrorHandlingGroup(TyperGroup):
    """Prints errors of a command as one paragraph and sets the exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (RecurraError, OSError, MemoryError) as error:
            if is_debugging():
                raise
            if _is_reported_elsewhere(error):
                raise typer.Exit(FAILED) from None
            bad = isinstance(error, (InputError, MissingPackageError, *PATH_ERRORS))
            _print_error(format_error(error, self._options(ctx.invoked_subcommand)))
            raise typer.Exit(BAD_INPUT if bad else FAILED) from None
        except SystemExit as stopped:  # interrupted; the command has printed how to resume
            raise typer.Exit(stopped.code if isinstance(stopped.code, int) else FAILED) from None
        except KeyboardInterrupt:
            sys.stderr.write("Interrupted.\n")
            raise typer.Exit(INTERRUPTED) from None

    def get_params(self, ctx: Any) -> list[Any]:
        return simplify_types(super().get_params(ctx))

    def _options(self, name: str | None) -> set[str]:
        """The options of a command, such as --sort."""
        command = self.commands.get(name or "")
        return {option for parameter in command.params for option in parameter.opts} if command else set()


def _is_reported_elsewhere(error: BaseException) -> bool:
    """Whether another process of a job under torchrun prints the reason."""
    if place()[1] == 1:
        return False
    from recurra.train.fit_errors import OtherProcessError

    return isinstance(error, OtherProcessError)


def format_error(error: BaseException, options: Set[str] = frozenset()) -> str:
    """An error in plain sentences. Advice mentions only `options` that the command has."""
    from recurra.data.data_errors import MissingColumnError

    if isinstance(error, MissingColumnError):
        hint, known = _split_hint(error.expected)
        return f"{error.file} has no column {error.column!r}.{hint} Columns: {known}."
    if isinstance(error, UnknownNameError) and str(error.got).startswith(("'", '"')):
        return _format_unknown_name(error, options)
    if isinstance(error, InputError):
        return _format_input_error(error, options)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}." if error.filename else f"{error.strerror}."
    if isinstance(error, MemoryError):
        return str(error) or "Out of memory."
    return _as_sentence(str(error))


def _format_unknown_name(error: UnknownNameError, options: Set[str]) -> str:
    """`Unknown cell 'lsmt'. Did you mean 'lstm'?`, and the list of names if it is short; or where else to look."""
    hint, known = _split_hint(error.expected)
    place, _, kind = error.argument.rpartition(", ")
    kind = {"cells": "cell"}.get(kind, kind).removeprefix("--")
    start = f"{place}: unknown" if place else "Unknown"
    if not known:
        elsewhere = error.expected.partition("; ")[2]
        flag = "--bidirectional" if "--bidirectional" in options else "--set bidirectional=true"
        elsewhere = elsewhere.replace("bidirectional=True", flag) or f"expected {error.expected}"
        sentence = elsewhere if elsewhere.startswith(("-", "rc.")) else elsewhere[0].upper() + elsewhere[1:]
        return f"{start} {kind} {error.got}: {_as_sentence(sentence)}"
    listed = f" Choose from {known}." if known.count(",") < MAX_LISTED else ""
    return f"{start} {kind} {error.got}.{hint}{listed}"


def _format_input_error(error: InputError, options: Set[str]) -> str:
    option = f"--{error.argument.replace('_', '-')}"
    name = OPTION_NAMES.get(error.argument) or (option if option in options else error.argument)
    expected, advice = _split_advice(error.expected, options)
    if scattered := re.fullmatch(r"rows for (.+) that are not contiguous", str(error.got)):
        remedy = "; use --sort" if "--sort" in advice else ""
        return f"{name.partition(', column')[0]}: rows for {scattered[1]} are not contiguous{remedy}."
    if str(error.got).startswith("no such "):
        known = expected == "a file or folder that exists"
        return _as_sentence(f"{name}: {error.got}") + ("" if known else f" Expected {_as_sentence(expected)}")
    return _as_sentence(f"{name}: got {error.got}, expected {expected}") + advice


def _split_advice(expected: str, options: Set[str]) -> tuple[str, str]:
    """What was expected, and advice as sentences: `; use sort=True` is `Use --sort.`, if there is such an option."""
    kept, *clauses = expected.split("; ")
    advice = ""
    for clause in clauses:
        arguments = [found[0] for found in ARGUMENT.findall(clause)]
        if not arguments:
            kept += f"; {clause}"
        elif all(f"--{name}" in options for name in arguments):
            clause = ARGUMENT.sub(
                lambda m: f"--{m[1]}" + (f" {shlex.quote(m[2] or m[3])}" if m[2] or m[3] else ""), clause
            )
            clause = clause.replace('"', "")
            advice += f" {_as_sentence(clause[0].upper() + clause[1:])}"
    return kept, advice


def _as_flag(found: re.Match[str]) -> str:
    value = found[2] or found[3]
    return f"--{found[1]}" + (f" {shlex.quote(value)}" if value else "")


def _split_hint(expected: str) -> tuple[str, str]:
    """`one of x, y; did you mean 'x'?` as a sentence and the list of names; a text without a list has neither."""
    found = re.fullmatch(r"one of (.*?)(?:; did you mean (.+?)\?)?", expected, re.DOTALL)
    if found is None:
        return "", ""
    return (f" Did you mean {found[2]}?" if found[2] else ""), found[1]


def _as_sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _print_error(text: str) -> None:
    from rich.text import Text

    from recurra.cli.control_characters import console

    stream = error_stream()
    if stream is not None:
        head = f"Error{name_of_process()}: "
        console(file=stream).print(Text.assemble((head, "bold red"), text), soft_wrap=not stream.isatty())


@contextmanager
def report_errors_as(path: Path) -> Iterator[None]:
    """An OSError inside names `path`, not the temporary file that is renamed to it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def install_sigterm_handler() -> None:
    """SIGTERM raises SystemExit, so that open files are closed as on Ctrl-C."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, leave)


def install_excepthook() -> None:
    """Unexpected exceptions print one paragraph; with RECURRA_DEBUG=1 the traceback."""

    def print_unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if is_debugging():
            sys.__excepthook__(kind, error, trace)
            return
        _print_error(f"{kind.__name__}: {error}. This is a bug in recurra; RECURRA_DEBUG=1 shows the traceback.")

    sys.excepthook = print_unexpected


def install_warning_format() -> None:
    """Warnings print as `Note: …`, without the source line."""

    def format_note(message: Warning | str, *place: Any, **more: Any) -> str:
        from recurra.cli.control_characters import visible

        return f"Note: {visible(str(message))}\n"

    if not is_debugging():
        warnings.formatwarning = format_note
