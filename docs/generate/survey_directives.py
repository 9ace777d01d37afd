"""Directives of the survey's chapters: what belongs to a section, and a picture below the code that draws it.

```{survey} 3.2
```
sets what `rc.survey()` knows of section 3.2: equations beside their calls, figures drawn by theirs, and the errata.

```{drawn}
rc.inspect.gradient_flow(layer, x)
```
shows this code and the picture that its last line makes.
"""

import ast
import re
from collections.abc import Sequence
from typing import Any

import torch
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import recurra as rc
from recurra.guide import SurveyEntry
from recurra.guide.entries import NAMES
from recurra.guide.page import INDEXED
from recurra.inspect import Diagram
from recurra.inspect.mathml import mathml

from .drawings import framed
from .survey_equations import EQUATIONS

FIGURE = {"responsive": True, "displaylogo": False}
_errata: dict[str, Any] = {}


class SurveySection(SphinxDirective):
    """The equations, figures and errata of one section, in the order of the survey."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        section = self.arguments[0]
        entries = [entry for entry in rc.survey() if entry.section == section]
        beside = [call for entry in entries[1:] if entry.kind == "equation" for call in entry.calls]
        alone = [call for call in parts_of(entries[0].calls) if call not in beside]
        found: list[nodes.Node] = [_code(alone)] if alone else []
        for entry in entries[1:]:
            found += _equation(entry) if entry.kind == "equation" else _figure(entry)
        shown: set[str] = self.env.temp_data.setdefault("errata", set())  # of this page
        numbers = [n for n in dict.fromkeys(n for entry in entries for n in entry.errata) if n not in shown]
        shown.update(numbers)
        return found + [_erratum(number) for number in numbers]


def parts_of(calls: Sequence[str]) -> list[str]:
    """Calls, each on a line of its own: `[a, b]` is two."""
    found = []
    for call in calls:
        tree = ast.parse(call, mode="eval").body
        found += [ast.get_source_segment(call, part) for part in tree.elts] if isinstance(tree, ast.List) else [call]
    return [call for call in found if call]


class Drawn(SphinxDirective):
    """Code, and the picture that its last expression makes; each block begins with seed 0 and the names of the path."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        self.env.note_dependency(__file__)
        up = "../" * self.env.docname.count("/")
        return [_code([code]), nodes.raw("", drawing(code, f"{up}_static/plotly.min.js"), format="html")]


def value_of(code: str) -> Any:
    """What the last line of a block gives."""
    torch.manual_seed(0)
    space: dict[str, Any] = {"rc": rc, "torch": torch}
    for name, text in NAMES.items():
        space[name] = eval(text, space)
    torch.manual_seed(0)
    *lines, last = ast.parse(code).body
    assert isinstance(last, ast.Expr), "the last line of a drawn block is an expression"
    exec(compile(ast.Module(lines, []), "drawn", "exec"), space)
    return eval(compile(ast.Expression(last.value), "drawn", "eval"), space)


def drawing(code: str, script: str) -> str:
    """The picture as HTML: a diagram, a figure of plotly, or what has one."""
    picture = value_of(code)
    if isinstance(picture, Diagram):
        return framed(picture)
    figure = picture.figure() if hasattr(picture, "figure") else picture
    figure.update_layout(height=380, width=None, autosize=True)
    return f'<div class="picture">{figure.to_html(config=FIGURE, include_plotlyjs=script, full_html=False)}</div>'


def _code(lines: Any) -> nodes.literal_block:
    text = "\n".join(lines)
    return nodes.literal_block(text, text, language="python")


def _equation(entry: SurveyEntry) -> list[nodes.Node]:
    number = entry.where.removeprefix("eq. ")
    math = "".join(f"<div>{mathml(line).replace('<math>', MATH)}</div>" for line in EQUATIONS[number])
    left = f'<div class="survey-math" id="eq-{number.replace("–", "-")}"><span>({number})</span><div>{math}</div></div>'
    wide = max(map(drawn_length, EQUATIONS[number])) > BESIDE
    row = nodes.container(classes=["survey-equation", *["wide"] * wide])
    row += [nodes.raw("", left, format="html"), _code(entry.calls)]
    return [row]


MATH = '<math display="block">'
BESIDE = 29  # signs of an equation that has room beside its call


def drawn_length(latex: str) -> int:
    """About how many signs are drawn: a command is one, an index half of one, brackets of LaTeX are none."""
    plain = re.sub(r"\\(left|right|,|mathrm|frac)\b|\\,", "", latex)
    plain = re.sub(r"\\([a-z]+)", lambda m: m[1] if m[1] in ("tanh", "diag", "vec", "softmax") else "x", plain)
    return len(re.sub(r"_(\{[^}]*\}|.)", ".", re.sub(r"[\s^]", "", plain)).replace("{", "").replace("}", ""))


def _figure(entry: SurveyEntry) -> list[nodes.Node]:
    number = entry.where.removeprefix("fig. ")
    words = nodes.paragraph("", "", nodes.strong("", f"Figure {number}. "), nodes.Text(entry.says))
    drawn = "\n".join(framed(figure) for figure in entry.run())
    return [words, _code(entry.calls), nodes.raw("", drawn, format="html")]


def _erratum(number: str) -> nodes.Node:
    """A box with the printed form, the right one, and both as numbers where these can tell."""
    if not _errata:
        _errata.update({each.number: each for each in rc.train.errata()})
    each = _errata[number]
    box = nodes.admonition(classes=["erratum"])
    box += nodes.title("", f"Erratum {number}")
    box += nodes.paragraph("", "", nodes.strong("", "Printed: "), *_words(each.printed))
    box += nodes.paragraph("", "", nodes.strong("", "Right: "), *_words(each.right))
    if each.why:
        box += nodes.paragraph("", "", nodes.strong("", "Because "), *_words(f"{each.why}."))
    if each.printed_value is not None:
        values = f"as printed {each.printed_value:.4g}, right {each.right_value:.4g}"
        box += nodes.paragraph("", "", nodes.strong("", "In numbers: "), *_words(f"{each.measured}: {values}."))
    return box


INDEXED_OR_NAME = re.compile(rf"{INDEXED.pattern}|(rc(?:\.\w+)+)")


def _words(text: str) -> list[nodes.Node]:
    """Text in which `h_{t-1}` has a subscript and names of recurra are code."""
    found, end = [], 0
    for match in INDEXED_OR_NAME.finditer(text):
        base, below, name = match.groups()
        found.append(nodes.Text(text[end : match.start()]))
        end = match.end()
        found += [nodes.literal(name, name)] if name else [nodes.Text(base), nodes.subscript("", below.strip("{}"))]
    return [*found, nodes.Text(text[end:])]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("survey", SurveySection)
    app.add_directive("drawn", Drawn)
    return {"parallel_read_safe": True}
