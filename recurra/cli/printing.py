"""Output helpers: messages to standard error, results to standard output."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recurra.cli.control_characters import CONTROL, console


def stderr_console() -> Console:
    """The console for messages; standard output is for results."""
    return console(stderr=True)


def stdout_console() -> Console:
    """The console for results."""
    return console()


def print_pairs(rows: Iterable[tuple[str, str]], console: Console) -> None:
    """Two columns: a bold label and its text."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, Text(text))
    console.print(table)


def format_number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"


def print_metrics(metrics: Mapping[str, float], metric: str, console: Console) -> None:
    """All metrics, the problem's own `metric` first."""
    ordered = {metric: metrics[metric], **metrics} if metric in metrics else dict(metrics)
    print_pairs([(name, format_number(value)) for name, value in ordered.items()], console)


def print_scores(rows: Sequence[tuple[str, float, float, float, int]], console: Console) -> None:
    """Precision, recall and F1 of every class, entity or tag."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("class")
    for heading in ("precision", "recall", "F1", "count"):
        table.add_column(heading, justify="right")
    for name, precision, recall, f1, count in rows:
        table.add_row(
            Text(name), f"{100 * precision:.1f} %", f"{100 * recall:.1f} %", f"{100 * f1:.1f} %", f"{count:,}"
        )
    console.print(table)


def print_coverage(
    widths: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], origins: int, console: Console
) -> None:
    """The share of true values inside each interval, by steps ahead."""
    console.print(f"Values inside the interval, of {origins:,} forecast{'s' if origins != 1 else ''}:")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("steps ahead")
    for width in widths:
        table.add_column(f"{width[:-1]} % interval", justify="right")
    for name, shares in rows:
        table.add_row(name, *(f"{100 * share:.1f} %" for share in shares))
    console.print(table)


def keep_units(text: str) -> str:
    """The text with `98.2 ± 0.2 %` kept on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def print_json(content: Any) -> None:
    """One JSON document on standard output; non-finite numbers become null."""
    text = json.dumps(to_plain(content), ensure_ascii=False, indent=2)
    sys.stdout.write(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def to_plain(value: Any) -> Any:
    """A value made of dicts, lists, text and finite numbers, for JSON."""
    import numpy as np

    match value:
        case np.generic():
            return to_plain(value.item())
        case np.ndarray():
            return to_plain(value.tolist())
        case float():
            return value if value == value and abs(value) != float("inf") else None
        case Mapping():
            return {str(key): to_plain(one) for key, one in value.items()}
        case list() | tuple():
            return [to_plain(one) for one in value]
        case None | str() | int() | bool():
            return value
    return str(value)


def bold(path: object) -> str:
    """Markup that prints a path in bold; brackets in the path are escaped."""
    from rich.markup import escape

    return f"[bold]{escape(str(path))}[/]"
