"""Spikes and declared noise on a CUDA device: no spike moves, and the kernels read the numbers the plain loop reads."""

import pytest
import torch
from engine.strange_cells import RSSM, Noisy
from torch import Tensor

import recurra as rc
from recurra.cells import spike
from recurra.engine.gpu import select

pytestmark = pytest.mark.gpu
MODES = ["row_per_program", "cooperative", "stepwise"]


class Halving(rc.Cell):
    """Neurons whose potentials are small multiples of powers of two, which float32 holds exactly."""

    states = ("s", "v")

    def __init__(self, input_size: int, hidden_size: int, surrogate: str):
        super().__init__(input_size, hidden_size)
        self.a, self.surrogate = self.affine("x", "s"), surrogate
        with torch.no_grad():
            for weight in self.a.parameters():
                weight.copy_(torch.randint(-2, 3, weight.shape) / 4)

    def step(self, x: Tensor, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = 0.5 * v + self.a(x, s) - s
        return spike(v - 1.0, self.surrogate, 2.0), v


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("surrogate", ["fast_sigmoid", "atan", "triangle"])
def test_every_spike_is_that_of_float64(surrogate: str, mode: str):
    layer = rc.Recurrent(Halving, 24, 40, surrogate=surrogate).cuda()
    exact = rc.Recurrent(Halving, 24, 40, surrogate=surrogate, dtype=torch.float64).cuda()
    exact.load_state_dict(layer.state_dict())
    x = torch.randint(-1, 2, (10, 19, 24), device="cuda").float().requires_grad_()
    lengths = torch.randint(1, 11, (19,), device="cuda")
    with select.only(mode):
        y, (_, v) = layer(x, lengths=lengths)
        found = torch.autograd.grad(y.square().sum() + v.sum(), [x, *layer.parameters()])
    with rc.set_backend("reference"):
        wide = x.detach().double().requires_grad_()
        wanted, (_, last) = exact(wide, lengths=lengths)
        expected = torch.autograd.grad(wanted.square().sum() + last.sum(), [wide, *exact.parameters()])
    assert torch.equal(y.double(), wanted)
    assert torch.equal(v.double(), last)
    assert 0.05 < float(y.detach().mean()) < 0.6
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cell", [Noisy, RSSM])
def test_noise_is_the_same_on_both_engines(cell: type[rc.Cell], mode: str):
    layer = rc.Recurrent(cell, 24, 40, num_layers=2, bidirectional=True).cuda()
    x, lengths = torch.randn(12, 5, 24, device="cuda", requires_grad=True), [12, 3, 7, 1, 12]
    results = []
    for backend in ("auto", "reference"):
        torch.manual_seed(8)
        with select.only(mode), rc.set_backend(backend):
            y = layer(x, lengths=lengths)[0]
            results.append([y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.detach().abs().max()))


def test_uniform_noise_stays_below_one_under_autocast():
    cell = Noisy(24, 40).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        drawn = cell.draw_masks(64, 64, torch.zeros((), device="cuda"))["u"]
        assert drawn.dtype is torch.bfloat16
        assert float(drawn.max()) < 1
        y = rc.Recurrent(Noisy, 24, 40).cuda()(torch.randn(6, 3, 24, device="cuda"))[0]
    assert y.isfinite().all()
