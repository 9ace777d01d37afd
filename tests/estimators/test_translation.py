"""`SequenceToSequence`: it learns, comes back from its folder, and is exported."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.exceptions import NotFittedError

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.errors import InputError, ShapeError, UnknownNameError

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
X = [f"{a} {b}" for a in NUMBERS[1:] for b in NUMBERS]
Y = [f"{a}{b}" for a in range(1, 10) for b in range(10)]
SMALL = {"hidden_size": 24, "embedding_size": 8, "epochs": 20, "lr": 0.025, "batch_size": 16, "random_state": 0}


@pytest.fixture(scope="module")
def numbers() -> rc.SequenceToSequence:
    return rc.SequenceToSequence("gru", **SMALL).fit(X[::2] + X[1::4], Y[::2] + Y[1::4])


def test_numbers_in_words_are_learned(numbers) -> None:
    seen, unseen = X[::2], X[3::4]
    assert numbers.score(seen, Y[::2]) == 1.0
    assert numbers.score(unseen, Y[3::4]) >= 0.9  # 22 pairs of digits that never stood together
    best = numbers.candidates(seen[:3], 4)
    assert [len(set(found)) for found in best] == [4, 4, 4]
    assert [found[0] for found in best] == Y[:6:2]


def test_it_comes_back_from_its_folder(numbers, tmp_path) -> None:
    numbers.save(tmp_path)
    back = rc.SequenceToSequence.load(tmp_path)
    assert back.predict(X) == numbers.predict(X)
    assert back.get_params() == numbers.get_params()
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["fitted"]["symbols"]["target"] == list("0123456789")


def test_a_table_of_texts(numbers) -> None:
    assert numbers.predict(pa.table({"text": X[:5]})) == numbers.predict(X[:5])


def test_words_and_validation() -> None:
    options = SMALL | {"epochs": 3, "validation": 0.2, "patience": 1}
    with set_backend("reference"):
        model = rc.SequenceToSequence("lstm", attention=None, level="word", sampling=0.2, **options).fit(X, X)
    assert "valid_loss" in model.history_[0]
    assert len(model.predict(X[:4])) == 4


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["additive", None])
def test_both_files_write_what_the_model_writes(attention, tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    with set_backend("reference"):
        model = rc.SequenceToSequence("lstm", attention=attention, **SMALL | {"epochs": 3}).fit(X, Y)
    files = [onnxruntime.InferenceSession(str(path)) for path in model.export(tmp_path / "made")]
    facts = files[1].get_modelmeta().custom_metadata_map
    assert json.loads(facts["symbols"])["target"] == list("0123456789")
    for text in X[:6]:
        source = model.source_symbols_.encode(text)[:, None].numpy()
        outputs = [entry.name for entry in files[0].get_outputs()]
        read = files[0].run(None, {"source": source, "lengths": np.array([len(source)])})
        given, token, written = dict(zip(outputs, read, strict=True)), np.array([[0]]), []
        read_by_decoder = {entry.name for entry in files[1].get_inputs()} - {"tokens"}
        for _ in range(model.longest_):
            found = files[1].run(None, {"tokens": token} | {name: given[name] for name in read_by_decoder})
            named = dict(zip((entry.name for entry in files[1].get_outputs()), found, strict=True))
            log_probs = named.pop("log_probabilities")
            given |= {name.removeprefix("next_"): value for name, value in named.items()}
            token = log_probs[-1:].argmax(-1)
            if token[0, 0] == 1:
                break
            written.append(int(token[0, 0]))
        assert model.target_symbols_.decode(torch.tensor(written)) == model.predict([text])[0]


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match="X: got one text"):
        rc.SequenceToSequence().fit("a text", ["b"])
    with pytest.raises(ShapeError, match="y: got 1 texts"):
        rc.SequenceToSequence().fit(["a", "b"], ["c"])
    with pytest.raises(UnknownNameError, match="level"):
        rc.SequenceToSequence(level="letters").fit(["a"], ["b"])
    with pytest.raises(UnknownNameError, match="attention"):
        rc.SequenceToSequence(attention="dott").fit(["a"], ["b"])
    with pytest.raises(NotFittedError):
        rc.SequenceToSequence().predict(["a"])
