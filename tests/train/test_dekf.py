"""The Kalman filter: recursive least squares where the model is linear, and its groups."""

import pytest
import torch
from cases import Case, draw_inputs
from helpers import assert_close
from torch import Tensor, nn

import recurra as rc
from recurra.train import DEKF, CostError, Predictor


def linear_data(steps: int = 30) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(steps, 1, 4, generator=generator, dtype=torch.float64)
    return x, torch.randn(steps, 1, 2, generator=generator, dtype=torch.float64)


def ridge(x: Tensor, d: Tensor, beta: float) -> Tensor:
    X, D = x[:, 0], d[:, 0]
    return torch.linalg.solve(X.T @ X + beta * torch.eye(4, dtype=X.dtype), X.T @ D).T


def recursive_least_squares(x: Tensor, d: Tensor, beta: float) -> Tensor:
    """The textbook recursion, one row of weights at a time."""
    P = torch.eye(4, dtype=torch.float64) / beta
    w = torch.zeros(2, 4, dtype=torch.float64)
    for x_t, d_t in zip(x[:, 0], d[:, 0], strict=True):
        gain = P @ x_t / (1 + x_t @ P @ x_t)
        w = w + torch.outer(d_t - w @ x_t, gain)
        P = P - torch.outer(gain, x_t @ P)
    return w


@pytest.mark.parametrize("groups", ["node", "global"])
def test_a_linear_model_is_rls_and_ridge(groups: str) -> None:
    x, d = linear_data()
    model = nn.Linear(4, 2, bias=False).double()
    nn.init.zeros_(model.weight)
    DEKF(model, groups=groups, p=1 / 0.3, r=(1.0, 1.0), q=(0.0, 0.0)).step(x, d)
    assert_close(model.weight.detach(), recursive_least_squares(x, d, 0.3), 1e-10)
    assert_close(model.weight.detach(), ridge(x, d, 0.3), 1e-10)


def filter_by_hand(P: Tensor, H: Tensor, innovation: Tensor, R: float, Q: float) -> tuple[Tensor, Tensor]:
    """The global filter, written without groups."""
    A = torch.linalg.inv(R * torch.eye(H.shape[1], dtype=H.dtype) + H.T @ P @ H)
    K = P @ H @ A
    return K @ innovation, P - K @ H.T @ P + Q * torch.eye(len(P), dtype=P.dtype)


@pytest.mark.parametrize("groups", ["node", "global"])
def test_groups_are_the_filter_with_other_blocks_zeroed(groups: str) -> None:
    model = Predictor(Case("vanilla_lstm").layer(), 2)
    learner = DEKF(model, groups=groups, p=10.0)
    count = sum(p.numel() for p in model.parameters())
    assert sum(g.numel() for g in learner.groups) == count
    P, blocks = 10.0 * torch.eye(count, dtype=torch.float64), torch.zeros(count, count, dtype=torch.float64)
    for group in learner.groups:
        for row in group:
            blocks[row[:, None], row] = 1
    flat = torch.cat(learner.step_fn.flat())
    for _ in range(3):
        H, innovation = torch.randn(count, 2, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
        change, P = filter_by_hand(P, H, innovation, *learner.noise())
        P = P * blocks
        flat = flat + change
        learner.correct(H, innovation)
    assert_close(torch.cat(learner.step_fn.flat()), flat, 1e-10)
    assert sum(len(g) for g in learner.groups) == (1 if groups == "global" else 18)


def test_a_node_holds_all_that_enters_a_unit() -> None:
    learner = DEKF(Predictor(Case("vanilla_lstm").layer(), 2))
    assert sorted(tuple(g.shape) for g in learner.groups) == [(2, 5), (4, 8), (12, 9)]
    sizes = {"g": 8, "i": 9, "f": 9, "o": 9}  # x, h, b, and a peephole where there is one
    flat = torch.arange(sum(p.numel() for p in learner.step_fn.parameters().values()))
    parts = flat.split([p.numel() for p in learner.step_fn.parameters().values()])
    places = dict(zip(learner.step_fn.parameters(), parts, strict=True))
    for gate, size in sizes.items():
        first = int(places[f"layer.cells.0.{gate}.b"][0])
        (row,) = (set(row.tolist()) for group in learner.groups for row in group if first in row)
        enters = [places[f"layer.cells.0.{gate}.{n}"].view(4, -1)[0] for n in ("U", "W", "b")]
        enters += [places[f"layer.cells.0.p_{gate}"][:1]] if size == 9 else []
        assert row == set(torch.cat(enters).tolist())


def test_derivatives_of_bptt_and_rtrl_agree() -> None:
    """With one observation, at the end, no weight has moved while the derivatives were collected."""
    case = Case("lstm")
    x, target = draw_inputs(case, steps=5), torch.tensor([1, 0])
    results = []
    for derivatives in ("rtrl", "bptt"):
        model = Predictor(case.layer(), 2)
        torch.manual_seed(0)
        nn.init.normal_(model.head.V)
        learner = DEKF(model, "cross_entropy", derivatives=derivatives, window=5)
        results.append((learner.step(x, target), torch.cat(learner.step_fn.flat())))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-12)
    assert_close(results[0][1], results[1][1], 1e-10)


@pytest.mark.parametrize("derivatives", ["rtrl", "snap1", "bptt"])
def test_resume_is_exact(derivatives: str) -> None:
    case = Case("lstm")
    x, target = draw_inputs(case, steps=3), torch.randn(3, 2, 2, dtype=torch.float64)
    make = lambda: DEKF(Predictor(case.layer(), 2), derivatives=derivatives, window=2, carry=True)  # noqa: E731
    straight, first, second = make(), make(), make()
    first.model.load_state_dict(straight.model.state_dict())
    for _ in range(2):
        straight.step(x, target)
    first.step(x, target)
    second.load_state_dict(first.state_dict())
    second.step(x, target)
    assert torch.equal(torch.cat(straight.step_fn.flat()), torch.cat(second.step_fn.flat()))


def test_learns_a_recurrent_teacher() -> None:
    case = Case("rnn")
    teacher, student = Predictor(case.layer(seed=1), 2), Predictor(case.layer(seed=2), 2)
    x = torch.randn(150, 1, 3, dtype=torch.float64)
    with torch.no_grad():
        target = teacher(x)[0]
    learner = DEKF(student, carry=True, r=(10.0, 1.0), anneal=100)
    first = learner.step(x[:50], target[:50])
    learner.step(x[50:100], target[50:100])
    assert learner.step(x[100:], target[100:]) < first / 5


def test_a_million_weights_are_refused_with_their_cost() -> None:
    with pytest.raises(CostError, match=r"1,000,000 weights in 1 groups.*TiB.*groups='node'"):
        DEKF(nn.Linear(1000, 1000, bias=False), groups="global")
    with pytest.raises(CostError, match=r"states × .*snap1"):
        DEKF(Predictor(rc.layer("lstm", 8, 256), 2), memory_limit=1 << 30)


def test_a_filter_observes_outputs() -> None:
    with pytest.raises(rc.RecurraError, match="observes outputs"):
        DEKF(nn.Linear(2, 2), loss="mae")
