"""FORCE is least squares; the unscented filter is the Kalman filter where the network is linear; exact resume."""

import pytest
import torch
from cases import Case, draw_inputs

import recurra as rc
from recurra.train import FORCE, UKF, Predictor


def predictor(name: str = "rnn", outputs: int = 2) -> Predictor:
    torch.manual_seed(0)
    return Predictor(Case(name).layer(), outputs)


def test_the_readout_is_the_ridge_solution() -> None:
    model, x = predictor("lstm"), draw_inputs(Case("lstm"), steps=30)
    target = torch.randn(30, 2, 2, dtype=torch.float64)
    h = model.layer(x)[0].detach().flatten(0, 1)
    start = torch.cat([model.head.V, model.head.b[:, None]], 1).detach()
    FORCE(model, alpha=0.3).step(x, target)
    rows = torch.cat([h, torch.ones(60, 1, dtype=torch.float64)], 1)
    left = rows.T @ rows + 0.3 * torch.eye(5, dtype=torch.float64)
    expected = torch.linalg.solve(left, rows.T @ target.flatten(0, 1) + 0.3 * start.T).T
    found = torch.cat([model.head.V, model.head.b[:, None]], 1).detach()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_forgetting_weighs_later_steps_more() -> None:
    """λ-weighted least squares: step t of T counts λ^(T - t); the penalty has faded likewise."""
    model, x = predictor(), draw_inputs(Case("rnn"), steps=20, batch=1)
    target = torch.randn(20, 1, 2, dtype=torch.float64)
    h = model.layer(x)[0].detach()[:, 0]
    start = torch.cat([model.head.V, model.head.b[:, None]], 1).detach()
    FORCE(model, alpha=0.5, forgetting=0.9).step(x, target)
    rows = torch.cat([h, torch.ones(20, 1, dtype=torch.float64)], 1)
    weight = 0.9 ** torch.arange(19, -1, -1, dtype=torch.float64)[:, None]
    penalty = 0.5 * 0.9**20
    left = rows.T @ (weight * rows) + penalty * torch.eye(5, dtype=torch.float64)
    expected = torch.linalg.solve(left, rows.T @ (weight * target[:, 0]) + penalty * start.T).T
    found = torch.cat([model.head.V, model.head.b[:, None]], 1).detach()
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_force_of_the_whole_network_changes_it() -> None:
    model, x = predictor(), draw_inputs(Case("rnn"), steps=20)
    target = torch.randn(20, 2, 2, dtype=torch.float64)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    FORCE(model, scope="network").step(x, target)
    changed = {n.rpartition(".")[2] for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert changed == {"W", "V", "b"}  # b is that of the head
    with pytest.raises(rc.OptionError, match="recurrent matri"):
        FORCE(predictor("gru"), scope="network")


def test_the_unscented_filter_of_a_linear_network_is_recursive_least_squares() -> None:
    """Weights only, q → 0: the posterior mean is the ridge solution with penalty r / p."""
    torch.manual_seed(1)
    head = torch.nn.Linear(3, 2).double()
    x, target = torch.randn(25, 1, 3, dtype=torch.float64), torch.randn(25, 1, 2, dtype=torch.float64)
    start = torch.cat([head.weight, head.bias[:, None]], 1).detach()
    UKF(head, p=2.0, r=0.5, q=1e-14).step(x, target)
    rows = torch.cat([x[:, 0], torch.ones(25, 1, dtype=torch.float64)], 1)
    left = rows.T @ rows + 0.25 * torch.eye(4, dtype=torch.float64)
    expected = torch.linalg.solve(left, rows.T @ target[:, 0] + 0.25 * start.T).T
    found = torch.cat([head.weight, head.bias[:, None]], 1).detach()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("make", [lambda: FORCE(predictor(), carry=True), lambda: UKF(predictor(), carry=True)])
def test_pieces_of_a_stream_and_a_resumed_one_are_bit_equal(make) -> None:
    x, target = draw_inputs(Case("rnn"), steps=8, batch=1), torch.randn(8, 1, 2, dtype=torch.float64)
    whole, pieces, first, resumed = make(), make(), make(), make()
    whole.step(x, target)
    for low, high in ((0, 3), (3, 8)):
        pieces.step(x[low:high], target[low:high])
    first.step(x[:3], target[:3])
    resumed.load_state_dict(first.state_dict())
    resumed.step(x[3:], target[3:])
    for other in (pieces, resumed):
        assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), other.model.parameters(), strict=True))


def test_the_unscented_filter_learns_through_time() -> None:
    """The target is the input of two steps before: learned through the covariance of weights and states alone."""
    torch.manual_seed(0)
    model = Predictor(rc.RNN(1, 6).double(), 1)
    x = torch.rand(400, 1, 1, dtype=torch.float64) - 0.5
    learner = UKF(model, r=0.01, carry=True)
    losses = [learner.step(x[i : i + 1], x[max(i - 2, 0) : max(i - 2, 0) + 1]) for i in range(400)]
    assert sum(losses[-100:]) < 0.1 * sum(losses[:100])


def test_one_stream() -> None:
    with pytest.raises(rc.InputError, match="one stream"):
        UKF(predictor()).step(draw_inputs(Case("rnn")), torch.randn(5, 2, 2, dtype=torch.float64))
