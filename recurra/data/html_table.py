"""Tables for notebooks."""

from collections.abc import Sequence
from html import escape


def html_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """An HTML table; every text is escaped."""
    head = "".join(f"<th>{escape(str(title))}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
