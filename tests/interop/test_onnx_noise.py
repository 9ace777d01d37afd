"""Noise in ONNX files: an optional input; given, the file computes what the layer computes with these draws."""

from pathlib import Path

import onnx
import pytest
import torch
from engine.strange_cells import Noisy
from interop.runtime import near, run
from torch import Tensor, nn

import recurra as rc
from recurra.interop.onnx import ExportError

EXACT = 2e-13  # float64, of the largest number of a result


@pytest.mark.parametrize("batch_first", [False, True])
def test_given_noise(batch_first: bool, tmp_path: Path):
    layer = rc.Recurrent(Noisy, 3, 4, bidirectional=True, batch_first=batch_first, dtype=torch.float64)
    path = layer.export(tmp_path / "noisy.onnx")
    x, lengths = torch.randn(*((2, 5) if batch_first else (5, 2)), 3, dtype=torch.float64), torch.tensor([5, 3])
    torch.manual_seed(4)
    y, h = layer(x, lengths=lengths)
    torch.manual_seed(4)
    noise = {}
    for k in range(2):  # as the cells draw: forward, backward, each n before u, time first
        noise[f"n.{k}"] = torch.randn(5, 2, 4, dtype=torch.float64)
        noise[f"u.{k}"] = torch.rand(5, 2, 3, dtype=torch.float64)
    laid_out = {name: value.transpose(0, 1).contiguous() if batch_first else value for name, value in noise.items()}
    near(run(path, x=x, lengths=lengths, **laid_out), [y.detach(), h.detach()], EXACT)


class Draws(rc.Cell):
    """Puts the noise out."""

    def __init__(self, input_size: int, hidden_size: int, distribution: str):
        super().__init__(input_size, hidden_size)
        self.w = self.vector()
        self.noise("u", "h", distribution)

    def step(self, x: Tensor, h: Tensor, *, u: Tensor) -> Tensor:
        return u + self.w * h


@pytest.mark.parametrize(("distribution", "mean", "variance"), [("normal", 0.0, 1.0), ("uniform", 0.5, 1 / 12)])
def test_the_runtime_draws_what_is_not_given(distribution: str, mean: float, variance: float, tmp_path: Path):
    path = rc.Recurrent(Draws, 3, 50, distribution=distribution).export(tmp_path / "draws.onnx")
    assert [entry.name for entry in onnx.load(path).graph.input] == ["x", "lengths", "h_0", "u"]
    y = run(path, "y", x=torch.zeros(40, 50, 3))[0]
    assert torch.unique(y).numel() > 0.9 * y.numel()
    assert abs(float(y.mean()) - mean) < 6 * (variance / y.numel()) ** 0.5
    assert abs(float(y.var()) / variance - 1) < 6 * (2 / y.numel()) ** 0.5


def test_a_module_with_noise_inside_is_refused(tmp_path: Path):
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = rc.Recurrent(Noisy, 3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(x)[0])

    with pytest.raises(ExportError, match="layer 'layer' draws noise"):
        rc.export(Tagger(), tmp_path / "tagger.onnx", torch.randn(5, 2, 3))
    assert not list(tmp_path.iterdir())
