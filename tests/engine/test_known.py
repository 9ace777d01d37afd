"""What is known of a cell is looked over at every call: whatever has changed about it since is seen."""

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.cell import Cell
from recurra.engine.known import known
from recurra.engine.memory import Buffers, Shelf
from recurra.engine.scan import set_backend


class Switched(Cell):
    """Branches on a plain attribute."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.leaky = self.affine("x", "h"), False

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        new = torch.tanh(self.a(x, h))
        return 0.5 * h + 0.5 * new if self.leaky else new


def another_module(layer: rc.Recurrent) -> None:
    cell = layer.sheets[0]
    cell.a = copy.deepcopy(cell.a)
    with torch.no_grad():
        cell.a.U.mul_(2.0)


def another_parameter(layer: rc.Recurrent) -> None:
    layer.sheets[0].a.U = nn.Parameter(2.0 * layer.sheets[0].a.U.detach())


def another_branch(layer: rc.Recurrent) -> None:
    layer.sheets[0].leaky = True


def no_bias(layer: rc.Recurrent) -> None:
    layer.sheets[0].drop_biases()


def derived(layer: rc.Recurrent) -> None:
    layer.sheets[0].a.derive("U", nn.Tanh())


def more_exact(layer: rc.Recurrent) -> None:
    layer.double()


CHANGES = [another_module, another_parameter, another_branch, no_bias, derived, more_exact]


def outputs(layer: rc.Recurrent, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of a sequence, and of its first step alone, each the short way."""
    with torch.no_grad():
        return layer(x)[0], layer.step(x[0])[0]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_cell_is_run_as_it_is_now(change: Callable[[rc.Recurrent], None]):
    torch.manual_seed(0)
    layer, x = rc.Recurrent(Switched, 3, 20), torch.randn(6, 2, 3)
    with torch.no_grad():
        layer.sheets[0].a.b.fill_(0.3)
    with set_backend("compiled"):
        before = outputs(layer, x)
        change(layer)
        x = x.to(next(layer.parameters()).dtype)
        after = outputs(layer, x)
    with set_backend("reference"):
        wanted = outputs(layer, x)
    torch.testing.assert_close(after, wanted, rtol=1e-5, atol=1e-6)
    if change is not more_exact:
        assert all(not torch.allclose(a, b) for a, b in zip(before, after, strict=True))


def test_an_unchanged_cell_is_not_looked_into_again():
    cell = rc.layer("lstm", 3, 4).sheets[0]
    first = known(cell)
    with torch.no_grad():
        cell.i.W.mul_(2.0)
    assert known(cell) is first


def test_what_is_known_goes_with_the_cell():
    layer = rc.layer("gru", 3, 4)
    layer(torch.randn(5, 2, 3))
    cell = weakref.ref(layer.sheets[0])
    del layer
    gc.collect()
    assert cell() is None


def test_buffers_on_a_shelf_do_not_touch_and_its_gaps_can_be_cleared():
    shelf = Shelf({"a": (3, 5), "b": (2, 7)}, torch.float32)
    piece = torch.full((shelf.numbers + 9,), torch.nan)
    shelf.clear_gaps(piece)
    buffers = Buffers()
    buffers.lay_out(shelf, piece)
    assert buffers["a"].isnan().all()
    assert buffers["b"].isnan().all()
    assert int(piece.isnan().sum()) == 3 * 5 + 2 * 7
    buffers["a"].fill_(1.0)
    buffers["b"].fill_(2.0)
    assert float(piece.sum()) == 15 + 28
    assert buffers.addresses["b"] == buffers["b"].data_ptr()
    assert (buffers.addresses["b"] - buffers.addresses["a"]) % 64 == 0
