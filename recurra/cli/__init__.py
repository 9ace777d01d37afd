"""The command line, `recurra fit data.csv`: one command per file, thin over the library."""

import sys

from recurra.errors import MissingPackageError
from recurra.optional import optional_imports

__all__ = ["main"]


def main() -> None:
    """Entry point of the command `recurra`. Without the extra `cli` it says what to install and exits with 2."""
    try:
        with optional_imports("cli", what="the command recurra"):
            from recurra.cli.app import main as run
    except MissingPackageError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    run()
