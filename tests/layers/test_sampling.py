"""Sampling inside a step through declared noise: categorical latents with straight-through gradients, as in an RSSM."""

from collections.abc import Iterator

import pytest
import torch
from engine.strange_cells import RSSM
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.cpu import compiler

pytestmark = pytest.mark.filterwarnings("ignore::recurra.engine.backend.EngineWarning")

F64 = torch.float64
LATENTS, CLASSES = RSSM.latents, RSSM.classes


@pytest.fixture(params=["reference", "compiled", "replayed"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "replayed":
        monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    with set_backend("reference" if request.param == "reference" else "auto"):
        yield request.param


def plain_loop(cell: rc.Cell, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs and the latents of every step."""
    w = dict(cell.named_parameters())
    h, z = x.new_zeros(x.shape[1], cell.hidden_size), x.new_zeros(x.shape[1], LATENTS * CLASSES)
    outputs, latents = [], []
    for x_t, u_t in zip(x, u, strict=True):
        h = 0.5 * h + torch.tanh(x_t @ w["a.U"].T + h @ w["a.W_h"].T + z @ w["a.W_z"].T + w["a.b"])
        logits = (h @ w["logits.W"].T + w["logits.b"]).view(-1, LATENTS, CLASSES)
        e = torch.exp(logits)
        probabilities = e / e.sum(-1, keepdim=True)
        chosen = (logits.detach() + torch.distributions.Gumbel(0.0, 1.0).icdf(u_t.view_as(logits))).argmax(-1)
        sample = torch.eye(CLASSES, dtype=x.dtype)[chosen]
        z = StraightThrough.apply(sample, probabilities).flatten(1)
        outputs.append(h)
        latents.append(z)
    return torch.stack(outputs), torch.stack(latents)


class StraightThrough(torch.autograd.Function):
    """The value of the first, the gradient to the second."""

    @staticmethod
    def forward(ctx, value, other):  # pyrefly: ignore
        return value.clone()

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        return None, g


@pytest.mark.parametrize("hard", ["largest", "one_hot"])
def test_straight_through_latents(engine: str, hard: str):
    layer = rc.Recurrent(RSSM, 4, 6, hard=hard, dtype=F64)
    x = torch.randn(9, 5, 4, dtype=F64, requires_grad=True)
    if hard == "largest":
        assert f"backend: {engine}" in rc.explain(layer, x)
    torch.manual_seed(6)
    y, (_, z) = layer(x)
    torch.manual_seed(6)
    wanted, latents = plain_loop(layer.cell_list[0], x, torch.rand(9, 5, LATENTS * CLASSES, dtype=F64))
    assert_close(y, wanted)
    assert_close(z[0], latents[-1])
    g, everything = torch.randn_like(y), [x, *layer.parameters()]
    found = torch.autograd.grad((y * g).sum() + z.sin().sum(), everything)
    expected = torch.autograd.grad((wanted * g).sum() + latents[-1].sin().sum(), everything)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def test_samples_follow_the_probabilities(engine: str):
    layer = rc.Recurrent(RSSM, 4, 6)
    with torch.no_grad():
        z = layer(torch.ones(1, 20_000, 4))[1][1][0].view(-1, LATENTS, CLASSES).round()  # from the same state each
        w = dict(layer.cell_list[0].named_parameters())
        logits = w["logits.W"] @ torch.tanh(w["a.U"].sum(1) + w["a.b"]) + w["logits.b"]
    assert torch.equal(z.sum(-1), torch.ones(20_000, LATENTS))
    p = torch.softmax(logits.view(LATENTS, CLASSES), -1)
    error = (p * (1 - p) / len(z)).sqrt()
    assert ((z.mean(0) - p).abs() < 5 * error).all()
