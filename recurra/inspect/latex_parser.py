"""A parser for the LaTeX that `engine/latex.py` prints, used for MathML and for labels in diagrams.

The subset: symbols with subscripts and superscripts, fractions, roots, overlines, functions, `\\left … \\right`
brackets, and `aligned` blocks; for the documentation also hats, tildes and arrows. An unknown command is an error.
"""

import re
from dataclasses import dataclass, field

from ..errors import InputError

GREEK = dict(
    zip(
        """alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega
        Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega""".split(),  # noqa: SIM905
        "αβγδεζηθκλμνξρστφχψωΓΔΘΛΞΠΣΦΨΩ",
        strict=True,
    )
)
FUNCTIONS = ("tanh", "exp", "log", "sin", "cos", "max", "min")
SIGNS = {
    "odot": "⊙",
    "otimes": "⊗",
    "neq": "≠",
    "leq": "≤",
    "geq": "≥",
    "wedge": "∧",
    "vee": "∨",
    "neg": "¬",
    "partial": "∂",
    "infty": "∞",
    "top": "⊤",
    "sum": "∑",
    "times": "×",
    "cdot": "·",
}
ACCENTS = {"overline": "¯", "tilde": "~", "hat": "^", "vec": "→", "overleftarrow": "←"}
SPACES = {",": "thin", " ": "wide", ";": "wide", "textstyle": ""}
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[{}_^&]|[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?|'+|\s+|.")


@dataclass
class Node:
    """A node of the expression; `kind` is word, number, sign, space, row, scripts, frac, sqrt, over or fence."""

    kind: str
    text: str = ""
    parts: list["Node"] = field(default_factory=list)
    upright: bool = False


def parse(latex: str) -> Node:
    """Parse one expression."""
    reader = _Parser([token for token in _TOKEN.findall(latex) if token != "&"])
    row = reader.row(())
    if reader.here < len(reader.tokens):
        raise InputError("latex", latex, f"balanced braces; {reader.tokens[reader.here]!r} closes none")
    return row


def equations(block: str) -> list[tuple[Node, Node]]:
    """Parse an `aligned` block: `(left, right)` of every line."""
    body = block.removeprefix("\\begin{aligned}\n").removesuffix("\n\\end{aligned}")
    pairs = [line.split(" &= ", 1) for line in body.split(" \\\\\n")]
    return [(parse(left), parse(right)) for left, right in pairs]


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[str]):
        self.tokens, self.here = tokens, 0

    def row(self, until: tuple[str, ...]) -> Node:
        parts: list[Node] = []
        while self.here < len(self.tokens) and self.tokens[self.here] not in until:
            token = self.tokens[self.here]
            if token == "}":
                break
            if token in ("_", "^"):
                self.here += 1
                parts.append(self._script(parts.pop() if parts else Node("row"), token))
            else:
                found = self.item()
                if found is not None:
                    parts.append(found)
        return parts[0] if len(parts) == 1 else Node("row", parts=parts)

    def _script(self, base: Node, mark: str) -> Node:
        script = self.item() or Node("row")
        empty = Node("row")
        below, above = (script, empty) if mark == "_" else (empty, script)
        if base.kind == "scripts":  # both on one base
            below, above = (script, base.parts[2]) if mark == "_" else (base.parts[1], script)
            base = base.parts[0]
        return Node("scripts", parts=[base, below, above])

    def item(self) -> Node | None:
        token = self.tokens[self.here]
        self.here += 1
        if token == "{":
            inside = self.row(("}",))
            self.here += 1
            return inside
        if token.startswith("\\"):
            return self._command(token[1:])
        if token.isspace():
            return None
        if token[0].isdigit():
            return Node("number", token)
        if token[0].isalpha():
            return Node("word", token)
        return Node("sign", "′" * len(token) if token[0] == "'" else "−" if token == "-" else token)

    def _command(self, name: str) -> Node | None:
        if name in GREEK:
            return Node("word", GREEK[name])
        if name in FUNCTIONS:
            return Node("word", name, upright=True)
        if name in SIGNS:
            return Node("sign", SIGNS[name])
        if name in SPACES:
            return Node("space", SPACES[name]) if SPACES[name] else None
        if name in ("mathrm", "mathcal"):
            inside = self.item() or Node("row")
            letters = _letters(inside)
            return Node("word", "ℱ" if name == "mathcal" and letters == "F" else letters, upright=True)
        if name == "frac":
            return Node("frac", parts=[self.item() or Node("row"), self.item() or Node("row")])
        if name == "sqrt":
            return Node("sqrt", parts=[self.item() or Node("row")])
        if name in ACCENTS:
            return Node("over", ACCENTS[name], [self.item() or Node("row")])
        if name == "left":
            return self._fence()
        if name in ("_", "{", "}"):
            return Node("sign", name)
        raise InputError("latex", f"\\{name}", "a command that recurra's printer writes")

    def _fence(self) -> Node:
        opening = self.tokens[self.here]
        self.here += 1
        inside = self.row(("\\right",))
        self.here += 1
        closing = self.tokens[self.here]
        self.here += 1
        return Node("fence", f"{opening}{closing}", [inside])


def _letters(node: Node) -> str:
    return node.text if not node.parts else "".join(_letters(part) for part in node.parts)
