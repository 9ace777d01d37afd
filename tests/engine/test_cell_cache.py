"""What is known of a cell is looked over at every call: whatever has changed about it since is seen."""

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.cell import CACHE, Cell
from recurra.engine.backend import set_backend
from recurra.engine.cell_cache import cache_of
from recurra.engine.cpu.arena import Arena
from recurra.errors import DtypeError, ShapeError


class Switched(Cell):
    """Branches on its attributes, of every kind."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.leaky = self.affine("x", "h"), False
        self.function, self.scales, self.gain, self.bend = torch.tanh, [1.0], None, nn.LeakyReLU(0.1)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        new = self.bend(self.function(self.a(x, h)) * self.scales[0])
        new = new if self.gain is None else self.gain * new
        return 0.5 * h + 0.5 * new if self.leaky else new


def another_module(layer: rc.Recurrent) -> None:
    cell = layer.cell_list[0]
    cell.a = copy.deepcopy(cell.a)
    with torch.no_grad():
        cell.a.U.mul_(2.0)


def another_parameter(layer: rc.Recurrent) -> None:
    layer.cell_list[0].a.U = nn.Parameter(2.0 * layer.cell_list[0].a.U.detach())


def another_branch(layer: rc.Recurrent) -> None:
    layer.cell_list[0].leaky = True


def another_function(layer: rc.Recurrent) -> None:
    layer.cell_list[0].function = torch.sigmoid


def something_for_nothing(layer: rc.Recurrent) -> None:
    layer.cell_list[0].gain = 0.7


def another_number_in_a_list(layer: rc.Recurrent) -> None:
    layer.cell_list[0].scales[0] = 0.5


def another_number_of_a_part(layer: rc.Recurrent) -> None:
    layer.cell_list[0].bend.negative_slope = 0.8


def no_bias(layer: rc.Recurrent) -> None:
    layer.cell_list[0].drop_biases()


def derived(layer: rc.Recurrent) -> None:
    layer.cell_list[0].a.derive("U", nn.Tanh())


def more_exact(layer: rc.Recurrent) -> None:
    layer.double()


CHANGES = [another_module, another_parameter, another_branch, another_function, something_for_nothing]
CHANGES += [another_number_in_a_list, another_number_of_a_part, no_bias, derived, more_exact]


def outputs(layer: rc.Recurrent, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of a sequence, and of its first step alone, each the short way."""
    with torch.no_grad():
        return layer(x)[0], layer.step(x[0])[0]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_cell_is_run_as_it_is_now(change: Callable[[rc.Recurrent], None]):
    torch.manual_seed(0)
    layer, x = rc.Recurrent(Switched, 3, 20), torch.randn(6, 2, 3)
    with torch.no_grad():
        layer.cell_list[0].a.b.fill_(0.3)
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


def test_names_follow_the_attributes_as_well():
    layer, x = rc.Recurrent(Switched, 3, 20), torch.randn(6, 2, 3)
    before = layer(x, return_trace=True)[2]["new"]
    another_function(layer)
    for backend in ("compiled", "reference"):
        with set_backend(backend):
            y, _, trace = layer(x, return_trace=True)
        torch.testing.assert_close(trace["new"], y)
        assert not torch.allclose(before, y)


def test_a_weight_of_another_shape_is_an_error_and_not_read_beyond_its_end():
    layer, x = rc.Recurrent(Switched, 3, 20), torch.randn(6, 2, 3)
    layer(x)
    layer.cell_list[0].a.U.data = layer.cell_list[0].a.U.data.t()
    with pytest.raises(ShapeError, match=r"a\.U.*\(3, 20\)"):
        layer(x)


@pytest.mark.parametrize("part", ["a.W", "q"])
def test_a_weight_of_another_dtype_is_an_error_and_not_read_as_what_it_was(part: str):
    class Scaled(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.p, self.q = self.vector(fill=1.0), self.vector(fill=0.5)
            self.a = self.affine("x", "h")

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(self.a(x, h)) * self.p * self.q

    layer, x = rc.Recurrent(Scaled, 3, 20), torch.randn(6, 2, 3)
    layer(x)
    with torch.no_grad():
        layer(x)
        layer.step(x[0])
        weight = layer.cell_list[0].get_parameter(part)
        weight.data = weight.data.double()
        for call in (lambda: layer(x), lambda: layer.step(x[0])):
            with pytest.raises(DtypeError, match=r"got torch.float64, expected torch.float32"):
                call()
    with pytest.raises(DtypeError, match=r"got torch.float64, expected torch.float32"):
        layer(x)


def test_a_start_that_is_changed_is_seen_by_the_next_step():
    layer, x = rc.layer("gru", 3, 4), torch.randn(2, 3)
    with torch.no_grad():
        layer.step(x)
        layer.cell_list[0].start("h", 0.7)
        found = layer.step(x)[0]
        with set_backend("reference"):
            torch.testing.assert_close(found, layer.step(x)[0])


def test_an_unchanged_cell_is_not_looked_into_again():
    cell = rc.layer("lstm", 3, 4).cell_list[0]
    first = cache_of(cell)
    with torch.no_grad():
        cell.i.W.mul_(2.0)
    assert cache_of(cell) is first


def test_what_is_known_goes_with_the_cell():
    layer = rc.layer("gru", 3, 4)
    layer(torch.randn(5, 2, 3))
    cell = weakref.ref(layer.cell_list[0])
    del layer
    gc.collect()
    assert cell() is None


def refer_back_by_a_hook(layer: rc.Recurrent) -> None:
    layer.cell_list[0].a.register_forward_hook(lambda part, given, result: layer and None)


def refer_back_by_a_hook_on_a_weight(layer: rc.Recurrent) -> None:
    layer.cell_list[0].a.W.register_hook(lambda slope: layer and None)


def refer_back_by_an_attribute(layer: rc.Recurrent) -> None:
    layer.cell_list[0].function = lambda value: torch.tanh(value) if layer else value


@pytest.mark.parametrize("refer", [refer_back_by_a_hook, refer_back_by_a_hook_on_a_weight, refer_back_by_an_attribute])
def test_a_cell_is_let_go_of_though_its_parts_refer_to_it(refer: Callable[[rc.Recurrent], None]):
    layer = rc.Recurrent(Switched, 3, 4)
    refer(layer)
    layer(torch.randn(5, 2, 3))
    layer(torch.randn(5, 2, 3), return_trace=True)
    cell = weakref.ref(layer.cell_list[0])
    del layer
    gc.collect()
    assert cell() is None


def test_weights_of_one_call_are_let_go_of_after_it():
    layer, x = rc.layer("gru", 3, 4), torch.randn(5, 2, 3)
    for _ in range(2):
        fast = {name: 2.0 * p for name, p in layer.named_parameters()}
        torch.func.functional_call(layer, fast, (x,))
        left = [weakref.ref(value) for value in fast.values()]
        del fast
        gc.collect()
        assert all(value() is None for value in left)
        layer(x)


def test_other_weights_of_the_same_form_need_no_other_plan(monkeypatch: pytest.MonkeyPatch):
    layer, x = rc.layer("gru", 3, 4), torch.randn(5, 2, 3)
    expected = layer(x)[0]
    monkeypatch.setattr("recurra.engine.executors._make", None)
    other = torch.func.functional_call(layer, {n: 2.0 * p for n, p in layer.named_parameters()}, (x,))[0]
    assert not torch.allclose(other, expected)
    assert torch.equal(layer(x)[0], expected)


def test_copies_and_files_do_not_take_along_what_is_known():
    layer = rc.layer("gru", 3, 4)
    layer(torch.randn(5, 2, 3))
    for other in (copy.copy(layer.cell_list[0]), copy.deepcopy(layer.cell_list[0])):
        assert vars(layer.cell_list[0]).keys() - vars(other).keys() == {CACHE}


def test_a_replica_with_the_attributes_of_its_cell_has_weights_of_its_own():
    """What torch.nn.DataParallel does with a module."""
    layer, x = rc.layer("gru", 3, 4), torch.randn(5, 2, 3)
    layer(x)
    replica = layer._replicate_for_data_parallel()
    replica.cells = replica.cells._replicate_for_data_parallel()
    twin = replica.cells[0] = layer.cell_list[0]._replicate_for_data_parallel()
    for name, part in layer.cell_list[0].named_children():
        own = twin._modules[name] = part._replicate_for_data_parallel()
        own._parameters = {n: 2.0 * p for n, p in part._parameters.items()}
    with set_backend("reference"):
        expected = replica(x)[0]
    assert not torch.allclose(expected, layer(x)[0])
    torch.testing.assert_close(replica(x)[0], expected)


def test_buffers_of_an_arena_do_not_overlap_and_its_gaps_can_be_cleared():
    arena = Arena({"a": (3, 5), "b": (2, 7)}, torch.float32)
    block = torch.full((arena.numbers + 9,), torch.nan)
    arena.clear_gaps(block)
    a, b = arena.view(block, "a"), arena.view(block, "b")
    assert a.isnan().all()
    assert b.isnan().all()
    assert int(block.isnan().sum()) == 3 * 5 + 2 * 7
    a.fill_(1.0)
    b.fill_(2.0)
    assert float(block.sum()) == 15 + 28
    assert arena.at(4)["b"] == (4, b.data_ptr() - block.data_ptr())
    assert (b.data_ptr() - a.data_ptr()) % 64 == 0
