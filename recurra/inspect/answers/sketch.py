"""Small drawings of sequences as SVG, for a grid that wraps on narrow screens."""

from collections.abc import Sequence
from html import escape

import numpy as np

from ..figures import PALETTE
from ..page import Block

WIDTH, HEIGHT = 260, 96
MAX_LINES = 4  # columns of one sequence that are drawn
MAX_POINTS = 400  # of one line; longer ones are thinned


def sketch(values: np.ndarray, title: str, detail: str = "") -> str:
    """One sequence (T, D) under a title: up to `MAX_LINES` columns as lines on one scale."""
    shown = np.asarray(values, dtype=np.float64)[:, :MAX_LINES]
    thinned = shown[np.unique(np.linspace(0, len(shown) - 1, min(len(shown), MAX_POINTS)).round().astype(int))]
    lines = "".join(_polyline(thinned[:, k], thinned, PALETTE[k]) for k in range(thinned.shape[1]))
    label = f"{title}. {detail}" if detail else title
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'<line x1="0" y1="{HEIGHT - 0.5}" x2="{WIDTH}" y2="{HEIGHT - 0.5}" stroke="currentColor" opacity="0.4"/>'
        f"{lines}</svg>"
    )
    small = f"<small>{escape(detail)}</small>" if detail else ""
    return f'<div class="sketch"><b>{escape(title)}</b>{drawing}{small}</div>'


def sequence_name(k: int, ids: Sequence[str]) -> str:
    """What a page calls a sequence: its id, or its place among those that are scored."""
    return f"sequence {ids[k] if len(ids) else k + 1}"


def _polyline(column: np.ndarray, everything: np.ndarray, colour: str) -> str:
    finite = everything[np.isfinite(everything)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    x = np.linspace(2, WIDTH - 2, len(column)) if len(column) > 1 else np.array([WIDTH / 2])
    y = HEIGHT - 4 - (HEIGHT - 8) * (column - low) / max(high - low, 1e-12)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(b))
    if len(column) == 1:
        return f'<circle cx="{x[0]:.1f}" cy="{y[0]:.1f}" r="3" fill="{colour}"/>'
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def sketch_grid(sketches: Sequence[str], caption: str) -> Block:
    """Drawings beside and below each other."""
    from markupsafe import Markup

    return Block("sketches", caption, markup=Markup("".join(sketches)))


def standardised(sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The sequences with every column at mean 0 and variance 1, so that columns of different units share one scale."""
    rows = np.concatenate([np.asarray(x, dtype=np.float64) for x in sequences])
    mean, std = rows.mean(axis=0), rows.std(axis=0)
    return [(np.asarray(x) - mean) / np.where(std > 0, std, 1.0) for x in sequences]


def drawn_columns(sequences: Sequence[np.ndarray], names: Sequence[str] = ()) -> str:
    """What the lines of the drawings are, for a caption."""
    width = np.shape(sequences[0])[1]
    if width == 1:
        return ""
    count = min(width, MAX_LINES)
    listed = ", ".join(map(str, names[:count])) if len(names) == width else f"the first {count}"
    return f" Lines: {listed}" + (f" of {width} columns" if count < width else "") + ", each standardised."
