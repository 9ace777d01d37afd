"""The equations of a cell as MathML."""

from html import escape

from ..cell import Cell
from .latex_parser import Node, equations, parse


def cell_mathml(cell: Cell) -> str:
    """The equations of a cell, aligned at the equals signs."""
    rows = [
        f"<mtr><mtd>{_draw(left)}</mtd><mtd><mo>=</mo></mtd><mtd>{_draw(right)}</mtd></mtr>"
        for left, right in equations(cell.equations())
    ]
    table = f'<mtable displaystyle="true">{"".join(rows)}</mtable>'
    return f'<math display="block" class="equations">{table}</math>'


def mathml(latex: str) -> str:
    """One LaTeX expression as MathML."""
    return f"<math>{_draw(parse(latex))}</math>"


def _draw(node: Node) -> str:
    match node.kind:
        case "word":
            upright = ' mathvariant="normal"' if node.upright and len(node.text) == 1 else ""
            return f"<mi{upright}>{escape(node.text)}</mi>"
        case "number":
            return f"<mn>{escape(node.text)}</mn>"
        case "sign":
            return f"<mo>{escape(node.text)}</mo>"
        case "space":
            return f'<mspace width="{"0.17em" if node.text == "thin" else "0.5em"}"/>'
        case "scripts":
            return _scripts(*node.parts)
        case "frac":
            return f"<mfrac>{_draw(node.parts[0])}{_draw(node.parts[1])}</mfrac>"
        case "sqrt":
            return f"<msqrt>{_draw(node.parts[0])}</msqrt>"
        case "over":
            return f'<mover accent="true">{_draw(node.parts[0])}<mo>{node.text}</mo></mover>'
        case "fence":
            left, right = escape(node.text[0]), escape(node.text[1])
            grow = "true" if _is_tall(node.parts[0]) else "false"
            bar = f'<mo fence="true" stretchy="{grow}">'
            return f"<mrow>{bar}{left}</mo>{_draw(node.parts[0])}{bar}{right}</mo></mrow>"
    return f"<mrow>{''.join(_draw(part) for part in node.parts)}</mrow>"


def _is_tall(node: Node) -> bool:
    return node.kind in ("frac", "sqrt") or any(_is_tall(part) for part in node.parts)


def _scripts(base: Node, below: Node, above: Node) -> str:
    has_below, has_above = (bool(part.parts or part.text) for part in (below, above))
    name = "msubsup" if has_below and has_above else "msub" if has_below else "msup"
    inside = [_draw(base), *([_draw(below)] if has_below else []), *([_draw(above)] if has_above else [])]
    return f"<{name}>{''.join(inside)}</{name}>"
