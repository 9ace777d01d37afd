"""Renders sections of text, figures and drawings as one self-contained HTML page.

All text is escaped: by Jinja2 in the page, and as JSON without `<` in the figures. The content security policy allows
two scripts by their hashes, plotly and the script of the page, and no other source.
"""

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..argument_checks import path_of
from ..numerals import is_number

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TEMPLATES = Path(__file__).parent / "templates"


@dataclass
class Block:
    """One element of a section; `kind` is one of text, figure, drawing, mathematics, table, finding, preformatted,
    quote, sentences, sketches."""

    kind: str
    text: str = ""
    title: str = ""
    figure: "Figure | None" = None
    markup: Any = ""  # SVG, MathML or HTML made by recurra, not escaped
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numeric: Sequence[bool] = ()
    good: bool = False
    fits: bool = False
    number: int = -1
    height: int = 0


@dataclass
class Section:
    """A foldable section of the page."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    anchor: str = ""


def figure_block(figure: "Figure", caption: str) -> Block:
    """A plotly figure and its caption."""
    return Block("figure", caption, figure=figure, height=int(figure.to_dict()["layout"].get("height", 380)))


def drawing_block(svg: str, caption: str) -> Block:
    """An SVG drawing and its caption."""
    from markupsafe import Markup

    width = float(svg.partition('width="')[2].partition('"')[0])
    return Block("drawing", caption, markup=Markup(svg), fits=width < 900)


def equations_block(title: str, caption: str, mathml: str) -> Block:
    """Equations as MathML."""
    from markupsafe import Markup

    return Block("mathematics", caption, title, markup=Markup(mathml))


def table_block(rows: Sequence[Sequence[Any]], header: Sequence[str] = (), caption: str = "") -> Block:
    """A table; columns of numbers are right-aligned."""
    width = max((len(row) for row in rows), default=0)
    named = 1 if header else 0  # the first column of a table with a header has names
    numeric = [bool(rows) and k >= named and all(_is_numeric(row[k]) for row in rows) for k in range(width)]
    return Block(
        "table", caption, header=header, rows=[[format_cell(cell) for cell in row] for row in rows], numeric=numeric
    )


def _is_numeric(value: Any) -> bool:
    """Whether a table cell is a number, a text that begins with one ("6,129", "98.2 ± 0.2 %"), or empty."""
    text = str(value).replace(",", "").split(" ")[0]
    return isinstance(value, (int, float)) or not text or is_number(text)


def format_cell(value: Any) -> str:
    """A table cell as text: four digits, thousands separators."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def write_page(path: str | Path, title: str, lead: str, sections: Sequence[Section], verdict: str = "") -> Path:
    """Write the page to `path`; an error leaves an existing file as it was."""
    return write_text(path, render(title, lead, sections, verdict))


def write_text(path: str | Path, text: str) -> Path:
    """Write a file beside its place and rename it into it."""
    target = path_of("path", path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def render(title: str, lead: str, sections: Sequence[Section], verdict: str = "") -> str:
    """The HTML text of the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    from .. import __version__

    figures: list[str] = []
    for number, section in enumerate(sections, start=1):
        section.anchor = f"section-{number}"
        for block in section.blocks:
            if block.figure is not None:
                block.number = len(figures)
                figures.append(_json(block.figure))
    plotly, program = _as_script(get_plotlyjs()), _as_script((TEMPLATES / "report.js").read_text(encoding="utf-8"))
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html").render(
        title=title,
        lead=lead,
        verdict=verdict,
        sections=sections,
        figures=Markup(f"[{','.join(figures)}]"),
        plotly=Markup(plotly),
        program=Markup(program),
        policy=_policy(plotly, program),
        version=__version__,
    )


def _json(figure: "Figure") -> str:
    """A figure as JSON without `<`, `>` and `&`; equal rows of hover texts are written once."""
    spec = json.loads(figure.to_json() or "{}")
    for trace in spec["data"]:
        rows = trace.get("customdata")
        if trace["type"] == "heatmap" and rows and all(row == rows[0] for row in rows):
            trace["customdata"] = rows[:1]
    text = json.dumps(spec, separators=(",", ":"), ensure_ascii=False)
    for sign, code in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(sign, code)
    return text


def _as_script(text: str) -> str:
    """The text with the sequences escaped that would end a script element."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r\n", "\n")


def _policy(*scripts: str) -> str:
    """The content security policy that allows these scripts."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
