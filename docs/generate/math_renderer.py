"""A math renderer for Sphinx: LaTeX becomes MathML by recurra's own parser, so no page loads a script."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from recurra.inspect.mathml import mathml


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    expression = mathml(node.astext()).replace("<math>", '<math display="block">')
    translator.body.append(f'<div class="math">{expression}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("recurra_mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
