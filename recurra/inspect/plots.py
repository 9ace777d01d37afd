"""Pictures of given numbers in the style of the measurements: curves, a matrix, orbits, drawings side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from . import figures
from .diagram import Diagram

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def curves(
    series: Mapping[str, Any],
    x: Any = None,
    *,
    title: str = "",
    labels: tuple[str, str] = ("step", ""),
    log: bool = False,
    markers: bool = False,
) -> "Figure":
    """Named curves in one plot.

    **Arguments**

    - `series`: name → numbers (n,), in the order of the legend.
    - `x`: where the numbers stand, (n,); by default 0, 1, 2, ….
    - `title`: above the plot. `labels`: of the two axes.
    - `log`: a logarithmic vertical axis. `markers`: mark every number.

    **Returns** a plotly figure.

    **Example**

        >>> import torch, recurra as rc
        >>> figure = rc.inspect.curves({"f": torch.rand(5), "i": torch.rand(5)}, labels=("step", "gate"))
        >>> [curve.name for curve in figure.data]
        ['f', 'i']
    """
    _require_mapping("series", series)
    fig = figures.figure(figures.escape(title), 400)
    for number, (name, values) in enumerate(series.items()):
        places = list(range(len(values))) if x is None else x
        if len(places) != len(values):
            raise InputError("x", f"{len(places)} places", f"{len(values)}, one for each number of {name!r}")
        fig.add_trace(figures.line(name, places, values, number, mode="lines+markers" if markers else "lines"))
    fig.update_xaxes(title=figures.escape(labels[0]))
    shown = [value for values in series.values() for value in figures.rounded(values)]
    fig.update_yaxes(title=figures.escape(labels[1]), **(figures.log_axis(shown) if log else {}))
    return fig


def heatmap(
    values: Any,
    rows: Sequence[object] | None = None,
    columns: Sequence[object] | None = None,
    *,
    title: str = "",
    labels: tuple[str, str] = ("", ""),
) -> "Figure":
    """A matrix as a heat map, its first row on top. Values from 0 to 1 are shares: white to blue; others diverge.

    **Arguments**

    - `values`: (rows, columns).
    - `rows`, `columns`: their names; words may repeat. By default they are numbered.
    - `title`: above the plot. `labels`: of the columns' and of the rows' axis.

    **Returns** a plotly figure.

    **Example**

        >>> import torch, recurra as rc
        >>> figure = rc.inspect.heatmap(torch.rand(2, 3), rows=["O", "B-PER"], columns=["Ada", "met", "Ada"])
        >>> figure.layout.xaxis.ticktext
        ('Ada', 'met', 'Ada')
    """
    shown = figures.rounded(values) if isinstance(values, (list, tuple)) or hasattr(values, "shape") else None
    if not isinstance(shown, list) or not all(isinstance(row, list) and len(row) == len(shown[0]) for row in shown):
        raise InputError("values", type(values).__name__, "a matrix: rows of equally many numbers")
    numbers = [number for row in shown for number in row if number is not None]
    share = bool(numbers) and min(numbers) >= 0 and max(numbers) <= 1
    far = max((abs(number) for number in numbers), default=1.0)
    colours = [list(stop) for stop in figures.SHARE] if share else figures.DIVERGING
    fig = figures.figure(figures.escape(title), 130 + 26 * len(shown) if len(shown) < 16 else 480)
    trace = figures.graph_objects().Heatmap(
        z=shown, colorscale=colours, zmin=0 if share else -far, zmax=1 if share else far, colorbar={"thickness": 12}
    )
    fig.add_trace(trace)
    fig.update_xaxes(title=figures.escape(labels[0]), **_names(columns, len(shown[0]) if shown else 0, "columns"))
    fig.update_yaxes(title=figures.escape(labels[1]), **_names(rows, len(shown), "rows"), autorange="reversed")
    return fig


def _names(names: Sequence[object] | None, count: int, argument: str) -> dict[str, Any]:
    if names is None:
        return {}
    if len(names) != count:
        raise InputError(argument, f"{len(names)} names", f"{count}, as the matrix has {argument}")
    return {"tickvals": list(range(count)), "ticktext": [figures.escape(name) for name in names]}


def orbits(paths: Mapping[str, Any], *, title: str = "") -> "Figure":
    """Named orbits, (T, 2) in a plane or (T, 3) in space.

    **Arguments**

    - `paths`: name → (T, 2) or (T, 3); all have the same number of columns.
    - `title`: above the plot.

    **Returns** a plotly figure; one in space can be turned.

    **Example**

        >>> import torch, recurra as rc
        >>> orbit = rc.dynamics.lorenz().simulate(torch.ones(3), 200)
        >>> rc.inspect.orbits({"Lorenz": orbit}).data[0].type
        'scatter3d'
    """
    go = figures.graph_objects()
    _require_mapping("paths", paths)
    widths = {tuple(getattr(path, "shape", ())[1:]) for path in paths.values()}
    if widths not in ({(2,)}, {(3,)}):
        raise InputError("paths", f"shapes with {sorted(widths)} after time", "(T, 2) each, or (T, 3) each")
    fig = figures.figure(figures.escape(title), 520)
    kind = go.Scatter3d if widths == {(3,)} else go.Scatter
    for number, (name, path) in enumerate(paths.items()):
        columns = dict(zip("xyz", figures.rounded(path.T), strict=False))
        look = {"color": figures.PALETTE[number % len(figures.PALETTE)], "width": 2}
        fig.add_trace(kind(**columns, mode="lines", name=figures.escape(name), line=look))
    fig.update_layout(scene_camera={"eye": {"x": 0.2, "y": -2.0, "z": 0.6}})
    return fig


@dataclass(frozen=True)
class SideBySide:
    """Drawings beside each other, each under its name; notebooks display them. Made by `side_by_side`.

    **Example**

        >>> drawings = rc.inspect.side_by_side({name: rc.diagram(name) for name in ("gru", "mgu")})
        >>> list(drawings.drawings)
        ['gru', 'mgu']
    """

    drawings: Mapping[str, Diagram]

    def _repr_html_(self) -> str:
        style = "display:grid;grid-template-columns:repeat(auto-fill,minmax(20rem,1fr));gap:1.5rem"
        cells = (
            f'<figure style="margin:0"><figcaption><b>{escape(name)}</b></figcaption>{drawing.svg}</figure>'
            for name, drawing in self.drawings.items()
        )
        return f'<div class="diagram" style="{style}">{"".join(cells)}</div>'


def side_by_side(drawings: Mapping[str, Diagram]) -> SideBySide:
    """Drawings of `rc.diagram` beside each other.

    **Arguments**

    - `drawings`: name → `Diagram`.

    **Returns** a `SideBySide`, which notebooks display.

    **Example**

        >>> import recurra as rc
        >>> board = rc.inspect.side_by_side({name: rc.diagram(name) for name in ("rnn", "gru")})
        >>> list(board.drawings)
        ['rnn', 'gru']
    """
    _require_mapping("drawings", drawings)
    return SideBySide(dict(drawings))


def _require_mapping(argument: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InputError(argument, type(value).__name__, "a dictionary from names to numbers")
