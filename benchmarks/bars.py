"""A bar chart as SVG, with nothing but text: groups of bars, one bar a series."""

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#1b6ca8", "#3fa796", "#f2a65a", "#c8553d", "#8d6fb3")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1000, 380, 52, 54, 86


def bar_chart(title: str, unit: str, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """`series[name][i]` is the height of that series' bar in group i."""
    highest = max(value for values in series.values() for value in values)
    step = next(s for s in (1, 2, 5, 10, 20, 25, 50, 100, 200) if highest / s <= 6)
    top = (int(highest / step) + 1) * step
    scale, across = (HEIGHT - TOP - BOTTOM) / top, (WIDTH - LEFT - 10) / len(groups)
    parts = [f'<text x="{LEFT}" y="20" font-size="16" font-weight="bold">{escape(title)}</text>']
    for tick in range(0, top + 1, step):
        y = HEIGHT - BOTTOM - tick * scale
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick}{escape(unit)}</text>')
    for i, group in enumerate(groups):
        parts += _group(i, group, series, scale, across)
    for k, name in enumerate(series):
        x = LEFT + k * min(230, (WIDTH - LEFT) // len(series))
        parts.append(f'<rect x="{x}" y="30" width="12" height="12" fill="{COLOURS[k % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="40">{escape(name)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#444"'
    return "\n".join([f'{head} {style}><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *parts, "</svg>\n"])


def _group(i: int, name: str, series: Mapping[str, Sequence[float]], scale: float, across: float) -> list[str]:
    bar, low, parts = 0.8 * across / len(series), HEIGHT - BOTTOM, []
    for k, values in enumerate(series.values()):
        x, tall = LEFT + i * across + 0.1 * across + k * bar, values[i] * scale
        parts.append(
            f'<rect x="{x:.1f}" y="{low - tall:.1f}" width="{bar * 0.92:.1f}" height="{tall:.1f}"'
            f' fill="{COLOURS[k % len(COLOURS)]}"><title>{escape(name)}: {values[i]:.0f}</title></rect>'
        )
    x = LEFT + (i + 0.5) * across
    parts.append(f'<text transform="translate({x:.1f},{low + 14}) rotate(-30)" text-anchor="end">{escape(name)}</text>')
    return parts
