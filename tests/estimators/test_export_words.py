"""ONNX files of taggers and language models, run in onnxruntime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import recurra as rc
from recurra.errors import InputError, OptionError

SENTENCES = [["The", "old", "man", "walked", "home"], ["Rain", "fell"], ["He", "saw", "the", "red", "house", "again"]]
TAGS = [["B-NP", "I-NP", "I-NP", "B-VP", "B-NP"], ["B-NP", "B-VP"], ["B-NP", "B-VP", "B-NP", "I-NP", "I-NP", "O"]]
SMALL = {"hidden_size": 7, "dropout": 0.1, "epochs": 2, "lr": 0.05, "random_state": 0}
SIZES = {"word_size": 6, "char_size": 4, "char_features": 6}
OTHERS = [["Rain"], ["the", "the", "old", "Zeppelin", "fell", "again", "home", "walked", "He"], *SENTENCES]


def session_of(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def facts_of(path: Path) -> dict[str, Any]:
    return {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}


@pytest.mark.parametrize(("output", "chars"), [("crf", "cnn"), ("softmax", "rnn"), ("hmm", None)])
def test_a_tagger_as_a_file(output, chars, tmp_path):
    options = {**SIZES, "chars": chars}
    model = rc.SequenceTagger("gru", output=output, num_layers=2, **SMALL, tagger_options=options).fit(SENTENCES, TAGS)
    path = model.export(tmp_path / "model.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    data = model.tagger_.encode(OTHERS)
    x = torch.nn.utils.rnn.pad_sequence(list(data.inputs)).numpy()
    tags, scores = session_of(path).run(["tags", "tag_scores"], {"x": x, "lengths": data.lengths.numpy()})
    classes = facts_of(path)["classes"]
    found = [[classes[k] for k in tags[: len(s), b]] for b, s in enumerate(OTHERS)]
    assert found == model.predict(OTHERS)
    assert set(tags[1:, 0]) == {-100}
    assert scores.shape == (9, 5, len(classes))


def test_the_path_is_the_best_of_all(tmp_path):
    """With strong transitions the best path is not the best tag of every word."""
    model = rc.SequenceTagger("gru", output="crf", **SMALL, tagger_options=SIZES).fit(SENTENCES, TAGS)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        for parameter in model.tagger_.output.crf.parameters():
            parameter.copy_(3 * torch.randn(parameter.shape, generator=generator))
    path = model.export(tmp_path / "model.onnx")
    data = model.tagger_.encode(OTHERS)
    x = torch.nn.utils.rnn.pad_sequence(list(data.inputs)).numpy()
    tags, scores = session_of(path).run(["tags", "tag_scores"], {"x": x, "lengths": data.lengths.numpy()})
    expected = [[model.classes_.tolist().index(tag) for tag in row] for row in model.predict(OTHERS)]
    assert [tags[: len(s), b].tolist() for b, s in enumerate(OTHERS)] == expected
    alone = [scores[: len(s), b].argmax(axis=1).tolist() for b, s in enumerate(OTHERS)]
    assert alone != expected


@pytest.mark.parametrize(("cell", "layers"), [("lstm", 2), ("gru", 1)])
def test_a_language_model_as_a_file(cell, layers, tmp_path):
    text = "to be or not to be, that is the question. " * 4
    quick = {"hidden_size": 9, "epochs": 1, "batch_size": 4, "chunk": 20, "random_state": 0}
    model = rc.LanguageModelEstimator(cell, num_layers=layers, **quick).fit(text)
    path = model.export(tmp_path / "model.onnx")
    session = session_of(path)
    names = [each.name for each in session.get_inputs()]
    zeros = {each.name: np.zeros([*each.shape[:-2], 1, 9], dtype=np.float32) for each in session.get_inputs()[2:]}
    tokens = model.model_.vocabulary.encode("to be or no")[:, None].numpy()
    found, *_ = session.run(None, {"tokens": tokens, "lengths": np.array([len(tokens)]), **zeros})
    np.testing.assert_allclose(np.exp(found[-1]), model.predict_proba(["to be or no"]), atol=2e-6)
    state, one = list(zeros.values()), found
    for token in tokens:  # one by one, the state handed on
        feed = dict(zip(names, [token[None], np.array([1]), *state], strict=True))
        one, *state = session.run(None, feed)
    np.testing.assert_allclose(one[0], found[-1], atol=2e-6)
    vocabulary = facts_of(path)["vocabulary"]
    assert "q" in json.dumps(vocabulary)


def test_what_cannot_be_exported_is_said(tmp_path):
    both = {"model_options": {"direction": "both"}, "hidden_size": 4, "epochs": 1, "batch_size": 2, "chunk": 5}
    model = rc.LanguageModelEstimator(**both, random_state=0).fit("to be or not to be " * 5)
    with pytest.raises(OptionError, match="a bidirectional model"):
        model.export(tmp_path / "model.onnx")
    tagger = rc.SequenceTagger(**SMALL, tagger_options=SIZES).fit(SENTENCES, TAGS)
    with pytest.raises(InputError, match="a file in a folder that exists"):
        tagger.export(tmp_path / "no" / "model.onnx")
    assert not list(tmp_path.iterdir())
