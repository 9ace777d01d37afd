"""A bar chart as SVG, with nothing but text: groups of bars, one bar a series."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

COLOURS = ("#1b6ca8", "#3fa796", "#f2a65a", "#c8553d", "#8d6fb3")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1000, 380, 52, 54, 86
LETTER = 7  # pixels, about, of a letter of a name


def bar_chart(
    title: str, unit: str, groups: Sequence[str], series: Mapping[str, Sequence[float]], log: bool = False
) -> str:
    """`series[name][i]` is the height of that series' bar in group i; 0 draws none. `log`: from 1, in powers of 10."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#444"'
    inside = _chart(title, unit, groups, series, log)
    return f'{head} {style}><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n{inside}\n</svg>\n'


def one_below_another(charts: Sequence[str]) -> str:
    """Several charts as one."""
    down = HEIGHT - BOTTOM // 2  # names that are not tilted leave half of their place empty
    parts = [
        chart.replace("<svg ", f'<svg y="{k * down}" width="{WIDTH}" height="{HEIGHT}" ', 1)
        for k, chart in enumerate(charts)
    ]
    size = f'viewBox="0 0 {WIDTH} {len(charts) * down}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n{"".join(parts)}</svg>\n'


def _chart(title: str, unit: str, groups: Sequence[str], series: Mapping[str, Sequence[float]], log: bool) -> str:
    highest = max(value for values in series.values() for value in values)
    ticks, height = _log_axis(highest) if log else _axis(highest)
    across = (WIDTH - LEFT - 10) / len(groups)
    parts = [f'<text x="{LEFT}" y="20" font-size="16" font-weight="bold">{escape(title)}</text>']
    for tick in ticks:
        y = HEIGHT - BOTTOM - height(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick}{escape(unit)}</text>')
    tilted = max(map(len, groups)) * LETTER > across
    for i, group in enumerate(groups):
        parts += _group(i, group, series, height, across, tilted)
    for k, name in enumerate(series):
        x = LEFT + k * min(230, (WIDTH - LEFT) // len(series))
        parts.append(f'<rect x="{x}" y="30" width="12" height="12" fill="{COLOURS[k % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="40">{escape(name)}</text>')
    return "\n".join(parts)


def _axis(highest: float) -> tuple[list[int], Callable[[float], float]]:
    """Ticks, and the height of a value in pixels."""
    step = next(s for s in (1, 2, 5, 10, 20, 25, 50, 100, 200) if highest / s <= 6)
    top = (int(highest / step) + 1) * step
    return list(range(0, top + 1, step)), lambda value: value * (HEIGHT - TOP - BOTTOM) / top


def _log_axis(highest: float) -> tuple[list[int], Callable[[float], float]]:
    """The same, where a bar of half a unit has no height."""
    powers = math.ceil(math.log10(highest))
    scale = (HEIGHT - TOP - BOTTOM) / (powers + math.log10(2))
    return [10**k for k in range(powers + 1)], lambda value: scale * math.log10(2 * value) if value else 0.0


def _group(
    i: int,
    name: str,
    series: Mapping[str, Sequence[float]],
    height: Callable[[float], float],
    across: float,
    tilted: bool,
) -> list[str]:
    bar, low, parts = 0.8 * across / len(series), HEIGHT - BOTTOM, []
    for k, values in enumerate(series.values()):
        x, tall = LEFT + i * across + 0.1 * across + k * bar, height(values[i])
        parts.append(
            f'<rect x="{x:.1f}" y="{low - tall:.1f}" width="{bar * 0.92:.1f}" height="{tall:.1f}"'
            f' fill="{COLOURS[k % len(COLOURS)]}"><title>{escape(name)}: {values[i]:.3g}</title></rect>'
        )
    x = LEFT + (i + 0.5) * across
    turn, anchor = (" rotate(-30)", "end") if tilted else ("", "middle")
    parts.append(f'<text transform="translate({x:.1f},{low + 16}){turn}" text-anchor="{anchor}">{escape(name)}</text>')
    return parts
