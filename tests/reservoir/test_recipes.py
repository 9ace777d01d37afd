"""Two leak constants, rings, intrinsic plasticity, NVAR, and gradient descent on the global parameters."""

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.reservoir import NVAR, Weights, draw, intrinsic_plasticity, kernel, ring, spectral_radius, tune
from recurra.reservoir.core import LeakyReservoir
from recurra.reservoir.matrices import effective_radius
from recurra.reservoir.recipes import apply_gains
from recurra.reservoir.tuning import _measure


def reservoir(units: int = 12, inputs: int = 2, seed: int = 0) -> Weights:
    random = np.random.default_rng(seed)
    return draw(units, inputs, 0, radius=0.9, density=0.5, input_scaling=0.7, feedback=0.0, bias=0.3, random=random)


def by_hand(weights: Weights, x: np.ndarray, leak: float, decay: float) -> np.ndarray:
    h, found = np.zeros(len(weights.b)), []
    for x_t in x:
        h = (1 - decay * leak) * h + leak * np.tanh(weights.W @ h + weights.U @ x_t + weights.b)
        found.append(h)
    return np.array(found)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("batch", [1, 11])
def test_two_leak_constants(compiled: bool, batch: int, monkeypatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernel, "_compiled", lambda: None)
    weights, x = reservoir(), np.random.default_rng(1).normal(size=(20, batch, 2))
    found, _ = LeakyReservoir(weights, 0.4, 0.0, decay=1.7).run(x, np.zeros((12, batch)))
    for b in range(batch):
        np.testing.assert_allclose(found[:, b], by_hand(weights, x[:, b], 0.4, 1.7), rtol=1e-12, atol=1e-13)


def test_two_constants_are_one_of_a_scaled_reservoir() -> None:
    """a h obeys the equation with one constant aγ and W / a."""
    weights, x = reservoir(), np.random.default_rng(1).normal(size=(30, 1, 2))
    two, _ = LeakyReservoir(weights, 0.4, 0.0, decay=1.5).run(x, np.zeros((12, 1)))
    scaled = Weights(weights.W / 1.5, weights.U, weights.F, weights.b)
    one, _ = LeakyReservoir(scaled, 0.6, 0.0).run(x, np.zeros((12, 1)))
    np.testing.assert_allclose(1.5 * two, one, rtol=1e-12)
    dense = 0.4 * weights.W.toarray() + (1 - 0.6) * np.eye(12)
    assert effective_radius(weights.W, 0.4, 1.5) == pytest.approx(np.abs(np.linalg.eigvals(dense)).max(), rel=1e-10)


def test_the_second_constant_has_a_range() -> None:
    x = np.random.default_rng(0).normal(size=(200, 1))
    rc.EchoStateNetwork(units=10, leak=0.5, decay=2.0, random_state=0).fit(x, x)
    with pytest.raises(rc.InputError, match="decay"):
        rc.EchoStateNetwork(units=10, leak=0.5, decay=2.1).fit(x, x)


def test_a_ring_is_a_cycle_of_one_weight() -> None:
    weights = ring(6, 2, weight=0.8, input_scaling=0.3, bias=0.1)
    expected = 0.8 * np.roll(np.eye(6), 1, axis=0)
    np.testing.assert_array_equal(weights.W.toarray(), expected)
    np.testing.assert_allclose(np.linalg.matrix_power(expected, 6), 0.8**6 * np.eye(6), rtol=1e-12)
    assert set(np.abs(weights.U).ravel()) == {0.3}
    assert set(np.abs(weights.b)) == {0.1}
    jumping = ring(6, 1, weight=0.8, jumps=3, jump_weight=0.2).W.toarray()
    assert jumping[0, 3] == jumping[3, 0] == 0.2
    assert (jumping != 0).sum() == 6 + 2
    assert spectral_radius(weights.W) == pytest.approx(0.8)


def test_a_ring_remembers() -> None:
    """Linear memory of a delay, which needs the whole ring."""
    x = np.random.default_rng(0).uniform(-1, 1, (1500, 1))
    y = np.roll(x, 20, axis=0)
    network = rc.EchoStateNetwork(weights=ring(50, 1, weight=0.95, input_scaling=0.1), washout=100).fit(
        x[:1000], y[:1000]
    )
    assert network.score(x[1000:], y[1000:]) > 0.9


def test_gains_become_part_of_the_matrices() -> None:
    weights, random = reservoir(), np.random.default_rng(3)
    gain, bias = random.uniform(0.5, 2, 12), random.normal(size=12)
    plain = apply_gains(weights, gain, bias)
    h, x = random.normal(size=12), random.normal(size=2)
    total = weights.W @ h + weights.U @ x + weights.b
    found = np.tanh(plain.W @ h + plain.U @ x + plain.b)
    np.testing.assert_allclose(found, np.tanh(gain * total + bias), rtol=1e-12)


def test_plasticity_brings_each_unit_to_the_distribution() -> None:
    x = np.random.default_rng(0).normal(size=(3000, 2))
    weights = reservoir(20)

    def statistics(given: Weights) -> tuple[np.ndarray, np.ndarray]:
        states = by_hand(given, x, 1.0, 1.0)[100:]
        return states.mean(0), states.std(0)

    adapted = intrinsic_plasticity(weights, x, mean=0.1, std=0.25, rate=2e-4, epochs=8)
    mean, std = statistics(adapted)
    before_mean, before_std = statistics(weights)
    assert np.abs(std - 0.25).max() < 0.03 < np.abs(before_std - 0.25).mean()
    assert np.abs(mean - 0.1).max() < 0.05 < np.abs(before_mean - 0.1).mean()


def test_the_rule_of_plasticity_is_a_gradient() -> None:
    """Δb and Δa are minus the derivatives of -log |y'(x)| - log N(y; μ, σ²), whose mean is the divergence."""
    total, a, b = (torch.tensor(v, dtype=torch.float64) for v in (0.7, 1.3, -0.2))
    a.requires_grad_(), b.requires_grad_()
    mu, variance, rate = 0.1, 0.04, 1e-3
    y = torch.tanh(a * total + b)
    loss = -torch.log(a * (1 - y**2)) + (y - mu) ** 2 / (2 * variance)
    by_a, by_b = torch.autograd.grad(loss, (a, b))
    weights = Weights.given(np.zeros((1, 1)), [[1.0]], None, 0.0)
    from recurra.reservoir.recipes import _adapt

    rule = (mu, variance, rate, 1.0)
    gain, bias = _adapt(weights, np.array([[0.7]]), np.array([1.3]), np.array([-0.2]), rule, 0)
    assert bias[0] - -0.2 == pytest.approx(-rate * float(by_b), rel=1e-10)
    assert gain[0] - 1.3 == pytest.approx(-rate * float(by_a), rel=1e-10)


# ------------------------------------------------------------------------------------------ NVAR


def test_nvar_features_are_those_of_reservoirpy() -> None:
    nodes = pytest.importorskip("reservoirpy.nodes")
    x = np.random.default_rng(0).normal(size=(12, 2))
    model = NVAR(delays=3, stride=2, order=2)
    found = model.features(x)
    expected = nodes.NVAR(delay=3, order=2, strides=2).run(x)[4:]
    assert found.shape == (8, 1 + 6 + 21)
    np.testing.assert_allclose(np.sort(found[:, 1:], axis=1), np.sort(expected, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(found[:, 0], 1.0)


def test_nvar_is_ridge_regression() -> None:
    random = np.random.default_rng(1)
    x, y = random.normal(size=(80, 2)), random.normal(size=(80, 1))
    model = NVAR(delays=2, ridge=0.3).fit(x, y)
    S = model.features(x)
    expected = np.linalg.solve(S.T @ S + 0.3 * np.eye(S.shape[1]), S.T @ y[1:])
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-9)
    np.testing.assert_allclose(model.predict(x), S @ expected, rtol=1e-9)
    missed = y[1:] - S @ expected
    assert model.score(x, y) == pytest.approx(1 - (missed**2).sum() / ((y[1:] - y[1:].mean()) ** 2).sum())


def test_nvar_continues_a_quadratic_map() -> None:
    """The logistic map is of second order: it is learned exactly."""
    x = [0.3]
    for _ in range(300):
        x.append(3.7 * x[-1] * (1 - x[-1]))
    series = np.array(x)[:, None]
    model = NVAR(delays=1, order=2, ridge=0.0).fit(series[:280])
    np.testing.assert_allclose(model.generate(8), series[280:288], atol=1e-9)
    np.testing.assert_allclose(model.generate(3, warmup=series[:100]), series[100:103], atol=1e-10)
    with pytest.raises(rc.OptionError, match="generate"):
        NVAR().fit(series, series).generate(2)
    with pytest.raises(rc.InputError, match="order"):
        NVAR(order=0).fit(series)


# ------------------------------------------------------------------------------------------ global parameters


def delayed_product(steps: int = 400) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (steps, 1))
    return x, np.roll(x, 3, axis=0) * np.roll(x, 1, axis=0)


@pytest.mark.parametrize("feedback", [0.0, 0.3])
def test_the_gradient_is_that_of_differences(feedback: float) -> None:
    x, y = delayed_product()
    options = {"leak": 0.6, "decay": 1.2, "spectral_radius": 0.8, "input_scaling": 0.5, "feedback": feedback}
    names = tuple(options) if feedback else tuple(options)[:-1]
    settings = {"units": 15, "ridge": 1e-3, "washout": 50, "random_state": 0, "bias": 0.1}
    found = _measure(rc.EchoStateNetwork(**options, **settings), x, y, names)
    for name in names:
        errors = []
        for sign in (1, -1):
            moved = options | {name: options[name] + sign * 1e-5}
            errors.append(_measure(rc.EchoStateNetwork(**moved, **settings), x, y, names).error)
        assert found.gradient[name] == pytest.approx((errors[0] - errors[1]) / 2e-5, rel=1e-4, abs=1e-9), name


def test_descent_finds_better_parameters() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (900, 1))
    y = np.roll(x, 4, axis=0)
    poor = {"leak": 0.3, "spectral_radius": 0.5, "input_scaling": 2.0}
    network = rc.EchoStateNetwork(units=30, ridge=1e-6, random_state=0, **poor)
    found = tune(network, x[:600], y[:600], rounds=25, rate=0.2)
    assert list(found.errors) == sorted(found.errors, reverse=True)
    assert found.errors[-1] < 0.1 * found.errors[0]
    assert network.fit(x[:600], y[:600]).score(x[600:], y[600:]) < 0.5
    assert found.network.score(x[600:], y[600:]) > 0.98
    assert found.network.leak == found.parameters[-1]["leak"] != 0.3


def test_what_cannot_be_tuned_is_named() -> None:
    x, y = delayed_product()
    with pytest.raises(rc.OptionError, match="parameters"):
        tune(rc.EchoStateNetwork(units=5), x, y, parameters=("units",))
    with pytest.raises(rc.InputError, match="feedback"):
        tune(rc.EchoStateNetwork(units=5), x, y, parameters=("feedback",))
    with pytest.raises(rc.OptionError, match="one reservoir with ridge"):
        tune(rc.EchoStateNetwork(units=[5, 5], random_state=0), x, y)
