"""Every listed file of the shared data (sources.toml) reads as what is known about it."""

import data_sources
import pytest
import torch

from recurra.data import Batches, japanese_vowels, read, read_conll, read_mat, read_text, read_wav, tasks
from recurra.data.batching import collate, generator
from recurra.data.data_errors import EncodingError, FormatError, UnseenLabelError
from recurra.data.sequences import IGNORE

pytestmark = pytest.mark.shared_data

#: settings and weights of a model are no sequences, and one note is not UTF-8: these say so
REFUSED = {
    "elmo_fixture/options.json": FormatError,
    "elmo_fixture/lm_weights.hdf5": FormatError,
    "conll2000/README": EncodingError,
}

#: path → sequences, task, input size, output size
KNOWN = {
    "polyphonic_music/JSB_Chorales.mat": (229 + 76 + 77, "next_step", 88, 88),
    "polyphonic_music/Nottingham.mat": (694 + 173 + 170, "next_step", 88, 88),
    "polyphonic_music/MuseData.mat": (783, "next_step", 88, 88),
    "polyphonic_music/Piano_midi.mat": (124, "next_step", 88, 88),
    "uea/JapaneseVowels/JapaneseVowels_TRAIN.ts": (270, "classification", 12, 9),
    "uea/JapaneseVowels/JapaneseVowels_TEST.ts": (370, "classification", 12, 9),
    "uea/BasicMotions/BasicMotions_TRAIN.ts": (40, "classification", 6, 4),
    "uea/PLAID/PLAID_TEST.ts": (537, "classification", 1, 11),
    "conll2000/train.txt": (8936, "tagging", 19123, 22),
    "conll2000/test.txt": (2012, "tagging", 8119, 19),
    "ud_english_ewt/en_ewt-ud-train.conllu.gz": (12544, "tagging", 19675, 17),
    "spoken_digits/recordings.zip": (3000, "classification", 40, 10),
    "mnist/train-images-idx3-ubyte.gz": (60000, "classification", 1, 10),
    "mnist/t10k-labels-idx1-ubyte.gz": (10000, "classification", 1, 10),
    "tiny_shakespeare/input.txt": (1, "language", 66, 66),
    "names": (20050, "classification", 84, 18),
    "ett/ETTh1.csv": (1, "forecasting", 7, 7),
    "sunspots/sunspots.csv": (1, "forecasting", 1, 1),
    "sunspots/sunspots_yearly.dat": (1, "forecasting", 1, 1),
    "sunspots/sunspots_monthly.dat": (1, "forecasting", 1, 1),
    "elmo_fixture/sentences.json": (30, "language", 456, 456),
    "elmo_fixture/lm_embeddings_0.hdf5": (10, "next_step", 32, 32),
}


def test_the_files_are_the_listed_ones(shared_data):
    assert list(data_sources.differences(shared_data)) == []


def test_every_listed_file_reads_and_makes_a_batch(shared_data):
    names = [*data_sources.files(), "names"]
    assert set(KNOWN) | set(REFUSED) <= set(names)
    for name in names:
        path = shared_data / name
        if name in REFUSED:
            with pytest.raises(REFUSED[name]):
                read(path)
            continue
        data = read(path)
        if name in KNOWN:
            assert (len(data), data.task, data.input_size, data.output_size) == KNOWN[name], name
        batch = collate(data, [0, len(data) - 1])
        assert batch.inputs.shape[0] == int(batch.lengths.max()), name
        assert batch.inputs.isfinite().all(), name
        assert [len(data[k].inputs) for k in (0, -1)] == batch.lengths.tolist(), name


def test_latin_1_by_name(shared_data):
    assert "é" in read_text(shared_data / "conll2000/README", encoding="latin-1").vocabulary


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_ts_file_and_the_built_in_data_are_the_same(shared_data, split):
    data = read(shared_data / f"uea/JapaneseVowels/JapaneseVowels_{split.upper()}.ts")
    sequences, labels = japanese_vowels(split)
    assert data.targets.tolist() == labels.tolist()
    assert all(torch.equal(example.inputs, sequence) for example, sequence in zip(data, sequences, strict=True))


def test_jsb_chorales_are_split_as_published(shared_data):
    path = shared_data / "polyphonic_music/JSB_Chorales.mat"
    assert [len(read_mat(path, part)) for part in ("train", "valid", "test")] == [229, 76, 77]
    roll = read_mat(path, "train")[0]
    assert set(roll.inputs.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(roll.inputs[1:], roll.target[:-1])


def test_conll2000_test_set_in_terms_of_the_training_set(shared_data):
    train = read_conll(shared_data / "conll2000/train.txt")
    assert int(train.lengths.sum()) == 211_727
    path = shared_data / "conll2000/test.txt"
    with pytest.raises(
        UnseenLabelError, match=r"line 36816.*'I-LST'"
    ):  # two tags of the test set never occur in training
        read_conll(path, vocabulary=train.vocabulary, classes=train.classes)
    test = read_conll(path, vocabulary=train.vocabulary, classes=train.classes, unseen="ignore")
    assert sum(int((example.target == IGNORE).sum()) for example in test) == 2
    assert int(test.lengths.sum()) == 47_377
    assert test.vocabulary == train.vocabulary
    unknown = sum(int((example.inputs == 0).sum()) for example in test)
    assert 0.05 < unknown / 47_377 < 0.08


def test_ett_is_hourly_without_gaps(shared_data):
    data = read(shared_data / "ett/ETTh1.csv", target="OT")
    assert data.output_size == 1
    assert set(data.times[0].diff().tolist()) == {3_600_000_000}
    assert data.series[0].shape == (17420, 7)


def test_monthly_sunspots_begin_in_1749(shared_data):
    data = read(shared_data / "sunspots/sunspots_monthly.dat")
    assert data.series[0][:3, 0].tolist() == pytest.approx([58.0, 62.6, 70.0])
    assert int(data.times[0][0]) < 0
    assert (len(data.series[0]), data.features) == (3126, ("y",))


def test_spoken_digits_in_batches(shared_data):
    data = read_wav(shared_data / "spoken_digits/recordings.zip")
    assert torch.bincount(data.targets).tolist() == [300] * 10
    test = [k for k, name in enumerate(data.names) if int(name.split("_")[2].removesuffix(".wav")) < 5]
    assert len(test) == 300
    batch = next(Batches(data.select(test), 8).epoch(0))
    assert batch.inputs.shape[1:] == (8, 40)


def test_shakespeare_is_read_as_written(shared_data):
    path = shared_data / "tiny_shakespeare/input.txt"
    data = read(path)
    assert "".join(data.vocabulary[t] for t in data.series[0].tolist()) == path.read_text()


def test_sequential_mnist_from_files(shared_data):
    plain = tasks.sequential_mnist(shared_data / "mnist", split="test")
    assert plain.baseline == 0.1135
    batch = plain.draw(2000, generator(0))
    assert batch.inputs.shape == (784, 2000, 1)
    assert plain.score(plain.trivial(batch), batch) == pytest.approx(0.1135, abs=0.03)
    permuted = tasks.sequential_mnist(shared_data / "mnist", split="test", permuted=True)
    again = permuted.draw(2000, generator(0))
    assert torch.equal(again.targets, batch.targets)
    assert not torch.equal(again.inputs, batch.inputs)
    order = permuted.data.inputs.order
    assert torch.equal(again.inputs, batch.inputs[order])
    assert sorted(order.tolist()) == list(range(784))
