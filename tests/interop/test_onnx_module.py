"""Modules with layers inside as ONNX files: embeddings, heads and all, for any length and batch."""

from pathlib import Path

import onnx
import pytest
import torch
from cases import randomise
from interop.runtime import near, run
from torch import Tensor, nn

import recurra as rc
from recurra.errors import InputError
from recurra.interop.onnx import ExportError

EXACT = 1e-12


class WithHead(nn.Module):
    """The survey's network: a layer and a line on top."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = rc.layer("mgu", 3, 4, bidirectional=True)
        self.head = rc.Readout(self.layer, 2, softmax=True)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.head(self.layer(x, lengths=lengths)[0])


class Words(nn.Module):
    """Words in, scores out; two layers of different kinds, one of them called twice, states in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 3)
        self.first = rc.layer("gru", 3, 4, num_layers=2, batch_first=True, dropout=0.5)
        self.second = rc.LSTM(4, 4, modifiers=rc.Zoneout(0.2))
        self.head = nn.Linear(4, 5)

    def forward(self, words: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, last = self.first(self.embedding(words), state)
        y, _ = self.second(y.transpose(0, 1))
        y, (h, _) = self.second(y)
        return torch.log_softmax(self.head(h[-1]), -1), last


def axes(value: onnx.ValueInfoProto) -> list[int | str]:
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


@torch.no_grad()
def test_a_layer_with_a_head(tmp_path: Path) -> None:
    model = randomise(WithHead()).double()
    path = rc.export(model, tmp_path / "model.onnx", (torch.randn(4, 3, 3).double(), torch.tensor([4, 1, 2])))
    onnx.checker.check_model(str(path), full_check=True)
    graph = onnx.load(path).graph
    assert [axes(value) for value in graph.input] == [["time", "batch", 3], ["batch"]]
    assert [axes(value) for value in graph.output] == [["time", "batch", 2]]
    for steps, batch in ((1, 1), (2, 7), (19, 2)):
        x, lengths = torch.randn(steps, batch, 3).double(), torch.randint(1, steps + 1, (batch,))
        near(run(path, x=x, lengths=lengths), [model(x, lengths)], EXACT)


@torch.no_grad()
def test_words_and_states(tmp_path: Path) -> None:
    model = randomise(Words()).double().train()
    example = {"words": torch.randint(0, 11, (3, 4)), "state": torch.randn(2, 3, 4).double()}
    path = rc.export(model, tmp_path / "model.onnx", example)
    assert model.training
    model.eval()
    onnx.checker.check_model(str(path), full_check=True)
    words, state = torch.randint(0, 11, (5, 9)), torch.randn(2, 5, 4).double()
    near(run(path, words=words, state=state), list(model(words, state)), EXACT)


@torch.no_grad()
def test_an_unbatched_sequence_in_float32(tmp_path: Path) -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = rc.layer("unitary_rnn", 3, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.layer(x)

    model = Single()
    path = rc.export(model, tmp_path / "model.onnx", torch.randn(4, 3))
    x = torch.randn(9, 3)
    near(run(path, x=x), list(model(x)), 2e-6)


def test_what_cannot_be_exported_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Fixed(WithHead):
        def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
            return super().forward(x + torch.ones(4, 1, 1))

    class Traced(WithHead):
        def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
            return self.layer(x, return_trace=True)[2]["h"][0]

    class Branching(WithHead):
        def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    x, path = torch.randn(4, 3, 3), tmp_path / "model.onnx"
    with pytest.raises(ExportError, match="'layer' always gets sequences of length 4: the module fixes it"):
        rc.export(Fixed(), path, x)
    with pytest.raises(ExportError, match="'layer' is called with resets or return_trace"):
        rc.export(Traced(), path, x)
    with pytest.raises(ExportError, match="torch cannot export Branching"):
        rc.export(Branching(), path, x)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_bad_examples(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(InputError, match="example: got None"):
        rc.export(WithHead(), path)
    with pytest.raises(ExportError, match="'layer' always gets batches of 1: a size of 1 in the example is a constant"):
        rc.export(WithHead(), path, torch.randn(4, 1, 3))
    with pytest.raises(InputError, match=r"WithHead\.forward"):
        rc.export(WithHead(), path, {"y": torch.randn(4, 2, 3)})
    with pytest.raises(InputError, match="model: got str"):
        rc.export("lstm", path)
