"""Drawings of cells in a page: as large as drawn where there is room, else scaled to the column, at most to a half."""

import re

from recurra.inspect import Diagram


def framed(diagram: Diagram) -> str:
    """The drawing as HTML; the style sheet reads its own width."""
    (width,) = re.findall(r'^<svg [^>]*?width="([\d.]+)"', diagram.svg)
    return f'<div class="diagram" style="--natural: {width}px">{diagram.svg}</div>'
