"""A label or a number for every step: learned, saved, exported, from arrays and tables, with typed errors."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import recurra as rc
from recurra.compare.baselines import baseline
from recurra.compare.baselines.steps import REACH, windows
from recurra.errors import InputError, ShapeError
from recurra.problem import infer_problem


def latched(n: int = 24, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rare marks switch the label on and off: a window without a mark does not tell."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for k in range(n):
        marks = np.where(rng.random(30 + k % 5) < 0.15, rng.choice([-1.0, 1.0], 30 + k % 5), 0.0)
        state, labels = -1.0, []
        for mark in marks:
            state = mark or state
            labels.append("on" if state > 0 else "off")
        X.append(marks[:, None])
        y.append(np.array(labels))
    return X, y


@pytest.fixture(scope="module")
def fitted():
    X, y = latched()
    options = {"hidden_size": 12, "epochs": 40, "bidirectional": False, "random_state": 0}
    return rc.StepClassifier("gru", **options).fit(X, y)


def test_labels_of_every_step_are_learned(fitted, tmp_path):
    X, y = latched(12, seed=1)
    found = fitted.predict(X)
    assert [len(row) for row in found] == [len(x) for x in X]
    assert fitted.score(X, y) > 0.97
    shares = fitted.predict_proba(X)
    assert all(np.allclose(one.sum(axis=1), 1) for one in shares)
    assert all((fitted.classes_[p.argmax(axis=1)] == f).all() for p, f in zip(shares, found, strict=True))
    fitted.save(tmp_path / "m")
    again = rc.load(tmp_path / "m")
    assert all((a == b).all() for a, b in zip(again.predict(X), found, strict=True))


def test_a_step_depends_on_the_past_alone_in_one_direction(fitted):
    X, _ = latched(1, seed=2)
    whole, begun = fitted.predict_proba(X)[0], fitted.predict_proba([X[0][:10]])[0]
    assert np.allclose(whole[:10], begun, atol=1e-12)


def test_the_memory_beats_a_window(fitted):
    X, y = latched()
    asked, truth = latched(12, seed=1)
    flat = baseline("classify_steps", "window", {}, 0).fit(X, y).predict(asked)
    assert np.mean(np.concatenate(flat) == np.concatenate(truth)) < fitted.score(asked, truth)
    constant = baseline("classify_steps", "majority", {}, 0).fit(X, y).predict(asked)
    names, counts = np.unique(np.concatenate(y), return_counts=True)
    assert set(np.concatenate(constant)) == {names[counts.argmax()]}


def test_windows_hold_the_steps_around():
    found = windows(np.arange(30.0)[:, None])
    assert found[15].tolist() == list(range(15 - REACH, 15 + REACH + 1))
    assert found[0, : REACH + 1].tolist() == [0.0] * (REACH + 1)


def test_numbers_of_every_step():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(25, 1)) for _ in range(30)]
    y = [np.convolve(x[:, 0], [1.0, 0.5, 0.25])[: len(x)] * 3 + 10 for x in X]
    model = rc.StepRegressor("gru", hidden_size=12, epochs=60, random_state=0).fit(X[:24], y[:24])
    assert model.score(X[24:], y[24:]) > 0.8
    two = rc.StepRegressor("rnn", hidden_size=4, epochs=1).fit(X, [np.column_stack([row, -row]) for row in y])
    assert two.predict(X[:1])[0].shape == (25, 2)
    flat = baseline("regress_steps", "window", {}, 0).fit(X[:24], y[:24]).predict(X[24:])
    errors = np.abs(np.concatenate(flat) - np.concatenate(y[24:]))
    assert errors.mean() < 0.1 * np.concatenate(y).std()  # linear in a window, but for the repeated first step
    mean = baseline("regress_steps", "mean", {}, 0).fit(X, y).predict(X[:1])[0]
    assert mean == pytest.approx(np.full(25, np.concatenate(y).mean()))


def test_onnx_gives_every_step(fitted, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, _ = latched(3, seed=3)
    session = runtime.InferenceSession(str(fitted.export(tmp_path / "steps.onnx")))
    x = torch.nn.utils.rnn.pad_sequence([torch.tensor(x, dtype=torch.float32) for x in X]).numpy()
    lengths = np.array([len(one) for one in X])
    found = session.run(None, dict(zip([one.name for one in session.get_inputs()], (x, lengths), strict=True)))[0]
    for k, shares in enumerate(fitted.predict_proba(X)):
        assert np.allclose(found[: len(shares), k], shares, atol=1e-5)


def table(X, y) -> pa.Table:
    ids = [f"s{k}" for k, x in enumerate(X) for _ in x]
    steps = [t for x in X for t in range(len(x))]
    return pa.table({"id": ids, "t": steps, "mark": np.concatenate(X)[:, 0], "state": np.concatenate(y)})


def test_a_long_table_with_a_label_in_every_row(tmp_path):
    import pyarrow.csv

    X, y = latched(10)
    model = rc.StepClassifier("gru", hidden_size=4, epochs=2, random_state=0).fit(table(X, y), "state")
    direct = rc.StepClassifier("gru", hidden_size=4, epochs=2, random_state=0).fit(X, y)
    for one, other in zip(model.predict(table(X, y).drop(["state"])), direct.predict(X), strict=True):
        assert (one == other).all()
    pyarrow.csv.write_csv(table(X, y), tmp_path / "states.csv")
    problem = infer_problem(str(tmp_path / "states.csv"), task="classify-steps", target="state")
    assert (problem.task, problem.metric, len(problem.train[0]), len(problem.test[0])) == (
        "classify_steps",
        "accuracy",
        8,
        2,
    )
    whole = {k: row.tolist() for k, row in enumerate(y)}
    assert all(row.tolist() in whole.values() for row in [*problem.train[1], *problem.test[1]])
    assert 0 <= problem.score(problem.estimator("rnn", hidden_size=2, epochs=1).fit(*problem.train)) <= 1


def test_one_long_sequence_is_cut_in_time(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("t,x,load\n" + "\n".join(f"{t},{t % 7},{t % 3}.5" for t in range(50)) + "\n")
    problem = infer_problem(str(path), task="regress_steps", target="load", id="none")
    assert [len(part[0][0]) for part in (problem.train, problem.test)] == [40, 10]
    assert problem.test[1][0][0] == 40 % 3 + 0.5


def test_errors_name_the_sequence(fitted):
    X, y = latched(4)
    with pytest.raises(ShapeError, match=r"y\[2\]: got 3 targets, expected one for each of 32 steps"):
        rc.StepClassifier().fit(X, [*y[:2], y[2][:3], y[3]])
    with pytest.raises(ShapeError, match="y: got targets of 3 sequences, expected of 4, as X"):
        rc.StepClassifier().fit(X, y[:3])
    with pytest.raises(InputError, match="one target for every step"):
        rc.StepClassifier().fit(X)
    with pytest.raises(InputError, match="at least two classes"):
        rc.StepClassifier().fit(X, [np.repeat("on", len(x)) for x in X])
    with pytest.raises(ShapeError, match="2 features per step"):
        fitted.predict([np.zeros((3, 2))])
    with pytest.raises(InputError, match="name of the column"):
        rc.StepClassifier().fit(table(X, y), y)


# ---------------------------------------------------------------------------------------------------- text


def coloured(new: str = "red") -> dict[str, list]:
    """Six sequences of eight steps; the label is the colour of the step before."""
    colours = np.random.default_rng(0).choice(["red", "blue", "green"], 48)
    before = np.where(np.arange(48) % 8 == 0, "red", np.roll(colours, 1))
    shown = [new if k == 47 else str(colour) for k, colour in enumerate(colours)]
    ids = [str(k // 8) for k in range(48)]
    return {"unique_id": ids, "x": np.linspace(5, 9, 48).tolist(), "colour": shown, "label": before.tolist()}


def test_text_columns_are_embedded(tmp_path):
    table = coloured()
    model = rc.StepClassifier("gru", 8, epochs=40, batch_size=2, lr=0.03, random_state=0).fit(table, "label")
    assert model.one_hot_ == [(1, 3)]
    assert [tuple(vectors.shape) for vectors in model.network_.embedded.tables] == [(3, 3)]
    assert model.score(table, "label") > 0.9
    model.save(tmp_path)
    inputs = {name: table[name] for name in ("unique_id", "x", "colour")}
    for own, loaded in zip(model.predict_proba(inputs), rc.load(tmp_path).predict_proba(inputs), strict=True):
        np.testing.assert_array_equal(own, loaded)


def test_one_hot_columns_of_arrays_are_embedded_if_named():
    X = [np.column_stack([np.arange(5.0), np.eye(3)[[0, 1, 2, 1, 0]]])] * 4
    y = [np.array([0, 1, 1, 1, 0])] * 4
    model = rc.StepClassifier("gru", hidden_size=4, epochs=1, one_hot=[(1, 3)]).fit(X, y)
    assert model.network_.recurrent.input_size == 1 + 3
    with pytest.raises(InputError, match="one_hot"):
        rc.StepClassifier("gru", one_hot=[(3, 4)]).fit(X, y)
