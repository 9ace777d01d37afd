"""The built-in data set: its published counts, and every value against the published text."""

from pathlib import Path

import pytest
import torch

from recurra.data.japanese_vowels import japanese_vowels
from recurra.errors import InputError, UnknownNameError

# Utterances per speaker, from the data set's own description.
TRAIN_COUNTS = [30] * 9
TEST_COUNTS = [31, 35, 88, 44, 29, 24, 40, 50, 29]


@pytest.mark.parametrize(("split", "counts"), [("train", TRAIN_COUNTS), ("test", TEST_COUNTS)])
def test_published_counts(split, counts):
    sequences, labels = japanese_vowels(split)
    assert len(sequences) == len(labels) == sum(counts)
    assert labels.dtype == torch.int64
    assert torch.bincount(labels).tolist() == counts
    assert all(s.dtype == torch.float32 and s.shape[1:] == (12,) for s in sequences)


def test_lengths_span_7_to_29():
    lengths = {split: [len(s) for s in japanese_vowels(split).sequences] for split in ("train", "test")}
    assert (min(lengths["train"]), max(lengths["train"])) == (7, 26)
    assert (min(lengths["test"]), max(lengths["test"])) == (7, 29)


def test_sequences_do_not_share_memory():
    sequences, _ = japanese_vowels("train")
    following = sequences[1].clone()
    sequences[0].fill_(torch.nan)
    assert all(s.untyped_storage().nbytes() == s.nbytes for s in sequences)
    assert torch.equal(sequences[1], following)


@pytest.mark.parametrize("split", ["validation", "Train", "", None, 0, ["train"]])
def test_another_split_is_a_typed_error(split):
    with pytest.raises(UnknownNameError, match=r"split: got .*one of test, train") as caught:
        japanese_vowels(split)
    assert isinstance(caught.value, InputError)


@pytest.mark.shared_data
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_value_equals_the_published_text(split, shared_data):
    expected = read_ts(shared_data / "uea" / "JapaneseVowels" / f"JapaneseVowels_{split.upper()}.ts")
    sequences, labels = japanese_vowels(split)
    assert labels.tolist() == [label - 1 for _, label in expected]
    assert len(sequences) == len(expected)
    for sequence, (values, _) in zip(sequences, expected, strict=True):
        assert torch.equal(sequence, values)


def read_ts(path: Path) -> list[tuple[torch.Tensor, int]]:
    """The format in its plainest reading: a case a line, a comma list a dimension, the label after the last colon."""
    cases = []
    for line in path.read_text().splitlines():
        if line and line[0] not in "#@":
            *dimensions, label = line.split(":")
            values = torch.tensor([[float(v) for v in d.split(",")] for d in dimensions], dtype=torch.float32)
            cases.append((values.T, int(label)))
    return cases
