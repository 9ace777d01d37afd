"""Taggers and language models in scikit-learn's manner."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import recurra as rc
from recurra.errors import InputError, RecurraError, UnknownNameError

SENTENCES = [["The", "old", "man", "walked", "home"], ["Rain", "fell"], ["He", "saw", "the", "red", "house", "again"]]
TAGS = [["B-NP", "I-NP", "I-NP", "B-VP", "B-NP"], ["B-NP", "B-VP"], ["B-NP", "B-VP", "B-NP", "I-NP", "I-NP", "O"]]
PLAIN = [["D", "A", "N", "V", "N"], ["N", "V"], ["P", "V", "D", "A", "N", "R"]]
SMALL = {"hidden_size": 7, "dropout": 0.1, "epochs": 18, "lr": 0.05, "random_state": 0}
SMALL |= {"tagger_options": {"word_size": 6, "char_size": 4, "char_features": 5}}
TEXT = "to be or not to be, that is the question. " * 12
LANGUAGE = {"hidden_size": 32, "epochs": 15, "batch_size": 4, "chunk": 20, "lr": 2e-2, "random_state": 0}


@pytest.fixture(scope="module")
def language() -> rc.LanguageModelEstimator:
    return rc.LanguageModelEstimator("gru", **LANGUAGE).fit(TEXT)


@pytest.mark.parametrize(("output", "tags"), [("crf", TAGS), ("softmax", PLAIN)])
def test_tags_are_learned_and_come_back(output, tags, tmp_path):
    model = rc.SequenceTagger("gru", output=output, **SMALL).fit(SENTENCES, tags)
    assert model.predict(SENTENCES) == tags
    assert model.score(SENTENCES, tags) == 1.0
    assert sorted(model.classes_) == sorted({tag for row in tags for tag in row})
    likely = [model.classes_[p.argmax(axis=1)].tolist() for p in model.predict_proba(SENTENCES)]
    assert likely == tags
    model.save(tmp_path)
    back = rc.SequenceTagger.load(tmp_path)
    for one, other in zip(back.predict_proba(SENTENCES), model.predict_proba(SENTENCES), strict=True):
        np.testing.assert_array_equal(one, other)
    assert back.get_params() == model.get_params()
    with pytest.raises(RecurraError, match="the kind SequenceClassifier"):
        rc.SequenceClassifier.load(tmp_path)


def test_a_search_over_taggers():
    search = GridSearchCV(rc.SequenceTagger(**SMALL | {"epochs": 2}), {"cell": ["gru", "rnn"]}, cv=2)
    search.fit(SENTENCES[:1] * 4, PLAIN[:1] * 4)
    assert search.best_score_ > 0
    assert len(search.predict(SENTENCES[:1])[0]) == 5


def test_a_tagger_stops_early_and_names_what_is_wrong():
    model = rc.SequenceTagger(**SMALL | {"epochs": 40}, validation=0.34, patience=2).fit(SENTENCES, PLAIN)
    assert len(model.history_) < 40
    assert "valid_loss" in model.history_[0]
    with pytest.raises(UnknownNameError, match=r"output: got 'crv', expected one of .*; did you mean 'crf'"):
        rc.SequenceTagger(output="crv").fit(SENTENCES, TAGS)
    with pytest.raises(InputError, match="validation"):
        rc.SequenceTagger(validation=1).fit(SENTENCES, TAGS)
    with pytest.raises(NotFittedError):
        rc.SequenceTagger().predict(SENTENCES)


def test_a_text_is_learned(language):
    found = language.measure("or not to be, that is the question.")
    assert found["perplexity"] < 3
    assert language.score("or not to be") > language.score("oe q tntrb b")
    assert language.predict(["to be or not to be, that is the questio"]).tolist() == ["n"]
    np.testing.assert_allclose(language.predict_proba(["to ", "b"]).sum(axis=1), 1, rtol=1e-5)
    assert language.generate("to be", 20, temperature=0).startswith("to be")


def test_options_of_the_corpus_come_back(tmp_path):
    """They are arguments of `Tagger.of`; a loaded tagger has them in its vocabulary."""
    options = {"least": 2, "word_length": 6, "forms": False, "word_size": 4}
    model = rc.SequenceTagger("gru", 4, epochs=1, tagger_options=options, random_state=0).fit(SENTENCES, TAGS)
    model.save(tmp_path)
    back = rc.SequenceTagger.load(tmp_path)
    assert back.tagger_.vocabulary.width == 7
    assert back.tagger_.vocabulary == model.tagger_.vocabulary
    np.testing.assert_array_equal(back.predict_proba(SENTENCES)[0], model.predict_proba(SENTENCES)[0])


def test_a_language_model_comes_back(language, tmp_path):
    language.save(tmp_path)
    back = rc.LanguageModelEstimator.load(tmp_path)
    np.testing.assert_array_equal(back.predict_proba(["to be", "or"]), language.predict_proba(["to be", "or"]))
    assert back.generate("to", 30, seed=1) == language.generate("to", 30, seed=1)
    assert back.get_params() == language.get_params()


def test_the_same_seed_writes_the_same_text(language):
    again = clone(language).fit(TEXT)
    assert again.score(TEXT) == language.score(TEXT)


def test_words_and_several_texts():
    model = rc.LanguageModelEstimator(level="word", **LANGUAGE | {"epochs": 2, "batch_size": 2}, validation=0.2)
    model.fit([TEXT, TEXT])
    assert "question." in model.tokens_
    assert "valid_loss" in model.history_[0]
    with pytest.raises(UnknownNameError, match=r"level: got 'words', expected one of .*; did you mean 'word'"):
        rc.LanguageModelEstimator(level="words").fit(TEXT)
    with pytest.raises(InputError, match="X: got one text, expected a list"):
        model.predict("to be")
