"""The leaderboard section of the report: a plot of the scores of all seeds, and the table."""

from collections.abc import Mapping, Sequence
from typing import Any

from . import figures
from .page import Block, Section, figure_block, table_block

SCORES = "scores"  # the key of a row that holds the scores of all seeds: plotted, not listed
OUTLIER_RANGE = 1.5  # times the interquartile range; cells outside are in the table only


def leaderboard(rows: Sequence[Mapping[str, Any]]) -> Section:
    """The section for rows with equal keys; the first key is the name, the second the score."""
    section = Section("Leaderboard")
    if not rows:
        return section
    header = list(dict.fromkeys(str(key) for row in rows for key in row if key != SCORES))
    if sum(len(row.get(SCORES, ())) > 0 for row in rows) > 1:
        section.blocks.append(_score_plot(rows, header))
    cells = [[row.get(key, "") for key in header] for row in rows]
    section.blocks.append(table_block(cells, header, "All cells of the comparison, best first."))
    return section


def _score_plot(rows: Sequence[Mapping[str, Any]], header: Sequence[str]) -> Block:
    go = figures.graph_objects()
    shown = _without_outliers([row for row in rows if len(row.get(SCORES, ()))])
    names = [figures.escape(row[header[0]]) for row in shown]
    means = [sum(row[SCORES]) / len(row[SCORES]) for row in shown]
    fig = figures.figure(height=90 + 26 * len(shown), showlegend=False)
    each = [(score, name) for row, name in zip(shown, names, strict=True) for score in row[SCORES]]
    dots = {"color": figures.PALETTE[5], "size": 8, "opacity": 0.8}
    fig.add_trace(_points(go, [score for score, _ in each], [name for _, name in each], dots, "one seed"))
    bars = {"color": figures.PALETTE[3], "size": 14, "symbol": "line-ns", "line": {"width": 3, "color": "#D55E00"}}
    fig.add_trace(_points(go, means, names, bars, "mean"))
    fig.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names, title=None)
    fig.update_xaxes(title=figures.escape(header[1]) if len(header) > 1 else None)
    left = len(rows) - len(shown)
    aside = f" Not plotted because of outlying scores: {left} (see the table)." if left else ""
    caption = (
        "Each dot is one seed, the bar is their mean. If the dots of two cells overlap, their order may be chance."
    )
    return figure_block(fig, caption + aside)


def _points(go: Any, x: Sequence[float], y: Sequence[str], marker: Mapping[str, Any], what: str) -> Any:
    hover = "%{y}: %{x:.4g} (" + what + ")<extra></extra>"
    return go.Scatter(x=figures.rounded(x), y=list(y), mode="markers", marker=dict(marker), hovertemplate=hover)


def _without_outliers(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows without outliers, which would compress the others to one spot."""
    means = sorted(sum(row[SCORES]) / len(row[SCORES]) for row in rows)
    low, high = means[len(means) // 4], means[-1 - len(means) // 4]
    margin = OUTLIER_RANGE * max(high - low, 1e-12) * 2
    near = [row for row in rows if low - margin <= sum(row[SCORES]) / len(row[SCORES]) <= high + margin]
    return near if len(near) > 1 else list(rows)
