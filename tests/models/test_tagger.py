"""Taggers: what goes in, the network by hand, the three outputs, pretrained and extra vectors, files, and learning."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.data import read_conll, read_conllu
from recurra.data.data_errors import EncodingError, RaggedRowError
from recurra.engine.backend import set_backend
from recurra.errors import InputError, ModelFileError, OptionError, ShapeError, UnknownNameError
from recurra.models import Tagger, accuracy, entity_scores, read_vectors
from recurra.models.tagging.features import CharCNN, CharRNN
from recurra.models.tagging.pretrained_vectors import VectorsError
from recurra.models.tagging.schemes import SchemeError, violation
from recurra.models.tagging.tagger_vocabulary import LabelError
from recurra.models.tagging.word_form import affix_rows, answers

SENTENCES = [["The", "old", "man", "walked", "home"], ["Rain", "fell"], ["He", "saw", "the", "red", "house", "again"]]
TAGS = [["B-NP", "I-NP", "I-NP", "B-VP", "B-NP"], ["B-NP", "B-VP"], ["B-NP", "B-VP", "B-NP", "I-NP", "I-NP", "O"]]
POS = [["DT", "JJ", "NN", "VBD", "RB"], ["NN", "VBD"], ["PRP", "VBD", "DT", "JJ", "NN", "RB"]]
SMALL = {"word_size": 6, "char_size": 4, "char_features": 5, "column_size": 3, "hidden_size": 7}


def small(**options) -> Tagger:
    return Tagger.of(SENTENCES, TAGS, **(SMALL | options))


def batch(tagger: Tagger, columns=None) -> rc.data.Batch:
    return rc.data.collate(tagger.encode(SENTENCES, TAGS, columns), range(3))


# ---------------------------------------------------------------------------------------------------- the network


def test_the_network_by_hand():
    """[word; column; spelling; form] → bidirectional LSTM → linear, one sentence at a time."""
    tagger = Tagger.of(SENTENCES, TAGS, {"pos": POS}, **SMALL).double().eval()
    given = batch(tagger, {"pos": POS})
    scores = tagger(given.inputs, given.lengths)
    f, (layer,) = tagger.features, tagger.layers
    torch_lstm = layer.to_torch()
    for b, sentence in enumerate(SENTENCES):
        rows = []
        for t, word in enumerate(sentence):
            x = given.inputs[t, b]
            assert tagger.vocabulary.words[x[0] - 2] == word.lower()
            assert "".join(tagger.vocabulary.characters[k - 2] for k in x[22:] if k) == word
            letters = f.spelling.embedding(x[22 : 22 + len(word)])
            spelled = f.spelling.convolution(letters.T[None])[0].amax(dim=1)
            asked = torch.tensor(answers(word, t == 0), dtype=torch.float64)
            affixes = sum(f.form.affixes.weight[row] for row in affix_rows(word))
            rows.append(torch.cat([f.word.weight[x[0]], f.column[0].weight[x[1]], spelled, asked, affixes]))
        hidden = torch_lstm(torch.stack(rows))[0]
        torch.testing.assert_close(scores[: len(sentence), b], tagger.readout(hidden), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("chars", ["cnn", "rnn", None])
@pytest.mark.parametrize("output", ["softmax", "crf", "hmm"])
def test_padding_and_company_change_nothing(chars: str | None, output: str):
    tagger = small(chars=chars, output=output, num_layers=2).double().eval()
    given = batch(tagger)
    together = tagger(given.inputs, given.lengths)
    for b, words in enumerate(SENTENCES):
        alone = tagger(tagger.encode([words])[0].inputs[:, None])
        torch.testing.assert_close(together[: len(words), b], alone[:, 0], rtol=1e-10, atol=1e-12)
    assert tagger.tag(SENTENCES, batch_size=1) == tagger.tag(SENTENCES, batch_size=3)
    for words, p in zip(SENTENCES, tagger.probabilities(SENTENCES), strict=True):
        assert p.shape == (len(words), 4)
        torch.testing.assert_close(p.sum(1), torch.ones(len(words), dtype=torch.float64))


@pytest.mark.parametrize("cell", ["gru", "mgu", "janet"])
def test_any_cell(cell: str):
    tagger = small(cell=cell)
    assert [len(tags) for tags in tagger.tag(SENTENCES)] == [5, 2, 6]


@pytest.mark.parametrize("kind", [CharCNN, CharRNN])
def test_spelling_ends_with_the_word(kind: type):
    spelling = kind(10, 4, 6).double()
    letters = torch.tensor([[3, 4, 5, 0, 0, 0], [6, 0, 0, 0, 0, 0], [2, 3, 4, 5, 6, 7]])
    together = spelling(letters)
    for row, count in zip(range(3), (3, 1, 6), strict=True):
        alone = spelling(letters[row : row + 1, :count])
        torch.testing.assert_close(together[row], alone[0], rtol=1e-12, atol=1e-12)


def test_losses_are_what_they_say():
    for output in ("softmax", "crf", "hmm"):
        tagger = small(output=output).eval()
        given = batch(tagger)
        sums, _ = tagger.objective()(tagger, given, None)
        assert tagger.objective().count(given) == 13
        scores = tagger(given.inputs, given.lengths)
        if output == "crf":
            expected = -tagger.output.crf(scores, given.targets, given.lengths).sum()
        else:
            p = scores.log_softmax(-1).gather(2, given.targets.clamp(min=0)[..., None]).squeeze(2)
            expected = -p[given.mask].sum()
        torch.testing.assert_close(sums["loss"], expected)
        assert int(sums["accuracy"]) == round(13 * accuracy(TAGS, tagger.tag(SENTENCES)))


def test_crf_and_hmm_keep_to_the_scheme():
    for output in ("crf", "hmm"):
        tagger = small(output=output)
        with torch.no_grad():
            tagger.readout.V.normal_(std=20)
        assert tagger.vocabulary.scheme == "bio"
        assert violation(tagger.tag(SENTENCES * 5), "bio") is None


def test_rare_words_are_unknown_half_of_the_time():
    tagger = Tagger.of(SENTENCES, TAGS, **(SMALL | {"chars": None, "dropout": 0.0, "forms": False}))
    given = batch(tagger)
    once = sum(1 for s in SENTENCES for w in s if w.lower() != "the")
    unknown = tagger.features.word.weight[1]
    counts = []
    for _ in range(200):
        vectors = tagger.features(given.inputs, given.mask)
        hidden = (vectors == unknown).all(-1) & given.mask
        assert not bool(hidden[0, 0])  # "The" comes twice
        counts.append(int(hidden.sum()))
    assert abs(sum(counts) / 200 - once / 2) < 4 * math.sqrt(once / 4 / 200)
    tagger.eval()
    assert not bool(((tagger.features(given.inputs, given.mask) == unknown).all(-1) & given.mask).any())


def test_what_was_never_seen_is_tagged_all_the_same():
    tagger = Tagger.of(SENTENCES, TAGS, {"pos": POS}, **SMALL)
    strange = [["日本語", "Ünïcode", "🙂" * 40, "x" * 500]]
    assert len(tagger.tag(strange, {"pos": [["XX", "DT", "YY", "ZZ"]]})[0]) == 4


# ---------------------------------------------------------------------------------------------------- vectors


class Lengths(nn.Module):
    """A vector for every word: its length, and its length squared."""

    output_size = 2

    def __init__(self, factor: float = 1.0):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor), requires_grad=False)

    def encode(self, words: Sequence[str]) -> Tensor:
        return torch.tensor([[len(word), len(word) ** 2, 7] for word in words])

    def forward(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        assert encoded.shape[-1] == 3
        return encoded[..., :2] * self.factor


@pytest.mark.parametrize("place", ["input", "hidden", "output"])
def test_extra_inputs_that_are_zero_leave_the_network_as_it_is(place: str):
    """TagLM with a silent language model is the plain network: the same weights, less the columns nothing comes in."""
    tagger = small(num_layers=2, extra_inputs=Lengths(0.0), extra_at=place).double().eval()
    without = small(num_layers=2).double().eval()
    weights = {name: w for name, w in tagger.state_dict().items() if not name.startswith("extra_inputs")}
    for name, other in without.state_dict().items():
        weights[name] = weights[name][..., : other.shape[-1]] if other.dim() else weights[name]
    without.load_state_dict(weights)
    x, y = batch(without), batch(tagger)
    plain = without(x.inputs, x.lengths)
    torch.testing.assert_close(tagger(y.inputs, y.lengths), plain, rtol=1e-12, atol=1e-12)
    tagger.extra_inputs.factor.fill_(0.1)
    assert (tagger(y.inputs, y.lengths) - plain).abs().max() > 1e-4


def test_extra_inputs_by_hand():
    tagger = small(extra_inputs=Lengths(), extra_at="output", output="softmax").double().eval()
    given = batch(tagger)
    scores = tagger(given.inputs, given.lengths)
    own = given.inputs[..., : tagger.vocabulary.width]
    hidden = tagger.layers[0](tagger.features(own, given.mask), lengths=given.lengths)[0]
    sizes = torch.tensor([[len(w), len(w) ** 2] for w in SENTENCES[0]], dtype=torch.float64)
    expected = tagger.readout(torch.cat([hidden[:5, 0], sizes], dim=-1))
    torch.testing.assert_close(scores[:5, 0], expected)


def test_pretrained_vectors(tmp_path: Path):
    glove, word2vec = tmp_path / "glove.txt", tmp_path / "w2v.txt"
    lines = ["the 1 2 3", "Rain 4 5 6", ". . 7 8 9", "the 0 0 0", "caf\u00e9 1e-1 -2 .5"]
    glove.write_text("\n".join(lines) + "\n", encoding="utf-8")
    word2vec.write_text("5 3\n" + "\n".join(lines) + "\n", encoding="utf-8")
    for path in (glove, word2vec):
        vectors = read_vectors(path)
        assert vectors.words == ("the", "Rain", ". .", "café")
        assert vectors.get("THE").tolist() == [1, 2, 3]
        assert vectors.get(". .").tolist() == [7, 8, 9]
        assert vectors.get("snow") is None
    assert read_vectors(glove, {"Rain"}).words == ("Rain",)
    tagger = small(vectors=read_vectors(glove))
    words = tagger.vocabulary.words
    assert tagger.features.word.weight[2 + words.index("the")].tolist() == [1, 2, 3]
    assert tagger.options["word_size"] == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"the 1 2 3\nrain 1 2\n", "line 2: got a vector of 2 numbers, expected 3 numbers, as above it"),
        (b"the 1 2 3\nrain 1 2 3 4\n", "line 2: got a vector of 4 numbers, expected 3 numbers, as above it"),
        (b"2 3\nthe 1 2\n", "line 2: got a vector of 2 numbers, expected 3 numbers, as the first line says"),
        (b"the 1 2 3\nrain 1 two 3\n", "line 2: got 'two', expected a word and 3 numbers"),
        (b"the\n", "line 1: got a vector of 0 numbers"),
    ],
)
def test_bad_vectors(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(VectorsError, match=message):
        read_vectors(path)


def test_vectors_in_another_encoding(tmp_path: Path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"the 1 2\ncaf\xe9 1 2\n")
    with pytest.raises(EncodingError, match=r"vectors.txt, line 2: got byte 0xe9"):
        read_vectors(path)


# ---------------------------------------------------------------------------------------------------- bad input


def test_bad_sentences():
    tagger = small(max_length=6)
    unseen = "word 1: got 'B-PP', which was not seen in training, expected one of .*; did you mean 'B-VP'"
    with pytest.raises(LabelError, match=f"tags, sentence 0, {unseen}"):
        tagger.encode([["a", "b"]], [["O", "B-PP"]])
    with pytest.raises(InputError, match="sentence 1: got no words, expected at least one"):
        tagger.tag([["a"], []])
    with pytest.raises(InputError, match=r"sentence 0: got 7 words, expected at most 6 \(max_length\)"):
        tagger.tag([["a"] * 7])
    with pytest.raises(InputError, match="sentence 0: got 'a text', expected a list of words"):
        tagger.tag(["a text"])
    with pytest.raises(InputError, match="sentences"):
        tagger.tag([])
    with pytest.raises(InputError, match=r"sentence 0, word 1: got b'b', expected a string"):
        tagger.tag([["a", b"b"]])
    with pytest.raises(InputError, match=r"sentence 0, word 0: got 'caf\\udce9', expected text.*invalid UTF-8"):
        tagger.tag([[b"caf\xe9".decode("utf-8", "surrogateescape")]])
    with pytest.raises(InputError, match="tags, sentence 0: got 1 values, expected 2, one a word"):
        tagger.encode([["a", "b"]], [["O"]])
    with pytest.raises(InputError, match="tags: got 2 sentences, expected 1"):
        tagger.encode([["a"]], [["O"], ["O"]])
    with pytest.raises(InputError, match=r"tags, sentence 1, word 1: got 'O I-NP', expected the scheme 'bio'"):
        tagger.encode([["a"], ["b", "c"]], [["O"], ["O", "I-NP"]])
    with pytest.raises(SchemeError, match="one scheme throughout"):
        Tagger.of([["a", "b"], ["c"], ["d"]], [["B-X", "E-X"], ["B-X"], ["S-X"]])


def test_bad_columns_and_options():
    tagger = Tagger.of(SENTENCES, TAGS, {"pos": POS}, **SMALL)
    with pytest.raises(InputError, match="columns: got none named 'pos'"):
        tagger.tag(SENTENCES)
    with pytest.raises(UnknownNameError, match=r"columns: got 'POS', expected one of .*; did you mean 'pos'"):
        tagger.tag(SENTENCES, {"POS": POS})
    with pytest.raises(InputError, match="pos, sentence 1: got 1 values, expected 2"):
        tagger.tag(SENTENCES, {"pos": [POS[0], ["NN"], POS[2]]})
    with pytest.raises(UnknownNameError, match="output"):
        small(output="crff")
    with pytest.raises(UnknownNameError, match="chars"):
        small(chars="lstm")
    with pytest.raises(InputError, match="dropout"):
        small(dropout=1.0)
    with pytest.raises(OptionError, match="extra_at"):
        small(extra_inputs=Lengths(), extra_at="hidden")
    with pytest.raises(InputError, match="extra_inputs: got Linear without output_size, encode"):
        small(extra_inputs=nn.Linear(2, 3))
    with pytest.raises(ShapeError, match="what encode gives"):
        tagger(torch.zeros(3, 2, 5))


def test_malformed_columns_name_file_and_line(tmp_path: Path):
    path = tmp_path / "bad.txt"
    path.write_text("He PRP B-NP\nran VBD\n")
    with pytest.raises(RaggedRowError, match=r"bad.txt, line 2: got 2 columns, expected 3 columns"):
        read_conll(path)


# ---------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("output", ["softmax", "crf", "hmm"])
def test_a_folder_gives_the_same_tagger_back(tmp_path: Path, output: str):
    tagger = Tagger.of(SENTENCES, TAGS, {"pos": POS}, **(SMALL | {"output": output, "chars": "rnn", "cell": "gru"}))
    for _ in range(2):  # the second time it replaces the first
        tagger.save(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    again = Tagger.load(tmp_path / "model")
    before, after = (each.probabilities(SENTENCES, {"pos": POS}) for each in (tagger, again))
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert again.vocabulary == tagger.vocabulary


def test_folders_that_are_not_taggers(tmp_path: Path):
    tagger = small()
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ModelFileError, match=r"config\.json: got no such file"):
        Tagger.load(tmp_path)
    tagger.save(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    (tmp_path / "config.json").write_text('{"model": "Tagger", "format": 1, "options": {}, "vocabulary": {"x": 1}}')
    with pytest.raises(ModelFileError, match="expected the options of a tagger"):
        Tagger.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model": "Chair"}')
    with pytest.raises(ModelFileError, match="expected a model of the kind Tagger"):
        Tagger.load(tmp_path)


# ---------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("output", ["softmax", "crf", "hmm"])
def test_a_few_sentences_are_learned_by_heart(output: str):
    tagger = small(output=output, dropout=0.1)
    data = tagger.encode(SENTENCES, TAGS)
    goal = tagger.objective()
    result = rc.train.fit(tagger, data, data, loss=goal, lr=0.05, epochs=18, progress=False, device="cpu")
    assert entity_scores(TAGS, tagger.tag(SENTENCES)).f1 == 1.0
    assert result.history[-1]["valid_accuracy"] == 1.0
    assert result.history[-1]["loss"] < 0.3 * result.history[0]["loss"]


def taught(words: list, tags: list, epochs: int, **options) -> Tagger:
    tagger = Tagger.of(words, tags, **({"word_size": 50, "char_features": 30, "hidden_size": 64} | options))
    with set_backend("auto"):
        rc.train.fit(
            tagger,
            tagger.encode(words, tags),
            loss=tagger.objective(),
            lr=5e-3,
            schedule=rc.train.cosine(warmup=20),
            epochs=epochs,
            batch_size=16,
            clip=5.0,
            progress=False,
            device="cpu",
        )
    return tagger


def texts(sequences: rc.data.SequenceSet) -> tuple[list, list]:
    return list(sequences.texts), [[sequences.classes[k] for k in y.tolist()] for _, y in sequences]


@pytest.mark.slow
@pytest.mark.shared_data
def test_chunking_in_a_minute(shared_data: Path):
    """A tenth of the sentences and few epochs: far from the best, but above the task's own baseline, 77.07."""
    words, tags = texts(read_conll(shared_data / "conll2000" / "train.txt"))
    test, truth = texts(read_conll(shared_data / "conll2000" / "test.txt"))
    tagger = taught(words[:1000], tags[:1000], 8, dropout=0.3)
    with set_backend("auto"):
        found = tagger.tag(test)
    assert entity_scores(truth, found).f1 > 0.80
    assert violation(found, "bio") is None


@pytest.mark.slow
@pytest.mark.shared_data
def test_parts_of_speech_in_a_minute(shared_data: Path):
    folder = shared_data / "ud_english_ewt"
    words, tags = texts(read_conllu(folder / "en_ewt-ud-train.conllu.gz"))
    test, truth = texts(read_conllu(folder / "en_ewt-ud-test.conllu.gz"))
    tagger = taught(words[:1200], tags[:1200], 5, output="softmax")
    assert tagger.vocabulary.scheme is None
    with set_backend("auto"):
        found = tagger.tag(test)
    assert accuracy(truth, found) > 0.82
