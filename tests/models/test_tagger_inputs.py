"""Taggers on language models: TagLM above the first layer, ELMo at the input and fine-tuned."""

import torch

import recurra as rc
from recurra.models import ELMo, LanguageModel, LanguageModelVectors, Tagger, Words

SENTENCES = [["The", "old", "man", "walked", "home"], ["Rain", "fell"], ["He", "saw", "the", "red", "house", "again"]]
TAGS = [["B-NP", "I-NP", "I-NP", "B-VP", "B-NP"], ["B-NP", "B-VP"], ["B-NP", "B-VP", "B-NP", "I-NP", "I-NP", "O"]]
SMALL = {"word_size": 6, "char_size": 4, "char_features": 5, "hidden_size": 7, "dropout": 0.0}


def elmo() -> ELMo:
    return ELMo(4, 6, 1, character_size=3, filters=((1, 4), (2, 4)), highways=1, longest=12)


def gradients(tagger: Tagger) -> dict[str, bool]:
    """Which parameters a step of learning reaches."""
    batch = rc.data.collate(tagger.encode(SENTENCES, TAGS), range(3))
    tagger.objective()(tagger, batch, None)[0]["loss"].backward()
    return {name: p.grad is not None and bool(p.grad.any()) for name, p in tagger.named_parameters()}


def test_elmo_is_fine_tuned_with_the_tagger():
    tagger = Tagger.of(SENTENCES, TAGS, extra_inputs=elmo(), extra_at="input", **SMALL)
    reached = gradients(tagger)
    assert reached["extra_inputs.mix.gamma"]
    assert all(reached[name] for name in reached if name.startswith("extra_inputs.ways"))
    assert [len(tags) for tags in tagger.tag(SENTENCES)] == [5, 2, 6]


def test_the_tagger_sees_the_vectors_elmo_gives():
    vectors = elmo().double().eval()
    tagger = Tagger.of(SENTENCES, TAGS, extra_inputs=vectors, extra_at="output", output="softmax", **SMALL).double()
    tagger.eval()
    with torch.no_grad():
        tagger.readout.V[:, :14] = 0.0  # nothing of the tagger's own layers
    expected = torch.as_tensor(vectors.embed([SENTENCES[0]])[0], dtype=torch.float64)  # (T, 2 d)
    scores = expected @ tagger.readout.V[:, 14:].T + tagger.readout.b
    found = tagger.probabilities(SENTENCES)[0]
    torch.testing.assert_close(found, scores.softmax(-1).detach(), rtol=1e-5, atol=1e-6)


def test_a_language_model_above_the_first_layer_stays_as_it_is():
    words = Words.from_sentences(SENTENCES)
    models = [LanguageModel(words, 5, direction=way) for way in ("forward", "backward")]
    vectors = LanguageModelVectors(*models)
    tagger = Tagger.of(SENTENCES, TAGS, extra_inputs=vectors, extra_at="hidden", num_layers=2, **SMALL)
    assert tagger.layers[1].input_size == 14 + 10
    reached = gradients(tagger)
    assert not any(reached[name] for name in reached if name.startswith("extra_inputs"))
    assert all(reached[name] for name in reached if name.startswith("layers"))
