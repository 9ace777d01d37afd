"""Folders: what is saved comes back, in another process too; what is broken is named."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recurra as rc
from recurra.errors import OptionError, RecurraError, UnknownNameError

RANDOM = np.random.default_rng(0)
X = [RANDOM.normal(size=(t, 3)) for t in RANDOM.integers(4, 9, 16)]
LABELS = {
    "text": np.array(["no", "yes"] * 8),
    "numbers": np.array([3, 7] * 8),
    "objects": np.array(["no", "yes"] * 8, dtype=object),
    "truth": np.array([True, False] * 8),
}
QUICK = {"hidden_size": 5, "epochs": 2, "random_state": 0}


@pytest.mark.parametrize("kind", LABELS)
def test_classifier_comes_back(kind, tmp_path):
    model = rc.SequenceClassifier("slstm", bidirectional=True, **QUICK).fit(X, LABELS[kind])
    model.save(tmp_path)
    back = rc.SequenceClassifier.load(tmp_path)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.classes_.dtype == model.classes_.dtype
    assert back.predict(X).tolist() == model.predict(X).tolist()
    assert back.get_params() == model.get_params()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("columns", [1, 2])
def test_regressor_comes_back(columns, tmp_path):
    y = 1e6 + RANDOM.normal(size=(16, columns))
    model = rc.SequenceRegressor("gru", **QUICK).fit(X, y if columns > 1 else y[:, 0])
    model.save(tmp_path)
    found = rc.SequenceRegressor.load(tmp_path).predict(X)
    np.testing.assert_array_equal(found, model.predict(X))
    assert abs(found - 1e6).max() < 10


def test_another_process_reads_it(tmp_path, repository_root):
    model = rc.SequenceClassifier("mgu", **QUICK).fit(X[:2] * 8, LABELS["text"])
    model.save(tmp_path)
    code = (
        "import sys, recurra as rc, numpy as np\n"
        "print(*rc.SequenceClassifier.load(sys.argv[1]).predict_proba([np.ones((4, 3))])[0].tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=repository_root, check=True
    )
    expected = model.predict_proba([np.ones((4, 3))])[0]
    np.testing.assert_allclose([float(word) for word in done.stdout.split()], expected, rtol=1e-12)


def own_cell() -> type[rc.Cell]:
    class Own(rc.Cell):
        states = ("h",)

        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x", "h")

        def step(self, x, h):
            return self.a(x, h).tanh()

    return Own


def test_own_cell_needs_a_name_to_be_saved(tmp_path):
    model = rc.SequenceClassifier(own_cell(), **QUICK).fit(X, LABELS["text"])
    with pytest.raises(OptionError, match=r"cell: got Own, which is not registered, .*@rc.register"):
        model.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_registered_cell_comes_back_where_it_is_registered(tmp_path):
    cell = rc.register("own_of_storage_test")(own_cell())
    model = rc.SequenceClassifier(cell, **QUICK).fit(X, LABELS["text"])
    model.save(tmp_path)
    back = rc.SequenceClassifier.load(tmp_path)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    assert "own_of_storage_test" in (tmp_path / "config.json").read_text()
    _edit(tmp_path, lambda config: config["options"].update(cell="own_of_nobody"))
    with pytest.raises(UnknownNameError, match=r"config.json, cell: got 'own_of_nobody', .*import the module"):
        rc.SequenceClassifier.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(kind="SequenceRegressor"),
        lambda config: config["options"].update(hidden=3),
        lambda config: config["options"].update(hidden_size=6),
        lambda config: config["fitted"].update(n_outputs_=-1),
        lambda config: config["fitted"].pop("classes_"),
        lambda config: config["fitted"]["classes_"].update(dtype="V8"),
        lambda config: config["fitted"]["classes_"].update(values=["no", "yes", "maybe"]),
    ],
)
def test_a_changed_config_is_refused(change, tmp_path):
    rc.SequenceClassifier(**QUICK).fit(X, LABELS["text"]).save(tmp_path)
    rc.SequenceClassifier.load(tmp_path)
    _edit(tmp_path, change)
    with pytest.raises(RecurraError):
        rc.SequenceClassifier.load(tmp_path)


def test_a_broken_folder_is_refused(tmp_path):
    with pytest.raises(RecurraError, match=r"config.json: got no such file"):
        rc.SequenceClassifier.load(tmp_path)
    rc.SequenceClassifier(**QUICK).fit(X, LABELS["text"]).save(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(RecurraError, match=r"model.safetensors"):
        rc.SequenceClassifier.load(tmp_path)


def _edit(folder: Path, change) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
