"""A canvas for line drawings as SVG: boxes, circles, curves, and labels with subscripts.

Lines and letters take the colour of the surrounding text, so a drawing is readable on light and dark backgrounds.
Meaning never depends on colour alone: memory paths are thick, fixed weights dashed, delays dotted.
"""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from .latex_parser import Node, parse

STYLE = """
.rc-diagram { color: #1f2933; font-family: "Latin Modern Math", "STIX Two Math", Cambria, Georgia, serif; }
@media screen and (prefers-color-scheme: dark) { .rc-diagram { color: #e4e7eb; } }
.rc-diagram text { fill: currentColor; font-size: 15px; }
.rc-diagram .small { font-size: 12px; }
.rc-diagram .word { font-family: system-ui, sans-serif; font-size: 12px; }
.rc-diagram .box { fill: #0072B2; fill-opacity: 0.14; stroke: currentColor; stroke-width: 1.3; }
.rc-diagram .tint1 { fill: #E69F00; fill-opacity: 0.22; }
.rc-diagram .tint2 { fill: #009E73; fill-opacity: 0.16; }
.rc-diagram .solid { fill: Canvas; fill-opacity: 1; }
.rc-diagram .plain { fill: none; }
.rc-diagram .frame { fill: none; stroke: currentColor; stroke-opacity: 0.45; stroke-dasharray: 2 5; }
.rc-diagram .line { fill: none; stroke: currentColor; stroke-width: 1.3; }
.rc-diagram .belt { stroke-width: 3.2; stroke: #D55E00; }
.rc-diagram .fixed { stroke-dasharray: 6 4; }
.rc-diagram .delayed { stroke-dasharray: 1 4; stroke-linecap: round; stroke-width: 2; }
.rc-diagram .dot { fill: currentColor; }
"""


class Canvas:
    """Collects elements in drawing order; the drawing is as large as its elements and a margin."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.corners: list[tuple[float, float]] = []

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "box", title: str = "", round_: float = 6
    ):
        """A rectangle with centre (x, y)."""
        self._reach(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        shape = (
            f'x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_}"'
        )
        self.elements.append(f'<rect class="{kind}" {shape}>{_title(title)}</rect>')

    def circle(self, x: float, y: float, radius: float, kind: str = "box plain", title: str = "") -> None:
        self._reach(x - radius, y - radius, x + radius, y + radius)
        self.elements.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{_title(title)}</circle>')

    def label(
        self, x: float, y: float, latex: str, anchor: str = "middle", kind: str = "", tight: bool = False
    ) -> None:
        """A LaTeX label, vertically centred at y; `tight` sets no space around signs."""
        width = 8 * text_width(latex)
        left = x - (width / 2 if anchor == "middle" else width if anchor == "end" else 0)
        self._reach(left, y - 9, left + width, y + 9)
        inside = spans(parse(latex), tight)
        self.elements.append(f'<text class="{kind}" x="{x:.1f}" y="{y + 5:.1f}" text-anchor="{anchor}">{inside}</text>')

    def word(self, x: float, y: float, text: str, anchor: str = "middle", within: float = 0.0) -> None:
        """Plain text, condensed if it is wider than `within`."""
        width = 6.8 * len(text)
        fit = f' textLength="{within:.0f}" lengthAdjust="spacingAndGlyphs"' if within and width > within else ""
        width = min(width, within) if within else width
        left = x - (width / 2 if anchor == "middle" else width if anchor == "end" else 0)
        self._reach(left, y - 8, left + width, y + 8)
        self.elements.append(
            f'<text class="word" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}"{fit}>{escape(text)}</text>'
        )

    def arrow(self, points: Sequence[tuple[float, float]], kind: str = "", head: bool = True) -> None:
        """A smooth curve through the points, horizontal at both ends."""
        self.path(_smooth(points), points, kind, head)

    def straight(self, points: Sequence[tuple[float, float]], kind: str = "", head: bool = True) -> None:
        """A polyline through the points."""
        path = " L ".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.path(f"M {path}", points, kind, head)

    def path(self, path: str, points: Sequence[tuple[float, float]], kind: str = "", head: bool = True) -> None:
        for x, y in points:
            self._reach(x, y, x, y)
        marker = f' marker-end="url(#{"belt" if "belt" in kind else "head"})"' if head else ""
        self.elements.append(f'<path class="line {kind}" d="{path}"{marker}/>')

    def _reach(self, *corner: float) -> None:
        self.corners += [(corner[0], corner[1]), (corner[2], corner[3])]

    def to_svg(self, title: str, margin: float = 14) -> str:
        xs, ys = [x for x, _ in self.corners] or [0.0], [y for _, y in self.corners] or [0.0]
        left, top = min(xs) - margin, min(ys) - margin
        width, height = max(xs) - min(xs) + 2 * margin, max(ys) - min(ys) + 2 * margin
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="rc-diagram" role="img" aria-label="{escape(title)}" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}">'
            f"<title>{escape(title)}</title><style>{STYLE}</style><defs>{_head('head', 'currentColor', 9.5)}"
            f"{_head('belt', '#D55E00', 13)}</defs>{''.join(self.elements)}</svg>"
        )


def _head(name: str, colour: str, size: float) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{size}" markerHeight="{size}" '
        f'markerUnits="userSpaceOnUse" '
        f'orient="auto-start-reverse"><path d="M 0 1 L 10 5 L 0 9 z" fill="{colour}"/></marker>'
    )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _smooth(points: Sequence[tuple[float, float]]) -> str:
    path = f"M {points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        if abs(y0 - y1) < 0.5:
            path += f" L {x1:.1f} {y1:.1f}"
        else:
            middle = (x0 + x1) / 2
            path += f" C {middle:.1f} {y0:.1f}, {middle:.1f} {y1:.1f}, {x1:.1f} {y1:.1f}"
    return path


# ---------------------------------------------------------------------------------------------------- labels


def spans(node: Node, small: bool = False) -> str:
    """A parsed expression as SVG text: letters in italics, subscripts lower and smaller."""
    match node.kind:
        case "word":
            style = "" if node.upright or len(node.text) > 1 else ' font-style="italic"'
            return f"<tspan{style}>{escape(node.text)}</tspan>"
        case "space":
            return " "
        case "scripts":
            base, below, above = node.parts
            shift, script = (("4", "-4"), below) if below.parts or below.text else (("-6", "6"), above)
            inside = spans(script, True)
            low = f'<tspan font-size="10.5px" dy="{shift[0]}">{inside}</tspan><tspan dy="{shift[1]}">\u200b</tspan>'
            return f"{spans(base, small)}{low}"
        case "frac":
            return f"{spans(node.parts[0], small)}∕{spans(node.parts[1], small)}"
        case "sqrt":
            return f"√{spans(node.parts[0], small)}"
        case "over":
            return f"{spans(node.parts[0], small)}\u0305"
        case "fence":
            return f"{escape(node.text[0])}{spans(node.parts[0], small)}{escape(node.text[1])}"
        case "sign" if not small and node.text in "+−=⊙×":
            return f" {node.text} "
    return escape(node.text) if not node.parts else "".join(spans(part, small) for part in node.parts)


def text_width(latex: str) -> float:
    """The approximate width of a LaTeX label, in letters."""

    def count(node: Node) -> float:
        if node.kind in ("space", "frac"):
            return 0.5 + sum(count(part) for part in node.parts)
        if node.kind == "fence":
            return 1.0 + count(node.parts[0])
        if node.kind == "scripts":
            return count(node.parts[0]) + 0.75 * sum(count(part) for part in node.parts[1:])
        return max(len(node.text), 0.5) + sum(count(part) for part in node.parts) if node.text or node.parts else 0.0

    return count(parse(latex))
