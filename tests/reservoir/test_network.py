"""Echo state networks: against reservoirpy, against normal equations, in every mode; and what they refuse."""

import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.model_selection import GridSearchCV, KFold

import recurra as rc
from recurra.errors import InputError, OptionError, ShapeError
from recurra.reservoir import EchoStateWarning, SeriesWarning, Weights, kernel, matrices

ESN = rc.EchoStateNetwork


def recall(steps: int = 1200, ago: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    u = np.random.default_rng(seed).uniform(-0.5, 0.5, (steps, 1))
    return u, np.concatenate([np.zeros((ago, 1)), u[:-ago]])


def weights(units: int = 60, inputs: int = 2, seed: int = 0) -> Weights:
    random = np.random.default_rng(seed)
    return matrices.draw(
        units, inputs, 0, radius=0.9, density=0.2, input_scaling=0.7, feedback=0.0, bias=0.3, random=random
    )


def states_of(network: rc.EchoStateNetwork, X: np.ndarray) -> np.ndarray:
    reservoir = network.members_[0].reservoir
    return reservoir.run(X[:, None], reservoir.initial(1))[0][:, 0]


# ---------------------------------------------------------------------------------------------------- the reservoir


def test_recipe_gives_radius_and_density():
    W = weights(400).W
    assert np.abs(np.linalg.eigvals(W.toarray())).max() == pytest.approx(0.9, abs=1e-9)
    assert W.nnz == 0.2 * 400 * 400


def test_sparse_eigensolver_agrees_with_the_dense_one():
    W = matrices.sparse_uniform(300, 0.05, np.random.default_rng(1))
    assert matrices.spectral_radius(W) == pytest.approx(np.abs(np.linalg.eigvals(W.toarray())).max(), abs=1e-9)


def test_effective_radius():
    W = weights(50).W
    expected = np.abs(np.linalg.eigvals(0.3 * W.toarray() + 0.7 * np.eye(50))).max()
    u, y = recall()
    network = ESN(units=50, leak=0.3, weights=Weights.given(W, np.ones((50, 1)))).fit(u, y)
    assert network.effective_spectral_radius_ == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("batch", [1, 3, 8, 21])
@pytest.mark.parametrize("leak", [1.0, 0.2])
def test_compiled_loop_equals_the_plain_one(batch: int, leak: float):
    random = np.random.default_rng(0)
    W, drive = weights(57).W, 3 * random.standard_normal((40, 57, batch))
    h, rates = random.standard_normal((57, batch)), np.full(57, leak)
    expected = kernel._plain(W, rates, h, drive.copy())
    np.testing.assert_allclose(kernel.run(W, rates, h, drive.copy()), expected, rtol=1e-13, atol=1e-13)


def test_compiled_tanh_is_accurate_everywhere():
    special = [0.0, 1e-300, -1e-20, 0.625, -0.625, 1e-5, 30.0, 1e300, np.inf, -np.inf]
    x = np.concatenate([np.linspace(-25, 25, 20001), special])
    none = sparse.csr_array((len(x), len(x)))
    found = kernel.run(none, np.ones(len(x)), np.zeros((len(x), 1)), x.reshape(1, -1, 1).copy()).ravel()
    np.testing.assert_allclose(found, np.tanh(x), rtol=1e-15, atol=0)


def test_without_a_compiler_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch):
    u, y = recall()
    with_one = ESN(units=50, random_state=0).fit(u, y).predict(u)
    monkeypatch.setattr(kernel, "_compiled", lambda: None)
    without = ESN(units=50, random_state=0).fit(u, y).predict(u)
    np.testing.assert_allclose(without, with_one, rtol=1e-6, atol=1e-7)


def test_equal_to_reservoirpy():
    from reservoirpy.nodes import Reservoir, Ridge

    given, random = weights(), np.random.default_rng(3)
    X, y = random.standard_normal((500, 2)), random.standard_normal((500, 1))
    theirs = Reservoir(W=given.W, Win=given.U, bias=given.b, lr=0.3)
    states = theirs.run(X)
    network = ESN(leak=0.3, weights=given, washout=50, ridge=1e-3, direct=False).fit(X, y)
    np.testing.assert_allclose(states_of(network, X), states, rtol=1e-12, atol=1e-12)
    ones = np.hstack([states, np.ones((500, 1))])
    readout = Ridge(ridge=1e-3, fit_bias=False).fit(ones[50:], y[50:])
    np.testing.assert_allclose(network.predict(X), readout.run(ones), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------------------------- readouts


def test_ridge_is_the_normal_equations_whatever_the_chunk():
    u, y = recall()
    for chunk in (4096, 97):
        network = ESN(units=40, washout=100, ridge=1e-4, random_state=1, chunk=chunk).fit(u, y)
        S = np.hstack([states_of(network, u), u, np.ones_like(u)])[100:]
        expected = np.linalg.solve(S.T @ S + 1e-4 * np.eye(42), S.T @ y[100:])
        np.testing.assert_allclose(network.members_[0].readout, expected, rtol=1e-7, atol=1e-8)


def test_no_penalty_is_the_pseudo_inverse():
    u, y = recall(300)
    network = ESN(units=400, washout=100, ridge=0.0, random_state=1).fit(u, y)  # more features than steps
    S = np.hstack([states_of(network, u), u, np.ones_like(u)])[100:]
    np.testing.assert_allclose(S @ network.members_[0].readout, y[100:], atol=1e-8)
    expected = np.linalg.norm(np.linalg.pinv(S) @ y[100:])
    assert np.linalg.norm(network.members_[0].readout) == pytest.approx(expected, rel=1e-6)


def test_ridge_by_products_and_by_factors_agree():
    random = np.random.default_rng(0)
    S, D = random.standard_normal((400, 8)), random.standard_normal((400, 2))
    expected = np.linalg.solve(S.T @ S + 2e-9 * np.eye(8), S.T @ D)
    # 2e-10 outweighs the rounding of the first rows' products, but not of all: it changes over on the way
    for smallest, product_kept in ((0.0, False), (2e-10, False), (1e-3, True)):
        solver = rc.reservoir.Ridge(smallest)
        for first in range(0, 400, 50):
            solver.add(S[first : first + 50], D[first : first + 50])
        assert (solver.gram is not None) == product_kept
        np.testing.assert_allclose(solver.weights(2e-9), expected, rtol=1e-10, atol=1e-12)


def test_leave_one_out_is_really_leaving_one_out():
    random = np.random.default_rng(0)
    S, D = random.standard_normal((30, 5)), random.standard_normal((30, 2))
    solver = rc.reservoir.Ridge()
    solver.add(S[:11], D[:11])
    solver.add(S[11:], D[11:])
    judge = solver.leave_one_out([0.1, 3.0])
    judge.add(S[:20], D[:20])
    judge.add(S[20:], D[20:])
    for penalty, found in zip([0.1, 3.0], judge.errors, strict=True):
        total = 0.0
        for i in range(30):
            rest = np.delete(np.arange(30), i)
            V = np.linalg.solve(S[rest].T @ S[rest] + penalty * np.eye(5), S[rest].T @ D[rest])
            total += ((D[i] - S[i] @ V) ** 2).sum()
        assert found == pytest.approx(total, rel=1e-10)


def test_leave_one_out_chooses_more_penalty_for_more_noise():
    u, y = recall(600)
    noisy = y + np.random.default_rng(1).standard_normal(y.shape)
    quiet = ESN(units=100, ridge="loo", random_state=0).fit(u, y).ridge_[0]
    assert ESN(units=100, ridge="loo", random_state=0).fit(u, noisy).ridge_[0] > 100 * quiet


def test_recursive_least_squares_is_ridge():
    u, y = recall(500)
    batch = ESN(units=30, ridge=1e-2, random_state=0).fit(u, y)
    online = ESN(units=30, ridge=1e-2, random_state=0, readout="rls").fit(u, y)
    np.testing.assert_allclose(online.members_[0].readout.V, batch.members_[0].readout, rtol=1e-7, atol=1e-8)


def test_learning_online_in_pieces_is_learning_at_once():
    u, y = recall(500)
    whole = ESN(units=30, ridge=1e-2, random_state=0, readout="rls").fit(u, y)
    pieces = ESN(units=30, ridge=1e-2, random_state=0, readout="rls")
    for piece in (slice(0, 200), slice(200, 201), slice(201, 500)):
        pieces.partial_fit(u[piece], y[piece])
    np.testing.assert_allclose(pieces.members_[0].readout.V, whole.members_[0].readout.V, rtol=1e-9, atol=1e-10)


def test_forgetting_follows_a_change():
    u, _ = recall(2000)
    y = np.where(np.arange(2000)[:, None] < 1000, u, -u)
    errors = {}
    for forgetting in (1.0, 0.98):
        network = ESN(units=20, ridge=1e-3, random_state=0, readout="rls", forgetting=forgetting).fit(u, y)
        errors[forgetting] = np.abs(network.predict(u) - y)[1500:].mean()
    assert errors[0.98] < 1e-3 < 0.05 < errors[1.0]


def test_any_sklearn_regressor():
    u, y = recall()
    own = ESN(units=40, ridge=1e-4, random_state=0, intercept=False).fit(u, y)
    theirs = ESN(units=40, random_state=0, intercept=False, readout=SklearnRidge(1e-4, fit_intercept=False)).fit(u, y)
    np.testing.assert_allclose(theirs.predict(u), own.predict(u), rtol=1e-7, atol=1e-7)


def test_any_sklearn_classifier_step_by_step():
    u, y = recall()
    names = np.array(["down", "level", "up"])
    label = lambda y: names[np.digitize(y[:, 0], [-0.2, 0.2])]  # noqa: E731
    readout = LogisticRegression(C=1e4, max_iter=5000)
    network = ESN(units=60, random_state=0, ensemble=3, readout=readout).fit(u, label(y))
    assert set(network.predict(u)) == set(names)
    u, y = recall(seed=5)
    assert network.score(u, label(y)) > 0.95


def test_output_activation_is_inverted_for_learning():
    u, y = recall()
    network = ESN(units=40, random_state=0, output_activation="tanh").fit(u, np.tanh(2 * y))
    plain = ESN(units=40, random_state=0).fit(u, 2 * y)
    np.testing.assert_allclose(network.predict(u), np.tanh(plain.predict(u)), rtol=1e-7, atol=1e-8)
    with pytest.raises(InputError, match="strictly between -1 and 1"):
        ESN(output_activation="tanh").fit(u, 3 * y)


# ---------------------------------------------------------------------------------------------------- modes


def sine(steps: int, phase: float = 0.0) -> np.ndarray:
    return np.sin(0.2 * np.arange(steps) + phase)[:, None]


def test_generates_from_feedback_and_from_its_input():
    full = sine(1200)
    for network, data in (
        (ESN(units=80, feedback=1.0, bias=0.3, noise=1e-7, random_state=0), (None, full[:1000])),
        (ESN(units=80, bias=0.3, noise=1e-7, random_state=0), (full[:1000], None)),
    ):
        network.fit(*data)
        np.testing.assert_allclose(network.generate(100), full[1000:1100], atol=1e-2)
        many = network.generate(50, warmup=[sine(300, 1.0), sine(300, 2.0)])
        assert many.shape == (2, 50, 1)
        np.testing.assert_allclose(many[1], sine(350, 2.0)[300:], atol=1e-2)
        np.testing.assert_allclose(network.generate(50, warmup=sine(300, 2.0)), many[1], atol=1e-7)


def test_generates_with_inputs_and_feedback():
    u = np.random.default_rng(0).uniform(-1, 1, (1500, 1))
    y = np.zeros_like(u)
    for t in range(1, len(u)):
        y[t] = 0.5 * y[t - 1] + 0.3 * u[t]
    network = ESN(units=100, feedback=0.1, input_scaling=0.1, random_state=0, noise=1e-7).fit(u[:1000], y[:1000])
    np.testing.assert_allclose(network.generate(200, X=u[1000:1200]), y[1000:1200], atol=1e-3)
    warm = network.generate(100, X=u[1200:1300], warmup=y[1000:1200], warmup_X=u[1000:1200])
    np.testing.assert_allclose(warm, y[1200:1300], atol=1e-3)
    np.testing.assert_allclose(network.predict(u)[200:], y[200:], atol=1e-3)  # hears itself from the first step on
    assert network.score(u, y) > 0.9999


def test_a_list_of_series_is_not_one_long_series():
    u, y = recall(800)
    halves = ESN(units=40, random_state=0, washout=50).fit([u[:400], u[400:]], [y[:400], y[400:]])
    answers = halves.predict([u[:300], u[300:]])
    assert [len(a) for a in answers] == [300, 500]
    np.testing.assert_allclose(answers[0], halves.predict(u[:300]), rtol=0, atol=0)
    S = [np.hstack([states_of(halves, part), part, np.ones_like(part)])[50:] for part in (u[:400], u[400:])]
    S, D = np.concatenate(S), np.concatenate([y[50:400], y[450:]])
    expected = np.linalg.solve(S.T @ S + 1e-8 * np.eye(42), S.T @ D)
    np.testing.assert_allclose(S @ halves.members_[0].readout, S @ expected, atol=1e-6)


def test_depth_and_ensemble():
    u, y = recall()
    deep = ESN(units=[30, 20], random_state=0).fit(u, y)
    assert deep.members_[0].readout.shape[0] == 30 + 20 + 2
    several = ESN(units=30, ensemble=3, random_state=0).fit(u, y)
    each = [
        m.predict(m.features(m.reservoir.run(u[:, None], m.reservoir.initial(1))[0][:, 0], u)) for m in several.members_
    ]
    np.testing.assert_allclose(several.predict(u), np.mean(each, axis=0), rtol=1e-10, atol=1e-12)
    assert not np.allclose(each[0], each[1], atol=1e-9)


@pytest.mark.parametrize("cell", ["gru", "lstm", rc.cells.LeakyRNN])
def test_any_cell_may_be_the_reservoir(cell: str | type[rc.Cell]):
    u, y = recall(600, ago=1)
    network = ESN(units=60, cell=cell, random_state=0, ridge=1e-9).fit(u, y)
    assert network.score(*recall(600, ago=1, seed=1)) > 0.97
    assert ESN(units=20, cell=cell, feedback=0.5, random_state=0).fit(None, sine(400)).generate(5).shape == (5, 1)


def tones(count: int, seed: int) -> tuple[list[np.ndarray], list[str]]:
    random = np.random.default_rng(seed)
    names = [["low", "high"][k] for k in random.integers(0, 2, count)]
    rates = {"low": 0.3, "high": 0.6}
    X = [np.sin(rates[n] * np.arange(random.integers(15, 40)) + random.uniform(0, 6))[:, None] for n in names]
    return X, names


def test_sequence_classification_with_support_times():
    network = ESN(units=50, bias=0.5, random_state=0, ensemble=3, support=3, ridge=1e-2).fit(*tones(300, 0))
    assert network.score(*tones(150, 1)) > 0.98
    assert network.members_[0].readout.shape == (3 * 51 + 1, 2)
    X, _ = tones(5, 2)
    alone = np.concatenate([network.decision_function([x]) for x in X])
    np.testing.assert_allclose(network.decision_function(X), alone, rtol=1e-10, atol=1e-12)  # padding has no say
    own = ESN(units=50, bias=0.5, random_state=0, readout=LogisticRegression(C=1e4, max_iter=5000)).fit(*tones(300, 0))
    assert own.score(*tones(150, 1)) > 0.95


def test_torch_tensors_are_series_too():
    u, y = recall()
    expected = ESN(units=20, random_state=0).fit(u, y).predict(u)
    found = ESN(units=20, random_state=0).fit(torch.from_numpy(u), torch.from_numpy(y)).predict(torch.from_numpy(u))
    np.testing.assert_allclose(found, expected, rtol=0, atol=0)


def test_scikit_learn_manners():
    network = ESN(units=20, random_state=3)
    assert clone(network).get_params() == network.get_params()
    X, labels = tones(40, 0)
    ragged = np.empty(40, dtype=object)
    ragged[:] = X
    search = GridSearchCV(network, {"leak": [0.3, 1.0]}, cv=KFold(2)).fit(ragged, np.array(labels))
    assert search.best_score_ > 0.6


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"spectral_radius": 0.0}, "spectral_radius: got 0.0"),
        ({"spectral_radius": -1}, "spectral_radius: got -1"),
        ({"density": 0.0}, "density: got 0.0"),
        ({"density": 1.5}, "density: got 1.5"),
        ({"leak": 0.0}, "leak"),
        ({"units": 0}, "units"),
        ({"units": []}, "units"),
        ({"washout": -1}, "washout"),
        ({"washout": 5000}, "1200 steps, expected more than the washout of 5000"),
        ({"ridge": -1.0}, "ridge"),
        ({"ridge": "best"}, "ridge"),
        ({"readout": "magic"}, "readout"),
        ({"output_activation": "tan"}, "did you mean 'tanh'"),
        ({"input_scaling": [1.0, 2.0]}, "input_scaling"),
        ({"noise": float("nan")}, "noise"),
        ({"density": 0.001, "units": 3}, "every eigenvalue is 0"),
        ({"readout": "rls", "ridge": 0.0}, "recursive least squares"),
        ({"cell": "lstn"}, "did you mean"),
        ({"weights": Weights.given(np.eye(3), np.ones((3, 2)))}, "weights: got U with 2 columns"),
    ],
)
def test_bad_options_are_named(options: dict, named: str):
    with pytest.raises(InputError, match=named):
        ESN(**options).fit(*recall())


def test_bad_series_are_named():
    u, y = recall()
    hole = u.copy()
    hole[17] = np.nan
    with pytest.raises(InputError, match="X: got nan at step 17, column 0"):
        ESN().fit(hole, y)
    with pytest.raises(InputError, match=r"y\[1\]: got inf at step 0"):
        ESN().fit([u, u], [y, np.full_like(y, np.inf)])
    with pytest.raises(InputError, match="y: got the constant 2 in column 0"):
        ESN().fit(u, np.full_like(y, 2.0))
    with pytest.warns(SeriesWarning, match=r"constant \(3\)"):
        ESN(units=20).fit(np.full_like(u, 3.0), y)
    with pytest.raises(ShapeError, match="as many as X"):
        ESN().fit(u, y[:-1])
    with pytest.raises(ShapeError, match="2 labels"):
        ESN().fit([u, u, u], ["a", "b"])
    with pytest.raises(InputError, match="single label"):
        ESN().fit([u, u], ["a", "a"])
    with pytest.raises(InputError, match="feedback"):
        ESN().fit(None, y)
    with pytest.raises(OptionError, match="generate"):
        ESN(units=20, random_state=0).fit(u, y).generate(5)
    with pytest.raises(ShapeError, match="2 columns"):
        ESN(units=20, random_state=0).fit(u, y).predict(np.hstack([u, u]))
    with pytest.raises(OptionError, match="rls"):
        ESN().partial_fit(u, y)


def test_losing_the_echo_is_warned_of_with_the_number():
    u, y = recall()
    with pytest.warns(EchoStateWarning, match=r"of the distance between two starts is left.*radius 3\.000"):
        ESN(units=100, spectral_radius=3.0, random_state=0).fit(0.01 * u, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ESN(units=100, spectral_radius=0.9, leak=0.02, random_state=0).fit(u, y)  # slow, but it forgets
