"""Baselines against independent computations."""

import math

import numpy as np
import pytest
from compare.data import tagged, turns, waves

import recurra as rc
from recurra.compare.baselines import BASELINES, baseline, baselines_of, smoothing
from recurra.compare.baselines.features import RawSteps, SummaryFeatures
from recurra.compare.baselines.neighbours import warped_distances
from recurra.errors import UnknownNameError
from recurra.problem import infer_problem
from recurra.problem.problem import TASKS


def judged(problem, name: str, seed: int = 0) -> float:
    made = baseline(problem.task, name, problem.options, seed).fit(*problem.train)
    assert made.n_parameters_ >= 0
    return problem.score(made)


def test_every_task_has_baselines():
    assert set(BASELINES) == set(TASKS)
    every = ["naive", "drift", "smoothing", "linear AR", "ESN"]
    assert [name for name, _ in baselines_of("forecast", {"season": 1})] == every
    assert ("seasonal naive", False) in baselines_of("forecast", {"season": 12})
    with pytest.raises(UnknownNameError, match="did you mean 'majority'"):
        baseline("classify", "majorty", {}, 0)


def test_classes(tmp_path):
    problem = infer_problem("japanese_vowels")
    y = problem.test[1]
    assert judged(problem, "majority") == pytest.approx(np.mean(y == 0))  # all classes are equally frequent
    assert judged(problem, "linear") > 0.95
    assert judged(problem, "ESN", 0) > 0.95
    assert judged(problem, "ESN", 0) == judged(problem, "ESN", 0)
    assert judged(problem, "ESN", 0) != judged(problem, "ESN", 1)
    made = baseline("classify", "ESN", {}, 0).fit(*problem.train)
    shares = made.predict_proba(problem.test[0])
    assert np.allclose(shares.sum(axis=1), 1)
    assert (made.classes_[shares.argmax(axis=1)] == made.predict(problem.test[0])).all()


def test_a_linear_model_of_summary_features_ignores_order(tmp_path):
    problem = infer_problem(str(turns(tmp_path / "turns.csv", 120)))
    assert judged(problem, "linear") < 0.8
    assert judged(problem, "ESN") == 1.0


def test_summary_features():
    found = SummaryFeatures()([np.array([[1.0, 5.0], [3.0, 1.0]]), np.ones((4, 2))])
    assert found[0].tolist() == [2, 3, 1, 2, 1, 1, 3, 5, 1, 5, 3, 1, 2]
    assert found[1].tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 4]


def test_numbers():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(8, 2)) for _ in range(80)]
    y = np.array([3 * x[:, 0].mean() - x[-1, 1] + 1 for x in X])
    for name, most in (("linear", 1e-3), ("ESN", 0.5), ("mean", 2.0)):
        made = baseline("regress", name, {}, 0).fit(X[:60], y[:60])
        assert np.abs(made.predict(X[60:]) - y[60:]).mean() < most, name
    assert baseline("regress", "mean", {}, 0).fit(X, y).predict(X[:3]) == pytest.approx(y.mean())
    two = baseline("regress", "ESN", {}, 0).fit(X, np.column_stack([y, -y]))
    assert np.allclose(two.predict(X)[:, 0], -two.predict(X)[:, 1])


def test_naive_forecasts_equal_those_of_the_backtest(tmp_path):
    problem = infer_problem(str(waves(tmp_path / "waves.csv")), season=12, horizon=6)
    network = problem.estimator("rnn", hidden_size=2, epochs=1, random_state=0).fit(*problem.train)
    measured = problem.evaluate(network, problem.test)
    assert judged(problem, "naive") == pytest.approx(measured["mase of naive"])
    assert judged(problem, "seasonal naive") == pytest.approx(measured["mase of seasonal naive"])


def test_a_linear_recurrence_is_forecast_without_error():
    t = np.arange(200.0)
    series = np.stack([np.sin(0.3 * t), 5 + 2 * np.cos(0.3 * t)])
    options = {"horizon": 8, "season": 1}
    for name, most in (("linear AR", 1e-3), ("ESN", 0.05)):
        made = baseline("forecast", name, options, 0).fit(series[:, :160])
        assert made.backtest(series, windows=3).scores["model"]["MASE"] < most, name
        assert made.backtest(series, h=12, windows=2).steps == 12


def test_tags(tmp_path):
    problem = infer_problem(str(tagged(tmp_path / "tags.conll")))
    assert judged(problem, "word's own tag") == 1.0
    assert judged(problem, "frequent tag") == 0.0
    made = baseline("tag", "word's own tag", {}, 0).fit([["a", "b"], ["a"]], [["X", "Y"], ["X"]])
    assert made.predict([["b", "c"]]) == [["Y", "X"]]


def test_unigrams_reach_the_entropy_of_their_frequencies():
    text = "ab" * 500 + "c"
    made = baseline("language", "unigram", {}, 0).fit(text)
    shares = np.array([501, 501, 2]) / 1004  # one was added to each
    expected = -(499 * math.log2(shares[0]) + 500 * math.log2(shares[1]) + math.log2(shares[2])) / 1000
    assert made.measure(text)["bits_per_character"] == pytest.approx(expected)


def test_bigram_probabilities_sum_to_one():
    text = "ab" * 50 + "cab"
    made = baseline("language", "bigram", {}, 0).fit(text)
    for before in range(3):
        assert sum(made._probability(before, token) for token in range(3)) == pytest.approx(1)
    assert made.measure("abab" * 20)["bits_per_character"] < 0.2
    measured = made.measure("abca")
    assert measured["perplexity"] == pytest.approx(math.exp(measured["nats"]))
    assert measured["bits_per_character"] == pytest.approx(measured["nats"] / math.log(2))


def test_metrics_equal_those_of_the_language_model():
    text = "the cat sat\nthe dog sat\n" * 30
    pairs = baseline("language", "bigram", {"level": "word"}, 0).fit(text).measure(text)
    model = rc.LanguageModelEstimator("rnn", 4, level="word", epochs=1, random_state=0).fit(text).measure(text)
    ratio = [found["bits_per_character"] / found["nats"] for found in (pairs, model)]
    assert ratio[0] == pytest.approx(ratio[1])


def test_warping_is_the_textbook_recursion():
    rng = np.random.default_rng(5)
    one, other, band = rng.normal(size=(3, 7, 2)), rng.normal(size=(4, 7, 2)), 2

    def textbook(x, z):
        table = np.full((8, 8), np.inf)
        table[0, 0] = 0.0
        for i in range(1, 8):
            for j in range(max(1, i - band), min(7, i + band) + 1):
                steps = table[i - 1, j], table[i, j - 1], table[i - 1, j - 1]
                table[i, j] = ((x[i - 1] - z[j - 1]) ** 2).sum() + min(steps)
        return math.sqrt(table[7, 7])

    expected = [[textbook(x, z) for z in other] for x in one]
    assert warped_distances(one, other, band) == pytest.approx(np.array(expected))
    assert warped_distances(one, other, 0) == pytest.approx(
        np.sqrt(((one[:, None] - other[None]) ** 2).sum(axis=(2, 3)))
    )


def test_neighbours_find_shifted_shapes():
    t = np.arange(60.0)
    bump = lambda at, sign: sign * np.exp(-0.5 * ((t - at) / 2) ** 2)[:, None]  # noqa: E731
    X = [bump(at, sign) for at in (20, 40) for sign in (1, -1)]
    y = np.array(["up", "down"] * 2)
    asked, truth = [bump(22, 1), bump(38, -1)], ["up", "down"]
    for name in ("1-NN", "1-NN DTW"):
        made = baseline("classify", name, {}, 0).fit(X, y)
        assert made.predict(asked).tolist() == truth
        assert made.predict_proba(asked).sum(axis=1) == pytest.approx(1.0)


def test_raw_steps_are_aligned_at_their_ends():
    features = RawSteps().fit([np.ones((3, 1)), np.full((1, 1), 5.0)])
    assert features([np.array([[7.0]]), np.arange(3.0)[:, None]]).tolist() == [[2, 2, 7], [0, 1, 2]]


def test_random_kernels_see_order(tmp_path):
    problem = infer_problem(str(turns(tmp_path / "turns.csv", 120)))
    assert judged(problem, "random kernels") > 0.95
    assert judged(problem, "random kernels", 0) == judged(problem, "random kernels", 0)
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(8 + k % 3, 2)) for k in range(40)]
    y = np.array([x[-1, 0] for x in X])
    for name in ("linear, raw", "1-NN", "1-NN DTW", "random kernels"):
        assert baseline("regress", name, {}, 0).fit(X, y).predict(X[:5]).shape == (5,)
    assert np.abs(baseline("regress", "linear, raw", {}, 0).fit(X, y).predict(X) - y).mean() < 0.05


def test_smoothing_is_the_recursion_written_out():
    """One setting, in the component form of Hyndman et al. 2008, by a plain loop."""
    rng = np.random.default_rng(2)
    y = np.cumsum(rng.normal(size=40)) + np.tile([0.0, 2.0, -1.0, 3.0], 10)
    setting = np.array([[0.4, 0.1, 0.9, 0.3]])
    level, trend, offsets = y[:4].mean(), 0.0, list(y[:4] - y[:4].mean())
    for t, seen in enumerate(y):
        error = seen - (level + 0.9 * trend + offsets[t % 4])
        level, trend = level + 0.9 * trend + 0.4 * error, 0.9 * trend + 0.4 * 0.1 * error
        offsets[t % 4] += 0.3 * (1 - 0.4) * error
    expected = [level + sum(0.9**k for k in range(1, h + 1)) * trend + offsets[(40 + h - 1) % 4] for h in range(1, 7)]
    assert smoothing._forecast(y[None], 6, 4, setting)[0] == pytest.approx(np.array(expected))


def test_drift_goes_on():
    line = 3 + 2 * np.arange(30.0)
    made = baseline("forecast", "drift", {"horizon": 4}, 0).fit(line)
    assert made.backtest(line, windows=2).scores["model"]["MAE"] == pytest.approx(0.0, abs=1e-9)
    saw = line + np.tile([0.0, 5.0, -3.0], 10)
    made = baseline("forecast", "seasonal drift", {"horizon": 6, "season": 3}, 0).fit(saw)
    assert made.backtest(saw, windows=2).scores["model"]["MAE"] == pytest.approx(0.0, abs=1e-9)


def test_a_free_running_echo_state_network_stays_in_range():
    rng = np.random.default_rng(4)
    walk = np.cumsum(rng.normal(size=150))
    for seed in range(3):
        made = baseline("forecast", "ESN", {"horizon": 12}, seed).fit(walk[:120])
        scores = made.backtest(walk, windows=2).scores
        assert scores["model"]["MASE"] < 4 * scores["naive"]["MASE"]


def test_translations_by_copy_and_by_the_nearest_source():
    X, y = ["one two", "seven five", "nine"], ["12", "75", "9"]
    assert baseline("translate", "copy", {}, 0).fit(X, y).predict(["abc"]) == ["abc"]
    nearest = baseline("translate", "nearest source", {}, 0).fit(X, y)
    assert nearest.predict(["one too", "seven fife", "nine"]) == y
