"""DNI and FPTT: truncated BPTT where their additions are zero; the target of synthetic gradients; exact resume."""

import pytest
import torch
from cases import Case, draw_inputs

import recurra as rc
from recurra.train import BPTT, DNI, FPTT, Predictor


def predictor() -> Predictor:
    torch.manual_seed(0)
    return Predictor(Case("lstm").layer(), 2)


def data(steps: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    return draw_inputs(Case("lstm"), steps=steps), torch.randn(steps, 2, 2, dtype=torch.float64)


def same(one, other) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: DNI(m, "mse", "sgd", 0.1, 3, synthetic_rate=1e-30),
        lambda m: FPTT(m, "mse", "sgd", 0.1, window=3, alpha=0.0),
    ],
)
def test_without_its_addition_it_is_truncated_bptt(make) -> None:
    x, target = data()
    one, other = make(predictor()), BPTT(predictor(), "mse", "sgd", 0.1, k1=3)
    assert one.step(x, target) == pytest.approx(other.step(x, target), abs=1e-12)
    same(one.model, other.model)


def test_a_perfect_synthetic_gradient_makes_windows_exact() -> None:
    """With the true gradient of the later losses in its place, two windows give the gradient of full BPTT."""
    x, target = data(6)
    model = predictor()
    _, state = model(x[:3])
    state = [s.detach().requires_grad_() for s in state]
    later = ((model(x[3:], tuple(state))[0] - target[3:]) ** 2).sum() / target.numel()
    beyond = torch.autograd.grad(later, state)
    learner = DNI(predictor(), "mse", "sgd", 0.1, window=3, update="call", synthetic_rate=1e-30)

    class Perfect(torch.nn.Module):
        calls = 0

        def forward(self, flat: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            wanted = torch.cat([g.movedim(1, 0).flatten(1) for g in beyond], 1)
            return wanted if self.calls == 1 else flat * 0

    learner.synthesis = Perfect()
    learner._teach = lambda *_: None
    full = BPTT(predictor(), "mse", "sgd", 0.1)
    learner.step(x, target), full.step(x, target)
    same(learner.model, full.model)


def test_the_map_learns_what_arrives() -> None:
    """One sequence again and again, weights fixed: the prediction comes near the true gradient of the later losses."""
    x, target = data(6)
    learner = DNI(predictor(), "mse", "sgd", 1e-30, window=3, synthetic_rate=0.01)
    model = learner.model
    for _ in range(400):
        learner.step(x, target)
    state = [s.detach().requires_grad_() for s in model(x[:3])[1]]
    later = ((model(x[3:], tuple(state))[0] - target[3:]) ** 2).sum() / target.numel()
    wanted = torch.cat([g.movedim(1, 0).flatten(1) for g in torch.autograd.grad(later, state)], 1)
    said = learner.synthesis(torch.cat([s.detach().movedim(1, 0).flatten(1) for s in state], 1))
    assert float((said - wanted).detach().norm() / wanted.norm()) < 0.05


def test_fptt_keeps_weights_near_their_mean() -> None:
    x, target = data()
    far = []
    for alpha in (0.0, 5.0):
        model = predictor()
        learner, start = FPTT(model, "mse", "sgd", 0.1, alpha=alpha), [p.detach().clone() for p in model.parameters()]
        for _ in range(3):
            learner.step(x, target)
        far.append(sum(float((p - s).detach().norm()) for p, s in zip(model.parameters(), start, strict=True)))
    assert far[1] < far[0]


def test_dni_predicts_for_every_step_that_a_dilated_layer_looks_back() -> None:
    learner = DNI(rc.layer("gru", 2, 3, num_layers=2, dilation=2), "mse", window=2, carry=True)
    x, target = torch.randn(6, 2, 2), torch.randn(6, 2, 3)
    losses = [learner.step(x, target) for _ in range(3)]
    assert losses[0] != losses[2]
    assert bool(learner.synthesis.weight.any())
    with pytest.raises(rc.errors.OptionError, match="dilations"):
        DNI(rc.layer("gru", 2, 3, num_layers=2, dilation=(1, 2)), "mse")
