"""Pictures of given numbers hold those numbers, and refuse those that do not fit together."""

import pytest
import torch

import recurra as rc
from recurra.errors import InputError


def test_curves_hold_their_numbers():
    figure = rc.inspect.curves({"a": [1.0, 10.0, 100.0], "b": [0.1, 1.0, 10.0]}, x=[3, 4, 5], log=True)
    assert [list(curve.y) for curve in figure.data] == [[1.0, 10.0, 100.0], [0.1, 1.0, 10.0]]
    assert list(figure.data[0].x) == [3, 4, 5]
    assert figure.layout.yaxis.type == "log"


def test_a_heat_map_has_its_first_row_on_top_and_its_scale_around_zero():
    values = torch.tensor([[0.5, -2.0], [1.0, 0.0]])
    figure = rc.inspect.heatmap(values, rows=["top", "<b>"])
    assert [list(row) for row in figure.data[0].z] == values.tolist()
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-2, 2)
    assert figure.layout.yaxis.autorange == "reversed"
    assert figure.layout.yaxis.ticktext == ("top", "&lt;b&gt;")
    shares = rc.inspect.heatmap(values.abs() / 4)
    assert (shares.data[0].zmin, shares.data[0].zmax) == (0, 1)


def test_orbits_in_the_plane_and_in_space():
    path = torch.arange(6.0).view(3, 2)
    assert list(rc.inspect.orbits({"o": path}).data[0].y) == [1, 3, 5]
    assert rc.inspect.orbits({"o": torch.cat([path, path], 1)[:, :3]}).data[0].type == "scatter3d"


def test_drawings_keep_their_order_and_escape_names():
    page = rc.inspect.side_by_side({"<gru>": rc.diagram("gru"), "rnn": rc.diagram("rnn")})._repr_html_()
    assert page.count("<svg") == 2
    assert page.index("&lt;gru&gt;") < page.index("rnn")


@pytest.mark.parametrize(
    "call",
    [
        lambda: rc.inspect.curves({"a": [1, 2]}, x=[1]),
        lambda: rc.inspect.heatmap([[1, 2]], columns=["a"]),
        lambda: rc.inspect.heatmap([[1, 2]], rows=["a", "b"]),
        lambda: rc.inspect.orbits({"a": torch.zeros(3, 4)}),
        lambda: rc.inspect.orbits({"a": torch.zeros(3, 2), "b": torch.zeros(3, 3)}),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused(call):
    with pytest.raises(InputError):
        call()
