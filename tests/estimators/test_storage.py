"""Folders: what is saved comes back, in another process too; what is broken is named."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

import recurra as rc
from recurra.errors import OptionError, RecurraError, UnknownNameError
from recurra.storage import FolderContents

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


def fitted(kind: str, other: bool) -> Any:
    """One of two small models of a kind, with other weights, labels and scaling each."""
    quick = QUICK | {"epochs": 1, "hidden_size": 3 + 2 * other}
    x, words = [(1 + 9 * other) * row for row in X], [["a", "man"], ["a", "house", "again"][: 2 + other]]
    match kind:
        case "SequenceClassifier":
            return rc.SequenceClassifier("rnn", **quick).fit(x, np.array([["no", "yes"], ["left", "right"]][other] * 8))
        case "SequenceRegressor":
            return rc.SequenceRegressor("rnn", **quick).fit(x, np.arange(16.0) * (1 + 99 * other))
        case "Forecaster":
            series = np.sin(np.arange(80) / 3) * (1 + 99 * other)
            return rc.Forecaster("rnn", horizon=2, **quick).fit(series)
        case "SequenceTagger":
            return rc.SequenceTagger("rnn", **quick).fit(words, [["D", "N"], ["D", "V", "R"][: 2 + other]])
    return rc.LanguageModelEstimator("rnn", **quick | {"chunk": 5, "batch_size": 2}).fit(["abab" * 9, "xyz" * 9][other])


ALTERNATING_WRITER = """
import sys, recurra as rc
kind, first, second, target = sys.argv[1:]
models = [getattr(rc, kind).load(folder) for folder in (first, second)]
print("ready", flush=True)
while True:
    for model in models:
        model.save(target)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["SequenceClassifier", "SequenceRegressor", "Forecaster", "SequenceTagger", "LanguageModelEstimator"]
)
def test_killed_writers_and_readers_beside_them_see_one_model(kind, tmp_path, repository_root):
    """Two processes save two models in turn into one folder and are killed; every load gives one of the two, whole."""
    sources = [str(tmp_path / name) for name in "ab"]
    for other, source in enumerate(sources):
        fitted(kind, bool(other)).save(source)
    load, target = getattr(rc, kind).load, tmp_path / "target"
    known = [load(source).folder_contents() for source in sources]
    load(sources[0]).save(target)
    command, seen = [sys.executable, "-c", ALTERNATING_WRITER, kind, *sources, str(target)], []

    def both_were_read() -> bool:
        seen.append(model_number(load(target).folder_contents(), known))
        return set(seen) == {0, 1}

    for _ in range(2):
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=repository_root) for _ in range(2)]
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        for _ in range(12):
            both_were_read()
        wait_until(both_were_read)
        for writer in writers:
            writer.kill()
            writer.communicate()
        both_were_read()  # the one that was killed in a save, too


def model_number(found: FolderContents, known: list[FolderContents]) -> int:
    (number,) = [number for number, one in enumerate(known) if one.config == found.config]
    assert found.tensors.keys() == known[number].tensors.keys()
    assert all(tensor.equal(found.tensors[name]) for name, tensor in known[number].tensors.items())
    return number


def _edit(folder: Path, change) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.pop("checksum", None)  # as a person who edits the file by hand is told to do
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
