"""`diagram`: a cell, a layer, a model or an echo state network as SVG, derived from what it computes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..cell import Cell
from ..cells import find
from ..errors import InputError
from .draw_cell import draw_cell
from .draw_network import draw_folded, draw_unfolded, levels_of
from .draw_reservoir import draw_reservoir
from .svg import Canvas


@dataclass(frozen=True)
class Diagram:
    """A picture: shown by itself in a notebook, written with `save`."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        target = Path(path)
        target.write_text(self.svg, encoding="utf-8")
        return target


def diagram(what: Any, unfold: int | None = None) -> Diagram:
    """Draw a cell (its name, its class or one of your own), a layer, a model or an echo state network.

    A cell is drawn from inside, its gates and its belts; `unfold=3` draws three steps of it side by side. A layer or a
    model is drawn as boxes over time, three steps by default; `unfold=0` folds it, with a loop for what it remembers.
    """
    if unfold is not None and (isinstance(unfold, bool) or not isinstance(unfold, int) or not 0 <= unfold <= 12):
        raise InputError("unfold", unfold, "0 to fold, or how many steps to draw, at most 12")
    canvas = Canvas()
    if hasattr(what, "spectral_radius") and not isinstance(what, nn.Module):
        draw_reservoir(canvas, what)
        return Diagram(canvas.text("Echo state network"))
    subject = _subject(what)
    title = type(subject).__name__
    if isinstance(subject, Cell) and unfold != 0:
        draw_cell(canvas, subject, unfold or 1)
        return Diagram(canvas.text(f"{title}, one step" if (unfold or 1) == 1 else f"{title}, {unfold} steps"))
    levels = levels_of(subject)
    if not any(level.cell is not None for level in levels):
        raise InputError("what", title, "a cell, or a model with a recurrent layer inside")
    if unfold == 0:
        draw_folded(canvas, levels)
    else:
        draw_unfolded(canvas, levels, unfold or 3)
    return Diagram(canvas.text(f"{title}, {'folded' if unfold == 0 else 'unfolded'}"))


def _subject(what: Any) -> nn.Module:
    if isinstance(what, str):
        return find(what)(3, 4)
    if isinstance(what, type) and issubclass(what, Cell):
        return what(3, 4)
    if isinstance(what, nn.Module):
        return what
    for attribute in ("model_", "module_", "model"):
        if isinstance(inside := getattr(what, attribute, None), nn.Module):
            return inside
    raise InputError("what", type(what).__name__, "a cell, its name, a layer, a model or an echo state network")
