"""What a command ends with: 0 done, 2 bad input, 1 failure, 130 and 143 interrupted; and one paragraph on why."""

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from recurra.errors import InputError, MissingPackageError, RecurraError

DONE, FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
FEW = 24  # names that are listed beside a hint
#: what an error proposes to someone who writes Python, for someone who types a command
IN_FLAGS = {
    "or sort=True": "or --sort",
    'or missing="drop" or "fill"': "or --missing drop, or --missing fill",
    "; or irregular=True": "",
    "named as target": "named with --target",
    "its name, as id": "its name, with --id",
    "apart as id": "apart, with --id",
}
#: arguments of Python by the flags they are given with
FLAGS = {name: f"--{name}" for name in ("task", "test", "cells", "storage")} | {"modules": "--import"}
UNUSABLE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def debugging() -> bool:
    return os.environ.get("RECURRA_DEBUG", "") not in ("", "0")


def command_line() -> str:
    """What was typed, to be typed again."""
    return shlex.join(["recurra", *sys.argv[1:]])


class Guarded(TyperGroup):
    """Errors of a command as a paragraph and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (RecurraError, OSError, MemoryError) as error:
            if debugging():
                raise
            bad = isinstance(error, (InputError, MissingPackageError, *UNUSABLE))
            _complain(paragraph(error))
            raise typer.Exit(BAD_INPUT if bad else FAILED) from None
        except SystemExit as stopped:  # interrupted, and the command has said where it stands
            raise typer.Exit(stopped.code if isinstance(stopped.code, int) else FAILED) from None
        except KeyboardInterrupt:
            _complain("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None


def paragraph(error: BaseException) -> str:
    """An error in sentences, for someone who does not read Python."""
    from recurra.data.data_errors import MissingColumnError

    if isinstance(error, MissingColumnError):
        hint, known = _hint(error.expected)
        return f"{error.file} has no column {error.column!r}.{hint} Its columns are {known}."
    if isinstance(error, InputError) and "one of " in error.expected and "did you mean" in error.expected:
        hint, known = _hint(error.expected)
        got = f"{error.got} is not known" if str(error.got).startswith("'") else error.got
        few = known.count(",") < FEW
        return f"{_flag(error)}: {got}.{hint}" + (f" There are {known}." if few else "")
    if isinstance(error, InputError):
        expected = error.expected
        for python, flag in IN_FLAGS.items():
            expected = expected.replace(python, flag)
        if str(error.got).startswith("no such "):
            return _sentence(f"{_flag(error)}: {error.got}; expected {expected}")
        return _sentence(f"{_flag(error)}: got {error.got}; expected {expected}")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}." if error.filename else f"{error.strerror}."
    if isinstance(error, MemoryError):
        return str(error) or "There is not enough memory for this."
    return _sentence(str(error))


def _flag(error: InputError) -> str:
    return FLAGS.get(error.argument, error.argument)


def _hint(expected: str) -> tuple[str, str]:
    """`did you mean 'x'? one of x, y` as a sentence, and what there is."""
    hint, _, known = expected.rpartition("one of ")
    return (f" D{hint[1:].strip()}" if hint else ""), known


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _complain(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text.assemble(("Error: ", "bold red"), text), soft_wrap=not sys.stderr.isatty())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong is told of the file that was asked for, not of the draft that was to become it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def on_terminate() -> None:
    """SIGTERM ends a command as Ctrl-C does, so that what it has open is closed."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, leave)


def on_surprise() -> None:
    """An error nobody foresaw is still one paragraph; where it came from is shown on request."""

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if debugging():
            sys.__excepthook__(kind, error, trace)
            return
        _complain(f"{kind.__name__}: {error}. This was not foreseen; RECURRA_DEBUG=1 before the command shows where.")

    sys.excepthook = say


def on_warning() -> None:
    """A warning is a note, without the place in the code it came from."""

    def note(message: Warning | str, *place: Any, **more: Any) -> str:
        return f"Note: {message}\n"

    if not debugging():
        warnings.formatwarning = note
