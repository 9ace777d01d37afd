"""ELMo: against the official fixture, against a transcription in numpy, and against itself in other batches."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from cells.transcriptions.elmo import elmo_layers
from engines import either_engine, on_either_engine  # noqa: F401

import recurra as rc
from recurra.errors import InputError, ShapeError, UnknownNameError
from recurra.interop.allennlp import ElmoOptions
from recurra.models import ELMo, NextToken, Pretraining, ScalarMix, Tagger
from recurra.models.elmo.characters import mark_characters, word_characters
from recurra.models.elmo.model import FILTERS
from recurra.models.elmo.weights import to_arrays
from recurra.models.language import SampledSoftmax, TextError
from recurra.train import fit

SENTENCES = [["The", "cat", "sat", "."], ["Naïve", "Ω"], ["a"], ["The", "cat", "and", "the", "mat", "sat", "."]]


def small(**options) -> ELMo:
    settings = {"character_size": 3, "filters": ((1, 4), (2, 5), (3, 6)), "longest": 9, **options}
    model = ELMo(4, 6, 2, **settings)
    with torch.no_grad():  # so large that both clips act
        for parameter in model.ways.parameters():
            parameter.mul_(4.0)
    return model


def description(model: ELMo) -> tuple[dict, dict]:
    arrays = {
        key: value.double().numpy() for key, value in to_arrays(model.encoder, model.stacks, model.options).items()
    }
    return arrays, model.options.to_json()


# ---------------------------------------------------------------------------------------------------- oracles


@pytest.mark.shared_data
@on_either_engine
def test_the_official_fixture(shared_data: Path):
    h5py = pytest.importorskip("h5py")
    folder = shared_data / "elmo_fixture"
    model = ELMo.from_files(folder / "options.json", folder / "lm_weights.hdf5")
    stream = [line.split() for line in json.loads((folder / "sentences.json").read_text())[0]]
    found = model.embed(stream, "top", carry_state=True)
    with h5py.File(folder / "lm_embeddings_0.hdf5") as file:
        expected = [np.concatenate(list(file[str(number)][()]), axis=-1) for number in range(len(stream))]
    assert max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True)) < 3e-6
    alone = model.embed(stream, "top")
    assert float(np.abs(alone[1] - expected[1]).max()) > 1e-3  # the state that is carried matters


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"residual": False},
        {"activation": "tanh", "highways": 0},
        {"cell_clip": 0.5, "proj_clip": 0.3},
        {"filters": ((1, 2), (3, 2)), "highways": 1},  # as many filters as the projection would give
    ],
    ids=str,
)
def test_the_transcription(options):
    model = small(**options).double()
    arrays, settings = description(model)
    carried, text = {}, model.embed(SENTENCES, "all", carry_state=True)
    for alone, in_text, words in zip(model.embed(SENTENCES, "all"), text, SENTENCES, strict=True):
        np.testing.assert_allclose(alone, elmo_layers(words, arrays, settings), atol=1e-12)
        np.testing.assert_allclose(in_text, elmo_layers(words, arrays, settings, carried), atol=1e-12)


def test_characters_are_counted_as_the_official_code_does():
    assert word_characters("Ab", 6) == [259, 66, 99, 260, 261, 261]
    assert word_characters("é", 6) == [259, 0xC3 + 1, 0xA9 + 1, 260, 261, 261]
    assert word_characters("abcdefgh", 6) == [259, *(byte + 1 for byte in b"abcd"), 260]
    assert mark_characters("<S>", 5) == [259, 257, 260, 261, 261]
    assert mark_characters("</S>", 5) == [259, 258, 260, 261, 261]
    assert word_characters("<S>", 6) != mark_characters("<S>", 6)  # a word of a text is never a mark
    assert word_characters("", 4) == [259, 260, 261, 261]


def test_the_original_has_as_many_weights_as_the_published_one():
    """93.6 million, with the row of padding that is not stored."""
    original = ElmoOptions(512, 4096, 2, character_size=16, filters=FILTERS, highways=2, longest=50)
    assert sum(math.prod(shape) for shape in original.shapes().values()) + 16 == 93_600_864
    model = small()
    stored = sum(math.prod(shape) for shape in model.options.shapes().values())
    assert sum(p.numel() for p in model.parameters()) == stored + 3 + 3 + 1  # padding, the mix, its factor


# ---------------------------------------------------------------------------------------------------- vectors


@on_either_engine
def test_batches_do_not_matter():
    model = small().double()
    together, apart = model.embed(SENTENCES, batch_size=4), model.embed(SENTENCES, batch_size=1)
    for a, b, words in zip(together, apart, SENTENCES, strict=True):
        assert a.shape == (len(words), 8)
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_what_can_be_asked_for():
    model = small().double()
    whole = model.embed(SENTENCES, "all")
    assert [layers.shape for layers in whole] == [(3, len(words), 8) for words in SENTENCES]
    for layers, top, mixed in zip(whole, model.embed(SENTENCES, "top"), model.embed(SENTENCES), strict=True):
        np.testing.assert_allclose(layers[0, :, :4], layers[0, :, 4:])  # the words themselves, twice
        np.testing.assert_allclose(layers[-1], top)
        np.testing.assert_allclose(layers.mean(0), mixed)  # as the mix begins


def test_the_forward_half_knows_the_past_and_the_backward_half_the_future():
    model = small().double()
    one, other = (model.embed([["a", "b", last]], "top")[0] for last in ("c", "d"))
    np.testing.assert_allclose(one[:2, :4], other[:2, :4], atol=0, rtol=0)
    assert np.abs(one[:2, 4:] - other[:2, 4:]).min() > 0


def test_as_a_module_it_gives_the_same_and_zeros_past_the_end():
    model = small().double().eval()
    encoded = [model.encode(words) for words in SENTENCES]
    lengths = torch.tensor([len(words) for words in SENTENCES])
    found = model(torch.nn.utils.rnn.pad_sequence(encoded), lengths)
    for row, expected in enumerate(model.embed(SENTENCES)):
        np.testing.assert_allclose(found[: len(expected), row].detach().numpy(), expected, atol=1e-12)
        assert not found[len(expected) :, row].any()


def test_frozen_it_learns_its_mix_alone():
    model = small().freeze()
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["mix.w", "mix.gamma"]


@pytest.mark.parametrize("frozen", [True, False])
def test_fine_tuning_inside_a_tagger(frozen):
    tags = [["D", "N", "V", "."], ["N", "N"], ["D"], ["D", "N", "C", "D", "N", "V", "."]]
    elmo = small().freeze() if frozen else small()
    before = {name: value.clone() for name, value in elmo.state_dict().items()}
    tagger = Tagger.of(SENTENCES, tags, extra_inputs=elmo, hidden_size=6, word_size=4, chars=None, dropout=0.0)
    fit(
        tagger,
        tagger.encode(SENTENCES, tags),
        loss=tagger.objective(),
        lr=5e-2,
        epochs=15,
        progress=False,
        device="cpu",
    )
    changed = {name for name, value in elmo.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"mix.w", "mix.gamma"} if frozen else {"encoder.projection.weight", "mix.w"} <= changed
    assert tagger.tag(SENTENCES) == tags
    assert not elmo.encoder.table.weight[0].any()  # padding stays zero


# ---------------------------------------------------------------------------------------------------- the mix


def test_the_mix_by_its_formula():
    mix, layers = ScalarMix(3).double(), [torch.randn(4, 2, 5, dtype=torch.float64) for _ in range(3)]
    with torch.no_grad():
        mix.w.copy_(torch.tensor([0.3, -1.0, 2.0]))
        mix.gamma.fill_(0.7)
    s = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64).softmax(0)
    torch.testing.assert_close(mix(layers), 0.7 * (s[0] * layers[0] + s[1] * layers[1] + s[2] * layers[2]))
    assert float(mix.penalty().detach()) == pytest.approx(0.09 + 1.0 + 4.0)
    inputs = [layer.requires_grad_() for layer in layers]
    assert torch.autograd.gradcheck(lambda *given: mix(given), inputs)


def test_the_plain_form_of_the_survey():
    mix = rc.ScalarMix(2, normalise=False, scale=False).double()
    assert [name for name, _ in mix.named_parameters()] == ["w"]
    with torch.no_grad():
        mix.w.copy_(torch.tensor([2.0, -3.0]))
    layers = [torch.randn(4, 5, dtype=torch.float64) for _ in range(2)]
    torch.testing.assert_close(mix(layers), 2 * layers[0] - 3 * layers[1])


def test_the_norm_is_over_all_real_numbers_of_a_layer():
    mix, layer = ScalarMix(1, layer_norm=True).double(), 3 + 2 * torch.randn(4, 3, 5, dtype=torch.float64)
    mask = torch.arange(4)[:, None] < torch.tensor([4, 1, 2])
    real = layer[mask]
    expected = (layer - real.mean()) / (real - real.mean()).square().mean().add(1e-12).sqrt()
    torch.testing.assert_close(mix([layer], mask), expected * mask[..., None])
    changed = torch.where(mask[..., None], layer, 1e6)
    torch.testing.assert_close(mix([changed], mask), expected * mask[..., None])


def test_a_mix_of_ones_own():
    plain = ScalarMix(3, normalise=False, scale=False)
    with torch.no_grad():
        plain.w.copy_(torch.tensor([0.0, 0.0, 2.0]))
    model = small(mix=plain)
    for mixed, top in zip(model.embed(SENTENCES), model.embed(SENTENCES, "top"), strict=True):
        np.testing.assert_allclose(mixed, 2 * top, rtol=1e-6)
    normed = small(mix=ScalarMix(3, layer_norm=True)).double()
    for a, b in zip(normed.embed(SENTENCES, batch_size=3), normed.embed(SENTENCES, batch_size=1), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    with pytest.raises(InputError, match="mix: got one of 2 layers, expected one of 3"):
        small(mix=ScalarMix(2))


def test_layers_that_do_not_fit():
    with pytest.raises(ShapeError, match="layers: got 1, expected 2"):
        ScalarMix(2)([torch.zeros(2)])
    with pytest.raises(ShapeError, match="one shape"):
        ScalarMix(2)([torch.zeros(2), torch.zeros(3)])


# ---------------------------------------------------------------------------------------------------- pretraining


def test_pretraining_trains_the_elmo_itself():
    text = [["the", "cat", "sat"], ["the", "mat", "sat", "on", "the", "cat"]] * 8
    torch.manual_seed(0)
    elmo = ELMo(8, 16, 2, character_size=3, filters=((1, 4), (2, 8)), longest=8)
    task = Pretraining(elmo, text, dropout=0.0)
    before = elmo.embed([["the", "cat"]], "top")[0]
    result = fit(
        task.model, task.streams(text, 4, 8), loss=NextToken(), lr=3e-2, epochs=10, progress=False, device="cpu"
    )
    assert result.history[-1]["loss"] < 0.6 * result.history[0]["loss"]
    assert np.abs(elmo.embed([["the", "cat"]], "top")[0] - before).max() > 0.1
    assert elmo.ways[0] is task.model.ways[0]


def test_what_pretraining_reads_and_predicts():
    """The marks stand around every sentence; each direction predicts the words and the mark at its own end."""
    text = [["b", "a"], ["c"]]
    task = Pretraining(small(), text)
    [batch] = task.streams(text, 1, 10, shuffle=False).epoch(0)
    names = task.words.tokens

    def named(column: torch.Tensor) -> list[str]:
        return [names[k] for k in column.tolist()]

    assert named(batch.inputs[:, 0, 0]) == ["<S>", "b", "a", "<S>", "c"]
    assert named(batch.targets[:, 0, 0]) == ["b", "a", "</S>", "c", "</S>"]
    assert named(batch.inputs[:, 0, 1]) == ["</S>", "a", "b", "</S>", "c"]
    assert named(batch.targets[:, 0, 1]) == ["a", "b", "<S>", "c", "<S>"]
    assert batch.resets[:, 0].tolist() == [False, False, False, True, False]
    [carried] = task.streams(text, 1, 10, shuffle=False, carry_state=True).epoch(0)
    assert carried.resets is None
    assert torch.equal(carried.inputs, batch.inputs)


def test_pretraining_and_embedding_see_the_same():
    """What predicts the next word is the top layer that `embed` gives for this one, from both sides."""
    text = [["b", "a", "c"]]
    elmo = small().double()
    task = Pretraining(elmo, text, dropout=0.0)
    [batch] = task.streams(text, 1, 10, shuffle=False).epoch(0)
    tops, _ = task.model.double().eval().read(batch.inputs)  # (<S> b a c, </S> c a b)
    [vectors] = elmo.embed(text, "top")
    np.testing.assert_allclose(tops[1:, 0, 0].detach().numpy(), vectors[:, :4], atol=1e-12)
    np.testing.assert_allclose(tops[1:, 0, 1].flip(0).detach().numpy(), vectors[:, 4:], atol=1e-12)


def test_rare_words_are_read_by_their_characters_and_predicted_as_unknown():
    text = [["the", "cat"], ["the", "dog"], ["the", "the"]]
    task = Pretraining(small().double(), text, size=4, output=SampledSoftmax(4, 4, 2))
    task.model.double().eval()
    assert set(task.model.vocabulary.tokens) == {"the", "<S>", "</S>", "<unk>"}
    batch = next(iter(task.streams(text, 1, 20, shuffle=False).epoch(0)))
    nll, _ = task.model.nll(batch.inputs, batch.targets, None, batch.lengths, batch.resets)
    cat, dog = (task.words.numbers[word] for word in ("cat", "dog"))
    assert min(cat, dog) >= 4
    first = [int((batch.inputs[:, 0, 0] == number).nonzero()) for number in (cat, dog)]
    assert abs((nll[first[0], 0, 0] - nll[first[1], 0, 0]).item()) > 1e-6  # their spelling is seen


# ---------------------------------------------------------------------------------------------------- bad input


def test_sentences_that_are_none():
    model = small()
    with pytest.raises(TextError, match="sentences: got 'The cat'"):
        model.embed("The cat")
    with pytest.raises(TextError, match=r"sentences\[1\]: got an empty sentence"):
        model.embed([["a"], []])
    with pytest.raises(TextError, match=r"sentences\[0\]\[1\]: got 3, expected a word"):
        model.embed([["a", 3]])
    with pytest.raises(TextError, match=r"word 1: got 'b.udc80', which holds half a surrogate pair"):
        model.embed([["a", "b\udc80"]])
    with pytest.raises(UnknownNameError, match="layers: got 'bottom'"):
        model.embed([["a"]], "bottom")
    with pytest.raises(InputError, match="batch_size: got 0"):
        model.embed([["a"]], batch_size=0)
    with pytest.raises(ShapeError, match=r"characters: got shape \(2, 1, 50\), expected \(T, B, 9\)"):
        model(torch.zeros(2, 1, 50, dtype=torch.int64), torch.tensor([2]))


def test_settings_that_do_not_exist():
    with pytest.raises(InputError, match="filters: got"):
        small(filters=((10, 3),))
    with pytest.raises(InputError, match="filters: got"):
        small(filters=())
    with pytest.raises(InputError, match="activation: got 'sigmoid'"):
        small(activation="sigmoid")
    with pytest.raises(InputError, match="cell_clip: got -1"):
        small(cell_clip=-1.0)
