"""The compiled engine against the plain loop: values and every gradient, in float64."""

import pytest
import torch
from engine.compare import compare, pulled, results, sequences
from engine.strange_cells import STRANGE, Delays, Pieces, RowNormalised, TiedAndPlain, TwoChainedProducts

import recurra as rc
from recurra.cell import Cell
from recurra.cells import canonical_names
from recurra.engine import reference
from recurra.engine.cpu.layout import Layout, dense
from recurra.engine.dispatch import choose, scan

ON_THE_REFERENCE = {"unitary_rnn"}  # complex numbers
EXACT = 1e-12
ZOO = sorted(canonical_names())


def zoo_cell(name: str, input_size: int = 3, hidden_size: int = 5) -> Cell:
    return rc.layer(name, input_size, hidden_size).cell_list[0].double()


@pytest.mark.parametrize("name", ZOO)
def test_every_cell_of_the_zoo(name: str):
    cell = zoo_cell(name, 5, 18)
    found = compare(cell, sequences(cell, 7, 3, torch.float64))
    assert found.backend == ("reference" if name in ON_THE_REFERENCE else "compiled")
    assert found.values < EXACT
    assert found.gradients < EXACT


@pytest.mark.parametrize("cell_class", STRANGE)
@pytest.mark.parametrize(
    ("steps", "batch", "inputs", "units"), [(9, 7, 6, 17), (1, 1, 5, 1), (2, 13, 1, 33), (6, 2, 20, 64)]
)
def test_strange_cells_of_any_size(cell_class: type[Cell], steps: int, batch: int, inputs: int, units: int):
    cell = cell_class(inputs, units).double()
    found = compare(cell, sequences(cell, steps, batch, torch.float64))
    assert found.backend == "compiled"
    assert found.values < EXACT
    assert found.gradients < EXACT


@pytest.mark.parametrize("cell_class", STRANGE)
def test_lengths_resets_and_traces(cell_class: type[Cell]):
    cell = cell_class(4, 9).double()
    lengths = torch.tensor([3, 8, 1, 8, 5])
    resets = torch.rand(8, 5) < 0.3
    for more, keep_trace in (
        ({"lengths": lengths}, False),
        ({"resets": resets}, False),
        ({"lengths": lengths, "resets": resets}, False),
        ({"lengths": lengths}, cell_class is not TiedAndPlain),  # a named value there has no rows
    ):
        found = compare(cell, sequences(cell, 8, 5, torch.float64, **more), keep_trace)
        assert found.backend == "compiled"
        assert found.values < EXACT
        assert found.gradients < EXACT


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [5, 53], ids=["a few rows", "more rows than a lot"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", ["lstm", "gru", "full_gate_lstm"])
def test_weights_that_outgrow_the_cache(name: str, ragged: bool, batch: int, threads: int):
    """They pass by in spans, which end in the middle of an operand here."""
    cell = zoo_cell(name, 7, 301)
    lengths = torch.randint(1, 5, (batch,)) if ragged else None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        given = sequences(cell, 4, batch, torch.float64, lengths=lengths)
        found, made = compare(cell, given), choose(cell, given).executor
        kernels = [made.forward_kernel, made.backward_kernel]
        assert all(kernel.exceeds_cache(kernel.split(dense(4, batch), batch)) for kernel in kernels)
    finally:
        torch.set_num_threads(before)
    assert found.backend == "compiled"
    assert found.values < EXACT
    assert found.gradients < EXACT


def test_lengths_of_zero_give_the_initial_state():
    cell = Delays(4, 6).double()
    for lengths in (torch.tensor([0, 3, 2]), torch.tensor([0, 0, 0])):
        found = compare(cell, sequences(cell, 3, 3, torch.float64, lengths=lengths))
        assert found.values < EXACT
        assert found.gradients < EXACT


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2, 40])
@pytest.mark.parametrize("cell_class", [TwoChainedProducts, RowNormalised, Pieces])
def test_any_number_of_threads_sharing_the_batch_or_the_units(cell_class: type[Cell], batch: int, threads: int):
    cell = cell_class(40, 100).double()
    given = sequences(cell, 12, batch, torch.float64)
    torch.set_num_threads(threads)
    try:
        found = compare(cell, given)
    finally:
        torch.set_num_threads(1)
    assert found.backend == "compiled"
    assert found.values < EXACT
    assert found.gradients < EXACT


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("batch", [2, 61], ids=["sharing the units", "sharing the batch"])
@pytest.mark.parametrize("cell_class", [TwoChainedProducts, RowNormalised, Delays])
def test_work_stealing_changes_no_bit(
    cell_class: type[Cell], batch: int, threads: int, monkeypatch: pytest.MonkeyPatch
):
    """With more threads than processors, the order of additions does not depend on which thread runs a tile."""
    monkeypatch.setattr("recurra.engine.cpu.kernel.WORTH_STEALING", 1)
    cell = cell_class(40, 140)
    lengths = torch.randint(1, 150, (batch,))
    given = sequences(cell, 150, batch, torch.float32, lengths=lengths)
    torch.set_num_threads(threads)
    try:
        made = [scan(cell, given, False) for _ in range(5)]
        found = [[*results(one), *pulled(cell, given, one)] for one in made]
    finally:
        torch.set_num_threads(1)
    assert choose(cell, given).backend == "compiled"
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], again, strict=True))


def test_one_long_sequence_among_short_ones():
    """The part it is in has most steps left, and is never left waiting for the others."""
    layout = Layout(50, 40, torch.tensor([40] * 5 + [1] * 45))
    bounds = layout.bounds(4)
    assert layout.spans(bounds, backward=False)[:, 1].tolist()[0] == 50
    assert layout.spans(bounds, backward=True)[0].tolist() == [0, 50]
    assert layout.spans(bounds, backward=True)[-1].tolist() == [45, 50]
    cell = Delays(40, 140).double()
    torch.set_num_threads(2)
    try:
        lengths = torch.tensor([5] * 20 + [50] + [5] * 19)
        found = compare(cell, sequences(cell, 50, 40, torch.float64, lengths=lengths))
    finally:
        torch.set_num_threads(1)
    assert found.values < EXACT
    assert found.gradients < EXACT


def test_nothing_of_the_padding_is_read():
    cell = zoo_cell("lstm")
    lengths = torch.tensor([2, 4])
    given = sequences(cell, 4, 2, torch.float64, lengths=lengths)
    with torch.no_grad():
        given.x[2:, 0] = float("nan")
    found = compare(cell, given)
    assert found.values < EXACT
    assert found.gradients < EXACT


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "irnn"])
def test_nan_and_infinity_pass_through(name: str, bad: float):
    cell = rc.layer(name, 3, 20).cell_list[0]
    given = sequences(cell, 4, 3, torch.float32)
    with torch.no_grad():
        given.x[1, 1, 0] = bad
    with torch.no_grad():
        expected, found = reference.scan(cell, given), scan(cell, given)
    for one, other in ((found.y, expected.y), *zip(found.state, expected.state, strict=True)):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-5, atol=1e-6)


class PartOfInputFirst(Cell):
    """A product with some columns of x, and another one with all of them."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.part = torch.nn.Parameter(torch.randn(hidden_size, input_size // 2))

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.a(x, h)) * torch.tanh(x[:, : x.shape[1] // 2] @ self.part.t())


@pytest.mark.parametrize("steps", [6, 60])
def test_the_gradient_of_x_through_products_with_parts_of_it(steps: int):
    cell = PartOfInputFirst(12, 7).double()
    found = compare(cell, sequences(cell, steps, 20, torch.float64))
    assert max(found.values, found.gradients) < EXACT
