"""Layers as ONNX files: in onnxruntime they give what the plain loop gives, for any length and batch, ragged or not."""

import sys
from pathlib import Path

import onnx
import pytest
import torch
from cases import Case, every_case, randomise, sampled_name
from engine.strange_cells import STRANGE
from interop.runtime import flat, near, run
from torch import Tensor

import recurra as rc
from recurra.errors import DtypeError, InputError
from recurra.interop.onnx import ExportError, MissingPackageError, operations
from recurra.interop.onnx.layer import LayerGraph
from recurra.interop.onnx.real import recurrent_matrix

EXACT = 2e-13  # float64, of the largest number of a result
SINGLE = 2e-6  # float32, the same


@torch.no_grad()
def agree(layer: rc.Recurrent, path: Path, tolerance: float = EXACT, steps: int = 6, batch: int = 3) -> None:
    """The file against the layer: from its own start, then ragged from where that ended."""
    layer.eval()
    onnx.checker.check_model(str(path), full_check=True)
    dtype = next(layer.parameters()).dtype
    x = torch.randn(*((batch, steps) if layer.batch_first else (steps, batch)), layer.input_size, dtype=dtype)
    lengths = torch.arange(batch) % steps + 1
    y, state = layer(x)
    near(run(path, x=x), [y, *flat(state)], tolerance)
    names = [i.name for i in onnx.load(path).graph.input][2:]
    given = dict(zip(names, flat(state), strict=True))
    y, final = layer(x, state, lengths)
    near(run(path, x=x, lengths=lengths, **given), [y, *flat(final)], tolerance)


# ---------------------------------------------------------------------------------------------------- every cell


@sampled_name
def test_every_cell_in_float32(case: Case, tmp_path: Path) -> None:
    layer = case.layer(dtype=torch.float32, input_size=17, hidden_size=6)  # wide enough for products with x
    agree(layer, layer.export(tmp_path / "model.onnx"), SINGLE)


@sampled_name
def test_every_cell_in_float64_deep_and_in_both_directions(case: Case, tmp_path: Path) -> None:
    layer = case.layer(num_layers=2, bidirectional=True)
    agree(layer, layer.export(tmp_path / "model.onnx"))


@pytest.mark.slow
@every_case
def test_every_option_of_every_cell(case: Case, tmp_path: Path) -> None:
    layer = case.layer(num_layers=2)
    agree(layer, layer.export(tmp_path / "model.onnx"))


@pytest.mark.parametrize("cell", STRANGE)
def test_cells_of_ones_own(cell: type[rc.Cell], tmp_path: Path) -> None:
    layer = randomise(rc.Recurrent(cell, 3, 4, bidirectional=True, dtype=torch.float64))
    agree(layer, layer.export(tmp_path / "model.onnx"))


def test_the_unitary_matrix_is_unitary_in_real_numbers() -> None:
    matrix = recurrent_matrix(Case("unitary_rnn").cell())
    assert torch.allclose(matrix @ matrix.t(), torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------------- every layer


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_first": True, "bidirectional": True},
        {"num_layers": 3, "depth": "residual"},
        {"num_layers": 2, "depth": "graves", "bidirectional": True},
        {"num_layers": 2, "depth": "graves", "bidirectional": "separate"},
        {"hidden_size": [4, 2, 5], "bidirectional": True},
        {"num_layers": 2, "initial": "learned", "dropout": 0.5},
        {"bias": False},
    ],
    ids=str,
)
def test_depth_directions_and_states(arguments: dict, tmp_path: Path) -> None:
    layer = Case("lstm").layer(**arguments)
    agree(layer, layer.export(tmp_path / "model.onnx"))


@pytest.mark.parametrize(
    ("name", "modifier"),
    [
        ("lstm", rc.Zoneout(c=0.5, h=0.1)),
        ("gru", rc.LayerNorm()),
        ("lstm", rc.LayerNorm()),
        ("delay_rnn", rc.Zoneout(0.3)),
        ("mgu", rc.VariationalDropout(0.4)),
        ("lstm", rc.RecurrentDropout(0.3)),
        ("gru", rc.WeightDrop(0.3)),
        ("unitary_rnn", rc.Zoneout(0.2)),
        ("unitary_rnn", rc.VariationalDropout(0.2)),
    ],
)
def test_modifiers_as_they_evaluate(name: str, modifier: rc.Modifier, tmp_path: Path) -> None:
    layer = Case(name).layer(modifiers=modifier, num_layers=2).train()
    path = layer.export(tmp_path / "model.onnx")
    assert layer.training
    agree(layer, path)


def test_the_layer_is_left_as_it_was(tmp_path: Path) -> None:
    layer = Case("gru").layer(initial="carried")
    layer(torch.randn(3, 2, 3, dtype=torch.float64))
    before = layer.carried_state[0][0]
    layer.export(tmp_path / "model.onnx")
    assert layer.carried_state[0][0] is before
    assert layer.initial == "carried"


@torch.no_grad()
def test_a_long_sequence_and_a_large_batch(tmp_path: Path) -> None:
    layer = Case("lstm").layer()
    agree(layer, layer.export(tmp_path / "model.onnx"), steps=301, batch=65)


@torch.no_grad()
def test_padding_is_not_read(tmp_path: Path) -> None:
    layer = Case("gru").layer(bidirectional=True)
    path = layer.export(tmp_path / "model.onnx")
    x, lengths = torch.randn(5, 2, 3, dtype=torch.float64), torch.tensor([5, 2])
    filthy = x.clone()
    filthy[2:, 1] = float("nan")
    y, h = layer(x, lengths=lengths)
    near(run(path, x=filthy, lengths=lengths), [y, h], EXACT)


@torch.no_grad()
def test_streaming_in_chunks_is_one_pass(tmp_path: Path) -> None:
    path = Case("delay_rnn").layer().export(tmp_path / "model.onnx")
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    whole, last = run(path, x=x)
    first, state = run(path, x=x[:4])
    second, final = run(path, x=x[4:], h_0=state)
    near([torch.cat([first, second]), final], [whole, last], 0.0)


# ---------------------------------------------------------------------------------------------------- what can go wrong


def test_a_file_that_differs_never_replaces_a_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Case("lstm").layer().export(tmp_path / "model.onnx")
    good = path.read_bytes()
    monkeypatch.setitem(operations.ONNX, "tanh", lambda graph, args, attr: graph.add("Sigmoid", *args))
    with pytest.raises(ExportError, match=r"y: for x of shape \(1, 4, 3\) the file differs"):
        Case("lstm").layer().export(path)
    assert path.read_bytes() == good
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_forgets_lengths_and_states_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerGraph, "_given_or_default", lambda self, given, otherwise, batch, axis: otherwise)
    with pytest.raises(ExportError, match="the file differs from the model"):
        Case("gru").layer(dtype=torch.float32).export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_no_runtime_takes_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operations.ONNX, "tanh", lambda graph, args, attr: graph.add("NoSuchOperation", *args))
    with pytest.raises(ExportError, match="NoSuchOperation"):
        Case("rnn").layer().export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_operation_without_a_rule_is_named(tmp_path: Path) -> None:
    class Bessel(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x", "h")

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.special.bessel_j0(torch.tanh(self.a(x, h)))

    with pytest.raises(ExportError, match=r"Bessel cannot be written as ONNX: no rule for aten\.special_bessel_j0"):
        rc.Recurrent(Bessel, 3, 4).export(tmp_path / "model.onnx")


def test_what_the_runtime_lacks_is_named(tmp_path: Path) -> None:
    smooth = torch.nn.functional.gelu
    assert rc.layer("rnn", 3, 4, nonlinearity=smooth).export(tmp_path / "single.onnx").is_file()
    with pytest.raises(ExportError, match=r"onnxruntime cannot load the file: .*Erf"):
        rc.layer("rnn", 3, 4, nonlinearity=smooth, dtype=torch.float64).export(tmp_path / "double.onnx")


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(DtypeError, match="bfloat16"):
        rc.LSTM(3, 4).bfloat16().export(tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"path: got .*nowhere"):
        rc.LSTM(3, 4).export(tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(ExportError, match="LayerNorm"):
        rc.layer("unitary_rnn", 3, 4, modifiers=rc.LayerNorm()).export(tmp_path / "model.onnx")


@pytest.mark.parametrize("name", ["onnx", "onnxruntime"])
def test_without_the_packages_the_extra_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=rf"{name}.*pip install 'recurra\[onnx\]'"):
        rc.LSTM(3, 4).export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
