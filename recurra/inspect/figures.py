"""How recurra's pictures look: one palette that colour-blind readers can tell apart, one plain layout, on any ground.

Backgrounds are transparent and text is grey, so that a figure reads on white and on black; the report page sets the
text to its own colours.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..optional import require

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe & Ito's colours, told apart with any of the three colour-vision deficiencies; the blue first, black left out.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A800", "#7F7F7F")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SEQUENTIAL = "Cividis"
DIVERGING = "RdBu_r"
INK, GRID = "#808080", "rgba(128,128,128,0.22)"


def graph_objects() -> Any:
    """`plotly.graph_objects`, imported when the first figure is made."""
    return require("plotly.graph_objects", extra="report", what="a figure")


def figure(title: str = "", height: int = 380, **layout: Any) -> "Figure":
    """An empty figure in recurra's look."""
    go = graph_objects()
    return dress(go.Figure(), title, height, **layout)


def panels(titles: Sequence[str], columns: int = 1, height: int = 300, **options: Any) -> "Figure":
    """A grid of empty panels."""
    subplots = require("plotly.subplots", extra="report", what="a figure")
    rows = -(-len(titles) // columns)
    gap = {"vertical_spacing": min(0.16, 0.3 / rows)} if rows > 1 else {}
    made = subplots.make_subplots(
        rows=rows, cols=columns, subplot_titles=[text(title) for title in titles], **gap, **options
    )
    made.update_annotations(font_size=13)
    return dress(made, "", height * rows + 60)


def dress(made: "Figure", title: str, height: int, **layout: Any) -> "Figure":
    made.update_layout(
        title={"text": title, "font": {"size": 15}, "x": 0.01, "xanchor": "left"} if title else None,
        height=height,
        template="none",
        colorway=list(PALETTE),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12, "color": INK},
        margin={"l": 64, "r": 16, "t": 44 if title else 30, "b": 48},
        legend={"orientation": "h", "yref": "container", "y": 0.0, "yanchor": "bottom", "x": 0},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": GRID.replace("0.22", "0.8"), "activecolor": PALETTE[0]},
        hoverlabel={"font": {"family": "system-ui, sans-serif"}},
        **layout,
    )
    made.update_xaxes(gridcolor=GRID, zerolinecolor=GRID, linecolor=INK, automargin=True, title_standoff=8)
    made.update_yaxes(gridcolor=GRID, zerolinecolor=GRID, linecolor=INK, automargin=True, title_standoff=8)
    return made


def text(value: object) -> str:
    """A label as text: plotly reads a few tags in labels, and what comes from data must not become one."""
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def line(name: str, x: Any, y: Any, number: int = 0, **style: Any) -> Any:
    """One curve; beyond the palette's end the dashes tell curves apart."""
    go = graph_objects()
    drawn = {
        "color": PALETTE[number % len(PALETTE)],
        "dash": DASHES[(number // len(PALETTE)) % len(DASHES)],
        "width": 2,
    }
    mode = style.pop("mode", "lines")
    drawn |= style.pop("line", {})
    return go.Scatter(x=numbers(x), y=numbers(y), name=text(name), mode=mode, line=drawn, **style)


def numbers(values: Any) -> list:
    """Plain numbers, rounded to what a screen shows: the page stays small."""
    values = values.tolist() if hasattr(values, "tolist") else list(values)

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(one) for one in value]
        if isinstance(value, float):
            return float(f"{value:.4g}") if value == value and abs(value) != float("inf") else None
        return value

    return [short(value) for value in values]


def decades(values: Any) -> dict[str, Any]:
    """A logarithmic axis with few, readable ticks for these values."""
    import math

    real = [value for value in values if value is not None and value == value and 0 < value < math.inf]
    span = math.log10(max(real) / min(real)) if real else 0.0
    ticks = {"dtick": max(1, math.ceil(span / 8)), "exponentformat": "power"} if span >= 2 else {"dtick": "D2"}
    return {"type": "log", "minexponent": 2, **ticks}


def counts(axis_length: int) -> dict[str, Any]:
    """An axis of whole numbers from 1."""
    return {"tick0": 1, "dtick": max(1, -(-axis_length // 10)), "tickformat": "d"}


def unit_circle() -> Any:
    """The unit circle of the complex plane."""
    import math

    go = graph_objects()
    angles = [2 * math.pi * k / 120 for k in range(121)]
    return go.Scatter(
        x=[round(math.cos(a), 4) for a in angles],
        y=[round(math.sin(a), 4) for a in angles],
        mode="lines",
        line={"color": INK, "width": 1},
        hoverinfo="skip",
        showlegend=False,
        name="|λ| = 1",
    )
