"""The command line: `recurra fit data.csv`. One command a file, each thin; the work is done in the rooms above."""

from recurra.cli.app import app, main

__all__ = ["app", "main"]
