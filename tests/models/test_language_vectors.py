"""Vectors for words from frozen language models, alone and in a tagger."""

import pytest
import torch

from recurra.errors import InputError, ShapeError
from recurra.models import Tagger
from recurra.models.language import Characters, LanguageModel, LanguageModelVectors, Subwords, TextError, Words

SENTENCES = [["the", "cat", "sat"], ["mat"], ["on", "the", "mat", "sat", "cat"]]
TEXT = "".join(" ".join(words) + "\n" for words in SENTENCES)


def model_of(level: str, direction: str = "both", **options) -> LanguageModel:
    vocabulary = {"word": Words.from_text, "character": Characters.from_text, "subword": Subwords.train}[level](TEXT)
    return LanguageModel(vocabulary, 4, 2, direction=direction, **options).double()


def test_words_have_the_top_states_of_both_directions():
    model = model_of("word")
    vectors = LanguageModelVectors(model).embed(SENTENCES)
    assert vectors.shape == (5, 3, 8)
    for row, words in enumerate(SENTENCES):
        onward, back = model.contexts(model.vocabulary.line([words])[:, None])
        expected = torch.cat([onward[-1], back[-1]], dim=-1)[1:-1, 0]
        torch.testing.assert_close(vectors[: len(words), row], expected)
        assert not vectors[len(words) :, row].any()


def test_a_word_of_many_characters_is_read_whole_from_both_sides():
    """The forward state of a word stands behind its last character, the backward state before its first."""
    model = model_of("character")
    found = LanguageModelVectors(model).embed([["the", "cat"]])[:, 0]
    text = "\nthe cat \n"
    onward, back = (outputs[-1][:, 0] for outputs in model.contexts(model.vocabulary.encode(text)[:, None]))
    torch.testing.assert_close(found[0], torch.cat([onward[text.index(" ")], back[text.index("t")]]))
    torch.testing.assert_close(found[1], torch.cat([onward[len(text) - 2], back[text.index("c")]]))


def test_two_models_trained_apart_stand_side_by_side():
    onward, back = model_of("subword", "forward"), model_of("word", "backward")
    both = LanguageModelVectors(onward, back)
    assert both.output_size == 8
    together = both.embed(SENTENCES)
    torch.testing.assert_close(together[..., :4], LanguageModelVectors(onward).embed(SENTENCES))
    torch.testing.assert_close(together[..., 4:], LanguageModelVectors(back).embed(SENTENCES))


def test_the_models_stay_as_they_are():
    vectors = LanguageModelVectors(model_of("word", dropout=0.5)).train()
    assert not any(parameter.requires_grad for parameter in vectors.parameters())
    assert not any(module.training for module in vectors.models.modules())
    assert torch.equal(vectors.embed(SENTENCES), vectors.embed(SENTENCES))


TAGS = [["D", "N", "V"], ["N"], ["P", "D", "N", "V", "N"]]


def taglm(vectors: LanguageModelVectors | None) -> Tagger:
    return Tagger.of(SENTENCES, TAGS, extra_inputs=vectors, extra_at="hidden", num_layers=2, hidden_size=6)


def test_taglm_appends_them_between_the_layers_of_a_tagger():
    vectors = LanguageModelVectors(model_of("word").float())
    tagger = taglm(vectors)
    assert tagger.layers[1].input_size == 12 + 8
    before = tagger.probabilities(SENTENCES)
    with torch.no_grad():
        for parameter in vectors.parameters():
            parameter.zero_()
    after = tagger.probabilities(SENTENCES)
    assert max(float((a - b).abs().max()) for a, b in zip(before, after, strict=True)) > 1e-4
    assert [len(row) for row in tagger.tag(SENTENCES)] == [3, 1, 5]


def test_taglm_with_vectors_of_zero_is_two_layers_and_a_crf():
    vectors = LanguageModelVectors(model_of("word").float())
    with torch.no_grad():
        for parameter in vectors.parameters():
            parameter.zero_()
    tagger, plain = taglm(vectors), taglm(None)
    weights = {name: value for name, value in tagger.state_dict().items() if not name.startswith("extra_inputs")}
    for name, value in plain.state_dict().items():  # the columns that read the vectors are left out
        weights[name] = weights[name][:, : value.shape[1]] if value.dim() == 2 else weights[name]
    plain.load_state_dict(weights)
    for a, b in zip(tagger.probabilities(SENTENCES), plain.probabilities(SENTENCES), strict=True):
        torch.testing.assert_close(a, b)


def test_sentences_that_are_none():
    vectors = LanguageModelVectors(model_of("word"))
    for bad, where in (
        ("the cat", r"sentences: got 'the cat'"),
        ([], r"sentences: got \[\]"),
        (["the cat"], r"sentences\[0\]: got 'the cat'"),
        ([["the"], []], r"sentences\[1\]: got an empty sentence"),
        ([["the", None]], r"sentences\[0\]\[1\]: got None"),
    ):
        with pytest.raises(TextError, match=where):
            vectors.embed(bad)
    with pytest.raises(InputError, match=r"models: got \['Linear'\]"):
        LanguageModelVectors(torch.nn.Linear(1, 1))
    with pytest.raises(ShapeError, match=r"expected \(T, B, 1\)"):
        vectors(torch.zeros(2, 1, 3, dtype=torch.int64), torch.tensor([2]))
