"""`rc.diagram`: a cell, a layer, a model or an echo state network as SVG."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..cell import Cell
from ..cells import find
from ..dynamics.system import DynamicalSystem
from ..errors import InputError
from .draw_cell import draw_cell
from .draw_network import draw_folded, draw_unfolded
from .draw_reservoir import draw_reservoir
from .draw_system import draw_system
from .svg import Canvas
from .wiring import network_of


@dataclass(frozen=True)
class Diagram:
    """An SVG drawing; notebooks display it.

    **Example**

        >>> drawing = rc.diagram("gru")
        >>> isinstance(drawing, rc.inspect.Diagram), drawing.svg[:4]
        (True, '<svg')
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the SVG to a file and return its path."""
        target = Path(path)
        target.write_text(self.svg, encoding="utf-8")
        return target


def diagram(what: Any, unfold: int | None = None) -> Diagram:
    """Draw a cell, a layer, a model or an echo state network as SVG.

    The drawing of a cell comes from its traced step, so it works for user-defined cells: gates are boxes, elementwise
    operations circles, and a thick line is a state that passes without a matrix product (the "conveyor belt" of the
    LSTM). A layer or a model is drawn as boxes over time. The links of a stack are found by running it, so skips,
    residuals, delays, periods and mixes are drawn as they compute.

    **Arguments**

    - `what`: a cell, its class or its registered name; a layer, a module, a fitted estimator, an echo state network, a
      dynamical system.
    - `unfold`: how many steps to draw, at most 12. By default one step of a cell and three of a model. 0 draws a model
      folded, with a loop for the recurrence.

    **Returns** a `Diagram`: `.svg` is the text, `.save(path)` writes it.

    **Example**

        >>> import recurra as rc
        >>> rc.diagram("lstm").svg.startswith("<svg")
        True
        >>> folded = rc.diagram(rc.GRU(3, 4), unfold=0)
    """
    if unfold is not None and (isinstance(unfold, bool) or not isinstance(unfold, int) or not 0 <= unfold <= 12):
        raise InputError("unfold", unfold, "0 (folded) to 12 steps")
    canvas = Canvas()
    if hasattr(what, "spectral_radius") and not isinstance(what, nn.Module):
        draw_reservoir(canvas, what)
        return Diagram(canvas.to_svg("Echo state network"))
    if isinstance(what, DynamicalSystem):
        draw_system(canvas, what.driven, 3 if unfold is None else unfold)
        return Diagram(canvas.to_svg(f"Dynamical system, {'folded' if unfold == 0 else 'unfolded'}"))
    model = _model_of(what)
    title = type(model).__name__
    if isinstance(model, Cell) and unfold != 0:
        draw_cell(canvas, model, unfold or 1)
        return Diagram(canvas.to_svg(f"{title}, one step" if (unfold or 1) == 1 else f"{title}, {unfold} steps"))
    network = network_of(model)
    if not any(level.cell is not None for level in network.levels):
        raise InputError("what", title, "a cell, or a model with a recurrent layer inside")
    if unfold == 0:
        draw_folded(canvas, network)
    else:
        draw_unfolded(canvas, network, unfold or 3)
    return Diagram(canvas.to_svg(f"{title}, {'folded' if unfold == 0 else 'unfolded'}"))


def _model_of(what: Any) -> nn.Module:
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
