"""The table of columns that is shown before training: name, type, role, why; and how to change a role."""

from collections.abc import Sequence
from typing import Any

from recurra.data.readers.column_roles import ColumnRole

TITLES = ("column", "type", "role", "why")
HINT = "Change a role with --id, --time, --target, --inputs, --observed, --static, --ignore."
MAX_COLUMNS = 24  # rows of the table


def column_rows(columns: Sequence[ColumnRole]) -> list[tuple[str, str, str, str]]:
    """(name, type, role, why) of every column; the steps of a wide table as one row `t0 … t49`."""
    rows: list[tuple[str, str, str, str]] = []
    first = ""
    for column in columns:
        is_step = column.why.startswith("step ")
        if is_step and rows and rows[-1][3].startswith("step"):
            first = first or rows[-1][3].split()[1]
            name = f"{rows[-1][0].split(' … ')[0]} … {column.name}"
            rows[-1] = (name, column.type, column.role, f"steps {first} to {column.why[5:]}")
        else:
            first = ""
            rows.append((column.name, column.type, column.role, column.why))
    return rows


def print_columns(columns: Sequence[ColumnRole], console: Any) -> None:
    """Print the role of every column, and why it has it."""
    from rich.table import Table
    from rich.text import Text

    if not columns:
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in TITLES:
        table.add_column(title, overflow="fold")
    rows = column_rows(columns)
    for name, kind, role, why in rows[:MAX_COLUMNS]:
        table.add_row(Text(name), Text(kind), Text(role), Text(why), style="dim" if role == "ignored" else "")
    console.print()
    console.print(table)
    more = f"{len(rows) - MAX_COLUMNS} more columns. " if len(rows) > MAX_COLUMNS else ""
    console.print(more + HINT, style="dim")
