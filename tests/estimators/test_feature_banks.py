"""Banks of random recurrent units: compiled loops against NumPy, units against SciPy, ridge against refits."""

from itertools import groupby

import numpy as np
import pytest
from scipy.signal import lfilter
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.linear_model import RidgeCV

import recurra as rc
from recurra.estimators.effort import EFFORTS, choose_effort
from recurra.estimators.feature_banks import kernel, reference, ridge
from recurra.estimators.feature_banks.banks import Competitions, DelayLines, LeakyNetworks, Resonators
from recurra.estimators.feature_banks.ensemble import FeatureEnsemble, Size, member_weights
from recurra.estimators.feature_banks.overlaps import Held, blocks_of_windows
from recurra.estimators.feature_banks.ridge import PENALTIES, Ridge
from recurra.estimators.feature_banks.sequences import Sequences
from recurra.estimators.feature_banks.summaries import Summary
from recurra.estimators.feature_banks.views import Views
from recurra.estimators.missing_values import fill_missing

BANKS = {"delay lines": (DelayLines, 252), "rivals": (Competitions, 3), "resonators": (Resonators, 64)}
BANKS["networks"] = (LeakyNetworks, 32)


def walks(features: int = 1, n: int = 6, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    lengths = [1, 2, 17, *random.integers(5, 60, n - 3)]
    return [3 + np.cumsum(random.normal(size=(length, features)), axis=0) for length in lengths]


# ---------------------------------------------------------------------------------------------------- the loops


@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("name", BANKS)
def test_compiled_loops_compute_what_numpy_does(name, features, monkeypatch):
    if not kernel.is_compiled():
        pytest.skip("no C++ compiler")
    kind, units = BANKS[name]
    random, series = np.random.default_rng(1), walks(features)
    views = Views.of(series, random)
    given = views.apply(series)
    bank = kind(views.count, given.typical_length, units, random)
    bank.set_thresholds(given, random)
    found = np.concatenate(bank.features(given), axis=1)
    monkeypatch.setattr(kernel, "is_compiled", lambda: False)
    exact = Sequences([rows.astype(np.float64) for rows in given.items])
    expected = np.concatenate(bank.features(exact), axis=1)
    assert found.shape == (len(series), bank.width(features))
    # float32 against float64: a value within rounding of its threshold may fall on the other side, rarely
    assert np.mean(np.abs(found - expected) > 1e-4) < 2e-3


def test_counters_are_what_their_words_say():
    random = np.random.default_rng(2)
    u, thresholds = random.normal(size=(5, 40)), np.array([0.0, 0.5, -0.5, -9.0, 9.0])
    share, excess, position, longest = reference.counters(u, thresholds)
    for k, row in enumerate(u):
        above = [t for t, value in enumerate(row) if value > thresholds[k]]
        runs = [len(list(group)) for is_above, group in groupby(row > thresholds[k]) if is_above]
        assert share[k] == len(above) / 40
        assert longest[k] == max(runs, default=0) / 40
        assert excess[k] == pytest.approx(np.mean(row[above] - thresholds[k]) if above else 0.0)
        assert position[k] == pytest.approx(np.mean(above) / 40 if above else -0.1)


def test_delay_lines_are_balanced_dilated_filters():
    x, dilation = np.random.default_rng(3).normal(size=50), 3
    weights = np.full(9, -1.0)
    weights[reference.FILTERS[40]] = 2.0
    spread = np.zeros(8 * dilation + 1)
    spread[::dilation] = weights
    expected = np.convolve(x, spread[::-1], mode="full")[4 * dilation : 4 * dilation + 50]
    np.testing.assert_allclose(reference.delay_line_values(x, dilation)[40], expected, atol=1e-12)
    assert len(reference.FILTERS) == 84
    assert weights.sum() == 0


def test_resonators_are_linear_filters_that_start_in_their_steady_state():
    bank = Resonators(1, 100, 32, np.random.default_rng(4))
    parameters = bank.parameters.astype(np.float64)
    flat = reference.resonator_values(np.full(30, 1.7), parameters)
    np.testing.assert_allclose(flat, np.repeat(flat[:, :1], 30, axis=1), atol=1e-9)  # rounding, at a gain of about 25
    x = np.concatenate([[0.0], np.random.default_rng(5).normal(size=40)])
    found = reference.resonator_values(x, parameters)
    for k in range(0, 32, 3):
        a, c = complex(*parameters[:2, k]), complex(*parameters[2:4, k])
        z, y = lfilter([1], [1, -a], x.astype(complex)), lfilter([1], [1, -parameters[4, k]], x)
        np.testing.assert_allclose(found[k], (np.conj(c) * z).real - parameters[5, k] * y, atol=1e-10)


def test_squash_is_tanh():
    x = np.linspace(-9, 9, 1001)
    np.testing.assert_allclose(reference.squash(x), np.tanh(x), atol=1.1e-4)  # the error of the approximant


# ---------------------------------------------------------------------------------------------------- views


def test_views_scale_by_the_sequence_and_by_the_set():
    series = walks(n=20)
    views = Views.of(series, np.random.default_rng(0))
    rows = views.apply(series).items[5] * views.sizes[:, None]
    x = series[5][:, 0]
    np.testing.assert_allclose(rows[0], (x - x.mean()) / x.std(), atol=1e-5)  # float32
    steps = np.concatenate(series)
    np.testing.assert_allclose(rows[2], (x - steps.mean()) / steps.std(), atol=1e-5)
    np.testing.assert_allclose(rows[1][1:], np.diff(rows[0]), atol=1e-5)
    every = np.concatenate(views.apply(series).items, axis=1)
    np.testing.assert_allclose(np.square(every).mean(axis=1), 1.0, rtol=1e-4)
    same = [(x - x.mean()) / x.std() for x in series[3:]]
    assert Views.of(same, np.random.default_rng(0)).count == 2  # both scalings would give the same


# ---------------------------------------------------------------------------------------------------- ridge regression


@pytest.mark.parametrize("width", [40, 6], ids=["more features", "more samples"])
def test_left_out_predictions_are_those_of_refits(width):
    random = np.random.default_rng(6)
    features, weights = random.normal(size=(15, width)), random.uniform(0.5, 2.0, 15)
    targets = features[:, :2] + 0.3 * random.normal(size=(15, 2))
    found = Ridge.fit([features], [1.0], targets, weights)
    centred = (features - np.average(features, axis=0, weights=weights)) / features.std(axis=0) / np.sqrt(width)
    rows = np.sqrt(weights)[:, None] * centred
    best = None
    for penalty in PENALTIES * np.trace(rows @ rows.T) / 15:
        left_out = np.empty_like(targets)
        for k in range(15):
            others = np.arange(15) != k
            model = SklearnRidge(alpha=penalty).fit(centred[others], targets[others], sample_weight=weights[others])
            left_out[k] = model.predict(centred[k : k + 1])[0]
        error = (weights[:, None] * (left_out - targets) ** 2).sum()
        if best is None or error < best[0]:
            whole = SklearnRidge(alpha=penalty).fit(centred, targets, sample_weight=weights)
            best = error, left_out, whole.predict(centred)
    assert best is not None
    np.testing.assert_allclose(found.left_out, best[1], atol=1e-4)  # features are float32
    np.testing.assert_allclose(found.scores(features), best[2], atol=1e-4)


def test_members_are_weighted_by_what_they_know():
    random = np.random.default_rng(7)
    truth = random.normal(size=(200, 3))
    noisy, noise = truth + 0.1 * random.normal(size=(200, 3)), random.normal(size=(200, 3))
    good, bad = member_weights([noisy, noise], truth, np.ones(200))
    assert good > 0.9
    assert 0 <= bad < 0.1


def test_ensemble_without_a_compiler_gives_the_same_scores(monkeypatch):
    series, targets = walks(n=12), np.random.default_rng(0).normal(size=(12, 1))
    size = Size(84, 1, 32, 32)
    scores = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(kernel, "is_compiled", lambda: False)
        ensemble = FeatureEnsemble.draw(series, size, 1, seed=0).fit(series, targets, np.ones(12))
        scores.append(ensemble.scores(series))
    assert np.corrcoef(scores[0][:, 0], scores[1][:, 0])[0, 1] > 0.999


# ---------------------------------------------------------------------------------------------------- sizes and gaps


def test_effort_follows_the_size():
    few, many = [np.zeros((10, 1))] * 20, [np.zeros((10, 1))] * 6000
    assert choose_effort("auto", few) == ("balanced", EFFORTS["balanced"])
    name, effort = choose_effort("auto", many)
    assert name == "quick"
    assert effort.size.delay_lines < EFFORTS["quick"].size.delay_lines
    assert choose_effort("best", many) == ("best", EFFORTS["best"])


def test_missing_values():
    nan = np.nan
    x = np.array([[nan, 1.0], [2.0, nan], [nan, nan], [4.0, 7.0], [nan, nan]])
    np.testing.assert_allclose(fill_missing(x), [[2, 1], [2, 3], [3, 5], [4, 7]])
    np.testing.assert_allclose(fill_missing(np.full((3, 2), nan)), [[0, 0]])
    np.testing.assert_allclose(fill_missing(np.array([[nan, 1.0], [nan, 2.0]])), [[0, 1], [0, 2]])


# ---------------------------------------------------------------------------------------------------- shared steps


def windows_of(y: np.ndarray, steps: int, shift: int, ahead: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Windows (steps, 1) and the mean of the values after each."""
    ends = range(steps, len(y) - ahead, shift)
    return [y[end - steps : end, None] for end in ends], np.array([y[end : end + ahead].mean() for end in ends])


def test_windows_that_share_steps_are_left_out_together():
    random = np.random.default_rng(0)
    y = random.normal(size=200).cumsum()
    windows, _ = windows_of(y, steps=20, shift=4, ahead=4)
    found = blocks_of_windows(windows)
    assert found is not None
    predicted = np.concatenate([rows[part] for rows, part in found])
    np.testing.assert_array_equal(predicted, np.arange(len(windows)))
    assert found[5].predicted.start == min(5, len(windows) // 10)  # five windows share steps with each
    apart = windows_of(y, steps=4, shift=4, ahead=4)[0]
    for others in (apart, windows[::-1], [*windows[:-1], windows[0][:5]], windows[:10], [0 * x for x in windows]):
        assert blocks_of_windows(others) is None


@pytest.mark.parametrize("features", [8, 60])
def test_errors_of_blocks_are_those_of_fits_without_them(features, monkeypatch):
    random = np.random.default_rng(1)
    X, y, weights = random.normal(size=(40, features)), random.normal(size=(40, 2)), random.uniform(0.5, 2, 40)
    X -= np.average(X, axis=0, weights=weights)
    y -= np.average(y, axis=0, weights=weights)
    monkeypatch.setattr(ridge, "PENALTIES", np.array([0.1]))
    root = np.sqrt(weights)
    rows = root[:, None] * X
    mean = np.square(rows).sum() / 40  # of the eigenvalues, which both solvers scale the penalty by
    held = [Held(np.arange(0, 12), slice(0, 8)), Held(np.arange(4, 40), slice(4, 36))]
    solve = ridge._solve_features if features < 40 else ridge._solve_samples
    _, errors = solve([rows.astype(np.float32)], root[:, None] * y, root, held)
    for out, part in held:
        kept = np.setdiff1d(np.arange(40), out)
        full = np.column_stack([rows[kept], root[kept]])  # the intercept has no penalty
        shrink = 0.1 * mean * np.diag([1.0] * features + [0.0])
        found = np.linalg.solve(full.T @ full + shrink, full.T @ (root[:, None] * y)[kept])
        missed = root[out, None] * (y[out] - np.column_stack([X[out], np.ones(len(out))]) @ found)
        np.testing.assert_allclose(errors[out[part]], missed[part], rtol=1e-4, atol=1e-4)


def test_a_regression_of_windows_does_not_lose_to_a_linear_one():
    """Neighbours share their targets, so that features which remember them seemed best."""
    random, y = np.random.default_rng(3), np.zeros(900)
    for t in range(2, 900):
        y[t] = 1.9 * y[t - 1] - 0.93 * y[t - 2] + random.normal()
    X, targets = windows_of(y, steps=40, shift=3, ahead=12)
    cut = 160
    ours = rc.SequenceRegressor(effort="quick", random_state=0).fit(X[:cut], targets[:cut])
    rows = np.stack(X)[:, :, 0]
    linear = RidgeCV(np.logspace(-3, 3, 7)).fit(rows[:cut], targets[:cut])
    assert ours.score(X[cut + 20 :], targets[cut + 20 :]) > linear.score(rows[cut + 20 :], targets[cut + 20 :]) - 0.03


def test_a_summary_is_what_a_linear_model_reads_of_a_column():
    x = np.array([[3.0, 0.0], [1.0, 0.0], [5.0, 0.0], [2.0, 8.0]])
    (row,) = Summary().features([x])[0]
    numbers = row[:-1].reshape(10, 2)[:, 0]
    np.testing.assert_allclose(numbers, [2.75, x[:, 0].std(), 1, 5, 3, 2, 3, 1.75, 2.5, 3.5])
    assert row[-1] == np.log(4)
    assert Summary().width(2) == len(row)
    np.testing.assert_array_equal(Summary(2).features([x])[0][0], np.r_[row[:4], row[-1]])  # of older models


def test_what_the_largest_value_decides_is_read_exactly():
    X = np.random.default_rng(0).normal(size=(180, 40)).cumsum(axis=1)
    y = X.max(axis=1) - X[:, -1]
    model = rc.SequenceRegressor(effort="quick", random_state=0).fit(X[:120], y[:120])
    assert model.score(X[120:], y[120:]) > 0.999
