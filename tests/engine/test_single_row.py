"""A single row's products read the weights where they are."""

import ctypes

import numpy as np
import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.cells.plain import RNN
from recurra.engine.backend import set_backend
from recurra.engine.cpu import compiler
from recurra.engine.cpu.codegen import products_source
from recurra.engine.cpu.packing import _Piece
from recurra.engine.dispatch import Sequences, choose

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def compiled():
    with set_backend("compiled"):
        yield


class _Segment(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_void_p), ("stride", ctypes.c_int64), ("depth", ctypes.c_int64)]


def lying(matrix: np.ndarray, how: str) -> np.ndarray:
    """The same numbers, in memory as they may lie there."""
    if how == "by units":
        return np.ascontiguousarray(matrix)
    if how == "by depth":
        return np.asfortranarray(matrix)
    if how == "a part of more":
        return np.pad(matrix, ((1, 2), (3, 1)))[1:-2, 3:-1]
    return np.repeat(np.repeat(matrix, 2, 0), 3, 1)[::2, ::3]  # scattered


@pytest.mark.parametrize("how", ["by units", "by depth", "a part of more", "scattered"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("depth", "width"), [(1, 1), (16, 16), (7, 70), (130, 33), (64, 200), (257, 5)])
def test_products_where_the_weights_are(how: str, dtype: type, depth: int, width: int):
    """Two lanes of three operands, one of which is not there, from every unit on and as many as there are."""
    random = np.random.default_rng(depth * width)
    rows = [random.standard_normal(d).astype(dtype) for d in (depth, 3, depth)]
    matrices = [[lying(random.standard_normal((width, len(r))).astype(dtype), how) for r in rows] for _ in range(2)]
    library = compiler.load(products_source("float" if dtype is np.float32 else "double"))
    vector, block = (ctypes.c_int64.in_dll(library, name).value for name in ("vector_width", "tile_rows"))
    segments = (_Segment * 3)(*((None if i == 1 else r.ctypes.data, len(r), len(r)) for i, r in enumerate(rows)))
    size = np.dtype(dtype).itemsize
    pieces = (_Piece * 6)(
        *((m.ctypes.data, m.strides[0] // size, m.strides[1] // size, m.shape[1]) for lane in matrices for m in lane)
    )
    for first in range(0, width, vector):
        units = min(3 * vector, width - first)
        wide = -(-units // vector)
        memory = np.full(2 * wide * block * vector + vector, np.nan, dtype)
        skip = -memory.ctypes.data % 64 // size
        out = memory[skip : skip + 2 * wide * block * vector]
        library.in_place(
            segments,
            ctypes.c_int(3),
            pieces,
            *map(ctypes.c_int64, (2, first, units)),
            ctypes.c_void_p(out.ctypes.data),
        )
        found = out.reshape(2, wide, block, vector)[:, :, 0].reshape(2, -1)[:, :units]
        expected = [
            sum(m[first : first + units].astype(np.float64) @ r for m, r in zip(lane[::2], rows[::2], strict=True))
            for lane in matrices
        ]
        np.testing.assert_allclose(found, np.stack(expected), rtol=0, atol=1e-4 if dtype is np.float32 else 1e-12)


CELLS = ["lstm", "vanilla_lstm", "gru", "rnn", "mgu", "projection_lstm", "full_gate_lstm", "scrn", "delay_rnn", "lem"]


def reads_in_place(layer: rc.Recurrent, x: Tensor) -> bool:
    from recurra.engine.cpu.layout import dense

    cell = layer.cell_list[0]
    made = choose(cell, Sequences(x, cell.initial_state(1, x), cell.draw_masks(len(x), 1, x))).executor
    return made.forward_kernel.split(dense(*x.shape[:2]), x.shape[1]).in_place


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("units", [61, 160])
def test_a_single_sequence_is_that_of_the_plain_loop(name: str, units: int):
    """Outputs, final states and every gradient, for threads that share the units."""
    torch.manual_seed(0)
    layer, x = rc.layer(name, 37, units, dtype=torch.float64), torch.randn(23, 1, 37, dtype=torch.float64)
    assert reads_in_place(layer, x)
    x.requires_grad_()
    results = []
    for backend in ("compiled", "reference"):
        with set_backend(backend):
            y, state = layer(x)
            states = (state,) if isinstance(state, Tensor) else state
            weights = [
                torch.randn(v.shape, generator=torch.Generator().manual_seed(i)) for i, v in enumerate((y, *states))
            ]
            total = sum((v * w).sum() for v, w in zip((y, *states), weights, strict=True))
            results.append([y, *states, *torch.autograd.grad(total, [x, *layer.parameters()], allow_unused=True)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert (ours - theirs).norm() <= 1e-12 * theirs.norm() + 1e-14


def stepped(layer: rc.Recurrent, x: Tensor) -> Tensor:
    outputs, state = [], None
    for row in x:
        y, state = layer.step(row, state)
        outputs.append(y)
    return torch.stack(outputs)


def plainly(layer: rc.Recurrent, x: Tensor) -> Tensor:
    with set_backend("reference"):
        return layer(x)[0]


@torch.no_grad()
def test_any_number_written_through_data_is_seen_at_the_next_step():
    layer, x = rc.layer("lstm", 64, 64, dtype=torch.float64), torch.randn(2, 1, 64, dtype=torch.float64)
    stepped(layer, x)
    for weight in layer.parameters():
        weight.data.view(-1)[-1] += 0.5  # the last number, where no sample is taken
        torch.testing.assert_close(stepped(layer, x), plainly(layer, x), rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("way", [stepped, lambda layer, x: layer(x)[0]], ids=["steps", "a sequence"])
def test_weights_turned_where_they_are(way):
    """The address stays, the order does not."""
    layer, x = rc.layer("rnn", 64, 64, dtype=torch.float64), torch.randn(5, 1, 64, dtype=torch.float64)
    before = way(layer, x)
    for weight in layer.parameters():
        if weight.dim() == 2:
            address = weight.data_ptr()
            weight.data = weight.data.t()
            assert weight.data_ptr() == address
    after = way(layer, x)
    assert (after - before).abs().max() > 0.1
    torch.testing.assert_close(after, plainly(layer, x), rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("way", [stepped, lambda layer, x: layer(x)[0]], ids=["steps", "a sequence"])
def test_a_learned_start_that_changed(way, rows: int):
    layer = rc.layer("gru", 20, 60, initial="learned", dtype=torch.float64)
    x = torch.randn(4, rows, 20, dtype=torch.float64)
    way(layer, x)
    for name, weight in layer.named_parameters():
        if name.endswith("_0"):
            weight.data[7] += 1.0
    torch.testing.assert_close(way(layer, x), plainly(layer, x), rtol=1e-12, atol=1e-12)


class Counted(RNN):
    """Starts elsewhere at every call."""

    calls = 0

    def initial_state(self, batch: int, like: Tensor) -> tuple[Tensor, ...]:
        Counted.calls += 1
        return (like.new_full((batch, self.hidden_size), 0.1 * Counted.calls),)


@torch.no_grad()
@pytest.mark.parametrize("way", [stepped, lambda layer, x: layer(x)[0]], ids=["steps", "a sequence"])
def test_a_start_of_the_cells_own_is_asked_for_at_every_call(way):
    layer, x = rc.Recurrent(Counted, 20, 60), torch.randn(1, 1, 20)
    first = way(layer, x)
    assert (way(layer, x) - first).abs().max() > 1e-3
