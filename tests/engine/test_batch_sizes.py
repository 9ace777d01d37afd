"""A step may do something else for some number of sequences: whichever way it learns the number, the layer follows."""

import math
import operator

import pytest
import torch
from torch import Tensor, nn, tanh

import recurra as rc
from recurra.engine import backend
from recurra.engine.batch_check import batch_obstacle
from recurra.engine.cell_cache import cache_of
from recurra.engine.cpu import compiler
from recurra.engine.dispatch import Sequences, choose
from recurra.errors import TraceError

INPUT, HIDDEN, STEPS = 3, 5, 3

WAYS = {
    "len": len,
    "len(unbind)": lambda x: len(x.unbind(0)),
    "sum of rows": lambda x: sum(1 for _ in x),
    "range": lambda x: len(range(x.shape[0])),
    "str": lambda x: int(str(tuple(x.shape)).split(",")[0][1:]),
    "stride": lambda x: x.t().contiguous().stride(0),
    "nbytes": lambda x: x.nbytes // (INPUT * x.element_size()),
    "numel of shape": lambda x: x.shape.numel() // INPUT,
    "power": lambda x: x.shape[0] ** 1,
    "index": lambda x: operator.index(x.shape[0]),
    "floor": lambda x: math.floor(x.shape[0]),
    "or": lambda x: x.shape[0] | 0,
    "divided": lambda x: x.shape[0] / 1,
    "format": lambda x: int(f"{x.shape[0]}"),
}


class Plain(rc.Cell):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.w = nn.Parameter(torch.randn(hidden_size, hidden_size))


@pytest.fixture(autouse=True)
def as_torch_operations(monkeypatch: pytest.MonkeyPatch):
    """Plans run without a compiler: these tests are about what is traced."""
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    monkeypatch.setattr(compiler, "why_no_compiler", lambda: "none here")
    backend._warned.clear()
    backend._warned.add("none here: layers run as torch operations.")


def loop(layer: rc.Recurrent, x: Tensor) -> Tensor:
    h, ys = x.new_zeros(x.shape[1], HIDDEN), []
    for x_t in x:
        h = layer.cells[0].step(x_t, h)
        ys.append(h)
    return torch.stack(ys)


def engine(layer: rc.Recurrent, x: Tensor) -> str:
    return choose(layer.cells[0], Sequences(x, layer.cells[0].initial_state(x.shape[1], x))).backend


def inputs(batch: int) -> Tensor:
    return torch.randn(STEPS, batch, INPUT, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_branch_on_the_batch_size_is_seen_however_it_is_read(way: str):
    read = WAYS[way]

    class Branches(Plain):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return tanh(self.a(x, h)) if read(x) < 20 else self.a(x, h)

    layer = rc.Recurrent(Branches, INPUT, HIDDEN).double()
    for batch in (1, 4, 30, 5):
        x = inputs(batch)
        torch.testing.assert_close(layer(x)[0], loop(layer, x), rtol=1e-12, atol=1e-12)


def test_another_constant_for_some_batch_size_is_seen_and_named():
    class Scaled(Plain):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return tanh(self.a(x, h)) * (0.3 if str(len(list(x))) == "7" else 1.0)

    layer, x = rc.Recurrent(Scaled, INPUT, HIDDEN).double(), inputs(7)
    with pytest.warns(rc.EngineWarning, match=r"Scaled.step runs other operations for 7 sequences.*the batch size"):
        y = layer(x)[0]
    torch.testing.assert_close(y, loop(layer, x), rtol=1e-12, atol=1e-12)
    with rc.set_backend("reference"), pytest.raises(TraceError, match="7 sequences"):
        layer(x, return_trace=True)  # a trace runs the graph


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
def test_a_graph_for_any_batch_size_is_refused():
    class Large(Plain):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return tanh(self.a(x, h)) if len(x.unbind(0)) < 20 else self.a(x, h)

    layer = rc.Recurrent(Large, INPUT, HIDDEN)
    with pytest.raises(TraceError, match="branches on the batch size"):
        rc.train.RTRL(rc.train.Predictor(layer, 1), "mse")


STEPS_OF_ANY_SIZE = {
    "reshape": lambda s, x, h: tanh(s.a(x, h)).t().reshape(HIDDEN, x.shape[0]).t(),
    "einsum": lambda s, x, h: tanh(torch.einsum("bi,ij,bj->bj", h, s.w, s.a(x, h))),
    "bmm": lambda s, x, h: tanh(torch.bmm(s.w.expand(x.shape[0], -1, -1), s.a(x, h)[:, :, None]).squeeze(-1)),
    "squeeze": lambda s, x, h: tanh(s.a(x, h)[:, :, None].squeeze()) + 0 * h,
    "zeros": lambda s, x, h: tanh(s.a(x, h) + torch.zeros(len(x), HIDDEN, dtype=x.dtype)),
    "transposed": lambda s, x, h: tanh((s.w @ s.a(x, h).T).T),
}


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
@pytest.mark.parametrize("name", STEPS_OF_ANY_SIZE)
def test_what_torch_writes_otherwise_for_one_row_is_no_branch(name: str):
    cell_class = type("AnySize", (Plain,), {"step": STEPS_OF_ANY_SIZE[name]})
    layer = rc.Recurrent(cell_class, INPUT, HIDDEN).double()
    for batch in (1, 2, 6):
        x = inputs(batch)
        assert engine(layer, x) == "replayed"
        torch.testing.assert_close(layer(x)[0], loop(layer, x), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
def test_numbers_of_the_rows_themselves_run_as_python_says():
    class Numbered(Plain):
        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return tanh(self.a(x, h) * torch.arange(x.shape[0])[:, None].to(x))

    layer, x = rc.Recurrent(Numbered, INPUT, HIDDEN).double(), inputs(4)
    torch.testing.assert_close(layer(x)[0], loop(layer, x), rtol=1e-12, atol=1e-12)
    assert "does not take aten.arange" in " ".join(rc.explain(layer, x).split())


def test_recurras_own_cells_are_not_traced_again():
    layer, x = rc.GRU(INPUT, HIDDEN), torch.randn(STEPS, 9, INPUT)
    assert not batch_obstacle(layer.cells[0], 9)
    assert "batch sizes" not in cache_of(layer.cells[0]).traced
    assert engine(layer, x) != "reference"


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
@pytest.mark.parametrize("batch", [3, 4])
def test_a_step_for_one_batch_size_runs_as_python_says(batch: int):
    class OnlyThree(Plain):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.register_buffer("rows", torch.linspace(-1, 1, 3 * hidden_size).view(3, hidden_size))

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return tanh(self.a(x, h)) * self.rows

    layer, x = rc.Recurrent(OnlyThree, INPUT, HIDDEN).double(), inputs(batch)
    if batch == 4:
        with pytest.raises(RuntimeError, match="must match"):
            layer(x)
        return
    torch.testing.assert_close(layer(x)[0], loop(layer, x), rtol=1e-12, atol=1e-12)
    text = " ".join(rc.explain(layer, x).split())
    assert "OnlyThree.step raises RuntimeError for 2 sequences of zeros" in text
