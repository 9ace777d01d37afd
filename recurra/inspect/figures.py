"""The style that all plotly figures share: a colour-blind safe palette, one layout, axes and labels.

Backgrounds are transparent and text is grey, so a figure is readable on white and on black. The report page sets the
text colour itself.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..optional import require

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe & Ito's palette, distinguishable with any colour-vision deficiency; blue first, without black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A800", "#7F7F7F")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SEQUENTIAL = "Cividis"
DIVERGING = "RdBu_r"
SHARE = ((0.0, "rgba(0,114,178,0.04)"), (1.0, "rgba(0,114,178,1)"))  # from nothing to all; on any background
INK, GRID = "#808080", "rgba(128,128,128,0.22)"


def graph_objects() -> Any:
    """`plotly.graph_objects`, imported when the first figure is made."""
    return require("plotly.graph_objects", extra="report", what="a figure")


def figure(title: str = "", height: int = 380, **layout: Any) -> "Figure":
    """An empty figure in the common style."""
    go = graph_objects()
    return apply_style(go.Figure(), title, height, **layout)


def panels(titles: Sequence[str], columns: int = 1, height: int = 300, **options: Any) -> "Figure":
    """A grid of empty panels."""
    subplots = require("plotly.subplots", extra="report", what="a figure")
    rows = -(-len(titles) // columns)
    gap = {"vertical_spacing": min(0.16, 0.3 / rows)} if rows > 1 else {}
    fig = subplots.make_subplots(
        rows=rows, cols=columns, subplot_titles=[escape(title) for title in titles], **gap, **options
    )
    fig.update_annotations(font_size=13)
    return apply_style(fig, "", height * rows + 60)


def apply_style(fig: "Figure", title: str, height: int, **layout: Any) -> "Figure":
    """Set the common layout on a figure, in place."""
    fig.update_layout(
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
    fig.update_xaxes(gridcolor=GRID, zerolinecolor=GRID, linecolor=INK, automargin=True, title_standoff=8)
    fig.update_yaxes(gridcolor=GRID, zerolinecolor=GRID, linecolor=INK, automargin=True, title_standoff=8)
    return fig


def escape(value: object) -> str:
    """A label as plain text: plotly interprets a few HTML tags in labels, which text from data must not become."""
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def line(name: str, x: Any, y: Any, number: int = 0, **style: Any) -> Any:
    """One curve in the colour of `number`; past the end of the palette the dash pattern changes."""
    go = graph_objects()
    look = {
        "color": PALETTE[number % len(PALETTE)],
        "dash": DASHES[(number // len(PALETTE)) % len(DASHES)],
        "width": 2,
    }
    mode = style.pop("mode", "lines")
    look |= style.pop("line", {})
    return go.Scatter(x=rounded(x), y=rounded(y), name=escape(name), mode=mode, line=look, **style)


def rounded(values: Any) -> list:
    """Python numbers with four digits, which keeps the page small; NaN and infinity become None."""
    values = values.tolist() if hasattr(values, "tolist") else list(values)

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(item) for item in value]
        if isinstance(value, float):
            return float(f"{value:.4g}") if value == value and abs(value) != float("inf") else None
        return value

    return [short(value) for value in values]


def log_axis(values: Any) -> dict[str, Any]:
    """Layout of a logarithmic axis over these values: every tick has its whole number, none a bare 2 or 5."""
    import math

    real = [value for value in values if value is not None and value == value and 0 < value < math.inf]
    low, high = (math.log10(min(real)), math.log10(max(real))) if real else (-1.0, 1.0)
    if high - low < 0.3:
        low, high = low - 0.15, high + 0.15
    span = high - low
    margin = 0.05 * span
    digits = (1,) if span >= 3 else (1, 2, 5) if span >= 1 else (1, 2, 3, 5, 7)
    stride = max(1, math.ceil(span / 8))
    decades = range(math.floor(low) - 1, math.ceil(high) + 2)
    ticks = [(d, k) for k in decades if k % stride == 0 for d in digits]
    ticks = [(d, k) for d, k in ticks if low - margin <= k + math.log10(d) <= high + margin]
    return {
        "type": "log",
        "range": [low - margin, high + margin],
        "tickvals": [float(f"{d}e{k}") for d, k in ticks],
        "ticktext": [f"{d * 10.0**k:g}" if -3 <= k <= 3 else f"10<sup>{k}</sup>" for d, k in ticks],
    }


def count_axis(length: int) -> dict[str, Any]:
    """Layout of an axis of whole numbers from 1 to `length`."""
    return {"tick0": 1, "dtick": max(1, -(-length // 10)), "tickformat": "d"}


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
