"""`recurra pretrain`, then `recurra fit --embeddings`: the vectors are those of the text, and a tagger reads them."""

import json
import shutil

import numpy as np
import pytest
import torch
from cli.test_torchrun import RECURRA, finish, start, weights
from problem import files

import recurra as rc
from recurra.errors import InputError, ModelFileError, OptionError
from recurra.tensor_files import load_tensors

SMALL = ("--projection-size", 4, "--hidden-size", 8, "--layers", 1, "--batch-size", 4)
LINES = ["the cat sat", "a dog ran fast", "the dog sat on a mat", "a cat ran"]


@pytest.fixture
def text(recurra):
    path = recurra.folder / "text.txt"
    path.write_text("\n".join(LINES * 20) + "\n", encoding="utf-8")
    return path


def fit(recurra, *words):
    common = ("-c", "gru", "--hidden-size", 4, "--epochs", 2, "--json")
    return json.loads(recurra.good("fit", files.sentences(recurra.folder / "tags.conll"), *common, *words).stdout)


@pytest.mark.slow
def test_vectors_of_a_text_are_used_by_a_tagger(recurra, text):
    found = json.loads(
        recurra.good("pretrain", text, "-o", "vectors", "--epochs", 8, "--lr", 0.02, *SMALL, "--json").stdout
    )
    assert found["vector"] == 8
    assert found["perplexity"] < 8  # 13 tokens, of unequal frequency; 4.5 to 5.9 over five seeds
    assert sorted(path.name for path in (recurra.folder / "vectors").iterdir()) == ["config.json", "model.safetensors"]
    pretrained = load_tensors(recurra.folder / "vectors" / "model.safetensors")[0]

    fit(recurra, "-o", "without")
    fit(recurra, "--embeddings", "vectors", "-o", "with")
    untrained = rc.ELMo.from_settings(rc.ELMo.load("vectors").settings())
    untrained.save("untrained")
    fit(recurra, "--embeddings", "untrained", "-o", "noise")
    losses = {name: rc.load(name).history_[-1]["loss"] for name in ("without", "with", "noise")}
    assert len({round(loss, 6) for loss in losses.values()}) == 3, losses

    model = rc.load("with")
    elmo = model.tagger_.extra_inputs
    for name, tensor in elmo.state_dict().items():  # frozen, but for the mix
        assert torch.equal(tensor, pretrained[name]) != name.startswith("mix."), name
    assert not torch.allclose(elmo.mix.s, torch.full((2,), 0.5), atol=1e-4)

    X = [line.split() for line in LINES]
    before = model.predict_proba(X)
    shutil.rmtree(recurra.folder / "vectors")  # the model has its own copy
    again = rc.load("with")
    assert all(np.array_equal(a, b) for a, b in zip(again.predict_proba(X), before, strict=True))
    with torch.no_grad():
        again.tagger_.extra_inputs.ways[0].layers[0].cell_list[0].R.W.zero_()
    assert not any(np.allclose(a, b) for a, b in zip(again.predict_proba(X), before, strict=True))


@pytest.mark.slow
def test_two_processes_make_the_vectors_of_one(recurra, text):
    words = ["pretrain", str(text), "--epochs", "2", "--dropout", "0", *map(str, SMALL), "--json", "-o"]
    pair = start(recurra.folder, RECURRA, *words, "pair")
    alone = start(recurra.folder, RECURRA, *words, "alone", processes=1)
    for code, _, err in (finish(pair, 240), finish(alone, 240)):
        assert code == 0, err
    for name, tensor in weights(recurra.folder / "alone").items():
        # some forty steps of Adam in float32
        torch.testing.assert_close(weights(recurra.folder / "pair")[name], tensor, rtol=1e-4, atol=1e-4)


def test_words_of_conll_files_and_what_is_refused(recurra):
    files.sentences(recurra.folder / "tags.conll", 60)
    result = recurra.good("pretrain", "tags.conll", "--epochs", 1, *SMALL, "--validation", 0)
    assert "60 with 210 words, 7 distinct" in " ".join(result.stderr.split())
    assert rc.ELMo.load("tags-elmo").output_size == 8
    for words, said in (
        (("pretrain", "tags.conll", *SMALL), "--force to replace it"),
        (("pretrain", files.recordings(recurra.folder / "moves.csv")), "one sentence per line"),
        (("fit", "tags.conll", "--embeddings", "nothing", "-o", "x"), "nothing/config.json: no such file."),
        (("predict", "tags-elmo", "tags.conll"), "ELMo"),
    ):
        result = recurra(*words)
        assert result.exit_code == 2, result.output
        assert said in " ".join(result.stderr.split())


def test_embeddings_are_an_elmo_or_its_folder(tmp_path):
    X, y = [["a", "b"]] * 2, [["A", "B"]] * 2
    for given, error, said in (
        (3, InputError, "an rc.ELMo or its folder"),
        (tmp_path / "none", ModelFileError, "no such file"),
    ):
        with pytest.raises(error, match=said):
            rc.SequenceTagger(embeddings=given, epochs=1).fit(X, y)
    elmo = rc.ELMo(2, 4, 1, filters=((1, 2),))
    with pytest.raises(OptionError, match="one of the two"):
        rc.SequenceTagger(embeddings=elmo, tagger_options={"extra_inputs": elmo}).fit(X, y)
    model = rc.SequenceTagger("gru", 2, embeddings=elmo, epochs=1, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    rc.load(tmp_path / "model").save(tmp_path / "copy")
    again = rc.load(tmp_path / "copy")
    assert np.array_equal(again.predict_proba(X[:1])[0], model.predict_proba(X[:1])[0])
    assert again.embeddings is None
    assert elmo.encoder is not model.tagger_.extra_inputs.encoder  # a copy
