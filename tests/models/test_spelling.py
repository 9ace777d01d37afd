"""Spelling features: the answers of known words, and the wire to the CRF that passes the layers by."""

import torch

import recurra as rc
from recurra.models import SpellingFeatures, Tagger
from recurra.models.tagging.word_form import QUESTIONS, affix_rows, answers

#: word → the questions that are answered yes
WORDS = {
    "Paris": {"starts with a capital", "letters alone"},
    "NATO": {"starts with a capital", "all capitals", "a capital after the first letter", "letters alone"},
    "runs": {"all lower case", "letters alone"},
    "iPhone": {"a capital after the first letter", "letters alone"},
    "1984": {"has a digit", "all digits"},
    "U2": {
        *("starts with a capital", "all capitals", "has a digit", "letters and digits"),
    },
    "...": {"has punctuation", "all punctuation"},
    "Ada's": {"starts with a capital", "has punctuation", "ends with 's"},
}


def test_answers_of_known_words() -> None:
    for word, yes in WORDS.items():
        assert {q for q, answer in zip(QUESTIONS, answers(word, False), strict=True) if answer} == yes, word
    assert answers("a", True)[QUESTIONS.index("is the first of its sentence")] == 1


def test_affixes_are_shared_by_words_that_have_them() -> None:
    spelling = SpellingFeatures(affix_size=4)
    running, walking, run = spelling.encode(["running", "walking", "run"])[:, len(QUESTIONS) :].view(3, 4, 2).unbind()
    assert running[1, 1] == walking[1, 1]  # …ing
    assert running[1, 0] == run[1, 0]  # run…
    assert running[3, 1] != walking[3, 1]  # …nning, …lking
    assert run[2:].eq(0).all()  # no affix of four letters
    table = spelling.affixes.weight
    encoded = spelling.encode(["run"])
    rows = encoded[0, len(QUESTIONS) :]
    found = spelling(encoded[:, None], torch.tensor([1]))[0, 0]
    torch.testing.assert_close(found[len(QUESTIONS) :], sum(table[k] for k in rows.tolist() if k))
    assert SpellingFeatures(affix_size=0)(encoded[:, None], torch.tensor([1])).shape == (1, 1, 12)


def test_the_wire_passes_the_layers_by() -> None:
    """With the recurrent layers silenced, the scores still depend on the spelling, and linearly."""
    sentences, tags = [["Ada", "runs", "in", "Paris"]] * 2, [["N", "V", "P", "N"]] * 2
    torch.manual_seed(0)
    options = {"hidden_size": 4, "word_size": 4, "chars": None, "dropout": 0.0, "output": "crf"}
    tagger = Tagger.of(sentences, tags, extra_inputs=SpellingFeatures(4), extra_at="output", **options).eval()
    with torch.no_grad():
        for parameter in tagger.layers.parameters():
            parameter.zero_()
        x = rc.data.Batches(tagger.encode(sentences[:1]), 1, shuffle=False)
        batch = next(x.epoch(0))
        scores = tagger(batch.inputs, batch.lengths)
        features = tagger.extra_inputs(tagger.extra_inputs.encode(sentences[0])[:, None], batch.lengths)
        weight = tagger.readout.V[:, -features.shape[-1] :]
        torch.testing.assert_close(scores, features @ weight.T + tagger.readout.b)


def test_an_unseen_word_is_tagged_by_its_spelling() -> None:
    names, verbs = ["Ada", "Bob", "Eve", "Dan", "Kim"], ["runs", "sings", "reads", "waits", "looks"]
    sentences = [[a, b] for a in names for b in verbs] + [[b, a] for a in names for b in verbs]
    tags = [["N" if word[0].isupper() else "V" for word in sentence] for sentence in sentences]
    torch.manual_seed(0)
    options = {"hidden_size": 4, "word_size": 4, "chars": None, "dropout": 0.0}
    tagger = Tagger.of(sentences, tags, extra_inputs=SpellingFeatures(0), extra_at="output", **options)
    batches = rc.data.Batches(tagger.encode(sentences, tags), 10)
    rc.train.fit(tagger, batches, loss=tagger.objective(), epochs=12, lr=0.05, progress=False)
    assert tagger.tag([["Zoe", "jumps"], ["jumps", "Zoe"]]) == [["N", "V"], ["V", "N"]]


def test_a_tagger_reads_the_form_of_its_words() -> None:
    """Affixes that the corpus does not have are zero, also after training; without forms the rows are shorter."""
    sentences, tags = [["Ada", "runs"], ["Bob", "sings"]] * 4, [["N", "V"]] * 8
    torch.manual_seed(0)
    tagger = Tagger.of(sentences, tags, hidden_size=4, word_size=4, affix_size=8)
    plain = Tagger.of(sentences, tags, hidden_size=4, word_size=4, forms=False)
    assert tagger.vocabulary.width == plain.vocabulary.width + 20
    assert tagger.features.output_size == plain.features.output_size + 12 + 8
    assert plain.features.form is None
    rc.train.fit(tagger, tagger.encode(sentences, tags), loss=tagger.objective(), epochs=1, progress=False)
    seen = {row for sentence in sentences for word in sentence for row in affix_rows(word)}
    table = tagger.features.form.affixes.weight.detach()
    assert {k for k in range(len(table)) if table[k].any()} == seen - {0}
