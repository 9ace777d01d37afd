"""Language models in the fit loop: resumed in the middle of a text, and short runs on real text."""

from collections import Counter
from itertools import pairwise
from math import log
from pathlib import Path

import pytest
import torch

from recurra.engine.backend import set_backend
from recurra.models.language import Characters, LanguageModel, NextToken, Words
from recurra.train import Checkpoints, Run, fit

TEXT = "the cat sat on the mat and the dog sat on the cat\n" * 3


class Stop(RuntimeError):
    """What ends a run in the middle."""


def model() -> LanguageModel:
    torch.manual_seed(0)
    vocabulary = Characters.from_text(TEXT)
    return LanguageModel(vocabulary, 6, 2, direction="both", output="sampled", dropout=0.2, cell="gru")


def trained(folder: Path | None = None, stop_at: int | None = None) -> LanguageModel:
    fresh = model()

    def interrupt(event: str, run: Run) -> None:
        if event == "step" and run.progress.step == stop_at:
            raise Stop

    fit(
        fresh,
        fresh.streams(TEXT, 3, 10),
        loss=NextToken(),
        lr=1e-2,
        epochs=2,
        progress=False,
        device="cpu",
        checkpoints=None if folder is None else Checkpoints(folder, every=2),
        callbacks=[interrupt],
    )
    return fresh


def test_a_run_that_broke_in_the_middle_of_a_text_ends_as_if_it_had_not(tmp_path):
    """The states of both directions, the drawn negatives and the dropout go on where they were."""
    expected = trained().state_dict()
    with pytest.raises(Stop):
        trained(tmp_path, stop_at=5)
    for name, value in trained(tmp_path).state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.slow
@pytest.mark.shared_data
def test_a_minute_of_shakespeare(shared_data: Path):
    """Better than what the last two characters tell, after one look at a tenth of the text."""
    text = (shared_data / "tiny_shakespeare" / "input.txt").read_text(encoding="utf-8")
    train, test = text[:200_000], text[-20_000:]
    language = LanguageModel(Characters.from_text(text), 96, embedding_size=32)
    with set_backend("auto"):
        streams = language.streams(train, 16, 50)
        fit(language, streams, loss=NextToken(), lr=5e-3, clip=1.0, epochs=2, progress=False, device="cpu")
        found = language.measure(test)["nats"]
    pairs, before = Counter(pairwise(train)), Counter(train)
    size = len(language.vocabulary)
    bigram = -sum(log((pairs[a, b] + 1) / (before[a] + size)) for a, b in pairwise(test))
    assert found < bigram / (len(test) - 1) - 0.2
    assert "\n" in language.generate("ROMEO:", 200, seed=0)


@pytest.mark.slow
@pytest.mark.shared_data
def test_words_of_a_corpus_with_an_adaptive_softmax(shared_data: Path):
    """Far better than the frequencies of words."""
    lines = (shared_data / "conll2000" / "train.txt").read_text(encoding="utf-8").split("\n")
    words = [line.split(" ")[0] or "\n" for line in lines]
    text = " ".join(words[:60_000])
    vocabulary = Words.from_text(text, size=2000)
    language = LanguageModel(vocabulary, 64, output="adaptive")
    cut = int(0.9 * len(vocabulary.encode(text)))
    train, test = vocabulary.encode(text)[:cut], vocabulary.encode(text)[cut:]
    with set_backend("auto"):
        fit(
            language, language.streams(train, 16, 25), loss=NextToken(), lr=5e-3, epochs=3, progress=False, device="cpu"
        )
        found = language.measure(test)["nats"]
    counts = torch.bincount(train, minlength=len(vocabulary)).double() + 1
    assert found < float(-(counts / counts.sum()).log()[test[1:]].mean()) - 0.5
