"""Support-vector readouts against scikit-learn, the programme against scipy, and Evoke, which evolves below them."""

import numpy as np
import pytest
import torch
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import Evoke, Evolino, EvolinoCell, KernelReadout, Predictor, SupportVectors
from recurra.train.support_vectors import support_vector_regression


@pytest.fixture(autouse=True)
def _plain_loop():
    with set_backend("reference"):
        yield


def problem() -> tuple[Tensor, Tensor]:
    """States of two networks (2, 60, 3) and two targets (60, 2)."""
    states = torch.randn(2, 60, 3, dtype=torch.float64)
    target = torch.stack([states[0, :, 0].sin() + 0.2 * states[0, :, 1], states[0, :, 2] + 0.3], 1)
    return states, target + 0.1 * torch.randn(60, 2, dtype=torch.float64)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize(("C", "epsilon"), [(0.5, 0.1), (20.0, 0.02)])
def test_readouts_equal_scikit_learn_s(kernel: str, C: float, epsilon: float) -> None:
    svm = pytest.importorskip("sklearn.svm")
    states, target = problem()
    found = SupportVectors(C, epsilon, kernel).fit(states, target)
    new = torch.randn(2, 20, 3, dtype=torch.float64)
    outputs = found(new)
    for k, phi in enumerate(states.numpy()):
        scale = 1.0 if kernel == "rbf" else np.sqrt(phi.shape[1] * phi.var())  # "scale" has no effect on a linear one
        for q in range(2):
            other = svm.SVR(kernel=kernel, gamma="scale", C=C, epsilon=epsilon, tol=1e-9)
            other.fit(phi / scale, target[:, q].numpy())
            expected = torch.as_tensor(other.predict(new[k].numpy() / scale))
            assert_close(outputs[k, :, q], expected, 5e-5)  # rounding stops both solvers: sums of coefficients up to C


def test_the_programme_is_at_its_minimum() -> None:
    """No better value is found by a general solver, from the coefficients or from zero."""
    optimize = pytest.importorskip("scipy.optimize")
    states, target = problem()
    phi, y, C, epsilon = states[:, :12], target[:12, 0], 0.7, 0.1
    gram = phi @ phi.mT
    found = support_vector_regression(gram, y, C, epsilon)
    for K, beta in zip(gram.numpy(), found.beta.numpy(), strict=True):

        def cost(v, K=K):  # β = v⁺ - v⁻, both in [0, C]: smooth
            beta = v[:12] - v[12:]
            return 0.5 * beta @ K @ beta - y.numpy() @ beta + epsilon * v.sum()

        options = {"bounds": [(0, C)] * 24, "method": "SLSQP", "options": {"ftol": 1e-13, "maxiter": 500}}
        balanced = {"type": "eq", "fun": lambda v: v[:12].sum() - v[12:].sum()}
        best = optimize.minimize(cost, np.zeros(24), constraints=[balanced], **options)
        ours = np.concatenate([beta.clip(min=0), (-beta).clip(min=0)])
        assert abs(beta.sum()) < 1e-6 * C * 12
        assert abs(beta).max() <= C
        assert cost(ours) <= best.fun + 1e-6


def sines(steps: int) -> Tensor:
    t = torch.arange(steps + 1, dtype=torch.float64)
    return (torch.sin(0.2 * t) + torch.sin(0.311 * t))[:, None, None]


def machine(width: int = 5) -> Predictor:
    torch.manual_seed(0)
    layer = rc.Recurrent(EvolinoCell, 1, width, dtype=torch.float64)
    return Predictor(layer, KernelReadout(layer, 1))


SETTINGS = {"washout": 20, "horizon": 20, "population": 6, "trials": 1, "spread": 0.5, "mutation": 0.01, "scale": 0.1}


def test_evoke_generates_what_it_judged() -> None:
    learner, series = Evoke(machine(), **SETTINGS), sines(120)
    best = learner.step(series[:-1], series[1:])
    made = learner.generate(series[:100], 20)
    assert best == pytest.approx(float((made - series[100:120]).square().mean()), rel=1e-6)
    with torch.no_grad():
        assert_close(learner.model(0.1 * series[:100])[0][-1], made[0], 1e-9)  # the head is the readout


def test_evoke_learns_and_resumes() -> None:
    series = sines(120)
    straight, first, second = (Evoke(machine(), **SETTINGS) for _ in range(3))
    expected = [straight.step(series[:-1], series[1:]) for _ in range(4)]
    found = [first.step(series[:-1], series[1:]) for _ in range(2)]
    second.load_state_dict(first.state_dict())
    found += [second.step(series[:-1], series[1:]) for _ in range(2)]
    assert found == expected
    assert expected[-1] < expected[0]
    assert expected[-1] < 0.5 * float(series.var())
    second.refit(series[:-1], series[1:])
    assert len(second.model.head.support) > 0


def test_the_linear_programme_fits_a_linear_head() -> None:
    torch.manual_seed(0)
    model = Predictor(rc.Recurrent(EvolinoCell, 1, 5, dtype=torch.float64), 1)
    learner = Evolino(model, readout=SupportVectors(1e3, 1e-3, "linear"), **SETTINGS)
    series = sines(120)
    best = learner.step(series[:-1], series[1:])
    made = learner.generate(series[:100], 20)
    assert best == pytest.approx(float((made - series[100:120]).square().mean()), rel=1e-6)


def test_what_is_wrong_is_named() -> None:
    linear = Predictor(rc.Recurrent(EvolinoCell, 1, 5), 1)
    with pytest.raises(rc.InputError, match="KernelReadout"):
        Evoke(linear)
    with pytest.raises(rc.InputError, match="linear head"):
        Evolino(machine(), readout=SupportVectors(kernel="linear"))
    with pytest.raises(rc.OptionError, match="ridge"):
        Evolino(linear, ridge=0.1, readout=SupportVectors(kernel="linear"))
    with pytest.raises(rc.RecurraError, match="kernel"):
        SupportVectors(kernel="cubic")
    with pytest.raises(rc.ShapeError, match="gram"):
        support_vector_regression(torch.zeros(3, 3), torch.zeros(3))
