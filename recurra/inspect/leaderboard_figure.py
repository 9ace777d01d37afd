"""Who competed and how they fared: a picture of every score, and the table."""

from collections.abc import Mapping, Sequence
from typing import Any

from . import figures
from .page import Block, Section, listing, picture

SCORES = "scores"  # the key of a row under which all its scores stand; drawn, not listed
FAR = 1.5  # times the width of the crowd; who stands further off is left to the table


def leaderboard(rows: Sequence[Mapping[str, Any]]) -> Section:
    """Rows as mappings with the same keys, the first of which is the name and the second the outcome."""
    section = Section("Leaderboard")
    if not rows:
        return section
    header = list(dict.fromkeys(str(key) for row in rows for key in row if key != SCORES))
    if sum(len(row.get(SCORES, ())) > 0 for row in rows) > 1:
        section.blocks.append(_drawn(rows, header))
    cells = [[row.get(key, "") for key in header] for row in rows]
    section.blocks.append(listing(cells, header, "Every cell that competed, as the comparison ranked them."))
    return section


def _drawn(rows: Sequence[Mapping[str, Any]], header: Sequence[str]) -> Block:
    go = figures.graph_objects()
    shown = _crowd([row for row in rows if len(row.get(SCORES, ()))])
    names = [figures.text(row[header[0]]) for row in shown]
    means = [sum(row[SCORES]) / len(row[SCORES]) for row in shown]
    made = figures.figure(height=90 + 26 * len(shown), showlegend=False)
    each = [(score, name) for row, name in zip(shown, names, strict=True) for score in row[SCORES]]
    dots = {"color": figures.PALETTE[0], "size": 8, "opacity": 0.45}
    made.add_trace(_points(go, [score for score, _ in each], [name for _, name in each], dots, "one seed"))
    bars = {"color": figures.PALETTE[3], "size": 14, "symbol": "line-ns", "line": {"width": 3, "color": "#D55E00"}}
    made.add_trace(_points(go, means, names, bars, "mean"))
    made.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names, title=None)
    made.update_xaxes(title=figures.text(header[1]) if len(header) > 1 else None)
    left = len(rows) - len(shown)
    aside = f" Too far off to be drawn: {left}, in the table." if left else ""
    sentence = "Each dot is one seed, the bar their mean; where the dots of two cells mix, their order may be chance."
    return picture(made, sentence + aside)


def _points(go: Any, x: Sequence[float], y: Sequence[str], marker: Mapping[str, Any], what: str) -> Any:
    hover = "%{y}: %{x:.4g} (" + what + ")<extra></extra>"
    return go.Scatter(x=figures.numbers(x), y=list(y), mode="markers", marker=dict(marker), hovertemplate=hover)


def _crowd(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without those so far from the middle half that the others would be one spot."""
    means = sorted(sum(row[SCORES]) / len(row[SCORES]) for row in rows)
    low, high = means[len(means) // 4], means[-1 - len(means) // 4]
    margin = FAR * max(high - low, 1e-12) * 2
    near = [row for row in rows if low - margin <= sum(row[SCORES]) / len(row[SCORES]) <= high + margin]
    return near if len(near) > 1 else list(rows)
