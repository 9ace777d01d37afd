"""What commands print: facts and measures for a person on standard error, results on standard output."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def aside() -> Console:
    """Where a command talks to the person; standard output is for results."""
    return Console(stderr=True, highlight=False)


def facts(rows: Iterable[tuple[str, str]], console: Console) -> None:
    """Two columns: what, and how it is."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, Text(text))
    console.print(table)


def number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"


def measures(found: Mapping[str, float], metric: str, console: Console) -> None:
    """The measure that counts first, the others after it."""
    ordered = {metric: found[metric], **found} if metric in found else dict(found)
    facts([(name, number(value)) for name, value in ordered.items()], console)


def as_json(content: Any) -> None:
    """One JSON document on standard output; numbers that are none are null."""
    sys.stdout.write(json.dumps(_plain(content), ensure_ascii=False, indent=2) + "\n")


def _plain(value: Any) -> Any:
    import numpy as np

    match value:
        case np.generic():
            return _plain(value.item())
        case np.ndarray():
            return _plain(value.tolist())
        case float():
            return value if value == value and abs(value) != float("inf") else None
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case None | str() | int() | bool():
            return value
    return str(value)


def place(path: object) -> str:
    """Where something was written, to stand out in a line; brackets in it are no markup."""
    from rich.markup import escape

    return f"[bold]{escape(str(path))}[/]"
